//! How templates are built: what of it can be told to be wrong before anything is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::regions::{ResolvedRegion, ResolvedRegions};
use super::templates::{BRIDGE, MAX_NICS, NAME_SERVERS, check_card, one_line};
use super::types::wrong_cores;
use super::{Problems, creations, each, hardware, ipconfig};
use crate::config::file::{Build, BuildMethod, ConfigFile};
use crate::config::place::KeyPath;
use crate::config::scalar::VmidRange;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::{syntax, vm_options};
use crate::model::network::fixed_addresses;
use crate::model::time::Span;

/// Digits of a checksum in hexadecimal, by its algorithm (PVE's `checksum-algorithm`).
const CHECKSUMS: [(&str, usize); 6] = [
    ("md5", 32),
    ("sha1", 40),
    ("sha224", 56),
    ("sha256", 64),
    ("sha384", 96),
    ("sha512", 128),
];
/// The least timeout of a build: with less no step of it ends well.
const MIN_TIMEOUT: Span = Span::minutes(1);
/// What a tag is expected to be.
const TAG: &str = "a tag: lower-case letters, digits, '_', '-', '+' and '.'";
/// Cloud images do not boot, or dnf is killed, with less.
const MIN_MEMORY: i64 = 1 << 30;

/// Checks a build.
pub(super) fn check(
    build: &Build,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    check_image(build, path, problems);
    check_vmids(build, path, region, problems);
    problems.storages(&path.at("storage"), &build.storage);
    problems.storages(&path.at("image_storage"), &build.image_storage);
    problems.storages(&path.at("snippet_storage"), &build.snippet_storage);
    let bridge: fn(&str) -> bool = syntax::bridge;
    for (key, value, holds, expected) in [
        ("bridge", &build.bridge, bridge, BRIDGE),
        (
            "cpu_type",
            &build.cpu_type,
            word,
            "a CPU model such as host",
        ),
        (
            "vga",
            &build.vga,
            screen,
            "a screen of PVE's without options: serial0, std, virtio, virtio-gl, qxl, vmware, cirrus or none",
        ),
    ] {
        problems.text(&path.at(key), Some(value), holds, expected);
    }
    problems.text(
        &path.at("resource_pool"),
        build.resource_pool.as_deref(),
        syntax::pve_pool,
        "a resource pool's name",
    );
    each(&build.tags, &path.at("tags"), syntax::tag, TAG, problems);
    check_numbers(build, path, problems);
    check_nics(build, &path.at("nic"), problems);
    check_kubernetes(build, path, problems);
    check_ways(build, path, problems);
    for (key, list, holds, expected) in [
        (
            "hosts",
            &build.hosts,
            syntax::dns_label as fn(&str) -> bool,
            "a host's name",
        ),
        ("packages", &build.packages, package, "a package's name"),
        (
            "images",
            &build.images,
            word,
            "an image such as quay.io/cilium/cilium:v1.18.3",
        ),
        ("commands", &build.commands, command, "one line of ASCII"),
    ] {
        each(list, &path.at(key), holds, expected, problems);
    }
}

/// Further network cards.
fn check_nics(build: &Build, path: &KeyPath, problems: &mut Problems) {
    problems.unless(build.nic.len() <= MAX_NICS, path, || {
        format!("expected at most {MAX_NICS} further network cards")
    });
    for (position, nic) in build.nic.iter().enumerate() {
        let path = path.at(&position);
        let at = path.at("bridge");
        let bridge = problems.require(nic.bridge.as_deref(), &at, "a bridge such as vmbr0");
        problems.text(&at, bridge, syntax::bridge, BRIDGE);
        check_card(&path, nic.vlan, nic.mtu, problems);
        hardware::check_model(&path, nic.model, nic.mtu, None, problems);
        let text = nic.ipconfig.as_deref().unwrap_or_default();
        let at = path.at("ipconfig");
        match nic.ipconfig.as_deref().and_then(ipconfig::fault) {
            Some(why) => problems.add(&at, why),
            None => problems.unless(fixed_addresses(text).next().is_none(), &at, || {
                "every machine of the template would have this address; expected ip=dhcp or ip6=auto".to_owned()
            }),
        }
    }
}

/// The version, and what is for another method.
fn check_kubernetes(build: &Build, path: &KeyPath, problems: &mut Problems) {
    let at = path.at("kubernetes");
    let version = Some(&*build.kubernetes);
    match build.method {
        BuildMethod::Kubeadm => problems.text(
            &at,
            version,
            kubernetes,
            "a Kubernetes version such as 1.34 or 1.34.1",
        ),
        BuildMethod::K3s => {
            problems.text(
                &at,
                version,
                k3s,
                "a version of k3s such as 1.34 or 1.34.1+k3s1",
            );
            let exact = build.repository.is_none() || build.kubernetes.contains('+');
            problems.unless(exact, &at, || {
                "expected a release such as 1.34.1+k3s1: a mirror (repository) does not say which is a minor's newest".to_owned()
            });
        }
        BuildMethod::Command => {
            for (key, set) in [
                ("kubernetes", !build.kubernetes.is_empty()),
                ("repository", build.repository.is_some()),
                ("images", !build.images.is_empty()),
            ] {
                problems.unless(!set, &path.at(key), || {
                    "is not for method = \"command\": its commands install Kubernetes".to_owned()
                });
            }
            problems.unless(!build.commands.is_empty(), &path.at("commands"), || {
                "is missing; with method = \"command\" they install Kubernetes".to_owned()
            });
        }
    }
    let own = build.image_repository.is_none() || build.method == BuildMethod::Kubeadm;
    problems.unless(own, &path.at("image_repository"), || {
        "is for method = \"kubeadm\"".to_owned()
    });
}

