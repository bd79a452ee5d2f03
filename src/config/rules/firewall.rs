//! The firewall of a VM, which looks only at cards that pass through it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Problems;
use crate::config::place::KeyPath;
use crate::config::settings::{NetCardSettings, TemplateSettings};

/// A firewall that is switched on, and no card of the VM passes through it, does nothing. Of a VM without a template the file has all cards.
/// A template may have further ones, which stay as they are: `doctor` looks at them.
pub(super) fn check(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) {
    for (name, template) in templates {
        if template.vm_firewall != Some(true) {
            continue;
        }
        let passing: Vec<Option<bool>> = template.cards().map(|(_, card)| passes(&card)).collect();
        if passing.contains(&Some(true)) {
            continue;
        }
        if template.new_vm.is_some() {
            problems.add(
                &KeyPath::default()
                    .at("template")
                    .at(&**name)
                    .at("vm_firewall"),
                format!(
                    "does nothing: no network card of its machines passes through the firewall; expected firewall = true or security_groups for net0 or in a [[template.{name}.nic]]"
                ),
            );
        } else if passing.iter().all(|passes| *passes == Some(false)) {
            warnings.push(format!(
                "template.{name}.vm_firewall = true: it does nothing unless the template has a further network card that passes through the firewall, since each one in the file has firewall = false; expected firewall = true or security_groups at one of them"
            ));
        }
    }
}

/// Whether a card passes through the firewall; `None` where the template's own card says it. That groups do not go with `firewall = false`
/// is told beside them, once.
fn passes(card: &NetCardSettings) -> Option<bool> {
    let groups = card.groups.iter().flatten().count();
    if groups > 0 {
        Some(true)
    } else {
        card.firewall
    }
}
