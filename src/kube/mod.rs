//! The Kubernetes client: connecting, watching, acting.

pub mod certificate;
pub mod client;
pub mod cluster;
pub mod connect;
pub mod error;
pub mod intern;
mod list;
pub mod nodes;
pub mod pods;
pub mod tokens;
mod translate;
mod wire;

pub use client::{CallObserver, CallOutcome, Client, Credentials, Unobserved};
pub use cluster::{ClusterInfo, ServerVersion};
pub use connect::{Connector, in_memory};
pub use error::{Call, Error};
pub use nodes::NodeChange;
pub use pods::EvictOutcome;
pub use tokens::BootstrapToken;
