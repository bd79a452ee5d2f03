//! How a machine joins, as it was planned: its guest was made ready for that, and its node's allocatable was planned with. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::settings::{JoinMethod, JoinSettings, PoolSettings};

/// What the file said of joining when a machine was planned; it stands in the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedJoin {
    /// `[pool.NAME.join]`.
    pub settings: JoinSettings,
    /// What the pool sets in the KubeletConfiguration of its nodes.
    pub kubelet: Map<String, Value>,
}

impl PlannedJoin {
    /// How machines of a pool join that are planned now.
    pub fn of(pool: &PoolSettings) -> PlannedJoin {
        PlannedJoin {
            settings: pool.join.clone(),
            kubelet: pool.kubelet.clone(),
        }
    }

    /// Gives a machine that was planned so its part of the pool's settings of now. What leads into the cluster stays that of now where the
    /// method is the same: with an address or a secret that counts no more no machine joins.
    pub fn apply(&self, pool: &mut PoolSettings) {
        let now = std::mem::replace(&mut pool.join, self.settings.clone());
        pool.kubelet.clone_from(&self.kubelet);
        let planned = &mut pool.join;
        if planned.method.called() != now.method.called() {
            return;
        }
        planned.endpoint = now.endpoint;
        planned.token_ttl = now.token_ttl;
        let methods = (&mut planned.method, now.method);
        if let (
            JoinMethod::Command {
                script,
                secret_file,
            },
            JoinMethod::Command {
                script: other,
                secret_file: file,
            },
        ) = methods
            && *script == other
        {
            *secret_file = file;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(join: JoinSettings) -> PoolSettings {
        PoolSettings {
            join,
            ..PoolSettings::default()
        }
    }

    fn command(script: &str, file: &str) -> JoinMethod {
        JoinMethod::Command {
            script: script.to_owned(),
            secret_file: Some(file.into()),
        }
    }

    #[test]
    fn a_machine_joins_as_it_was_planned_at_the_address_of_now() {
        let planned = pool(JoinSettings {
            at_first_boot: true,
            endpoint: Some("old:6443".to_owned()),
            cri_socket: Some("unix:///run/old.sock".to_owned()),
            ..JoinSettings::default()
        });
        let mut now = pool(JoinSettings {
            endpoint: Some("new:6443".to_owned()),
            ..JoinSettings::default()
        });
        PlannedJoin::of(&planned).apply(&mut now);
        let wanted = JoinSettings {
            endpoint: Some("new:6443".to_owned()),
            ..planned.join.clone()
        };
        assert_eq!(now.join, wanted);
        // The address of another method is none of its own.
        let mut other = pool(JoinSettings {
            method: JoinMethod::Rke2,
            endpoint: Some("new:9345".to_owned()),
            ..JoinSettings::default()
        });
        PlannedJoin::of(&planned).apply(&mut other);
        assert_eq!(other.join, planned.join);
    }

    #[test]
    fn a_command_reads_the_secret_where_it_lies_now_unless_the_command_is_another() {
        let planned = pool(JoinSettings {
            method: command("join", "/old"),
            ..JoinSettings::default()
        });
        for (script, file) in [("join", "/new"), ("join --anew", "/old")] {
            let mut now = pool(JoinSettings {
                method: command(script, "/new"),
                ..JoinSettings::default()
            });
            PlannedJoin::of(&planned).apply(&mut now);
            assert_eq!(now.join.method, command("join", file));
        }
    }
}
