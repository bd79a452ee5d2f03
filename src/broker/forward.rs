//! To PVE: over HTTPS to this host's pveproxy, as root@pam, trusting this host's certificate alone.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, header};
use tokio::time::Instant;

use crate::pve::transport::answer::outcome_of;
use crate::pve::transport::tls::{self, CertificateTrust};
use crate::pve::transport::wire::{chain, client_builder, exchange};
use crate::pve::{CallEffect, HttpMethod, PveRequest};

use super::Paths;
use super::fallback::{Fallback, host_of, hostname};
use super::gate;
use super::ticket::Tickets;

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) enum ForwardResult {
    /// PVE answered: its own status, reason and body.
    Answer(PveAnswer),
    /// It surely did not get there.
    Never(String),
    /// It may have been carried out.
    Unknown(String),
}

/// PVE's answer, passed on unchanged.
#[derive(Clone, Debug)]
pub(super) struct PveAnswer {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) body: Vec<u8>,
}

impl PveAnswer {
    /// What the status says about the request; `None` when it was carried out.
    pub(super) fn outcome(&self) -> Option<CallEffect> {
        (!(200..300).contains(&self.status)).then(|| outcome_of(self.status))
    }
}

/// A way to PVE, as root.
pub(super) trait PveChannel: Send + Sync + fmt::Debug {
    /// Sends `request`, to be answered before `end`.
    fn send<'a>(&'a self, request: &'a PveRequest, end: Instant) -> BoxFuture<'a, ForwardResult>;
    /// `https`, or `perl` while the HTTP API cannot be used.
    fn channel(&self) -> &'static str;
    /// The last thing that went wrong on the way, if the way has not worked since.
    fn last_error(&self) -> Option<String>;
}

/// A client that trusts one certificate, and where it calls.
#[derive(Clone, Debug)]
struct PinnedClient {
    client: reqwest::Client,
    base: String,
}

/// AnyEvent::HTTP's "connection failed", which pveproxy passes on as a status.
const CONNECT_FAILED: u16 = 595;

/// HTTPS to this host, with Perl behind it.
#[derive(Debug)]
pub(super) struct Forward {
    paths: Paths,
    tickets: Tickets,
    fallback: Fallback,
    session: Mutex<Option<PinnedClient>>,
    trouble: Mutex<ChannelTrouble>,
}

/// What took the time of a request that could not be sent before its end.
#[derive(Clone, Copy, Debug)]
struct TimeSpent {
    /// All the time that it had: the broker's own deadline for such a call.
    whole: Duration,
    /// What the broker did before: looking at hosts, at the VM and its mark.
    checks: Duration,
    /// Waiting for a ticket of PVE, which Perl makes on this host.
    ticket: Duration,
    /// Waiting for PVE's answer that the ticket before is not good.
    refused: Duration,
}

impl TimeSpent {
    /// Of a request that is sent now at the earliest, and has to be answered before `end`.
    fn before(request: &PveRequest, end: Instant) -> TimeSpent {
        let left = end.saturating_duration_since(Instant::now());
        TimeSpent {
            whole: request.timeout,
            checks: request.timeout.saturating_sub(left),
            ticket: Duration::ZERO,
            refused: Duration::ZERO,
        }
    }
}

impl fmt::Display for TimeSpent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.checks, "in the broker's checks before it"),
            (self.refused, "until PVE refused the ticket before"),
            (
                self.ticket,
                "in waiting for a PVE ticket, which Perl makes on this host",
            ),
        ];
        // What took less is not what the time went into.
        let least = Duration::from_millis(50);
        let parts = parts.iter().filter(|(took, _)| *took >= least);
        let parts: Vec<String> = parts
            .map(|(took, what)| format!("{:.1}s {what}", took.as_secs_f64()))
            .collect();
        let whole = self.whole.as_secs_f64();
        write!(f, "no time was left to send it")?;
        if parts.is_empty() {
            return Ok(());
        }
        write!(f, ": of its {whole:.0}s went {}", parts.join(", "))
    }
}

