//! PVE's options of VMs that `[template.NAME.options]` may name: what each may be, who may set it, and what of it a VM takes while it
//! runs. Daemon and broker write and judge by the same functions.
//!
//! Source: PVE's schema for `POST /nodes/{node}/qemu`, and qemu-server 9.2.6 (`PVE/API2/Qemu.pm`, `check_vm_modify_config_perm`;
//! `PVE/QemuServer.pm`, `vmconfig_hotplug_pending`).

mod formats;
mod refused;
pub mod releases;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::syntax;
use formats::PropertyFormat;
use refused::REFUSED;

/// Options by PVE's names, as they are written to PVE.
pub type VmOptions = BTreeMap<String, String>;

/// The option that tells a guest's firmware who made it; the VM's UUID stands there too.
pub const SMBIOS: &str = "smbios1";
/// Longest value in bytes.
const MAX_VALUE: usize = 256;
/// Longest part of [`SMBIOS`] that a file gives, in bytes as it is written: with UUID and serial number it stays below PVE's 512.
const MAX_SMBIOS: usize = 320;

/// One option that a file may name, or several with a number behind.
struct VmOptionRule {
    /// PVE's name; one that ends with `[n]` stands for those with a number below `count`.
    name: &'static str,
    count: u8,
    kind: OptionKind,
    setter: OptionSetter,
}

/// What an option may be.
enum OptionKind {
    /// `0` or `1`.
    Flag,
    /// A whole number between two bounds.
    Whole(i64, i64),
    /// A number that is not negative.
    Number,
    /// One of some words.
    Words(&'static [&'static str]),
    /// A property string.
    Properties(&'static PropertyFormat),
    /// Text for which the function finds nothing wrong.
    Text(fn(&str) -> Result<(), String>),
}

/// Who may set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionSetter {
    /// Who has this privilege on the VM.
    Privilege(&'static str),
    /// root@pam in person.
    Root,
}

/// A privilege that an API token needs for an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionPrivilege {
    /// On what; `None` for the VM.
    pub path: Option<String>,
    /// The privilege.
    pub name: &'static str,
}

use OptionKind::{Flag, Number, Properties, Text, Whole, Words};
use OptionSetter::{Privilege, Root};

const OPTIONS: OptionSetter = Privilege("VM.Config.Options");
const HARDWARE: OptionSetter = Privilege("VM.Config.HWType");
const MEMORY: OptionSetter = Privilege("VM.Config.Memory");
const DISK: OptionSetter = Privilege("VM.Config.Disk");

const fn one(name: &'static str, setter: OptionSetter, kind: OptionKind) -> VmOptionRule {
    VmOptionRule {
        name,
        count: 0,
        kind,
        setter,
    }
}

const fn many(
    name: &'static str,
    count: u8,
    setter: OptionSetter,
    kind: OptionKind,
) -> VmOptionRule {
    VmOptionRule {
        name,
        count,
        kind,
        setter,
    }
}

/// What a file may name. What of `serial`, `usb` and `rng0` reaches the host has further rules in [`privileges`].
static ALLOWED: &[VmOptionRule] = &[
    one("acpi", HARDWARE, Flag),
    one("allow-ksm", MEMORY, Flag),
    one("amd-sev", Root, Properties(&formats::SEV)),
    one("audio0", HARDWARE, Properties(&formats::AUDIO)),
    one("autostart", OPTIONS, Flag),
    one("hotplug", HARDWARE, Text(hotplug)),
    one("intel-tdx", Root, Properties(&formats::TDX)),
    one("keyboard", OPTIONS, Words(KEYBOARDS)),
    one("kvm", HARDWARE, Flag),
    one("localtime", OPTIONS, Flag),
    one("machine", HARDWARE, Properties(&formats::MACHINE)),
    one("migrate_downtime", OPTIONS, Number),
    one("migrate_speed", OPTIONS, Whole(0, i64::MAX)),
    one("ostype", OPTIONS, Words(SYSTEMS)),
    many("parallel[n]", 3, Root, Text(parallel)),
    one("reboot", OPTIONS, Flag),
    one("rng0", HARDWARE, Properties(&formats::RNG)),
    many("serial[n]", 4, HARDWARE, Text(serial)),
    one("shares", MEMORY, Whole(0, 50_000)),
    one(SMBIOS, HARDWARE, Text(smbios_fields)),
    one("spice_enhancements", Root, Properties(&formats::SPICE)),
    one("startdate", OPTIONS, Text(start_date)),
    one("tablet", HARDWARE, Flag),
    one("tdf", OPTIONS, Flag),
    many("usb[n]", 14, HARDWARE, Text(usb)),
    one("vga", HARDWARE, Properties(&formats::VGA)),
    many("virtiofs[n]", 10, DISK, Properties(&formats::VIRTIOFS)),
    one("vmstatestorage", DISK, Text(storage)),
    one("watchdog", HARDWARE, Properties(&formats::WATCHDOG)),
];

