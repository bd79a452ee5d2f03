//! What kube-scheduler asks before it puts a pod on a node, one rule a file; knows nothing of decisions.
//!
//! `README.md` beside this file tells more.

pub(crate) mod alike;
pub(crate) mod claims;
pub(crate) mod fit;
pub(crate) mod free_storage;
pub(crate) mod free_volumes;
pub(crate) mod shape;
