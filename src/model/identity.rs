//! Which Kubernetes node is a machine's: the one rule, for the brain, the checker and the executor.
//!
//! A node is a machine's if its name is the machine's, its `systemUUID` is the VM's SMBIOS UUID, and our
//! annotation, once it is there, names this very VM. A node with one of these signs and not all of them, a
//! second node with one, or a VM whose UUID is not the one that is remembered, is a contradiction: one of
//! those who say so is wrong, and nobody here can tell which. Then nothing is done to either side.
//! `docs/decisions/0021-one-rule-of-identity.md` says why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cluster::Node;
use super::foreign::ForeignText;
use super::policy::MACHINE_ANNOTATION;

/// What a machine's node must show, and what a node of nobody else may.
#[derive(Clone, Copy, Debug)]
pub struct Signs<'a> {
    /// The machine's name.
    pub machine: &'a str,
    /// The machine's region.
    pub region: &'a str,
    /// The machine's VMID.
    pub vmid: u32,
    /// The SMBIOS UUID that is in force in the VM's configuration; `None` when it names none.
    pub uuid: Option<&'a str>,
    /// The UUID that the VM had when it was first seen; `None` when nobody remembers.
    pub remembered: Option<&'a str>,
}

/// What the nodes say of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeIdentity {
    /// No node shows any sign of it.
    None,
    /// This node shows every sign of it, and no other shows one.
    Agreed(Arc<str>),
    /// The signs contradict each other: the machine is left alone.
    Contradiction(Contradiction),
}

/// Signs that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contradiction {
    /// The nodes that show a sign of the machine.
    pub nodes: Vec<Arc<str>>,
    /// What contradicts what, with names and UUIDs, some of which kubelets told.
    pub why: ForeignText,
}

impl NodeIdentity {
    /// The node, when all agree.
    pub fn agreed(&self) -> Option<&Arc<str>> {
        match self {
            NodeIdentity::Agreed(name) => Some(name),
            NodeIdentity::None | NodeIdentity::Contradiction(_) => None,
        }
    }

    /// The contradiction, if there is one.
    pub fn contradiction(&self) -> Option<&Contradiction> {
        match self {
            NodeIdentity::Contradiction(contradiction) => Some(contradiction),
            NodeIdentity::None | NodeIdentity::Agreed(_) => None,
        }
    }
}

/// What our annotation on a node says: which VM is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmReference<'a> {
    /// The region.
    pub region: &'a str,
    /// The VMID.
    pub vmid: u32,
    /// The VM's SMBIOS UUID.
    pub uuid: &'a str,
}

/// Reads our annotation `region/vmid/uuid`; `None` when it is not one.
pub fn named(annotation: &str) -> Option<VmReference<'_>> {
    let (region, rest) = annotation.split_once('/')?;
    let (vmid, uuid) = rest.split_once('/')?;
    let vmid = vmid.parse().ok()?;
    (!region.is_empty() && !uuid.is_empty()).then_some(VmReference { region, vmid, uuid })
}

/// The text of our annotation for a VM.
pub fn annotation(region: &str, vmid: u32, uuid: &str) -> String {
    format!("{region}/{vmid}/{uuid}")
}

