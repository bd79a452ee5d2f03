//! What differs between Proxmox VE 8 and 9, where a simulated cluster's `version` says which of them it is: what each of them does not
//! know it refuses with its own words (pve-manager 8.4.21, qemu-server 8.4.10, pve-access-control 8.2.3; 9.2 as everywhere here).

use super::schema::split;
use super::table::{ApiMethod, CallHandler};
use super::wire::{ErrorAnswer, ParamValue, ParamValues};
use super::world::PveWorld;

/// The one privilege for the guest agent that PVE 8 has, which 9 has no more.
pub(super) const MONITOR: &str = "VM.Monitor";
/// What the privileges begin with that PVE 9 has in its place.
const OF_AGENT: &str = "VM.GuestAgent.";
/// Options of a VM that came with 9.
const OPTIONS_OF_9: &[&str] = &["allow-ksm", "intel-tdx"];
/// CPU types that came with 9.
const CPUS_OF_9: [&str; 14] = [
    "ClearwaterForest",
    "EPYC-Genoa-v2",
    "EPYC-Milan-v3",
    "EPYC-Rome-v5",
    "EPYC-Turin",
    "EPYC-v5",
    "GraniteRapids-v2",
    "GraniteRapids-v3",
    "Icelake-Server-v7",
    "SapphireRapids-v3",
    "SapphireRapids-v4",
    "SierraForest",
    "SierraForest-v2",
    "SierraForest-v3",
];
/// The CPU flags that 8 lets a VM have, as its answer lists them.
const CPU_FLAGS_OF_8: &str = "pcid, spec-ctrl, ibpb, ssbd, virt-ssbd, amd-ssbd, amd-no-ssb, pdpe1gb, md-clear, hv-tlbflush, hv-evmcs, aes";

/// A release of Proxmox VE that a simulated cluster can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Release {
    /// 8 and what was before.
    Eight,
    /// 9 and what comes after.
    Nine,
}

impl PveWorld {
    /// Which release the cluster is of.
    pub(super) fn release(&self) -> Release {
        let major = self.spec.version.split('.').next();
        match major.and_then(|major| major.parse::<u32>().ok()) {
            Some(..=8) => Release::Eight,
            _ => Release::Nine,
        }
    }
}

impl Release {
    /// Whether this release has the privilege.
    pub(super) fn has_privilege(self, name: &str) -> bool {
        match self {
            Release::Eight => !name.starts_with(OF_AGENT),
            Release::Nine => name != MONITOR,
        }
    }

    /// The privileges of which one is asked for: those of PVE 9 in the words of this release.
    pub(super) fn asked_for(self, privileges: &'static [&'static str]) -> Vec<&'static str> {
        let mut own: Vec<&str> = privileges
            .iter()
            .map(|name| {
                if self.has_privilege(name) {
                    name
                } else {
                    MONITOR
                }
            })
            .collect();
        own.dedup();
        own
    }

    /// Refuses a list of a role's privileges that names one which this release does not have.
    pub(super) fn check_privileges(self, list: &str) -> Result<(), ErrorAnswer> {
        match split(list).find(|name| !self.has_privilege(name)) {
            Some(name) => Err(ErrorAnswer::parameter(
                "privs",
                format!("invalid format - invalid privilege '{name}'\n"),
            )),
            None => Ok(()),
        }
    }

    /// Refuses a change of a VM that names what came with 9 where the release is 8: in a value, or among the options to take away.
    pub(super) fn check_change(self, params: &ParamValues) -> Result<(), ErrorAnswer> {
        if self >= Release::Nine {
            return Ok(());
        }
        let text = |name: &str| match params.get(name) {
            Some(ParamValue::Text(text) | ParamValue::Number(text)) => text.as_str(),
            _ => "",
        };
        let mut parts = text("machine").split(',');
        if parts.any(|part| part.starts_with("aw-bits=")) {
            return Err(ErrorAnswer::parameter(
                "machine",
                "invalid format - format error\nmachine.aw-bits: property is not defined in schema and the schema does not allow additional properties\n",
            ));
        }
        check_cpu(text("cpu"))?;
        match split(text("delete")).find(|name| OPTIONS_OF_9.contains(name)) {
            Some(name) => Err(ErrorAnswer::parameter(
                "delete",
                format!("unknown option '{name}'"),
            )),
            None => Ok(()),
        }
    }

    /// The parameters of a call that this release does not know.
    pub(super) fn lacks(self, call: &ApiMethod) -> &'static [&'static str] {
        match (self, call.act) {
            (Release::Nine, _) => &[],
            (Release::Eight, CallHandler::HaRemove) => &["purge"],
            (Release::Eight, _) => OPTIONS_OF_9,
        }
    }
}

/// Refuses a CPU that 8 does not know.
fn check_cpu(cpu: &str) -> Result<(), ErrorAnswer> {
    let refuse = |why: String| {
        Err(ErrorAnswer::parameter(
            "cpu",
            format!("invalid format - {why}\n"),
        ))
    };
    let mut parts = cpu.split(',');
    let model = parts.next().unwrap_or_default();
    let model = model.strip_prefix("cputype=").unwrap_or(model);
    if CPUS_OF_9.contains(&model) {
        return refuse(format!(
            "Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)"
        ));
    }
    let mut flags = parts.filter_map(|part| part.strip_prefix("flags="));
    if flags.any(|flags| flags.split(';').any(|flag| flag.ends_with("nested-virt"))) {
        return refuse(format!(
            "VM-specific CPU flags must be a subset of: {CPU_FLAGS_OF_8}"
        ));
    }
    Ok(())
}
