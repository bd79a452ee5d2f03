//! HTTP/1.1 on the socket, within limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::pve::transport::MAX_BODY;
use crate::pve::transport::unix::OUTCOME_HEADER;

use super::allow::Raw;
use super::peer::Peer;
use super::service::{Reply, Service};

/// Connections at a time; the daemon keeps a handful.
const CONNECTIONS: usize = 32;
/// Requests on one connection, like pveproxy: a new one looks at its peer anew.
const REQUESTS: usize = 1000;
/// For the headers of a request, and so the longest that a connection idles.
const HEADERS: Duration = Duration::from_secs(15);
/// For the body of a request.
const BODY: Duration = Duration::from_secs(10);
/// Header lines of a request.
const HEADER_LINES: usize = 32;
/// Bytes of a request's head.
const HEAD: usize = 16 * 1024;
/// A connection's whole life: no peer can hold a slot for ever.
const LIFE: Duration = Duration::from_mins(10);

/// Accepts until `stop` says so, then lets what is under way end.
pub(super) async fn serve(
    listener: &UnixListener,
    service: &Arc<Service>,
    mut stop: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut running = JoinSet::new();
    loop {
        let slot = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = running.join_next(), if !running.is_empty() => continue,
        };
        let (Ok(slot), Ok((stream, _))) = (slot, accepted) else {
            // Out of file descriptors, for instance: not at once again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (service, stop) = (Arc::clone(service), stop.clone());
        running.spawn(async move {
            let _slot = slot;
            if timeout(LIFE, connection(stream, service, stop))
                .await
                .is_err()
            {
                tracing::debug!("a connection had its time");
            }
        });
    }
    while running.join_next().await.is_some() {}
}

async fn connection(stream: UnixStream, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let peer = match Peer::of(&stream) {
        Ok(peer) => peer,
        Err(why) => return tracing::warn!(why, "a connection was closed"),
    };
    if let Err(why) = peer.may_talk(&service.policy().group) {
        if service.refusals.shown() {
            tracing::warn!(
                uid = peer.uid,
                pid = peer.pid,
                why,
                "a connection was refused"
            );
        }
        return;
    }
    let left = std::sync::atomic::AtomicUsize::new(REQUESTS);
    let handler = service_fn(|request| {
        let last = left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 1;
        answer(&service, peer, request, last)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(HEADER_LINES)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), handler);
    let mut connection = std::pin::pin!(connection);
    let stopped = tokio::select! {
        biased;
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(uid = peer.uid, %error, "a connection ended");
            }
            false
        }
        _ = stop.wait_for(|stop| *stop) => true,
    };
    if stopped {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

async fn answer(
    service: &Service,
    peer: Peer,
    request: http::Request<Incoming>,
    last: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let reply = match timeout(BODY, Limited::new(body, MAX_BODY).collect()).await {
        Err(_) => Reply::refused("the body did not come"),
        Ok(Err(_)) => Reply::refused("the body is broken or larger than 512 KiB"),
        Ok(Ok(body)) => {
            let bytes = body.to_bytes();
            let content_type = head.headers.get(header::CONTENT_TYPE);
            let raw = Raw {
                method: head.method.as_str(),
                path: head.uri.path(),
                query: head.uri.query(),
                content_type: content_type.map(|value| value.to_str().unwrap_or_default()),
                body: &bytes,
            };
            service.answer(peer, raw).await
        }
    };
    Ok(response(reply, last))
}

fn response(reply: Reply, last: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if !reply.reason.is_empty()
        && let Ok(phrase) = ReasonPhrase::try_from(reply.reason.into_bytes())
    {
        response.extensions_mut().insert(phrase);
    }
    let headers = response.headers_mut();
    headers.insert(OUTCOME_HEADER, HeaderValue::from_static(reply.outcome));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json;charset=UTF-8"),
    );
    if last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
