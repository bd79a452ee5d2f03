//! The fake Kubernetes API server with a small scheduler and the controllers that a cluster needs.
//!
//! It speaks the true wire over an [`axum::Router`] and shares no type with the program's own
//! Kubernetes client: objects are JSON. Everything runs on tokio's clock and one seeded generator,
//! so that a seed replays to the byte.
//!
//! * [`resources`] is the table of what is served; [`http`] the door; [`verbs`], [`patch`],
//!   [`eviction`], [`admission`] what a write does; [`watch`] the streams; [`store`] the memory.
//! * [`controllers`] and [`scheduler`] act on the store like kube-controller-manager and
//!   kube-scheduler do; [`bootstrap`] and [`pki`] let machines join.

mod admission;
mod auth;
mod bell;
mod bootstrap;
mod controllers;
mod discovery;
mod events;
mod eviction;
mod facts;
mod http;
mod media;
mod object;
mod patch;
mod pki;
mod policy;
mod protobuf;
mod rbac;
#[cfg(test)]
mod replay;
mod resources;
mod scheduler;
mod selector;
mod serve;
mod spec;
mod status;
mod store;
mod supervisor;
#[cfg(test)]
mod tests;
mod verbs;
mod volumes;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;

use crate::clock::Clock;
use auth::User;
use http::ApiServer;
use pki::Pki;
use store::State;

pub use facts::ObjectChange;
pub use scheduler::{Opinion, opinion};
pub use serve::{ServedCluster, serve};
pub use spec::{Distribution, KubeSpec, KubeUserSpec, PolicyRule};

pub(in crate::sim) use patch::merge as merge_patch;
pub(in crate::sim) use pki::{certificate_bearer, detached_jws, hex, key_pair};

/// A fake cluster. Clones share it; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Kube {
    inner: Arc<KubeInner>,
}

/// What the clones share.
#[derive(Debug)]
struct KubeInner {
    spec: KubeSpec,
    clock: Clock,
    pki: Pki,
    state: Mutex<State>,
}

impl KubeInner {
    /// The state, with the time of now on it.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = self.clock.now();
        state
    }
}

impl Kube {
    /// A new cluster with its controllers running. Needs a tokio runtime.
    ///
    /// # Panics
    /// When the cluster's keys cannot be made, which would be an error in this program.
    pub fn new(spec: KubeSpec, clock: Clock, seed: u64) -> Kube {
        let pki = Pki::new(seed, clock.now()).expect("a key made from a seed is a valid key");
        let mut state = State::new(seed, spec.history, spec.keep_trace);
        state.now = clock.now();
        bootstrap::seed_objects(&mut state, &spec, &pki);
        let inner = Arc::new(KubeInner {
            spec,
            clock,
            pki,
            state: Mutex::new(state),
        });
        controllers::start(&inner);
        Kube { inner }
    }

    /// The API for callers in this process: one without credentials is cluster-admin, one with a
    /// bearer token is whom the token says.
    pub fn router(&self) -> Router {
        self.door(User::admin())
    }

    /// The API for a cluster-admin of this name.
    pub fn router_as(&self, name: &str) -> Router {
        self.door(User {
            name: name.to_owned(),
            ..User::admin()
        })
    }

    /// The API as the network sees it: callers without credentials are anonymous.
    pub fn public_router(&self) -> Router {
        self.door(User::anonymous())
    }

    fn door(&self, stranger: User) -> Router {
        let kube = self.clone();
        Router::new()
            .fallback(http::serve)
            .with_state(ApiServer { kube, stranger })
    }

    /// The certificate of the cluster's authority, PEM.
    pub fn authority(&self) -> String {
        self.inner.pki.pem().to_owned()
    }

    /// Where nodes reach the API server, as a URL.
    pub fn endpoint(&self) -> String {
        self.inner.spec.endpoint.clone()
    }

    /// A server certificate of the cluster's authority for these names and addresses, and its key,
    /// as PEM.
    pub fn server_certificate(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let now = self.inner.clock.now();
        Ok(self.inner.pki.server(names, now)?)
    }

    /// Gives a node's identity to whoever shows the returned bearer, for nodes that did not join.
    pub fn mint_node(&self, name: &str) -> String {
        let bearer = format!("certificate:minted-for-{name}");
        let subject = pki::CertificateSubject {
            name: format!("system:node:{name}"),
            organisations: vec!["system:nodes".to_owned()],
        };
        self.inner.lock().issued.insert(bearer.clone(), subject);
        bearer
    }

    /// A kubeconfig of cluster-admin for this server address, with the authority (PEM) that its TLS
    /// certificate is signed by, if any.
    pub fn admin_kubeconfig(&self, server: &str, authority: Option<&str>) -> String {
        bootstrap::admin_kubeconfig(server, authority, &self.inner.spec.admin_token)
    }

    /// The digest of all requests and changes so far, and their lines where the spec keeps them.
    pub fn trace(&self) -> (u64, Vec<String>) {
        self.inner.lock().trace.shown()
    }

    /// The rules of the cluster that callers broke so far.
    pub fn violations(&self) -> Vec<String> {
        self.inner.lock().violations.clone()
    }

    /// Forgets the history, so that all watches end with 410 and must list again.
    pub fn compact(&self) {
        self.inner.lock().forget();
    }
}
