//! What comes out of the brain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::memory::Memory;
use super::report::Report;
use super::time::Time;

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// What to do now, in this order. Empty in a steady state.
    pub plan: Vec<Action>,
    /// Why, for every pod, node and pool.
    pub report: Report,
    /// What the next decision remembers, in a form of its own that may change with every version.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub memory: Memory,
    /// When to decide again at the latest even if nothing changes: the next timer that ends.
    pub wake: Option<Time>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemars::generate::SchemaSettings;
    use serde_json::{Value, json};

    use super::*;
    use crate::action::{CreateSpec, Kind, Precondition, Reason, Target, VERSION};
    use crate::mark::Mark;
    use crate::policy::Terms;

    fn names(value: Option<&Value>) -> BTreeSet<&str> {
        let fields = value.and_then(Value::as_object);
        let fields = fields.into_iter().flat_map(|fields| fields.keys());
        fields.map(String::as_str).collect()
    }

    /// An action that makes a machine has all types of a plan in it. Memory's own types are none of what others read.
    #[test]
    fn the_schema_has_every_field_of_an_action_and_none_of_memory() {
        let mark: Mark = serde_json::from_value(json!({
            "cluster": "uid/name", "machine": "small-1", "vmid": 9000, "pool": "small", "instance_type": "s",
            "template": "debian", "token": "abcdef", "created": Time(0), "addresses": {"0": ["192.0.2.7"]}, "cpus": "0-1",
        }))
        .expect("a mark");
        let target: Target = serde_json::from_value(json!({
            "region": "default", "host": "pve1", "vmid": 9000, "machine": "small-1",
            "node": {"name": "small-1", "uid": "1"},
        }))
        .expect("a target");
        let action = Action {
            version: VERSION,
            kind: Kind::Create(Box::new(CreateSpec {
                mark: mark.clone(),
                template_vmid: 8000,
                template_host: "pve1".into(),
                template_uuid: Some("2".into()),
                storages: crate::chosen_storages::ChosenStorages::default(),
                terms: Some(Terms::default().into()),
            })),
            target,
            precondition: Precondition {
                mark: Some(mark),
                ..Precondition::default()
            },
            reason: Reason::Unfinished,
        };
        let written = serde_json::to_value(&action).expect("JSON");
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let schema = settings.into_generator().into_root_schema_for::<Decision>();
        let schema = schema.as_value();
        for (at, of) in [
            ("", "Action"),
            ("/kind/create", "CreateSpec"),
            ("/kind/create/mark", "Mark"),
            ("/kind/create/terms", "Terms"),
            ("/kind/create/terms/kind", "InstanceType"),
            ("/kind/create/terms/reserved", "Reserved"),
            ("/target", "Target"),
            ("/target/node", "NodeRef"),
            ("/precondition", "Precondition"),
        ] {
            let told = names(schema.pointer(&format!("/$defs/{of}/properties")));
            let fields = names(written.pointer(at));
            assert!(
                !fields.is_empty() && fields.is_subset(&told),
                "{of}: {fields:?}, {told:?}"
            );
        }
        let kinds = schema.pointer("/$defs/Kind").map(Value::to_string);
        let kinds = kinds.unwrap_or_default();
        for kind in [
            "continue",
            "remove",
            "release",
            "delete_node",
            "start",
            "update",
        ] {
            assert!(kinds.contains(&format!("\"{kind}\"")), "{kind}: {kinds}");
        }
        assert_eq!(
            schema.pointer("/properties/memory/type"),
            Some(&json!("object"))
        );
        assert_eq!(schema.pointer("/$defs/Memory"), None);
        assert_eq!(schema.pointer("/$defs/Backoff"), None);
    }
}