/// The ways to packages and images: mirrors and a proxy.
fn check_ways(build: &Build, path: &KeyPath, problems: &mut Problems) {
    let web = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    if let Some(mirror) = &build.repository {
        problems.unless(web(mirror) && word(mirror) && bare(mirror), &path.at("repository"), || {
            "expected a URL that begins with https://, without a name and a password: what is in it stays in the template".to_owned()
        });
    }
    let images = build.image_repository.as_deref();
    problems.text(
        &path.at("image_repository"),
        images,
        |text| word(text) && !text.contains("://"),
        "a registry such as registry.example.com/k8s",
    );
    if let Some(proxy) = &build.proxy {
        problems.unless(web(proxy) && word(proxy) && bare(proxy), &path.at("proxy"), || {
            "expected a URL such as http://proxy.example.com:3128, without a name and a password: it stays in the template".to_owned()
        });
    }
    let without = path.at("no_proxy");
    problems.unless(
        build.proxy.is_some() || build.no_proxy.is_empty(),
        &without,
        || "is for builds with a proxy".to_owned(),
    );
    let expected = "a name, an address or a network such as 10.0.0.0/8";
    each(&build.no_proxy, &without, past_proxy, expected, problems);
}

/// A URL without a name and a password.
fn bare(url: &str) -> bool {
    !url.contains('@')
}

