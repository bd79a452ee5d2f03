//! The firewall of a VM: which security groups its network cards have, and its switch. And the switch of the datacenter, without which no
//! rule of a VM does anything.
//!
//! PVE keeps a VM's rules in a file of their own, which a clone copies and a removal takes away. A rule that we wrote says so in its
//! comment. Source: `pve-firewall` `PVE/API2/Firewall/Rules.pm`, `VM.pm`, `Groups.pm`, `Cluster.pm`.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::calls::{pair, request, vm_path};
use super::client::Client;
use super::encode::path;
use super::perl::{self, Fields};
use super::sound::Unsound;
use super::transport::{CallError, HttpMethod};
use super::types::deadline;

/// The comment of a rule that we wrote.
pub const OUR_RULE: &str = "pve-autoscaler";

/// A security group and the number of the network card that has it.
pub type SecurityGroup = (String, u8);

/// A rule of a VM's firewall, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallRule {
    /// The rule's place among those of its VM, counted from zero; it changes with every rule that comes before it.
    pub position: usize,
    /// `in`, `out`, `forward`, `group`.
    pub kind: String,
    /// Of a group its name.
    pub action: String,
    /// The network card that it is for, such as `net0`; all of them when absent.
    pub card: Option<String>,
    /// It is in force.
    pub enabled: bool,
    /// What somebody wrote to it.
    pub comment: String,
    /// The digest of all rules, which a removal is compared with.
    pub digest: Option<Arc<str>>,
}

impl FirewallRule {
    /// A security group that we put there.
    pub fn is_ours(&self) -> bool {
        self.kind == "group" && self.comment.trim() == OUR_RULE
    }

    /// Whether a network card has this security group by it.
    pub fn gives(&self, group: &str, card: u8) -> bool {
        let this = format!("net{card}");
        let there = self.card.as_ref().is_none_or(|named| *named == this);
        self.kind == "group" && self.enabled && self.action == group && there
    }

    /// A rule of ours, of these of a VM, that is none of the wanted groups, that is switched off, or that stands there a second time.
    pub fn is_too_much(&self, wanted: &[SecurityGroup], rules: &[FirewallRule]) -> bool {
        let own = |rule: &FirewallRule, (group, card): &SecurityGroup| {
            rule.is_ours() && rule.card.is_some() && rule.gives(group, *card)
        };
        let meant = wanted.iter().find(|group| own(self, group));
        let first = |group: &SecurityGroup| rules.iter().find(|rule| own(rule, group));
        let kept = meant.and_then(first);
        self.is_ours() && kept.is_none_or(|kept| kept.position != self.position)
    }

    /// Reads the data of `GET …/firewall/rules`.
    ///
    /// # Errors
    /// Says what of it cannot be read: no list of rules, or one that counts them otherwise.
    pub fn read_all(data: &Value) -> Result<Vec<FirewallRule>, String> {
        let rows = data.as_array().ok_or("it is no list")?;
        let rules = rows.iter().enumerate().map(|(position, row)| {
            let fields = Fields::of(row);
            let text = |key: &str| fields.text(key).filter(|text| !text.is_empty());
            let needed = |key: &str| text(key).ok_or_else(|| format!("a rule has no {key}"));
            let place = row.get("pos").and_then(perl::integer);
            if place != i64::try_from(position).ok() {
                return Err(format!("the rule at {position} says another place"));
            }
            Ok(FirewallRule {
                position,
                kind: needed("type")?,
                action: needed("action")?,
                card: text("iface"),
                enabled: fields.flag("enable"),
                comment: text("comment").unwrap_or_default(),
                digest: Some(needed("digest")?.into()),
            })
        });
        rules.collect()
    }
}

/// An answer by which rules are removed: all of it can be read.
fn sound(data: &Value) -> Result<(), Unsound> {
    FirewallRule::read_all(data).map(drop)
}

/// Options of a firewall are an object; those that nobody set are not in it.
fn sound_options(data: &Value) -> Result<(), Unsound> {
    let fits = data.is_object();
    fits.then_some(())
        .ok_or_else(|| "it is no object".to_owned())
}

impl Client {
    /// `GET …/qemu/{vmid}/firewall/rules`, in their order. Of a VM that is not there PVE says that it has none.
    pub async fn firewall_rules(
        &self,
        host: &str,
        vmid: u32,
    ) -> Result<Vec<FirewallRule>, CallError> {
        let asked = (
            "firewall_rules",
            vm_path(host, vmid, &["firewall", "rules"])?,
        );
        let data = self
            .get_sound(asked, vec![], deadline::READ_HOST, sound)
            .await?;
        Ok(FirewallRule::read_all(&data).unwrap_or_default())
    }

