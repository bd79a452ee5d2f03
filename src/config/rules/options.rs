//! `[template.NAME.options]`: PVE's options of VMs by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Problems;
use super::regions::ResolvedRegions;
use crate::config::file::{self, Chipset};
use crate::config::place::KeyPath;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::vm_options::{self, VmOptions};

/// How alike a name must be to what was written, 1 being the same.
const ALIKE: f32 = 0.7;

/// The options of a template's machines, as they are written to PVE.
pub(super) fn options(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> VmOptions {
    let path = path.at("options");
    let mut options = VmOptions::new();
    for (name, value) in &template.options {
        let value = value.text();
        match fault(name, &value) {
            Some(why) => problems.add(&path.at(name), why),
            None => drop(options.insert(name.clone(), value)),
        }
    }
    check_machine(template, &options, &path, problems);
    check_hotplug(template, &options, &path, problems);
    options
}

fn fault(name: &str, value: &str) -> Option<String> {
    if let Some(why) = vm_options::refusal(name) {
        return Some(format!("cannot be set here: {why}"));
    }
    if !vm_options::may_be_named(name) {
        return Some(unknown(name));
    }
    vm_options::check(name, value).err()
}

fn unknown(name: &str) -> String {
    let refused = vm_options::refused_names().map(str::to_owned);
    let all: Vec<String> = vm_options::names().chain(refused).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let near = similar::get_close_matches(name, &all, 1, ALIKE);
    let near = near
        .first()
        .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    format!(
        "PVE has no such option of a VM; {near}the options here are {}",
        vm_options::names_in_short()
    )
}

/// The chipset stands in `machine` too, and a disk or device that was made for one is not there in the other.
fn check_machine(
    template: &file::Template,
    options: &VmOptions,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let created = template.create.as_ref().map(|of| ("create", of.machine));
    let built = template.build.as_ref().map(|of| ("build", of.machine));
    let Some((machine, (table, chipset))) = options.get("machine").zip(created.or(built)) else {
        return;
    };
    let same = vm_options::is_q35(machine) == (chipset == Chipset::Q35);
    problems.unless(same, &path.at("machine"), || {
        let called = match chipset {
            Chipset::Q35 => "q35",
            Chipset::Pc => "pc",
        };
        format!("is of another chipset than machine = {called:?} of its table {table}; expected the same in both")
    });
}

/// PVE starts no VM whose memory can be added to while it runs without NUMA nodes.
fn check_hotplug(
    template: &file::Template,
    options: &VmOptions,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let features = options.get("hotplug").map_or("", String::as_str);
    let memory = features.split(',').any(|feature| feature == "memory");
    problems.unless(
        !memory || template.numa == Some(true),
        &path.at("hotplug"),
        || {
            "memory needs NUMA nodes in the guest; expected numa = true of the template beside it"
                .to_owned()
        },
    );
}

/// What PVE lets nobody set but root@pam in person is for regions with the broker alone.
pub(super) fn check_channels(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    regions: &ResolvedRegions,
    problems: &mut Problems,
) {
    for (name, template) in templates {
        let region = regions.get(&template.region);
        let token = region.is_some_and(|region| region.settings.channel != Channel::Local);
        if !token {
            continue;
        }
        let path = KeyPath::default().at("template").at(&**name).at("options");
        for (option, value) in &template.hardware.options {
            let may = vm_options::privileges(option, value).is_some();
            problems.unless(may, &path.at(option), || {
                format!(
                    "PVE lets root@pam in person alone set it, and no API token; expected region.{}.channel = \"local\", or no such key",
                    template.region
                )
            });
        }
    }
}
