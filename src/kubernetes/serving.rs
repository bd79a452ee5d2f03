//! Requests of kubelets for serving certificates, and their approval.
//!
//! Source: `certificates.k8s.io/v1`; what the signer `kubernetes.io/kubelet-serving` takes stands in `pkg/controller/certificates` and in the
//! documentation of Kubernetes' signers.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use super::client::{KubeClient, KubeRequest, encode};
use super::error::KubeError;

/// The signer of kubelets' serving certificates.
pub const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The requests.
pub const RESOURCE: &str = "certificatesigningrequests";
/// Their API group.
pub const GROUP: &str = "certificates.k8s.io";
/// Requests that one answer of the API server holds, and such answers at most: of a flood beyond that the first ones.
const PAGE: usize = 100;
const PAGES: usize = 100;

/// A request that nobody has decided on.
#[derive(Clone, Debug)]
pub struct ServingRequest {
    /// Name of the CertificateSigningRequest.
    pub name: String,
    /// UID of the CertificateSigningRequest: a later one of that name has another.
    pub uid: String,
    /// When it was made, in RFC 3339.
    pub created: String,
    /// Who asks, by the API server's word.
    pub username: String,
    /// The asker's groups, by the API server's word.
    pub groups: Vec<String>,
    /// What the certificate is to be good for.
    pub usages: Vec<String>,
    /// Who shall sign.
    pub signer: String,
    /// What is asked for, or why that cannot be read.
    pub wanted: Result<RequestedCertificate, String>,
    /// The object as it was read.
    object: Value,
}

/// What a request wants a certificate to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedCertificate {
    /// Common names of its subject.
    pub common_names: Vec<String>,
    /// Organisations of its subject.
    pub organisations: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Everything else, by what it is: other parts of the subject, e-mail addresses, URIs …
    pub others: Vec<String>,
}

impl ServingRequest {
    /// Reads one; nothing where it is decided, for another signer, or of somebody who is not `asked` for.
    fn read(object: &Value, asked: impl Fn(&str) -> bool) -> Option<ServingRequest> {
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let list = |pointer: &str| -> Vec<String> {
            let items = object.pointer(pointer).and_then(Value::as_array);
            let items = items.into_iter().flatten().filter_map(Value::as_str);
            items.map(str::to_owned).collect()
        };
        let decided = object.pointer("/status/conditions");
        let decided = decided
            .and_then(Value::as_array)
            .is_some_and(|all| !all.is_empty());
        if decided || text("/spec/signerName") != SIGNER || !asked(&text("/spec/username")) {
            return None;
        }
        Some(ServingRequest {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            created: text("/metadata/creationTimestamp"),
            username: text("/spec/username"),
            groups: list("/spec/groups"),
            usages: list("/spec/usages"),
            signer: text("/spec/signerName"),
            wanted: RequestedCertificate::read(&text("/spec/request")),
            object: object.clone(),
        })
    }
}

