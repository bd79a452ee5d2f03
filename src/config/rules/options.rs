//! `[template.NAME.options]`: PVE's options of VMs by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize as _;
use serde::de::value::{Error as ValueError, MapDeserializer};

use super::Problems;
use super::regions::ResolvedRegions;
use crate::config::file::{self, Chipset};
use crate::config::near::nearest;
use crate::config::place::KeyPath;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::vm_options::{self, VmOptions};

/// The options of a template's machines, as they are written to PVE.
pub(super) fn options(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> VmOptions {
    let name_of_template = path.0.last().map_or("NAME", String::as_str);
    let path = path.at("options");
    let mut options = VmOptions::new();
    for (name, value) in &template.options {
        let value = value.text();
        if let Some(why) = name_fault(name, name_of_template) {
            problems.add_of_key(&path.at(name), why);
        } else if let Err(why) = vm_options::check(name, &value) {
            problems.add(&path.at(name), why);
        } else {
            options.insert(name.clone(), value);
        }
    }
    check_machine(template, &options, &path, problems);
    check_hotplug((template, name_of_template), &options, &path, problems);
    options
}

/// Why a template may not have an option of this name, whatever its value.
fn name_fault(name: &str, template: &str) -> Option<String> {
    if vm_options::may_be_named(name) {
        return None;
    }
    if let Some(why) = vm_options::refusal(name) {
        let why = why.replace("template.NAME", &format!("template.{template}"));
        return Some(format!("cannot be set here: {why}"));
    }
    let own = keys_of_template();
    if own.iter().any(|key| key == name) {
        return Some(told_as_own(template));
    }
    if let Some(others) = vm_options::others_with_a_number(name) {
        return Some(format!("PVE has no such option of a VM; it has {others}"));
    }
    let near = near(name, &own, template);
    Some(format!(
        "PVE has no such option of a VM; {near}the options here are {}",
        vm_options::names_in_short()
    ))
}

/// The option, or the key of the template's table, that was probably meant: one that is no fault there.
fn near(name: &str, own: &[String], template: &str) -> String {
    let options: Vec<String> = vm_options::names().collect();
    let all: Vec<&str> = options.iter().chain(own).map(String::as_str).collect();
    match nearest(name, &all) {
        Some(near) if vm_options::may_be_named(near) => format!("did you mean `{near}`? "),
        Some(near) => format!("did you mean `{near}` of [template.{template}]? "),
        None => String::new(),
    }
}

fn told_as_own(template: &str) -> String {
    format!(
        "is no option of PVE's but a key of [template.{template}]; expected it there, above the line [template.{template}.options]"
    )
}

/// What is to be said of an option whose value could not be read, where its name is wrong, too; nothing of other paths.
pub(in crate::config) fn wrong_name(path: &KeyPath) -> Option<String> {
    let [table, template, options, name, ..] = &path.0[..] else {
        return None;
    };
    let here = table == "template" && options == "options";
    here.then(|| name_fault(name, template)).flatten()
}

/// The keys of a template's table, as they are told of one that is none of them.
fn keys_of_template() -> Vec<String> {
    const NONE_OF_THEM: &str = "\u{0}";
    let table = std::iter::once((NONE_OF_THEM, true));
    let read = file::Template::deserialize(MapDeserializer::<_, ValueError>::new(table));
    let told = read
        .err()
        .map_or_else(String::new, |error| error.to_string());
    let listed = told.split_once(", expected ").map_or("", |(_, keys)| keys);
    listed
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
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
    (template, name): (&file::Template, &str),
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
            format!(
                "memory needs NUMA nodes in the guest; expected template.{name}.numa = true beside it"
            )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_template_are_those_that_its_table_takes() {
        let keys = keys_of_template();
        for key in [
            "region",
            "vlan",
            "nic_model",
            "resource_pool",
            "boot_disk",
            "build",
        ] {
            assert!(keys.iter().any(|one| one == key), "{key}: {keys:?}");
        }
        assert!(!keys.iter().any(|key| key.contains('\0')), "{keys:?}");
    }

    /// Who follows what is said meets no further error: of names that are almost one, what is proposed is taken where it is proposed.
    #[test]
    fn nothing_is_proposed_that_would_be_refused() {
        let own = keys_of_template();
        let almost = |name: &str| {
            [
                format!("{name}s"),
                name.replace('_', ""),
                name[1..].to_owned(),
            ]
        };
        let names = own.iter().cloned().chain(vm_options::names());
        let more = [
            "bootdisk",
            "onbot",
            "memry",
            "scsihv",
            "hookscripts",
            "hostpci",
        ];
        let names: Vec<String> = names.chain(more.map(str::to_owned)).collect();
        let mut proposed = 0;
        for name in names.iter().flat_map(|name| almost(name)) {
            let told = near(&name, &own, "debian");
            let Some((_, rest)) = told.split_once('`') else {
                continue;
            };
            let (meant, place) = rest.split_once('`').expect("it is in back-ticks");
            proposed += 1;
            let right = if place.starts_with(" of [template.debian]") {
                own.iter().any(|key| key == meant)
            } else {
                name_fault(meant, "debian").is_none()
            };
            assert!(right, "{name}: {told}");
        }
        assert!(proposed > 50, "{proposed}");
    }
}
