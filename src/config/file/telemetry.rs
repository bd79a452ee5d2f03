//! `[telemetry]`: where traces of machines' lives go.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::Duration;
use crate::model::time::Span;

/// Traces of machines' lives for a collector of OpenTelemetry, Jaeger or Tempo ([traces](traces.md)). Off unless
/// `otlp_endpoint` is set. They have names of machines, hosts and pods and no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Where the collector takes OTLP over HTTP, such as `http://tempo.example:4318`; `/v1/traces` is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    /// A file with lines `NAME: VALUE`, headers of every request, such as `Authorization: Bearer …`; of root with group
    /// pve-autoscaler and mode 0640. It is read for every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// The certificates of the authorities that the collector's is checked by, in PEM. Default: those of the host's
    /// Debian, `/etc/ssl/certs/ca-certificates.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// How long a request may take, its answer included; 1s to 60s.
    pub timeout: Duration,
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry {
            otlp_endpoint: None,
            headers_file: None,
            ca_file: None,
            timeout: Duration(Span::seconds(10)),
        }
    }
}