impl Signs<'_> {
    /// Whether a UUID is the VM's, now or as it is remembered.
    fn has(&self, uuid: &str) -> bool {
        let known = [self.uuid, self.remembered];
        !uuid.is_empty()
            && known
                .into_iter()
                .flatten()
                .any(|own| own.eq_ignore_ascii_case(uuid))
    }

    /// Whether a node shows any sign of this machine.
    pub fn touch(&self, name: &str, node: &Node) -> bool {
        let named = written(node).and_then(named);
        name == self.machine
            || self.has(&node.system_uuid)
            || named.is_some_and(|named| self.has(named.uuid))
    }

    /// What is wrong with a node that shows a sign of this machine; `None` when it shows them all.
    fn wrong(&self, name: &str, node: &Node) -> Option<String> {
        let (vmid, uuid) = (self.vmid, self.uuid.unwrap_or_default());
        let same = node.system_uuid.eq_ignore_ascii_case(uuid);
        if name != self.machine {
            return Some(if same {
                format!("node {name} says that it has the UUID {uuid} of VM {vmid}")
            } else {
                format!("node {name} shows the UUID of VM {vmid}")
            });
        }
        if node.system_uuid.is_empty() {
            return Some(format!("node {name} does not say its system UUID"));
        }
        if !same {
            let other = &node.system_uuid;
            return Some(format!(
                "node {name} has the system UUID {other}, VM {vmid} has {uuid}"
            ));
        }
        let text = written(node)?;
        let right = named(text).is_some_and(|named| {
            named.region == self.region
                && named.vmid == vmid
                && named.uuid.eq_ignore_ascii_case(uuid)
        });
        (!right).then(|| {
            let ours = annotation(self.region, vmid, uuid);
            format!("node {name} is annotated with {MACHINE_ANNOTATION}={text}, its VM is {ours}")
        })
    }

    /// Applies the rule to `nodes`, which must be all that [touch](Signs::touch) this machine; others among
    /// them change nothing.
    pub fn identify<'n>(
        &self,
        nodes: impl IntoIterator<Item = (&'n Arc<str>, &'n Node)>,
    ) -> NodeIdentity {
        let nodes = nodes.into_iter();
        let touching: Vec<_> = nodes
            .filter(|(name, node)| self.touch(name, node))
            .collect();
        let namesake = touching.iter().find(|(name, _)| ***name == *self.machine);
        if planted!(UuidNotChecked)
            && let Some((name, _)) = namesake
        {
            return NodeIdentity::Agreed(Arc::clone(name));
        }
        let mut why = Vec::new();
        match (self.remembered, self.uuid) {
            (Some(old), Some(new)) if !old.eq_ignore_ascii_case(new) => why.push(format!(
                "the SMBIOS UUID of VM {} was {old} and is {new} now",
                self.vmid
            )),
            (Some(old), None) => why.push(format!(
                "the SMBIOS UUID of VM {} was {old} and is gone",
                self.vmid
            )),
            (None, None) if !touching.is_empty() => {
                why.push(format!("VM {} has no SMBIOS UUID", self.vmid));
            }
            _ => {}
        }
        let wrong = touching
            .iter()
            .filter_map(|(name, node)| self.wrong(name, node));
        why.extend(wrong);
        match touching.as_slice() {
            [] if why.is_empty() => NodeIdentity::None,
            [(name, _)] if why.is_empty() => NodeIdentity::Agreed(Arc::clone(name)),
            _ => NodeIdentity::Contradiction(Contradiction {
                nodes: touching.iter().map(|(name, _)| Arc::clone(name)).collect(),
                why: why.join("; ").into(),
            }),
        }
    }
}

fn written(node: &Node) -> Option<&str> {
    node.annotations.get(MACHINE_ANNOTATION).map(|text| &**text)
}

/// All nodes by what they show, so that many machines are identified without walking over all nodes for each.
#[derive(Debug)]
pub struct NodeSigns<'a> {
    nodes: &'a BTreeMap<Arc<str>, Node>,
    /// Names of nodes by the UUIDs that they show, lower case.
    by_uuid: BTreeMap<String, BTreeSet<&'a Arc<str>>>,
}

