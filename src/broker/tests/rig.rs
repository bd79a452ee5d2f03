//! A broker on a world of its own, and how the tests talk to it.

use std::sync::Arc;

use serde_json::Value;

use super::world::{HOST, World, policy};
use crate::broker::allow::RawRequest;
use crate::broker::peer::PeerProcess;
use crate::broker::policy::BrokerPolicy;
use crate::broker::service::{BrokerService, Reply};
use crate::clock::Clock;
use crate::model::mark::Mark;
use crate::model::time::Time;
use crate::pve::form;

pub(super) const PEER: PeerProcess = PeerProcess {
    uid: 990,
    gid: 990,
    pid: 7,
};

/// A broker on a world of its own. The directory lives as long as the rest.
pub(in crate::broker) struct Rig {
    pub(in crate::broker) world: Arc<World>,
    pub(in crate::broker) service: BrokerService,
    pub(in crate::broker) state: tempfile::TempDir,
}

pub(super) fn rig() -> Rig {
    rig_with(policy())
}

/// A broker with this policy, on a world of its own.
pub(in crate::broker) fn rig_with(policy: BrokerPolicy) -> Rig {
    let world = Arc::new(World::new());
    let state = tempfile::tempdir().expect("a directory");
    let way = Arc::clone(&world);
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let service = BrokerService::new(policy, way, state.path(), clock).expect("a service");
    Rig {
        world,
        service,
        state,
    }
}

impl Rig {
    pub(super) async fn send(&self, method: &str, path: &str, params: &[(&str, &str)]) -> Reply {
        let params: Vec<(String, String)> = params
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let text = form(&params);
        let in_query = method == "GET" || method == "DELETE";
        let raw = RawRequest {
            method,
            path: &format!("/api2/json{path}"),
            query: (in_query && !text.is_empty()).then_some(text.as_str()),
            content_type: (!in_query).then_some("application/x-www-form-urlencoded"),
            body: if in_query { b"" } else { text.as_bytes() },
        };
        self.service.answer(PEER, raw).await
    }

    pub(super) async fn clone_of(&self, template: u32, newid: u32, mark: &Mark) -> Reply {
        let (id, description) = (newid.to_string(), mark.line());
        let params = [
            ("newid", id.as_str()),
            ("name", mark.machine.as_str()),
            ("description", description.as_str()),
        ];
        let path = format!("/nodes/{HOST}/qemu/{template}/clone");
        self.send("POST", &path, &params).await
    }

    pub(super) fn refused(&self, reply: &Reply, what: &str) {
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.outcome, "refused-by-broker", "{what}: {text}");
        assert_eq!(reply.status, 403, "{what}");
        assert!(self.world.changes().is_empty(), "{what}");
    }

    /// A broker that was started anew, on the same world and the same directory.
    pub(super) fn again(self, policy: BrokerPolicy) -> Rig {
        let clock = Clock::starting_at(Time(1_795_000_000_000));
        let way = Arc::clone(&self.world);
        let service = BrokerService::new(policy, way, self.state.path(), clock).expect("a service");
        Rig { service, ..self }
    }

    /// Gives a change of this kind and the words of the refusal.
    pub(super) async fn said(&self, method: &str, path: &str, params: &[(&str, &str)]) -> String {
        let reply = self.send(method, path, params).await;
        assert_eq!(
            reply.outcome, "refused-by-broker",
            "{method} {path}: {reply:?}"
        );
        String::from_utf8_lossy(&reply.body).into_owned()
    }

    pub(super) fn intent(&self, vmid: u32) -> Option<Value> {
        let path = self.state.path().join(format!("intents/{vmid}.json"));
        let bytes = std::fs::read(path).ok()?;
        Some(serde_json::from_slice(&bytes).expect("an intent is JSON"))
    }
}
