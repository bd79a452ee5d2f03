//! The client: cheap to clone, one transport behind all clones.

use std::sync::Arc;

use serde_json::Value;

use super::transport::{CallError, PveRequest, Transport};

/// PVE's API, typed. The calls stand in `calls`, waiting for tasks in `tasks`.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Arc<dyn Transport>,
}

impl Client {
    /// A client on `transport`.
    pub fn new(transport: Arc<dyn Transport>) -> Client {
        Client { transport }
    }

    pub(super) async fn send(&self, request: PveRequest) -> Result<Value, CallError> {
        debug_assert!(
            super::names::CALLS.contains(&request.call)
                || super::building::CALLS.contains(&request.call)
                || super::admin::CALLS.contains(&request.call),
            "{} is not among the calls that are counted from zero",
            request.call
        );
        self.transport.call(request).await
    }
}
