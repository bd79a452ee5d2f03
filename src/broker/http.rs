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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::pve::transport::MAX_BODY;
use crate::pve::transport::unix::OUTCOME_HEADER;

use super::allow::RawRequest;
use super::gate::MemoryShare;
use super::peer::PeerProcess;
use super::service::{BrokerService, Reply};

/// Connections of the daemon's user at a time; the daemon keeps a handful.
const CONNECTIONS: usize = 28;
/// Connections of root's, which the daemon's user cannot take away.
const ROOTS_CONNECTIONS: usize = 8;
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
    service: &Arc<BrokerService>,
    mut stop: watch::Receiver<bool>,
) {
    let slots = ConnectionSlots::default();
    let mut running = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = running.join_next(), if !running.is_empty() => continue,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, for instance: not at once again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(peer) = admitted(&stream, service) else {
            continue;
        };
        let Some(slot) = slots.take(peer) else {
            turn_away(&stream);
            continue;
        };
        let (service, stop) = (Arc::clone(service), stop.clone());
        running.spawn(async move {
            let _slot = slot;
            if timeout(LIFE, connection(stream, peer, service, stop))
                .await
                .is_err()
            {
                tracing::debug!("a connection had its time");
            }
        });
    }
    while running.join_next().await.is_some() {}
}

/// Places for connections, of the daemon's user and of root.
#[derive(Debug)]
struct ConnectionSlots {
    daemon: Arc<Semaphore>,
    root: Arc<Semaphore>,
}

impl Default for ConnectionSlots {
    fn default() -> ConnectionSlots {
        ConnectionSlots {
            daemon: Arc::new(Semaphore::new(CONNECTIONS)),
            root: Arc::new(Semaphore::new(ROOTS_CONNECTIONS)),
        }
    }
}

impl ConnectionSlots {
    fn take(&self, peer: PeerProcess) -> Option<OwnedSemaphorePermit> {
        let slots = if peer.uid == 0 {
            &self.root
        } else {
            &self.daemon
        };
        Arc::clone(slots).try_acquire_owned().ok()
    }
}

/// Who connected, if it may.
fn admitted(stream: &UnixStream, service: &BrokerService) -> Option<PeerProcess> {
    match PeerProcess::of(stream) {
        Ok(peer) => is_let_in(peer, service).then_some(peer),
        Err(why) => {
            tracing::warn!(why, "a connection was closed");
            None
        }
    }
}

/// Whether this process may talk to the broker; who may not is told in the journal, as far as that is not flooded.
fn is_let_in(peer: PeerProcess, service: &BrokerService) -> bool {
    let Err(why) = peer.may_talk(&service.policy().group) else {
        return true;
    };
    if service.refusals.shown() {
        tracing::warn!(
            uid = peer.uid,
            pid = peer.pid,
            why,
            "a connection was refused"
        );
    }
    false
}

/// Tells a client that there is no place for it, and does not wait for it to read that.
fn turn_away(stream: &UnixStream) {
    let reply = Reply::not_sent("too many connections; close some, or ask again");
    let body = String::from_utf8_lossy(&reply.body);
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\n{OUTCOME_HEADER}: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        reply.outcome,
        body.len()
    );
    let _ = stream.try_write(text.as_bytes());
}

async fn connection(
    stream: UnixStream,
    peer: PeerProcess,
    service: Arc<BrokerService>,
    mut stop: watch::Receiver<bool>,
) {
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
    service: &BrokerService,
    peer: PeerProcess,
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
            let raw = RawRequest {
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

/// A body with its share of the memory for answers: both go when the last byte was written.
struct HeldBody {
    body: Vec<u8>,
    _share: Option<MemoryShare>,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn response(reply: Reply, last: bool) -> Response<Full<Bytes>> {
    let body = Bytes::from_owner(HeldBody {
        body: reply.body,
        _share: reply.share,
    });
    let mut response = Response::new(Full::new(body));
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

#[cfg(test)]
mod tests {
    use nix::unistd::{Group, getgid, getuid};

    use super::*;
    use crate::broker::tests::{Lines, Rig, rig_with, world};

    /// A broker that lets this group in.
    fn broker_of(group: &str) -> Rig {
        rig_with(crate::broker::policy::BrokerPolicy {
            group: group.to_owned(),
            ..world::policy()
        })
    }

    /// Root and the group of the policy are let in, whatever the socket's mode is. It finds a broker that asks nobody, and one that refuses
    /// without a word.
    #[tokio::test]
    async fn who_is_not_of_the_policys_group_is_turned_away_and_told_of() {
        let peer = |uid, gid| PeerProcess { uid, gid, pid: 7 };
        let daemon = Group::from_name("daemon").expect("looked up");
        let daemon = daemon.expect("every system has it").gid.as_raw();
        let rig = broker_of("daemon");
        let (lines, _guard) = Lines::listen();
        for of_group in [peer(0, 0), peer(12_345, daemon)] {
            assert!(is_let_in(of_group, &rig.service), "{of_group:?}");
        }
        assert!(lines.taken().is_empty());
        assert!(!is_let_in(peer(12_345, 12_345), &rig.service));
        let said = lines.taken();
        assert!(
            said.len() == 1
                && said[0].contains("a connection was refused")
                && said[0].contains("uid=12345"),
            "{said:?}"
        );
        let nobodys = broker_of("no-such-group");
        assert!(!is_let_in(peer(12_345, daemon), &nobodys.service));
    }

    /// By the kernel's word, not by what a client says.
    #[tokio::test]
    async fn a_client_is_the_process_that_the_kernel_names() {
        let own = Group::from_gid(getgid()).expect("looked up");
        let rig = broker_of(&own.expect("the group has a name").name);
        let (stream, _client) = UnixStream::pair().expect("a pair");
        let peer = admitted(&stream, &rig.service).expect("it may");
        assert_eq!(peer.uid, getuid().as_raw());
        assert_eq!(peer.pid, i32::try_from(std::process::id()).expect("an id"));
        if !getuid().is_root() {
            let others = broker_of("no-such-group");
            assert_eq!(admitted(&stream, &others.service), None);
        }
    }

    #[test]
    fn roots_places_are_not_the_daemons() {
        let peer = |uid| PeerProcess {
            uid,
            gid: 1,
            pid: 1,
        };
        let slots = ConnectionSlots::default();
        let held: Vec<_> = (0..CONNECTIONS + 3)
            .map_while(|_| slots.take(peer(990)))
            .collect();
        assert_eq!(held.len(), CONNECTIONS);
        let roots: Vec<_> = (0..CONNECTIONS)
            .map_while(|_| slots.take(peer(0)))
            .collect();
        assert_eq!(roots.len(), ROOTS_CONNECTIONS);
        drop(held);
        assert!(slots.take(peer(990)).is_some());
    }
}