/// What went wrong last, and since when nothing has worked.
#[derive(Debug, Default)]
struct ChannelTrouble {
    /// With pveproxy.
    proxy: Option<(Instant, String)>,
    /// With pvedaemon behind it. pveproxy answers most reads itself, which says nothing of this.
    daemon: Option<(Instant, String)>,
}

impl Forward {
    /// The way that `paths` describe; nothing is read or sent yet.
    pub(super) fn new(paths: Paths) -> Forward {
        Forward {
            tickets: Tickets::new(paths.perl.clone(), paths.systemd_run.clone()),
            fallback: Fallback::new(&paths),
            session: Mutex::new(None),
            trouble: Mutex::default(),
            paths,
        }
    }

    fn trouble(&self) -> MutexGuard<'_, ChannelTrouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request was answered: what it went through works.
    fn worked(&self, request: &PveRequest) {
        let mut held = self.trouble();
        held.proxy = None;
        if request.method != HttpMethod::Get {
            held.daemon = None;
        }
        if held.daemon.is_none() {
            self.fallback.rest();
        }
    }

    /// Keeps what surely did not get there; gives for how long that has been so.
    fn failed(&self, sent: &ForwardResult, why: &str) -> Duration {
        let mut held = self.trouble();
        let part = match sent {
            ForwardResult::Answer(_) => &mut held.daemon,
            ForwardResult::Never(_) | ForwardResult::Unknown(_) => &mut held.proxy,
        };
        let since = part.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *part = Some((since, why.to_owned()));
        since.elapsed()
    }

    async fn over_https(&self, request: &PveRequest, end: Instant) -> ForwardResult {
        let mut last = ForwardResult::Never("nothing was tried".to_owned());
        let mut spent = TimeSpent::before(request, end);
        // The second time with a new ticket, or with certificate and address read anew.
        for second in [false, true] {
            let session = match self.session(second) {
                Ok(session) => session,
                Err(why) => return ForwardResult::Never(why),
            };
            let asked = Instant::now();
            let ticket = match self.tickets.get().await {
                Ok(ticket) => ticket,
                Err(why) => return ForwardResult::Never(why),
            };
            spent.ticket += asked.elapsed();
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, ticket.cookie.clone());
            if request.method != HttpMethod::Get {
                let name = HeaderName::from_static("csrfpreventiontoken");
                headers.insert(name, ticket.token.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return ForwardResult::Never(spent.to_string());
            }
            let most = gate::most(request);
            let sent = Instant::now();
            let got = exchange(
                &session.client,
                &session.base,
                request,
                headers,
                (left, most),
            )
            .await;
            match got {
                Ok(got) => {
                    let refused = got.status == 401;
                    last = ForwardResult::Answer(PveAnswer {
                        status: got.status,
                        reason: got.reason,
                        body: got.body,
                    });
                    if !refused {
                        return last;
                    }
                    spent.refused += sent.elapsed();
                    self.tickets.refused(&ticket);
                }
                Err(error) if error.outcome == CallEffect::NotSent => {
                    last = ForwardResult::Never(format!("{}: {}", session.base, error.message));
                }
                Err(error) => {
                    return ForwardResult::Unknown(format!("{}: {}", session.base, error.message));
                }
            }
        }
        last
    }

    fn session(&self, anew: bool) -> Result<PinnedClient, String> {
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = held.as_ref()
            && !anew
        {
            return Ok(session.clone());
        }
        let leaves = leaves(&self.paths.node)?;
        let client = client_builder()
            .tls_backend_preconfigured(tls::client(CertificateTrust::Leaves(leaves))?)
            .https_only(true)
            .build()
            .map_err(|error| chain(&error))?;
        let address = address(&self.paths.pveproxy);
        let base = match address {
            IpAddr::V4(address) => format!("https://{address}:{}", self.paths.port),
            IpAddr::V6(address) => format!("https://[{address}]:{}", self.paths.port),
        };
        let session = PinnedClient { client, base };
        *held = Some(session.clone());
        Ok(session)
    }
}