/// A name (`.example.com`, too), an address or a network.
fn past_proxy(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-:/*".contains(c);
    !text.is_empty() && text.chars().all(fine)
}

/// A release of k3s, or a minor.
fn k3s(text: &str) -> bool {
    match text.split_once("+k3s") {
        None => kubernetes(text) && text.split('.').count() == 2,
        Some((version, build)) => {
            let digits = !build.is_empty() && build.bytes().all(|byte| byte.is_ascii_digit());
            digits && kubernetes(version) && version.split('.').count() == 3
        }
    }
}

/// Sizes and limits, the first card and the firmware, and what cloud-init gets while it is built.
fn check_numbers(build: &Build, path: &KeyPath, problems: &mut Problems) {
    let nameserver = build.nameserver.as_deref();
    problems.text(
        &path.at("nameserver"),
        nameserver,
        syntax::name_servers,
        NAME_SERVERS,
    );
    if let Some(why) = ipconfig::fault(&build.ipconfig) {
        problems.add(&path.at("ipconfig"), why);
    }
    check_card(path, build.vlan, build.mtu, problems);
    hardware::check_model(path, build.nic_model, build.mtu, None, problems);
    creations::check_firmware((build.bios, build.secure_boot), path, problems);
    if let Some(wrong) = wrong_cores(build.cores) {
        problems.add(&path.at("cores"), wrong);
    }
    problems.unless(build.memory.0 >= MIN_MEMORY, &path.at("memory"), || {
        "expected 1GiB or more".to_owned()
    });
    problems.unless(build.timeout.0 >= MIN_TIMEOUT, &path.at("timeout"), || {
        format!("expected {MIN_TIMEOUT} or more")
    });
}

fn check_image(build: &Build, path: &KeyPath, problems: &mut Problems) {
    match (&build.image, &build.volume) {
        (None, None) => problems.add(
            &path.at("image"),
            "is missing; expected the URL of a cloud image, or a volume",
        ),
        (Some(_), Some(_)) => problems.add(&path.at("volume"), "expected either image or volume"),
        (Some(url), None) => {
            let web = url.starts_with("https://") || url.starts_with("http://");
            problems.unless(web && word(url), &path.at("image"), || {
                "expected a URL that begins with https://".to_owned()
            });
            let right = build
                .checksum
                .as_deref()
                .is_some_and(|text| checksum(text).is_some());
            problems.unless(right, &path.at("checksum"), || {
                "expected the image's checksum such as \"sha512:…\", which its publisher gives beside it".to_owned()
            });
        }
        (None, Some(volume)) => {
            let right = volume
                .split_once(":import/")
                .is_some_and(|(storage, file)| syntax::pve_id(storage) && word(file));
            problems.unless(right, &path.at("volume"), || {
                "expected a volume such as local:import/debian-13.qcow2".to_owned()
            });
            problems.unless(build.checksum.is_none(), &path.at("checksum"), || {
                "only with image: PVE checks what it downloads".to_owned()
            });
        }
    }
}

fn check_vmids(
    build: &Build,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    let at = path.at("vmids");
    let Some(range) = build.vmids else {
        problems.add(
            &at,
            "is missing; expected VMIDs for built templates such as \"8000-8019\"",
        );
        return;
    };
    problems.unless(range.first >= 100, &at, || {
        "expected VMIDs of 100 or more".to_owned()
    });
    let machines = region.map(|region| region.vmids);
    let apart = machines.is_none_or(|other| !overlap(range, other));
    problems.unless(apart, &at, || {
        "overlaps the region's vmids, which are for machines alone".to_owned()
    });
}

/// Two builds of one region do not share VMIDs: each would take the other's.
pub(super) fn check_apart(file: &ConfigFile, problems: &mut Problems) {
    let mut seen: Vec<(&str, Option<&str>, VmidRange)> = Vec::new();
    for (name, template) in &file.template {
        let Some(range) = template.build.as_ref().and_then(|build| build.vmids) else {
            continue;
        };
        let path = KeyPath::default()
            .at("template")
            .at(name)
            .at("build")
            .at("vmids");
        let region = template.region.as_deref();
        let of_region = seen.iter().filter(|(_, there, _)| *there == region);
        for (other, _, theirs) in of_region {
            problems.unless(!overlap(range, *theirs), &path, || {
                format!("overlaps those of template {other}; each needs its own")
            });
        }
        seen.push((name, region, range));
    }
}

/// With an API token no build has the resource pool of some template's machines: the token may change and destroy what is in it.
pub(super) fn check_pools(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    regions: &ResolvedRegions,
    problems: &mut Problems,
) {
    let by_token = |of: &TemplateSettings| {
        let region = regions.get(&of.region);
        region.is_some_and(|region| region.settings.channel != Channel::Local)
    };
    let of_token = || templates.iter().filter(|(_, of)| by_token(of));
    for (name, of) in of_token() {
        let build = of.build.as_ref();
        let Some(pool) = build.and_then(|build| build.resource_pool.as_ref()) else {
            continue;
        };
        let mut others = of_token();
        let machines = others.find(|(_, other)| {
            other.region == of.region && other.resource_pool.as_ref() == Some(pool)
        });
        let path = KeyPath::default().at("template").at(name);
        let path = path.at("build").at("resource_pool");
        problems.unless(machines.is_none(), &path, || {
            let other = machines.map_or("", |(other, _)| other);
            format!("is the pool of machines of template {other}: the API token may change and destroy what is in it; expected one for templates alone")
        });
    }
}

fn overlap(one: VmidRange, other: VmidRange) -> bool {
    one.first <= other.last && other.first <= one.last
}

/// The algorithm and the digits of a checksum.
pub(super) fn checksum(text: &str) -> Option<(&str, &str)> {
    let (algorithm, digits) = text.split_once(':')?;
    let (_, length) = CHECKSUMS.iter().find(|(name, _)| *name == algorithm)?;
    let right = digits.len() == *length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    right.then_some((algorithm, digits))
}

/// `1.34` or `1.34.1`.
fn kubernetes(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let number = |part: &&str| {
        !part.is_empty() && part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    (2..=3).contains(&parts.len()) && parts.iter().all(number) && parts[0] == "1"
}

/// One word of what stands in URLs, versions and names; nothing that a shell or a property string reads otherwise.
fn word(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "/:.-_@+~%=?&".contains(c);
    !text.is_empty() && text.chars().all(fine)
}

/// A screen, without options behind it.
fn screen(text: &str) -> bool {
    word(text) && vm_options::check("vga", text).is_ok()
}

/// What the guest agent can be handed: PVE passes on no other characters right.
fn command(text: &str) -> bool {
    one_line(text) && text.is_ascii()
}

/// A package's name, with a version if wanted (`nfs-common`, `containerd=1.7*`).
fn package(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-_+=~:*".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_checksums_are_what_they_seem() {
        for text in ["1.34", "1.34.1", "1.9.12"] {
            assert!(kubernetes(text), "{text}");
        }
        for text in ["1.34", "1.34.1+k3s1", "1.34.10+k3s12"] {
            assert!(k3s(text), "{text}");
        }
        for text in [
            "1.34.1",
            "1.34+k3s1",
            "1.34.1+k3s",
            "1.34.1+rke2r1",
            "v1.34",
        ] {
            assert!(!k3s(text), "{text}");
        }
        for text in ["1", "v1.34", "1.34.", "2.1", "1.34.1-1.1", "1.34 ; reboot"] {
            assert!(!kubernetes(text), "{text}");
        }
        let digits = "a".repeat(64);
        assert!(checksum(&format!("sha256:{digits}")).is_some());
        for text in [
            digits.clone(),
            format!("sha512:{digits}"),
            format!("sha256:{}g", &digits[1..]),
        ] {
            assert!(checksum(&text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_package_is_no_option_and_no_command() {
        for text in [
            "nfs-common",
            "open-iscsi",
            "containerd.io=1.7.2-1",
            "gcc-c++",
        ] {
            assert!(package(text), "{text}");
        }
        for text in ["", "-o", "a b", "a;b", "$(a)"] {
            assert!(!package(text), "{text}");
        }
    }
}
