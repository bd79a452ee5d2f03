//! Facts about the cluster: its id, how a node reaches it, its version and its clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use http::header;
use kube::config::Kubeconfig;
use serde::Deserialize;

use super::access::AccessRight;
use super::certificate;
use super::client::{KubeClient, KubeRequest};
use super::error::{ApiCall, KubeError};
use super::tokens::NODE_GROUP;
use super::wire;
use crate::model::time::Time;

/// What the keys of cluster-info begin with that hold signatures.
const SIGNATURE: &str = "jws-kubeconfig-";
/// Where kubeadm keeps its configuration.
const KUBE_SYSTEM: &str = "kube-system";
/// What `kubeadm join` reads beside cluster-info: ConfigMaps in `kube-system`, and what it wants in them.
const FOR_KUBEADM: [(&str, &str); 2] = [
    ("kubeadm-config", "ClusterConfiguration"),
    ("kubelet-config", "kubelet"),
];
/// The groups of whoever has a bootstrap token of ours.
const TOKEN_GROUPS: [&str; 3] = ["system:bootstrappers", NODE_GROUP, "system:authenticated"];
/// The status of a call that the caller has no right to.
const FORBIDDEN: u16 = 403;

/// What a machine needs to find and trust the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// API server, `host:port`.
    pub endpoint: String,
    /// The cluster's CA certificates, PEM.
    pub ca_pem: String,
    /// `sha256:…` of each CA's public key, as `caCertHashes` takes them.
    pub ca_hashes: Vec<String>,
    /// Signatures by token id (`jws-kubeconfig-ID`), as the controller `bootstrapsigner` keeps them.
    pub signatures: BTreeMap<String, String>,
}

/// `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// `v1.34.1`.
    pub version: String,
    /// The API server's clock, by the answer's `Date` header; whole seconds.
    pub time: Option<Time>,
}

/// What there is of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigMapSeen {
    /// It is there, with what is read of it.
    There,
    /// It is there, without this key.
    Without(&'static str),
    /// It is not there.
    Gone,
    /// We may not look.
    Forbidden,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    data: Option<BTreeMap<String, String>>,
}