/// PVE's layouts (`kvmkeymaplist`).
const KEYBOARDS: &[&str] = &[
    "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is",
    "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
];
const SYSTEMS: &[&str] = &[
    "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24",
    "l26", "solaris",
];
/// What PVE can give to a VM that runs (`parse_hotplug_features`).
const FEATURES: [&str; 6] = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];

/// Options that a VM takes while it runs, whatever else it has (`$fast_plug_option`).
const AT_ONCE: [&str; 4] = [
    "migrate_downtime",
    "migrate_speed",
    "shares",
    "vmstatestorage",
];

impl VmOptionRule {
    fn is(&self, name: &str) -> bool {
        is_named(self.name, self.count, name)
    }

    /// Its name for people; of one with a number the first and the last.
    fn in_short(&self) -> String {
        match self.name.strip_suffix("[n]") {
            Some(stem) => format!("{stem}0 to {stem}{}", self.count - 1),
            None => self.name.to_owned(),
        }
    }

    fn check(&self, value: &str) -> Result<(), String> {
        let expected = |right: bool, what: &str| {
            if right {
                Ok(())
            } else {
                Err(format!("expected {what}"))
            }
        };
        match &self.kind {
            Flag => expected(matches!(value, "0" | "1"), "true or false"),
            Whole(least, most) => {
                let number = value.parse::<i64>();
                let fits = number.is_ok_and(|number| (*least..=*most).contains(&number));
                let bounds = match *most {
                    i64::MAX => format!("a whole number, {least} or more"),
                    most => format!("a whole number, {least} to {most}"),
                };
                expected(fits, &bounds)
            }
            Number => {
                let number = value.parse::<f64>();
                let fits = number.is_ok_and(|number| number.is_finite() && number >= 0.0);
                expected(fits, "a number, 0 or more")
            }
            Words(words) => expected(
                words.contains(&value),
                &format!("one of {}", words.join(", ")),
            ),
            Properties(format) => format.check(value),
            Text(check) => check(value),
        }
    }
}

/// Whether `name` is the one that a table has, or one of its numbered ones.
fn is_named(listed: &str, count: u8, name: &str) -> bool {
    let Some(stem) = listed.strip_suffix("[n]") else {
        return listed == name;
    };
    let number = name.strip_prefix(stem);
    let plain = number.filter(|number| *number == "0" || !number.starts_with(['0', '+']));
    plain.is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number < count))
}

fn rule(name: &str) -> Option<&'static VmOptionRule> {
    ALLOWED.iter().find(|rule| rule.is(name))
}

/// Whether a file may name an option.
pub fn may_be_named(name: &str) -> bool {
    rule(name).is_some()
}

/// Why a file may not name an option that PVE has; nothing for one that it may name, or that PVE does not have.
pub fn refusal(name: &str) -> Option<&'static str> {
    let found = REFUSED
        .iter()
        .find(|(listed, _)| is_named(listed, u8::MAX, name));
    found.map(|(_, why)| *why)
}

/// Every name that a file may use.
pub fn names() -> impl Iterator<Item = String> {
    ALLOWED
        .iter()
        .flat_map(|rule| match rule.name.strip_suffix("[n]") {
            Some(stem) => (0..rule.count)
                .map(|number| format!("{stem}{number}"))
                .collect(),
            None => vec![rule.name.to_owned()],
        })
}

/// The same for people: those with a number as the first and the last.
pub fn names_in_short() -> String {
    let names = ALLOWED.iter().map(VmOptionRule::in_short);
    names.collect::<Vec<String>>().join(", ")
}

/// The options that are called as this one and have other numbers, the first and the last of them, for a name with a number that PVE
/// does not have there: `usb0 to usb13` for `usb14`.
pub fn others_with_a_number(name: &str) -> Option<String> {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let numbered = ALLOWED
        .iter()
        .filter(|rule| stem.len() < name.len() && !rule.is(name));
    let mut same = numbered.filter(|rule| rule.name.strip_suffix("[n]") == Some(stem));
    same.next().map(VmOptionRule::in_short)
}

