//! Accepting connections, within limits: their number, the time for headers, their life.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{State, router};

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

/// Serves until `stop` resolves, then lets what is under way end, for a bounded time.
pub async fn serve(listener: TcpListener, state: State, stop: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let near = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let closing = state.closing.child_token();
    let state = State {
        closing: closing.clone(),
        ..state
    };
    let pace = state.pace;
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
            Ok((stream, slot)) => {
                let (service, closing) = (service.clone(), closing.clone());
                connections.spawn(async move {
                    connection(stream, service, pace, &closing).await;
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
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots
        .clone()
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

/// Serves one connection. In a demonstration limits are as long for a person as elsewhere: so many times as long for its
/// clock.
async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    pace: u32,
    closing: &CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE * pace)
        .max_buf_size(MAX_HEAD);
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