impl RequestedCertificate {
    /// Reads a request in base64 of PEM.
    ///
    /// # Errors
    /// It is none, or says something twice: programs differ in which of the two they take.
    pub fn read(text: &str) -> Result<RequestedCertificate, String> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| "the request is no base64")?;
        let mut blocks = Pem::iter_from_buffer(&bytes);
        let (Some(Ok(block)), None) = (blocks.next(), blocks.next()) else {
            return Err("the request is not one block of PEM".to_owned());
        };
        if block.label != "CERTIFICATE REQUEST" {
            return Err("the request is no CERTIFICATE REQUEST".to_owned());
        }
        let (rest, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|error| format!("the request cannot be read: {error}"))?;
        if !rest.is_empty() {
            return Err("there is something behind the request".to_owned());
        }
        let mut wanted = RequestedCertificate::default();
        let info = &request.certification_request_info;
        for part in info.subject.iter_attributes() {
            let value = part.as_str().unwrap_or_default().to_owned();
            let oid = part.attr_type().to_id_string();
            match oid.as_str() {
                "2.5.4.3" => wanted.common_names.push(value),
                "2.5.4.10" => wanted.organisations.push(value),
                _ => wanted.others.push(format!("{oid} in its subject")),
            }
        }
        let (mut lists, mut names) = (0, 0);
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(extensions) = attribute.parsed_attribute()
            else {
                wanted
                    .others
                    .push(format!("the attribute {}", attribute.oid));
                continue;
            };
            lists += 1;
            for extension in &extensions.extensions {
                match extension.parsed_extension() {
                    ParsedExtension::SubjectAlternativeName(all) => {
                        names += 1;
                        all.general_names.iter().for_each(|name| wanted.take(name));
                    }
                    ParsedExtension::KeyUsage(_) | ParsedExtension::ExtendedKeyUsage(_) => {}
                    _ => wanted
                        .others
                        .push(format!("the extension {}", extension.oid)),
                }
            }
        }
        if lists > 1 || names > 1 {
            return Err("the request names its extensions twice".to_owned());
        }
        Ok(wanted)
    }

    fn take(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match address(bytes) {
                // Who signs writes the other address of the two.
                Some(IpAddr::V6(six)) if six.to_ipv4_mapped().is_some() => {
                    self.others.push(format!("{six}, an IPv4 address as IPv6"));
                }
                Some(address) => self.addresses.push(address),
                None => self.others.push("an address of no family".to_owned()),
            },
            GeneralName::URI(_) => self.others.push("a URI".to_owned()),
            GeneralName::RFC822Name(_) => self.others.push("an e-mail address".to_owned()),
            _ => self.others.push("a name of another kind".to_owned()),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

impl KubeClient {
    /// `GET /apis/certificates.k8s.io/v1/certificatesigningrequests` of the signer: those that nobody has decided on, of
    /// the users that are `asked` for.
    pub async fn serving_requests(
        &self,
        asked: impl Fn(&str) -> bool,
    ) -> Result<Vec<ServingRequest>, KubeError> {
        let mut all = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES {
            let path = format!("/apis/{GROUP}/v1/{RESOURCE}");
            let mut request = KubeRequest::new("list", RESOURCE, "", path)
                .query("fieldSelector", format!("spec.signerName={SIGNER}"))
                .query("limit", PAGE.to_string());
            if !token.is_empty() {
                request = request.query("continue", token.clone());
            }
            let list: Value = self.read(request).await?;
            let items = list["items"].as_array().into_iter().flatten();
            all.extend(items.filter_map(|item| ServingRequest::read(item, &asked)));
            let next = list.pointer("/metadata/continue").and_then(Value::as_str);
            next.unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        Ok(all)
    }

    /// Approves a request, if it still is what was read.
    pub async fn approve(&self, request: &ServingRequest) -> Result<(), KubeError> {
        let path = format!(
            "/apis/{GROUP}/v1/{RESOURCE}/{}/approval",
            encode(&request.name)
        );
        let mut object = request.object.clone();
        object["apiVersion"] = json!(format!("{GROUP}/v1"));
        object["kind"] = json!("CertificateSigningRequest");
        object["status"]["conditions"] = json!([{
            "type": "Approved", "status": "True", "reason": "PveAutoscalerApproved",
            "message": "The request is of the kubelet of a machine of pve-autoscaler, for its own name and addresses.",
        }]);
        let call = KubeRequest::new(
            "update",
            "certificatesigningrequests/approval",
            request.name.clone(),
            path,
        );
        self.call(call.json(object)).await.map(drop)
    }
}

#[cfg(test)]
impl ServingRequest {
    /// A request for this, of nobody.
    pub(crate) fn of(wanted: Result<RequestedCertificate, String>) -> ServingRequest {
        ServingRequest {
            name: "csr-1".to_owned(),
            uid: "u1".to_owned(),
            created: String::new(),
            username: String::new(),
            groups: Vec::new(),
            usages: Vec::new(),
            signer: SIGNER.to_owned(),
            wanted,
            object: Value::Null,
        }
    }
}
