//! What kube-scheduler asks an extender: the nodes that its own filters let a pod on. Noted, and none
//! of them taken, so that nothing is ever bound and the world stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Why no node is taken.
pub(crate) const REFUSED: &str = "only asked";

/// Pod UIDs to the names of nodes, by the latest question.
type Questions = BTreeMap<String, BTreeSet<String>>;

/// The extender; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extender(Arc<Mutex<Questions>>);

impl Extender {
    /// Listens until the runtime ends.
    pub(crate) async fn listen(&self, address: &str) {
        let router = Router::new()
            .route("/filter", post(filter))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"));
        tokio::spawn(async move { axum::serve(listener, router).await });
    }

    /// The nodes that passed for a pod; `None` when the scheduler has not asked about it.
    pub(crate) fn passed(&self, uid: &str) -> Option<BTreeSet<String>> {
        self.questions().get(uid).cloned()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.questions().clear();
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `k8s.io/kube-scheduler/extender/v1` `ExtenderArgs` to `ExtenderFilterResult`.
async fn filter(State(extender): State<Extender>, Json(asked): Json<Value>) -> Json<Value> {
    let uid = asked["Pod"]["metadata"]["uid"].as_str().unwrap_or_default();
    let nodes: BTreeSet<String> = asked["NodeNames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let failed: BTreeMap<&String, &str> = nodes.iter().map(|name| (name, REFUSED)).collect();
    let answer = json!({"NodeNames": [], "FailedNodes": failed, "Error": ""});
    extender.questions().insert(uid.to_owned(), nodes);
    Json(answer)
}