    /// `POST …/firewall/rules`: a network card has this security group, by a rule before all others. PVE takes groups that are
    /// not there, too.
    pub async fn add_security_group(
        &self,
        host: &str,
        vmid: u32,
        group: &str,
        card: u8,
    ) -> Result<(), CallError> {
        let at = vm_path(host, vmid, &["firewall", "rules"])?;
        let params = vec![
            pair("type", "group"),
            pair("action", group),
            pair("iface", format!("net{card}")),
            pair("enable", "1"),
            pair("comment", OUR_RULE),
        ];
        let asked = request(
            "add_security_group",
            HttpMethod::Post,
            at,
            params,
            deadline::CHANGE,
        );
        self.send(asked).await.map(drop)
    }

    /// `DELETE …/firewall/rules/{position}`, if the rules are still those that have this digest.
    pub async fn remove_firewall_rule(
        &self,
        host: &str,
        vmid: u32,
        rule: &FirewallRule,
    ) -> Result<(), CallError> {
        let position = rule.position.to_string();
        let at = vm_path(host, vmid, &["firewall", "rules", &position])?;
        let digest = rule.digest.as_deref().unwrap_or_default();
        let params = vec![pair("digest", digest)];
        let asked = request(
            "remove_firewall_rule",
            HttpMethod::Delete,
            at,
            params,
            deadline::CHANGE,
        );
        self.send(asked).await.map(drop)
    }

    /// `GET …/qemu/{vmid}/firewall/options`: whether the VM's firewall is switched on. Without it its rules do nothing.
    pub async fn has_firewall_on(&self, host: &str, vmid: u32) -> Result<bool, CallError> {
        let asked = (
            "firewall_options",
            vm_path(host, vmid, &["firewall", "options"])?,
        );
        let data = self
            .get_sound(asked, vec![], deadline::READ_HOST, sound_options)
            .await?;
        Ok(Fields::of(&data).flag("enable"))
    }

    /// `GET /cluster/firewall/options`: whether the datacenter's firewall is switched on. Without it no rule of a VM does anything. PVE is
    /// installed with it off, and then says nothing of `enable`; it takes `Sys.Audit` on `/`.
    pub async fn has_datacenter_firewall_on(&self) -> Result<bool, CallError> {
        let asked = (
            "cluster_firewall",
            path(&["cluster", "firewall", "options"]),
        );
        let data = self
            .get_sound(asked, vec![], deadline::READ, sound_options)
            .await?;
        Ok(Fields::of(&data).flag("enable"))
    }

    /// `PUT …/qemu/{vmid}/firewall/options`: switches the VM's firewall on. PVE takes it for a VM that is not there, too.
    pub async fn switch_firewall_on(&self, host: &str, vmid: u32) -> Result<(), CallError> {
        let asked = request(
            "switch_firewall_on",
            HttpMethod::Put,
            vm_path(host, vmid, &["firewall", "options"])?,
            vec![pair("enable", "1")],
            deadline::CHANGE,
        );
        self.send(asked).await.map(drop)
    }

    /// `GET /cluster/firewall/groups`: the security groups that there are.
    pub async fn security_groups(&self) -> Result<BTreeSet<String>, CallError> {
        let asked = ("security_groups", path(&["cluster", "firewall", "groups"]));
        let sound = |data: &Value| {
            let fits = data.is_array();
            fits.then_some(()).ok_or_else(|| "it is no list".to_owned())
        };
        let data = self.get_sound(asked, vec![], deadline::READ, sound).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("group")).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_cannot_be_read_are_not_taken_for_none() {
        let rule = json!({"pos": "0", "type": "group", "action": "web", "iface": "net1", "enable": "1", "digest": "d"});
        let read = FirewallRule::read_all(&json!([rule])).expect("it is read");
        assert!(read[0].gives("web", 1) && !read[0].gives("web", 0) && !read[0].is_ours());
        assert_eq!(FirewallRule::read_all(&json!([])), Ok(vec![]));
        for odd in [
            json!(null),
            json!({}),
            json!([null]),
            json!([{"pos": 1, "type": "in", "action": "ACCEPT"}]),
            json!([{"pos": 0, "type": "group"}]),
            json!([{"pos": 0, "type": "group", "action": "web"}]),
        ] {
            assert!(FirewallRule::read_all(&odd).is_err(), "{odd}");
        }
    }
}
