//! The Kubernetes client: connecting, watching, acting.

pub mod certificate;
pub mod client;
pub mod cluster;
pub mod connect;
pub mod error;
pub mod intern;
pub mod kinds;
mod list;
pub mod nodes;
pub mod pods;
pub mod store;
pub mod tokens;
mod translate;
pub mod watch;
mod wire;

pub use client::{CallObserver, CallOutcome, Client, Credentials, Unobserved};
pub use cluster::{ClusterInfo, ServerVersion};
pub use connect::{Connector, in_memory};
pub use error::{Call, Error};
pub use kinds::Kind;
pub use nodes::NodeChange;
pub use pods::EvictOutcome;
pub use store::{Changes, ClusterStore, View};
pub use tokens::BootstrapToken;
