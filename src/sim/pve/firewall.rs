//! The firewall of VMs: their rules and the security groups that there are, and whether the datacenter's firewall is on (pve-firewall,
//! `PVE/API2/Firewall/{Rules,VM,Groups,Cluster}.pm`).
//! Which packets pass nobody asks here.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::params::{ON_VM, VM_AUDIT};
use super::schema::ParamKind::{Boolean, Enum, Format, Integer, Pattern, Text};
use super::schema::{anything, may, must};
use super::table::{ApiMethod, CallDuration, CallHandler, NeededPrivilege, call};
use super::wire::ErrorAnswer;
use super::world::PveWorld;
use super::{CheckedCall, Pve};
use crate::model::time::Time;

/// Who may change a VM's rules.
const NETWORK: NeededPrivilege = NeededPrivilege::Any("/vms/{vmid}", &["VM.Config.Network"]);
const RULES: &str = "/nodes/{node}/qemu/{vmid}/firewall/rules";
/// How long a datacenter's firewall stays on that was switched on for trial, in seconds (`parse_clusterfw_option`).
const TRIAL: i64 = 60;

/// The calls that are answered here.
pub(super) const CALLS: &[ApiMethod] = &[
    call(
        "GET",
        "/cluster/firewall/groups",
        CallHandler::SecurityGroups,
        CallDuration::Read,
        NeededPrivilege::None,
        &[],
    ),
    call(
        "GET",
        "/cluster/firewall/options",
        CallHandler::DatacenterFirewall,
        CallDuration::Read,
        NeededPrivilege::Any("/", &["Sys.Audit"]),
        &[],
    ),
    call(
        "GET",
        RULES,
        CallHandler::FirewallRules,
        CallDuration::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "GET",
        "/nodes/{node}/qemu/{vmid}/firewall/options",
        CallHandler::FirewallOptions,
        CallDuration::Read,
        VM_AUDIT,
        &[ON_VM],
    ),
    call(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/firewall/options",
        CallHandler::FirewallSwitch,
        CallDuration::Change,
        NETWORK,
        &[
            ON_VM,
            &[may("enable", Boolean), may("digest", Text(Some(64)))],
        ],
    ),
    call(
        "POST",
        RULES,
        CallHandler::FirewallRuleAdd,
        CallDuration::Change,
        NETWORK,
        &[
            ON_VM,
            &[
                must("type", Enum(&["in", "out", "forward", "group"])),
                must("action", Pattern("[A-Za-z][A-Za-z0-9\\-\\_]+", group)),
                may("iface", Format("pve-iface", Some(20), anything)),
                may("enable", Integer(Some(0), None)),
                may("comment", Text(None)),
                may("pos", Integer(Some(0), None)),
                may("digest", Text(Some(64))),
            ],
        ],
    ),
    call(
        "DELETE",
        "/nodes/{node}/qemu/{vmid}/firewall/rules/{pos}",
        CallHandler::FirewallRuleRemove,
        CallDuration::Change,
        NETWORK,
        &[
            ON_VM,
            &[
                must("pos", Integer(Some(0), None)),
                may("digest", Text(Some(64))),
            ],
        ],
    ),
];

fn group(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (2..=20).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(fine)
}

/// A rule of a VM's firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestRule {
    /// `in`, `out`, `forward` or `group`.
    pub kind: String,
    /// `ACCEPT` and the like, or the group's name.
    pub action: String,
    /// The network card, such as `net0`; none for all.
    pub iface: Option<String>,
    /// Whether it is in force.
    pub enable: bool,
    /// What somebody wrote to it.
    pub comment: Option<String>,
}

impl Pve {
    /// One of the firewall's calls.
    pub(super) fn firewall(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
    ) -> Result<Value, ErrorAnswer> {
        self.world(|world, now| match act {
            CallHandler::SecurityGroups => {
                let groups = world.spec.security_groups.iter();
                let rows = groups.map(|group| json!({ "group": group, "digest": "0a1b" }));
                Ok(json!(rows.collect::<Vec<_>>()))
            }
            CallHandler::DatacenterFirewall => Ok(world.datacenter_options(now)),
            CallHandler::FirewallRules => Ok(world.rules(asked.vmid)),
            CallHandler::FirewallOptions => {
                let on = world.firewalls_on.contains(&asked.vmid);
                Ok(json!({ "enable": u8::from(on), "digest": "0a1b" }))
            }
            CallHandler::FirewallSwitch => world.switch_firewall(asked, now),
            CallHandler::FirewallRuleAdd => world.rule_add(asked, now),
            _ => world.rule_remove(asked, now),
        })
    }
}

