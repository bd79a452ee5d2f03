//! Where the web server listens, and how it moves when a reload names another address.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::web;

/// The running web server.
#[derive(Debug)]
pub(super) struct Page {
    address: SocketAddr,
    shown: web::State,
    /// `None` when neither the new nor the old address could be had in a move.
    serving: Option<JoinHandle<()>>,
}

impl Page {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) async fn open(address: SocketAddr, shown: web::State) -> std::io::Result<Page> {
        let mut page = Page {
            address,
            shown,
            serving: None,
        };
        page.listen(address).await?;
        Ok(page)
    }

    /// Listens there from now on. What is wrong when it does not: where it listens then, and why.
    ///
    /// The old place is left first: one port on all addresses cannot be had while it is had on one of them.
    pub(super) async fn move_to(&mut self, wanted: SocketAddr) -> Result<(), String> {
        if wanted == self.address && self.serving.is_some() {
            return Ok(());
        }
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // The listener is closed when the task is gone. Its end was asked for.
            let _ = serving.await;
        }
        let old = self.address;
        let Err(error) = self.listen(wanted).await else {
            tracing::info!("listening on {wanted} ([web] listen)");
            return Ok(());
        };
        let meanwhile = match self.listen(old).await {
            Ok(()) => format!("it listens on {old} as before"),
            Err(error) => format!("nor on {old} as before: {error}"),
        };
        Err(format!(
            "cannot listen on {wanted} ([web] listen): {error}; {meanwhile}; choose another address or free this one, \
             then reload"
        ))
    }

    /// Returns when the server ended, which it never should.
    pub(super) async fn ended(&mut self) {
        match &mut self.serving {
            Some(serving) => drop(serving.await),
            None => std::future::pending().await,
        }
    }

    async fn listen(&mut self, address: SocketAddr) -> std::io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        let forever = std::future::pending();
        self.serving = Some(tokio::spawn(web::serve(
            listener,
            self.shown.clone(),
            forever,
        )));
        self.address = address;
        Ok(())
    }
}
