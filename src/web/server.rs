//! Accepting connections, within limits: their number, the time for headers, their life.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::{WebState, router};

/// Connections at the same time: a few scrapers and probes.
const MAX_CONNECTIONS: usize = 32;
/// A peer must send its request's head within this time.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Largest request head.
const MAX_HEAD: usize = 16 * 1024;
/// A connection is closed after this long whatever it does: nobody may sit on a slot.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);
/// Answers under way may end within this time when the server stops.
const STOP_DEADLINE: Duration = Duration::from_secs(3);
/// After an error of `accept` (out of file descriptors, say) before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// From where a request comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// The first byte of a TLS connection: a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// What is said to who forgot the `s`.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
                       This is an HTTPS server: the address begins with https://\n";

/// Serves until `stop` resolves, then lets what is under way end, for a bounded time.
pub async fn serve(listener: TcpListener, state: WebState, stop: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let near = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let closing = state.closing.child_token();
    let state = WebState {
        closing: closing.clone(),
        ..state
    };
    let (pace, access) = (state.pace, state.access.clone());
    let service = TowerToHyperService::new(router(state, near));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, from, slot)) => {
                let (service, closing) = (service.clone(), closing.clone());
                let acceptor = access.acceptor();
                connections.spawn(async move {
                    let served = Served {
                        service,
                        from,
                        pace,
                    };
                    match acceptor {
                        None => served.connection(stream, &closing).await,
                        Some(acceptor) => match served.handshake(stream, acceptor).await {
                            Ok(stream) => served.connection(stream, &closing).await,
                            Err(error) => {
                                tracing::debug!(%error, %from, "a TLS connection did not begin");
                            }
                        },
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the web server");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    closing.cancel();
    let ending = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then is dropped with the set.
    let _ = timeout(STOP_DEADLINE, ending).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots
        .clone()
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, from) = listener.accept().await?;
    Ok((stream, from.ip(), slot))
}

/// What one connection is served with. In a demonstration limits are as long for a person as elsewhere: so many times as
/// long for its clock.
struct Served {
    service: TowerToHyperService<Router>,
    from: IpAddr,
    pace: u32,
}

impl Served {
    /// Begins TLS; who speaks none is told so.
    async fn handshake(
        &self,
        mut stream: TcpStream,
        acceptor: TlsAcceptor,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let begin = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
                stream.write_all(PLAIN).await?;
                stream.shutdown().await?;
                return Err(std::io::Error::other("it speaks no TLS"));
            }
            acceptor.accept(stream).await
        };
        timeout(HEAD_DEADLINE * self.pace, begin).await?
    }

    /// Serves one connection.
    async fn connection<S>(self, stream: S, closing: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Served {
            service,
            from,
            pace,
        } = self;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE * pace)
            .max_buf_size(MAX_HEAD);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(from));
            service.call(request)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let served = async {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return ended,
                () = closing.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            connection.await
        };
        if let Ok(Err(error)) = timeout(CONNECTION_LIFE * pace, served).await {
            tracing::debug!(%error, "a connection to the web server failed");
        }
    }
}