/// Whether an option that a file may name may be this.
///
/// # Errors
/// What is wrong with it.
pub fn check(name: &str, value: &str) -> Result<(), String> {
    let Some(rule) = rule(name) else {
        return Err("PVE has no such option of a VM".to_owned());
    };
    if value.is_empty() {
        return Err(
            "is empty, and PVE takes nothing of that; expected a value, or no such key".to_owned(),
        );
    }
    let plain = value.chars().all(|c| !c.is_control()) && value.trim() == value;
    if !plain || value.len() > MAX_VALUE {
        return Err(format!(
            "expected one line of at most {MAX_VALUE} characters, without blanks around it"
        ));
    }
    rule.check(value)
}

/// The privileges that an API token needs for an option; `None` where PVE lets root@pam in person alone set it.
pub fn privileges(name: &str, value: &str) -> Option<Vec<OptionPrivilege>> {
    let Privilege(on_vm) = rule(name)?.setter else {
        return None;
    };
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let on = |path: String| OptionPrivilege {
        path: Some(path),
        name: "Mapping.Use",
    };
    let of = |format: &PropertyFormat, key: &str| format.value(value, key).map(str::to_owned);
    let further = match stem {
        // The host's own devices.
        "serial" if value != "socket" => return None,
        "usb" => match of(&formats::USB, "mapping") {
            Some(mapping) => Some(on(format!("/mapping/usb/{mapping}"))),
            None => {
                let host = of(&formats::USB, "host").unwrap_or_default();
                host.eq_ignore_ascii_case("spice").then_some(())?;
                None
            }
        },
        "virtiofs" => of(&formats::VIRTIOFS, "dirid").map(|of| on(format!("/mapping/dir/{of}"))),
        "rng" if of(&formats::RNG, "source").as_deref() == Some(formats::HARDWARE_RNG) => {
            Some(on("/mapping/hwrng".to_owned()))
        }
        "vmstatestorage" => Some(OptionPrivilege {
            path: Some(format!("/storage/{value}")),
            name: "Datastore.AllocateSpace",
        }),
        _ => None,
    };
    let on_vm = OptionPrivilege {
        path: None,
        name: on_vm,
    };
    Some(std::iter::once(on_vm).chain(further).collect())
}

/// The mappings of a kind (`usb`, `dir`) that options name.
pub fn mappings(options: &VmOptions, kind: &str) -> BTreeSet<String> {
    let prefix = format!("/mapping/{kind}/");
    let all = options.iter();
    let all = all.filter_map(|(name, value)| privileges(name, value));
    let paths = all.flatten().filter_map(|privilege| privilege.path);
    let named = paths.filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned));
    named.collect()
}