impl<'a> NodeSigns<'a> {
    /// The signs of these nodes.
    pub fn of(nodes: &'a BTreeMap<Arc<str>, Node>) -> NodeSigns<'a> {
        let mut by_uuid: BTreeMap<String, BTreeSet<&Arc<str>>> = BTreeMap::new();
        for (name, node) in nodes {
            let named = written(node).and_then(named).map(|named| named.uuid);
            for uuid in named.into_iter().chain([&*node.system_uuid]) {
                let names = by_uuid.entry(uuid.to_ascii_lowercase()).or_default();
                names.insert(name);
            }
        }
        NodeSigns { nodes, by_uuid }
    }

    /// Applies the rule to one machine.
    pub fn identify(&self, machine: &Signs<'_>) -> NodeIdentity {
        let uuids = [machine.uuid, machine.remembered].into_iter().flatten();
        let shown = uuids.filter_map(|uuid| self.by_uuid.get(&uuid.to_ascii_lowercase()));
        let mut names: BTreeSet<&str> = shown.flatten().map(|name| &***name).collect();
        names.insert(machine.machine);
        machine.identify(
            names
                .into_iter()
                .filter_map(|name| self.nodes.get_key_value(name)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Readiness;
    use crate::resources::Resources;
    use crate::scheduling::Labels;
    use crate::shared::Shared;
    use crate::time::Time;

    const OURS: Signs<'static> = Signs {
        machine: "p-aaaaa",
        region: "home",
        vmid: 9101,
        uuid: Some("11aa"),
        remembered: None,
    };

    fn nodes(rows: &[(&str, &str, Option<&str>)]) -> BTreeMap<Arc<str>, Node> {
        let node = |(name, uuid, text): &(&str, &str, Option<&str>)| {
            let text = text.map(|text| (Arc::from(MACHINE_ANNOTATION), Arc::from(text)));
            let node = Node {
                uid: format!("uid-{name}").into(),
                system_uuid: (*uuid).into(),
                provider_id: None,
                created: Time(0),
                deletion: None,
                labels: Shared::default(),
                annotations: text.into_iter().collect::<Labels>().into(),
                taints: Vec::new(),
                unschedulable: false,
                allocatable: Resources::default(),
                capacity: Resources::default(),
                ready: Readiness::default(),
                kubelet_version: "v1.36.0".into(),
                addresses: Vec::new(),
            };
            (Arc::from(*name), node)
        };
        rows.iter().map(node).collect()
    }

    /// What the rule says, by itself and by the index, which must agree.
    fn says(signs: Signs<'_>, rows: &[(&str, &str, Option<&str>)]) -> NodeIdentity {
        let nodes = nodes(rows);
        let alone = signs.identify(&nodes);
        assert_eq!(NodeSigns::of(&nodes).identify(&signs), alone);
        alone
    }

    fn contradicts(signs: Signs<'_>, rows: &[(&str, &str, Option<&str>)], word: &str) {
        match says(signs, rows) {
            NodeIdentity::Contradiction(found) => {
                assert!(found.why.contains(word), "{word:?} is not in {found:?}");
            }
            other => panic!("{other:?} of {rows:?}"),
        }
    }

    #[test]
    fn a_node_of_the_name_the_uuid_and_the_annotation_is_the_machines() {
        let agreed = NodeIdentity::Agreed("p-aaaaa".into());
        let remembered = Signs {
            remembered: Some("11AA"),
            ..OURS
        };
        for signs in [OURS, remembered] {
            for text in [None, Some("home/9101/11aa"), Some("home/9101/11AA")] {
                for uuid in ["11aa", "11AA"] {
                    let rows = [
                        ("p-aaaaa", uuid, text),
                        ("other", "22bb", None),
                        ("x", "", None),
                    ];
                    assert_eq!(says(signs, &rows), agreed);
                }
            }
            assert_eq!(says(signs, &[("other", "22bb", None)]), NodeIdentity::None);
            assert_eq!(says(signs, &[]), NodeIdentity::None);
        }
    }

    #[test]
    fn a_node_that_shows_less_is_a_contradiction() {
        contradicts(OURS, &[("p-aaaaa", "22bb", None)], "22bb");
        contradicts(OURS, &[("p-aaaaa", "", None)], "does not say");
        contradicts(OURS, &[("other", "11aa", None)], "other");
        contradicts(OURS, &[("other", "22bb", Some("home/9101/11aa"))], "other");
        for text in [
            "home/9102/11aa",
            "away/9101/11aa",
            "home/9101/22bb",
            "home/9101",
            "",
        ] {
            contradicts(OURS, &[("p-aaaaa", "11aa", Some(text))], "annotated");
        }
    }

    #[test]
    fn a_second_node_is_a_contradiction_whoever_lies() {
        let right = ("p-aaaaa", "11aa", Some("home/9101/11aa"));
        for other in [
            ("p-bbbbb", "11aa", None),
            ("p-bbbbb", "11AA", Some("home/9102/22bb")),
            ("a", "22bb", Some("home/9101/11aa")),
        ] {
            contradicts(OURS, &[right, other], other.0);
        }
        let two = [("a", "11aa", None), ("b", "11aa", None)];
        contradicts(OURS, &two, "node a");
        contradicts(OURS, &two, "node b");
        // VMIDs are used again: the node of an earlier VM of this VMID is no sign.
        let earlier = ("p-old", "33cc", Some("home/9101/33cc"));
        assert_eq!(
            says(OURS, &[right, earlier]),
            NodeIdentity::Agreed("p-aaaaa".into())
        );
    }

    #[test]
    fn a_vm_whose_uuid_changed_contradicts_whatever_the_nodes_say() {
        let edited = Signs {
            uuid: Some("44dd"),
            remembered: Some("11aa"),
            ..OURS
        };
        let gone = Signs {
            uuid: None,
            remembered: Some("11aa"),
            ..OURS
        };
        let node = ("p-aaaaa", "11aa", Some("home/9101/11aa"));
        for rows in [&[][..], &[node], &[("p-aaaaa", "44dd", None)]] {
            contradicts(edited, rows, "was 11aa");
            contradicts(gone, rows, "was 11aa");
        }
        // A node under another name still lies on the VM that it came up on.
        let NodeIdentity::Contradiction(found) = says(edited, &[("other", "11aa", None)]) else {
            panic!("no contradiction");
        };
        assert_eq!(found.nodes, [Arc::from("other")]);
        let unremembered = Signs {
            uuid: Some("44dd"),
            ..OURS
        };
        contradicts(unremembered, &[node], "11aa");
        let nameless = Signs { uuid: None, ..OURS };
        contradicts(nameless, &[("p-aaaaa", "", None)], "no SMBIOS UUID");
        assert_eq!(says(nameless, &[("x", "", None)]), NodeIdentity::None);
    }

    #[test]
    fn our_annotation_is_read_as_it_is_written() {
        let text = annotation("home", 9101, "11aa");
        let read = named(&text).expect("it is one");
        assert_eq!((read.region, read.vmid, read.uuid), ("home", 9101, "11aa"));
        for text in [
            "",
            "home",
            "home/9101",
            "/9101/x",
            "home/x/11aa",
            "home/9101/",
        ] {
            assert_eq!(named(text), None, "{text}");
        }
    }

    proptest::proptest! {
        /// An agreed node shows every sign, and no other node shows one: asked in other words.
        #[test]
        fn nothing_agrees_but_what_agrees_in_all(
            rows in proptest::collection::btree_map("[ab]", ("[12]?", proptest::option::of("h/[12]/[12]")), 0..3),
            uuid in proptest::option::of("[12]"),
            remembered in proptest::option::of("[12]"),
        ) {
            let signs = Signs { machine: "a", region: "h", vmid: 1, uuid: uuid.as_deref(), remembered: remembered.as_deref() };
            let rows: Vec<_> = rows.iter().map(|(name, (uuid, text))| (name.as_str(), uuid.as_str(), text.as_deref())).collect();
            let said = says(signs, &rows);
            let known: Vec<&str> = [signs.uuid, signs.remembered].into_iter().flatten().collect();
            let shows = |row: &(&str, &str, Option<&str>)| {
                row.0 == "a" || known.contains(&row.1)
                    || row.2.is_some_and(|text| known.iter().any(|uuid| text.ends_with(&format!("/{uuid}"))))
            };
            let shown: Vec<_> = rows.iter().filter(|row| shows(row)).collect();
            let right = |row: &&(&str, &str, Option<&str>)| {
                let (Some(uuid), true) = (signs.uuid, row.0 == "a") else { return false };
                row.1 == uuid && row.2.is_none_or(|text| text == format!("h/1/{uuid}"))
            };
            let changed = signs.remembered.is_some() && signs.remembered != signs.uuid;
            let agreed = !changed && shown.len() == 1 && shown.iter().all(right);
            let none = !changed && shown.is_empty();
            proptest::prop_assert_eq!(said.agreed().is_some(), agreed);
            proptest::prop_assert_eq!(said == NodeIdentity::None, none);
            proptest::prop_assert_eq!(said.contradiction().is_some(), !agreed && !none);
        }
    }
}