impl ConfigMap {
    /// Whether there is something at this key.
    fn has(&self, key: &str) -> bool {
        let data = self.data.as_ref();
        data.and_then(|data| data.get(key))
            .is_some_and(|text| !text.trim().is_empty())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubeVersion {
    git_version: String,
}

impl KubeClient {
    /// The UID of the namespace `kube-system`: the first half of our cluster id.
    pub async fn kube_system_uid(&self) -> Result<Arc<str>, KubeError> {
        let request = KubeRequest::new(
            "get",
            "namespaces",
            "kube-system",
            "/api/v1/namespaces/kube-system".to_owned(),
        );
        let call = request.call.clone();
        let namespace: wire::MetadataOnly = self.read(request).await?;
        match namespace.metadata.uid.filter(|uid| !uid.is_empty()) {
            Some(uid) => Ok(uid.into()),
            None => Err(unusable(call, "it has no UID")),
        }
    }

    /// `kube-public/cluster-info`, which kubeadm makes and every joining node reads.
    pub async fn cluster_info(&self) -> Result<ClusterInfo, KubeError> {
        let request = KubeRequest::new(
            "get",
            "configmaps",
            "kube-public/cluster-info",
            "/api/v1/namespaces/kube-public/configmaps/cluster-info".to_owned(),
        );
        let call = request.call.clone();
        let map: ConfigMap = self.read(request).await?;
        let data = map.data.unwrap_or_default();
        let text = data
            .get("kubeconfig")
            .ok_or_else(|| unusable(call.clone(), "it has no key \"kubeconfig\""))?;
        let signatures = data
            .iter()
            .filter_map(|(key, value)| {
                Some((key.strip_prefix(SIGNATURE)?.to_owned(), value.clone()))
            })
            .collect();
        let info = read_cluster_info(text).map_err(|message| unusable(call, &message))?;
        Ok(ClusterInfo { signatures, ..info })
    }

    /// What `kubeadm join` reads beside cluster-info, ConfigMaps in `kube-system`, as far as the caller may look.
    ///
    /// # Errors
    /// It cannot be asked, or is refused for another reason than a right that is missing.
    pub async fn kubeadm_config(&self) -> Result<Vec<(&'static str, ConfigMapSeen)>, KubeError> {
        let mut all = Vec::new();
        for (name, key) in FOR_KUBEADM {
            let path = format!("/api/v1/namespaces/{KUBE_SYSTEM}/configmaps/{name}");
            let request = KubeRequest::new("get", "configmaps", name, path);
            let seen = match self.read::<ConfigMap>(request).await {
                Ok(map) if map.has(key) => ConfigMapSeen::There,
                Ok(_) => ConfigMapSeen::Without(key),
                Err(error) if error.code() == Some(FORBIDDEN) => ConfigMapSeen::Forbidden,
                Err(error) if error.not_found() => ConfigMapSeen::Gone,
                Err(error) => return Err(error),
            };
            all.push((name, seen));
        }
        Ok(all)
    }

    /// Which of these are not there, or without what is read of them. For whom may not read them none is missing.
    ///
    /// # Errors
    /// As [`KubeClient::kubeadm_config`].
    pub async fn missing_for_kubeadm(&self) -> Result<Vec<&'static str>, KubeError> {
        let mut seen = self.kubeadm_config().await?;
        seen.retain(|(_, seen)| matches!(seen, ConfigMapSeen::Gone | ConfigMapSeen::Without(_)));
        Ok(seen.into_iter().map(|(name, _)| name).collect())
    }

    /// Whether a machine may read this ConfigMap in `kube-system` with its bootstrap token; `None` where the caller may not ask.
    ///
    /// # Errors
    /// It cannot be asked, or is refused for another reason.
    pub async fn token_may_read(&self, name: &str) -> Result<Option<bool>, KubeError> {
        let right = AccessRight {
            verb: "get".to_owned(),
            group: String::new(),
            resource: "configmaps".to_owned(),
            name: name.to_owned(),
            namespace: KUBE_SYSTEM.to_owned(),
        };
        match self.may_they(&TOKEN_GROUPS, &right).await {
            Ok(may) => Ok(Some(may)),
            Err(error) if error.code() == Some(FORBIDDEN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The API server's version and clock.
    pub async fn server_version(&self) -> Result<ServerVersion, KubeError> {
        let request = KubeRequest::new("get", "version", "", "/version".to_owned());
        let call = request.call.clone();
        let reply = self.call(request).await?;
        let version: KubeVersion = super::client::parse(call, &reply.body)?;
        Ok(ServerVersion {
            version: version.git_version,
            time: reply
                .headers
                .get(header::DATE)
                .and_then(|value| value.to_str().ok())
                .and_then(http_date),
        })
    }
}

fn unusable(call: ApiCall, message: &str) -> KubeError {
    KubeError::Unknown {
        call,
        code: None,
        message: format!("the answer cannot be used: {message}").into(),
    }
}

fn read_cluster_info(text: &str) -> Result<ClusterInfo, String> {
    let config = Kubeconfig::from_yaml(text).map_err(|_| "it is not a kubeconfig".to_owned())?;
    let cluster = config
        .clusters
        .into_iter()
        .find_map(|named| named.cluster)
        .ok_or("it names no cluster")?;
    let server = cluster.server.unwrap_or_default();
    let data = cluster
        .certificate_authority_data
        .ok_or("it has no certificate-authority-data")?;
    let pem = base64::engine::general_purpose::STANDARD
        .decode(data.trim())
        .map_err(|_| "its certificate-authority-data is not base64")?;
    let certificates = certificate::read_pem(&pem)?;
    Ok(ClusterInfo {
        endpoint: endpoint(&server)
            .ok_or_else(|| format!("its server {server:?} is no https URL"))?,
        ca_pem: String::from_utf8(pem).map_err(|_| "its CA is not PEM text")?,
        ca_hashes: certificates
            .into_iter()
            .map(|certificate| certificate.public_key_hash)
            .collect(),
        signatures: BTreeMap::new(),
    })
}

/// `host:port` of an API server's URL.
fn endpoint(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    if uri.scheme_str() != Some("https") {
        return None;
    }
    let port = uri.port_u16().unwrap_or(443);
    Some(format!("{}:{port}", uri.host()?))
}

/// `Sat, 21 Nov 2026 13:00:00 GMT` (RFC 9110).
fn http_date(text: &str) -> Option<Time> {
    let zoned = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Time(zoned.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![]).expect("params");
        let pem = params.self_signed(&key).expect("a CA").pem();
        let hash = certificate::read_pem(pem.as_bytes()).expect("reads")[0]
            .public_key_hash
            .clone();
        (pem, hash)
    }

    #[test]
    fn cluster_info_gives_endpoint_and_pins() {
        let (pem, hash) = ca();
        let data = base64::engine::general_purpose::STANDARD.encode(&pem);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority-data: {data}\n    server: https://10.0.0.5:6443\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nusers: null\n"
        );
        let info = read_cluster_info(&text).expect("it reads");
        assert_eq!(info.endpoint, "10.0.0.5:6443");
        assert_eq!(info.ca_pem, pem);
        assert_eq!(info.ca_hashes, [hash]);
        assert!(read_cluster_info("clusters: []").is_err());
        assert!(read_cluster_info("{{{").is_err());
    }

    #[test]
    fn endpoints_have_a_port() {
        for (url, expected) in [
            ("https://k8s.example.org", Some("k8s.example.org:443")),
            ("https://[fd00::1]:6443", Some("[fd00::1]:6443")),
            ("http://10.0.0.1:8080", None),
            ("", None),
        ] {
            assert_eq!(endpoint(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn an_http_date_is_read() {
        let time = http_date("Sat, 21 Nov 2026 13:00:00 GMT").expect("a date");
        assert_eq!(time.to_string(), "2026-11-21T13:00:00Z");
        assert_eq!(http_date("yesterday"), None);
    }
}