/// Of these options those that a VM takes while it runs, by their names.
pub fn in_place(options: &VmOptions) -> impl Iterator<Item = (&'static str, String)> + '_ {
    // What is given to a VM that runs, and what is switched on or off for it.
    let hotplug = options.get("hotplug").map(String::as_str);
    let keeps_running = hotplug.is_some_and(|features| {
        let mut features = features.split(',');
        features.all(|feature| !matches!(feature, "cpu" | "memory"))
    });
    let plugs_usb = hotplug
        .is_none_or(|features| features == "1" || features.split(',').any(|one| one == "usb"));
    let at_once = AT_ONCE.into_iter();
    let all = at_once
        .chain(keeps_running.then_some("hotplug"))
        .chain(plugs_usb.then_some("tablet"));
    all.filter_map(move |name| Some((name, options.get(name)?.clone())))
}

/// Of these options those that count for machines that are made from then on.
pub fn from_the_next_start(options: &VmOptions) -> BTreeMap<&str, &str> {
    let at_once: Vec<&str> = in_place(options).map(|(name, _)| name).collect();
    let others = options
        .iter()
        .filter(|(name, _)| !at_once.contains(&&***name));
    others
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// What is written for an option of the file into a VM that has `current` there.
pub fn written(name: &str, value: &str, current: Option<&str>) -> String {
    if name != SMBIOS {
        return value.to_owned();
    }
    // The UUID proves which node is whose, and in the serial number the machine's name may stand.
    let mut fields = smbios_encoded(current.unwrap_or_default());
    fields.extend(smbios_encoded(value));
    smbios_text(&fields)
}

fn smbios_text(fields: &BTreeMap<String, String>) -> String {
    let fields = fields.iter().map(|(key, value)| format!(",{key}={value}"));
    format!("base64=1{}", fields.collect::<String>())
}

/// The fields of an [`SMBIOS`], their texts in base64.
fn smbios_encoded(text: &str) -> BTreeMap<String, String> {
    let pairs = || text.split(',').filter_map(|part| part.split_once('='));
    let is_encoded = pairs().any(|(key, value)| {
        let value = value.to_ascii_lowercase();
        key == "base64" && matches!(&*value, "1" | "on" | "yes" | "true")
    });
    let fields = pairs().filter(|(key, _)| *key != "base64");
    fields
        .map(|(key, value)| {
            let value = if key == "uuid" || is_encoded {
                value.to_owned()
            } else {
                STANDARD.encode(value)
            };
            (key.to_owned(), value)
        })
        .collect()
}

/// What of [`SMBIOS`] is the same for all machines.
fn smbios_fields(text: &str) -> Result<(), String> {
    const FIELDS: [&str; 5] = ["family", "manufacturer", "product", "sku", "version"];
    let mut seen = Vec::new();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if key == "uuid" || key == "serial" {
            return Err(format!(
                "{key} is each machine's own: by the UUID its node is known, and its name may stand in the serial number"
            ));
        }
        if seen.contains(&key) {
            return Err(format!("{key} is in it twice; expected once"));
        }
        seen.push(key);
        let right = match key {
            "base64" => matches!(value, "0" | "1"),
            _ if FIELDS.contains(&key) => {
                let body = value.trim_end_matches('=');
                let padded = value.len() - body.len();
                !body.is_empty() && padded <= 2 && body.bytes().all(plain)
            }
            _ => {
                return Err(format!(
                    "PVE has no {key:?} in it; expected {} and base64",
                    FIELDS.join(", ")
                ));
            }
        };
        if !right {
            return Err(format!(
                "{key} is {value:?}; expected letters, digits, + and /, or with base64=1 any text in base64"
            ));
        }
    }
    let fields = smbios_encoded(text);
    if let Some((key, value)) = fields
        .iter()
        .find(|(_, value)| STANDARD.decode(value).is_err())
    {
        return Err(format!("{key} is {value:?}, which is no base64"));
    }
    let length = smbios_text(&fields).len();
    if length > MAX_SMBIOS {
        return Err(format!(
            "in base64 it is {length} characters; expected {MAX_SMBIOS} at most"
        ));
    }
    Ok(())
}

fn hotplug(text: &str) -> Result<(), String> {
    let known = |feature: &str| FEATURES.contains(&feature);
    if matches!(text, "0" | "1") || text.split(',').all(known) {
        return Ok(());
    }
    Err(format!(
        "expected true, false, or some of {}, separated by commas",
        FEATURES.join(", ")
    ))
}

/// A USB device: one of the host's, by a mapping or by itself, or one of SPICE.
fn usb(text: &str) -> Result<(), String> {
    formats::USB.check(text)?;
    let given = |key: &str| formats::USB.value(text, key).is_some();
    if given("host") == given("mapping") {
        return Err("expected either host or mapping in it".to_owned());
    }
    Ok(())
}

fn serial(text: &str) -> Result<(), String> {
    let of_host = text.strip_prefix("/dev/").is_some_and(is_device);
    let expected = "expected socket, or a device of the host such as /dev/ttyS0".to_owned();
    (text == "socket" || of_host).then_some(()).ok_or(expected)
}

fn parallel(text: &str) -> Result<(), String> {
    let ports = ["/dev/parport", "/dev/usb/lp"];
    let mut numbers = ports.iter().filter_map(|port| text.strip_prefix(port));
    let expected = "expected a device of the host such as /dev/parport0 or /dev/usb/lp0".to_owned();
    let right = numbers.any(formats::is_number);
    right.then_some(()).ok_or(expected)
}

/// The rest of a path below `/dev`, without a way out of it.
fn is_device(rest: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+@".contains(&byte);
    rest.split('/')
        .all(|part| !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(fine))
}

/// `now`, `2026-11-29`, `2026-11-29T08:15:00`.
fn start_date(text: &str) -> Result<(), String> {
    let numbers = |text: &str, sign: char, digits: [(usize, usize); 3]| {
        let parts: Vec<&str> = text.split(sign).collect();
        let fits = |(part, (least, most)): (&&str, (usize, usize))| {
            formats::is_number(part) && (least..=most).contains(&part.len())
        };
        parts.len() == digits.len() && parts.iter().zip(digits).all(fits)
    };
    let (date, time) = text.split_once('T').unwrap_or((text, "0:0:0"));
    let two = (1, 2);
    let right = numbers(date, '-', [(4, 4), two, two]) && numbers(time, ':', [two; 3]);
    let expected = "expected now, or a date such as 2026-11-29 or 2026-11-29T08:15:00".to_owned();
    (text == "now" || right).then_some(()).ok_or(expected)
}

fn storage(text: &str) -> Result<(), String> {
    let expected = "expected a storage's name".to_owned();
    syntax::pve_id(text).then_some(()).ok_or(expected)
}

/// Whether a `machine` that is no fault has the chipset Q35.
pub fn is_q35(machine: &str) -> bool {
    formats::is_q35(machine)
}

#[cfg(test)]
mod tests;