impl PveChannel for Forward {
    /// What HTTPS surely did not deliver goes through PVE's Perl, once that lasts.
    fn send<'a>(&'a self, request: &'a PveRequest, end: Instant) -> BoxFuture<'a, ForwardResult> {
        async move {
            let sent = self.over_https(request, end).await;
            let why = match (daemon_down(request, &sent), &sent) {
                (Some(why), _) => why,
                (None, ForwardResult::Never(why)) => why.clone(),
                (None, ForwardResult::Answer(_)) => {
                    self.worked(request);
                    return sent;
                }
                (None, ForwardResult::Unknown(_)) => return sent,
            };
            if self.failed(&sent, &why) < self.paths.fallback_after {
                return ForwardResult::Never(why);
            }
            self.fallback.send(request, &why, end).await
        }
        .boxed()
    }

    fn channel(&self) -> &'static str {
        if self.fallback.in_use() {
            "perl"
        } else {
            "https"
        }
    }

    fn last_error(&self) -> Option<String> {
        let held = self.trouble();
        let last = held.proxy.as_ref().or(held.daemon.as_ref());
        last.map(|(_, why)| why.clone())
    }
}

/// pveproxy hands the calls that change anything to pvedaemon on this host, and answers 595 when that
/// cannot be reached: nothing was done.
fn daemon_down(request: &PveRequest, sent: &ForwardResult) -> Option<String> {
    let ForwardResult::Answer(answer) = sent else {
        return None;
    };
    let here = host_of(&request.path).is_none_or(|host| host == hostname());
    (answer.status == CONNECT_FAILED && here)
        .then(|| format!("pveproxy cannot reach pvedaemon: {}", answer.reason))
}

/// The certificates that pveproxy may serve: its own if the administrator gave it one, and the host's.
/// Which of them it serves hangs on a key that may lie anywhere (`TLS_KEY_FILE` in its defaults),
/// also where the sandbox does not look. Source: pve-manager PVE/Service/pveproxy.pm, `ssl` settings.
fn leaves(node: &Path) -> Result<Vec<tls::CertificateFingerprint>, String> {
    let leaf = |file: &str| {
        let certificates = crate::pve::certificates(&node.join(file))?;
        let first = certificates.first().ok_or("no certificate")?;
        Ok::<_, String>(tls::fingerprint(first))
    };
    let own = leaf("pveproxy-ssl.pem").ok();
    match leaf("pve-ssl.pem") {
        Ok(host) => Ok(own.into_iter().chain([host]).collect()),
        Err(why) => own.map(|own| vec![own]).ok_or(why),
    }
}

/// Where pveproxy listens: LISTEN_IP of its defaults file, else this host's loopback.
fn address(defaults: &Path) -> IpAddr {
    let text = std::fs::read_to_string(defaults).unwrap_or_default();
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match listen_ip(&text) {
        Some(IpAddr::V4(address)) if address.is_unspecified() => local,
        Some(IpAddr::V6(address)) if address.is_unspecified() => local,
        // pveproxy may be told to listen on IPv4 addresses in IPv6 form.
        Some(IpAddr::V6(address)) => mapped(address),
        Some(address) => address,
        None => local,
    }
}

fn mapped(address: Ipv6Addr) -> IpAddr {
    address
        .to_ipv4_mapped()
        .map_or(IpAddr::V6(address), IpAddr::V4)
}

