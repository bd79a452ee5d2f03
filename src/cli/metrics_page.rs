//! What the daemon's `/metrics` says, for a bug report.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::settings::WebSettings;

/// The page has this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than all series of the largest cluster.
const MOST: u64 = 16 << 20;

/// The metrics in Prometheus' format.
///
/// # Errors
/// Nobody answers there, or the page wants TLS or a password, which this program does not have.
pub(super) async fn read(web: &WebSettings) -> anyhow::Result<String> {
    let address = reached_at(web.listen);
    if web.tls.is_some() || web.users_file.is_some() {
        bail!(
            "the web server at {address} asks for TLS or a login; `curl -u NAME https://{address}/metrics` has them"
        );
    }
    let asked = timeout(PATIENCE, ask(address)).await;
    let answer = asked.with_context(|| format!("{address} was silent for 10 s"))??;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{address} answers no HTTP"))?;
    if !head.contains(" 200 ") {
        let status = head.lines().next().unwrap_or_default();
        bail!("{address} answers {status}");
    }
    Ok(body.to_owned())
}

/// Whoever listens on all addresses is reached at this host's own.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let own = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(own, listen.port())
}

async fn ask(address: SocketAddr) -> anyhow::Result<String> {
    let stream = TcpStream::connect(address).await;
    let mut stream = stream.with_context(|| format!("cannot reach {address}"))?;
    // HTTP/1.0: the answer is whole when the connection ends.
    let request = format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
