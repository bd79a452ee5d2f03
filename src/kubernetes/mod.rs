//! The Kubernetes client: connecting, watching, acting.

pub mod access;
pub mod bootstrap;
pub mod certificate;
pub mod client;
pub mod cluster;
pub mod connect;
mod credential_state;
mod early;
pub mod error;
pub mod events;
mod http_client;
pub mod intern;
pub mod kinds;
pub mod lease;
mod list;
pub mod manifests;
pub mod nodes;
pub mod observer;
pub mod pods;
mod refused;
pub mod server_address;
pub mod serving;
pub mod status;
pub mod store;
pub mod survey;
mod tls;
pub mod tokens;
mod translate;
pub mod trial;
pub mod watch;
mod wire;
pub mod workloads;

pub use client::KubeClient;
pub use cluster::{ClusterInfo, ConfigMapSeen, ServerVersion};
pub use connect::{Authority, Connector, in_memory};
pub use credential_state::CredentialState;
pub use error::{ApiCall, KubeError};
pub use events::{Event, EventRecorder, InvolvedObject, recorder};
pub use kinds::WatchedKind;
pub use lease::{LEASE_NAME, Leadership, LeaseName, Timing, elect};
pub use nodes::NodeChange;
pub use observer::{CallObserver, CallOutcome, Unobserved};
pub use pods::{EvictOutcome, Nomination};
pub use store::{ChangeCounts, ClusterStore, ClusterView};
pub use tokens::BootstrapToken;
pub use translate::DELAY_DELETION;
pub use trial::{AdmissionPolicy, PolicyTrial, Unreached};

#[cfg(test)]
mod tests;
