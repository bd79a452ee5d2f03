//! Where the web server listens and whom it lets in, and how it moves when a reload names another address or other files.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::settings::WebSettings;
use crate::web;
use crate::web::access::Access;

/// The running web server.
#[derive(Debug)]
pub(super) struct PageServer {
    /// As the configuration has it.
    place: WebSettings,
    access: Access,
    shown: web::WebState,
    /// `None` when neither the new nor the old address could be had in a move.
    serving: Option<JoinHandle<()>>,
}

/// Why it does not begin.
#[derive(Debug)]
pub(super) enum OpenError {
    /// A file that `[web]` names cannot be used.
    File(String),
    /// The address cannot be had.
    Listen(std::io::Error),
}

impl PageServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be had, or a file not be used.
    pub(super) async fn open(
        place: &WebSettings,
        shown: web::WebState,
    ) -> Result<PageServer, OpenError> {
        let access = Access::open(place).map_err(OpenError::File)?;
        let mut page = PageServer {
            place: place.clone(),
            access,
            shown,
            serving: None,
        };
        page.listen().await.map_err(OpenError::Listen)?;
        Ok(page)
    }

    /// Who is let in.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Serves as this says from now on. What is wrong when it does not: where it listens then, and why.
    ///
    /// The old place is left first: one port on all addresses cannot be had while it is had on one of them.
    pub(super) async fn move_to(&mut self, wanted: &WebSettings) -> Result<(), String> {
        if *wanted == self.place && self.serving.is_some() {
            return Ok(());
        }
        let (old, listened) = (self.place.listen, self.serving.is_some());
        let access =
            if (&wanted.tls, &wanted.users_file) == (&self.place.tls, &self.place.users_file) {
                // Those who are logged in stay so.
                self.access.clone()
            } else {
                let as_before = if listened {
                    "the page is served as before"
                } else {
                    "nothing is served"
                };
                Access::open(wanted)
                    .map_err(|why| format!("{why}; {as_before}; mend it, then reload"))?
            };
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // The listener is closed when the task is gone. Its end was asked for.
            let _ = serving.await;
        }
        let before = (self.place.clone(), self.access.clone());
        (self.place, self.access) = (wanted.clone(), access);
        let Err(error) = self.listen().await else {
            tracing::info!("listening on {} ([web])", wanted.listen);
            return Ok(());
        };
        (self.place, self.access) = before;
        let meanwhile = match self.listen().await {
            Ok(()) => format!("it listens on {old} as before"),
            Err(error) => format!("nor on {old} as before: {error}"),
        };
        Err(format!(
            "cannot listen on {} ([web] listen): {error}; {meanwhile}; choose another address or free this one, \
             then reload",
            wanted.listen
        ))
    }

    /// Returns when the server ended, which it never should.
    pub(super) async fn ended(&mut self) {
        match &mut self.serving {
            Some(serving) => drop(serving.await),
            None => std::future::pending().await,
        }
    }

    async fn listen(&mut self) -> std::io::Result<()> {
        let listener = TcpListener::bind(self.place.listen).await?;
        let forever = std::future::pending();
        let shown = self.shown.clone().behind(self.access.clone());
        self.serving = Some(tokio::spawn(web::serve(listener, shown, forever)));
        Ok(())
    }
}
