//! The IP addresses that an API server is reached at, by what a kubeconfig, cluster-info or the configuration calls it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;

/// A name server that takes longer does not answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// The host in `https://host:port` or `host:port`; that of an IPv6 address is without its brackets.
fn host(server: &str) -> Option<String> {
    let uri: http::Uri = server.trim().parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| host.to_owned())
}

/// The address itself, where the server is not called by a name.
pub fn literal(server: &str) -> Option<IpAddr> {
    host(server)?.parse().ok()
}

/// The addresses of a server, those of its name at this moment; none where the name cannot be resolved. A loopback address is only this
/// host's.
pub async fn resolve(server: &str) -> BTreeSet<IpAddr> {
    let Some(name) = host(server) else {
        return BTreeSet::new();
    };
    let mut found = BTreeSet::new();
    match name.parse() {
        Ok(address) => {
            found.insert(address);
        }
        Err(_) => {
            let asked = timeout(DEADLINE, tokio::net::lookup_host((name.as_str(), 443))).await;
            let told = asked.ok().and_then(Result::ok).into_iter().flatten();
            found.extend(told.map(|socket| socket.ip()));
        }
    }
    found.retain(|address: &IpAddr| !address.is_loopback());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_every_form_that_names_it() {
        let four = Some(IpAddr::from([192, 0, 2, 2]));
        for text in [
            "https://192.0.2.2:6443",
            "https://192.0.2.2",
            "https://192.0.2.2:6443/k8s/clusters/c-1",
            "192.0.2.2:6443",
            " 192.0.2.2:6443\n",
        ] {
            assert_eq!(literal(text), four, "{text}");
        }
        let six: Option<IpAddr> = "2001:db8::2".parse().ok();
        assert_eq!(literal("https://[2001:db8::2]:6443"), six);
        assert_eq!(literal("[2001:db8::2]:6443"), six);
        for text in ["https://api.example:6443", "api.example:6443", "", "/"] {
            assert_eq!(literal(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn an_address_needs_no_name_server_and_loopback_is_nobodys() {
        let found = resolve("https://192.0.2.2:6443").await;
        assert_eq!(found, BTreeSet::from([IpAddr::from([192, 0, 2, 2])]));
        assert_eq!(resolve("https://127.0.0.1:6443").await, BTreeSet::new());
        assert_eq!(resolve("").await, BTreeSet::new());
    }
}