impl PveWorld {
    /// An option that nobody set is not told. A point in time as `enable` is when it was switched on for trial.
    fn datacenter_options(&self, now: Time) -> Value {
        let mut options = json!({ "digest": "0a1b" });
        if let Some(enable) = self.datacenter_firewall {
            let over = enable > 1 && now.0 / 1_000 - enable > TRIAL;
            options["enable"] = json!(if over { 0 } else { enable });
        }
        options
    }

    /// The digest of rules, forty hexadecimal digits.
    fn rules_digest(&self, vmid: u32) -> String {
        let text = serde_json::to_string(&self.firewalls.get(&vmid)).unwrap_or_default();
        let sum = Sha256::digest(text);
        sum.iter().take(20).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn rules(&self, vmid: u32) -> Value {
        let digest = self.rules_digest(vmid);
        let rules = self.firewalls.get(&vmid).into_iter().flatten();
        let rows = rules.enumerate().map(|(pos, rule)| {
            let mut row = json!({
                "pos": pos, "type": rule.kind, "action": rule.action, "enable": u8::from(rule.enable), "digest": digest,
            });
            for (key, text) in [("iface", &rule.iface), ("comment", &rule.comment)] {
                if let Some(text) = text {
                    row[key] = json!(text);
                }
            }
            row
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// Before all others, whatever place is asked for; a group that is not there is taken.
    fn rule_add(&mut self, asked: &CheckedCall, now: Time) -> Result<Value, ErrorAnswer> {
        let kind = asked.text("type").to_owned();
        let action = asked.text("action").to_owned();
        if kind != "group" && !["ACCEPT", "DROP", "REJECT"].contains(&&*action) {
            return Err(ErrorAnswer::parameter(
                "action",
                format!("unknown action '{action}'"),
            ));
        }
        let number = |iface: &str| {
            let number = iface.strip_prefix("net");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        if asked.given("iface").is_some_and(|iface| !number(iface)) {
            let why = "value does not match the regex pattern 'net\\d+'";
            return Err(ErrorAnswer::parameter("iface", why));
        }
        self.rules_writable()?;
        let rule = GuestRule {
            kind,
            action,
            iface: asked.given("iface").map(str::to_owned),
            enable: asked.count("enable").is_some_and(|on| on > 0),
            comment: asked.given("comment").map(str::to_owned),
        };
        self.firewalls
            .entry(asked.vmid)
            .or_default()
            .insert(0, rule);
        self.note(now, &asked.caller.name, asked.vmid, "firewall");
        Ok(Value::Null)
    }

    /// Without a word of the switch it stays; the other options nobody asks for here.
    fn switch_firewall(&mut self, asked: &CheckedCall, now: Time) -> Result<Value, ErrorAnswer> {
        self.rules_writable()?;
        match asked.given("enable") {
            Some("1") => drop(self.firewalls_on.insert(asked.vmid)),
            Some(_) => drop(self.firewalls_on.remove(&asked.vmid)),
            None => {}
        }
        self.note(now, &asked.caller.name, asked.vmid, "firewall switch");
        Ok(Value::Null)
    }

    fn rule_remove(&mut self, asked: &CheckedCall, now: Time) -> Result<Value, ErrorAnswer> {
        let digest = self.rules_digest(asked.vmid);
        if asked.given("digest").is_some_and(|given| given != digest) {
            let why = "detected modified configuration - file changed by other user? Try again.";
            return Err(ErrorAnswer::die(why));
        }
        self.rules_writable()?;
        let position = asked.count("pos").unwrap_or(usize::MAX);
        let rules = self.firewalls.entry(asked.vmid).or_default();
        if position >= rules.len() {
            return Err(ErrorAnswer::die(format!("no rule at position {position}")));
        }
        rules.remove(position);
        self.note(now, &asked.caller.name, asked.vmid, "firewall");
        Ok(Value::Null)
    }

    /// Without quorum `/etc/pve` cannot be written.
    fn rules_writable(&self) -> Result<(), ErrorAnswer> {
        if self.quorate {
            return Ok(());
        }
        let why = "unable to open file '/etc/pve/firewall/fw.tmp' - Permission denied";
        Err(ErrorAnswer::die(why))
    }
}