/// The file is bash, which PVE sources (`APIServer/Utils.pm`, `read_proxy_config`): `export` and a
/// comment behind the value are fine there. Host names, which it allows, are not known here.
fn listen_ip(text: &str) -> Option<IpAddr> {
    let value = text
        .lines()
        .map(str::trim)
        .filter_map(|line| {
            let line = line.strip_prefix("export ").map_or(line, str::trim_start);
            line.strip_prefix("LISTEN_IP=")
        })
        .map(|value| {
            let value = value.split_once(" #").map_or(value, |(value, _)| value);
            value.trim().trim_matches(['"', '\''])
        })
        .next_back()?;
    let parsed = value.parse().ok();
    if parsed.is_none() && !value.is_empty() {
        tracing::warn!(
            value,
            "LISTEN_IP of pveproxy's defaults file is no address; 127.0.0.1 is tried"
        );
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_took_the_time_of_a_request() {
        let spent = TimeSpent {
            whole: Duration::from_secs(14),
            checks: Duration::ZERO,
            ticket: Duration::from_millis(14_020),
            refused: Duration::from_millis(49),
        };
        assert_eq!(
            spent.to_string(),
            "no time was left to send it: of its 14s went 14.0s in waiting for a PVE ticket, which Perl makes on this host"
        );
        let spent = TimeSpent {
            whole: Duration::from_secs(42),
            checks: Duration::from_millis(30_500),
            ticket: Duration::from_secs(9),
            refused: Duration::from_millis(2_500),
        };
        assert_eq!(
            spent.to_string(),
            "no time was left to send it: of its 42s went 30.5s in the broker's checks before it, 2.5s until PVE refused the ticket before, \
             9.0s in waiting for a PVE ticket, which Perl makes on this host"
        );
    }

    /// A call on another host goes there by ssh in PVE's own code, and pveproxy says 595 of it as well. It finds a broker that takes that, or
    /// any other error, for a pvedaemon that is down: it would make the call again through Perl, which may have been carried out.
    #[test]
    fn pvedaemon_is_down_where_a_call_on_this_host_was_not_connected() {
        let own = format!("/nodes/{}/qemu/9001/status/start", hostname());
        let answered = |status: u16| {
            ForwardResult::Answer(PveAnswer {
                status,
                reason: "Connection refused".to_owned(),
                body: Vec::new(),
            })
        };
        for (path, sent, down) in [
            (&*own, answered(595), true),
            ("/cluster/resources", answered(595), true),
            (
                "/nodes/another-host/qemu/9001/status/start",
                answered(595),
                false,
            ),
            (&*own, answered(596), false),
            (&*own, answered(501), false),
            (&*own, answered(200), false),
            (&*own, ForwardResult::Never("away".to_owned()), false),
            (&*own, ForwardResult::Unknown("late".to_owned()), false),
        ] {
            let request = PveRequest {
                call: "start",
                method: HttpMethod::Post,
                path: path.to_owned(),
                params: Vec::new(),
                multipart: false,
                timeout: Duration::from_secs(1),
            };
            let why = daemon_down(&request, &sent);
            assert_eq!(why.is_some(), down, "{path}: {sent:?}");
            let told = why.is_none_or(|why| why.ends_with("pvedaemon: Connection refused"));
            assert!(told, "{path}: {sent:?}");
        }
    }

    #[test]
    fn pveproxys_address_is_read_as_its_defaults_give_it() {
        for (text, address) in [
            ("", "127.0.0.1"),
            ("# LISTEN_IP=\"10.0.0.1\"\nDENY_FROM=all\n", "127.0.0.1"),
            ("LISTEN_IP=\"192.0.2.1\"\n", "192.0.2.1"),
            ("LISTEN_IP=192.0.2.1\nLISTEN_IP='192.0.2.2'\n", "192.0.2.2"),
            ("LISTEN_IP=\"2001:db8::1\"", "2001:db8::1"),
            ("LISTEN_IP=\"::ffff:192.0.2.1\"", "192.0.2.1"),
            ("LISTEN_IP=\"::\"", "127.0.0.1"),
            ("LISTEN_IP=\"0.0.0.0\"", "127.0.0.1"),
            ("LISTEN_IP=\"nonsense\"", "127.0.0.1"),
            ("export LISTEN_IP=192.0.2.1 # lan\n", "192.0.2.1"),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("pveproxy");
            std::fs::write(&path, text).expect("written");
            assert_eq!(super::address(&path).to_string(), address, "{text}");
        }
    }
}
