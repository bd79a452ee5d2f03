//! What a template is built from, and the VM that it begins as. Pure.

use std::path::Path;

use crate::config::file::{
    Build, BuildMethod, BuildNic, Chipset, Firmware, NicModel, ScsiController,
};
use crate::controller::template_mark::hex;

/// Bytes of the hash in an image's file name.
const HASH: usize = 6;
/// The tag of every template that is built, for people; it proves nothing.
const TAG: &str = "pve-autoscaler-template";
/// Where kubeadm's images come from.
const IMAGES: &str = "registry.k8s.io";
/// The disk that it boots from.
pub(super) const DISK: &str = "scsi0";

/// The file that an image is downloaded to: two images never share one.
pub(super) fn image_file(url: &str, checksum: &str) -> String {
    let path = Path::new(url.split('?').next().unwrap_or(url));
    let raw = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("raw"));
    let format = if raw { "raw" } else { "qcow2" };
    let sum = hex(format!("{url}\n{checksum}").as_bytes(), HASH);
    format!("pve-autoscaler-{sum}.{format}")
}

/// What a VM is to be created as.
#[derive(Debug)]
pub(super) struct TemplateVm<'a> {
    pub(super) vmid: u32,
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    /// The storage of its disks: one of those that the build names.
    pub(super) storage: &'a str,
    /// The volume that its disk is imported from.
    pub(super) image: &'a str,
    /// The volume with the cloud-init data of its first boot.
    pub(super) snippet: &'a str,
}

/// The parameters of `POST /nodes/{host}/qemu`.
pub(super) fn parameters(build: &Build, new: &TemplateVm<'_>) -> Vec<(String, String)> {
    let storage = new.storage;
    let machine = match build.machine {
        Chipset::Q35 => "q35",
        Chipset::Pc => "pc",
    };
    let controller = match build.scsi_controller {
        ScsiController::VirtioScsiSingle => "virtio-scsi-single",
        ScsiController::VirtioScsiPci => "virtio-scsi-pci",
    };
    let first = BuildNic {
        bridge: Some(build.bridge.clone()),
        vlan: build.vlan,
        firewall: build.firewall,
        model: build.nic_model,
        mtu: build.mtu,
        ipconfig: None,
    };
    let mut parameters = vec![
        ("vmid", new.vmid.to_string()),
        ("name", new.name.to_owned()),
        ("description", new.description.to_owned()),
        ("tags", tags(build)),
        ("ostype", "l26".to_owned()),
        ("cores", build.cores.to_string()),
        ("memory", (build.memory.0 >> 20).to_string()),
        ("cpu", build.cpu_type.clone()),
        ("machine", machine.to_owned()),
        ("scsihw", controller.to_owned()),
        (
            DISK,
            format!("{storage}:0,import-from={},discard=on", new.image),
        ),
        ("ide2", format!("{storage}:cloudinit")),
        ("boot", format!("order={DISK}")),
        ("net0", card(&first)),
        ("agent", agent(build)),
        ("serial0", "socket".to_owned()),
        ("vga", build.vga.clone()),
        ("ipconfig0", build.ipconfig.clone()),
        ("ciupgrade", "0".to_owned()),
        ("cicustom", format!("vendor={}", new.snippet)),
    ];
    if let Some(nameserver) = &build.nameserver {
        parameters.push(("nameserver", nameserver.clone()));
    }
    if build.bios == Firmware::Ovmf {
        parameters.push(("bios", "ovmf".to_owned()));
        let keys = u8::from(build.secure_boot);
        let disk = format!("{storage}:1,efitype=4m,pre-enrolled-keys={keys}");
        parameters.push(("efidisk0", disk));
    }
    if let Some(pool) = &build.resource_pool {
        parameters.push(("pool", pool.clone()));
    }
    if build.tpm {
        parameters.push(("tpmstate0", format!("{storage}:1,version=v2.0")));
    }
    let further = (1..).zip(&build.nic).flat_map(|(number, nic)| {
        let ipconfig = nic.ipconfig.clone();
        let ipconfig = ipconfig.map(|text| (format!("ipconfig{number}"), text));
        std::iter::once((format!("net{number}"), card(nic))).chain(ipconfig)
    });
    let parameters = parameters.into_iter();
    parameters
        .map(|(key, value)| (key.to_owned(), value))
        .chain(further)
        .collect()
}

/// A network card, as PVE's `netN` writes it; PVE chooses its MAC address.
fn card(nic: &BuildNic) -> String {
    let model = nic.model.unwrap_or(NicModel::Virtio).called();
    let bridge = nic.bridge.as_deref().unwrap_or_default();
    let vlan = nic.vlan.map(|tag| format!(",tag={tag}"));
    let mtu = nic.mtu.map(|mtu| format!(",mtu={mtu}"));
    let (vlan, mtu) = (vlan.unwrap_or_default(), mtu.unwrap_or_default());
    let passes = nic.firewall == Some(true);
    let firewall = if passes { ",firewall=1" } else { "" };
    format!("{model},bridge={bridge}{firewall}{vlan}{mtu}")
}

/// PVE's `agent`. What is PVE's default is not written. Releases of PVE since 9.1 call the second option `freeze-fs`, and take the older
/// name, too.
fn agent(build: &Build) -> String {
    let wanted = build.agent.clone().unwrap_or_default();
    let mut text = "enabled=1".to_owned();
    if wanted.fstrim_cloned_disks {
        text.push_str(",fstrim_cloned_disks=1");
    }
    if !wanted.freeze_fs_on_backup {
        text.push_str(",freeze-fs-on-backup=0");
    }
    text
}

/// The tags of the VM, ours among them, as PVE sorts them.
fn tags(build: &Build) -> String {
    let mut tags = build.tags.clone();
    tags.push(TAG.to_owned());
    tags.sort();
    tags.dedup();
    tags.join(";")
}

/// One thing that is run in the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BuildStep {
    /// A word that names its files.
    pub(super) name: String,
    /// What it does, for people.
    pub(super) what: String,
    /// The script that does it.
    pub(super) script: String,
}

/// The cloud-init data of the first boot. Where there is a proxy the package managers know it from then on.
pub(super) fn vendor_data(build: &Build) -> String {
    let mut text = include_str!("scripts/vendor.yaml").to_owned();
    if let Some(proxy) = &build.proxy {
        text.push_str(&include_str!("scripts/proxy.yaml").replace("PROXY", proxy));
    }
    text
}

/// What is run in the guest, in order.
pub(super) fn steps(build: &Build) -> Vec<BuildStep> {
    let step = |name: String, what: String, script: String| BuildStep { name, what, script };
    let ways = ways(build);
    let mut steps = vec![step(
        "install".to_owned(),
        installing(build),
        install(build),
    )];
    let pulls = build.pull_images || !build.images.is_empty();
    if pulls && build.method != BuildMethod::Command {
        let images = build.images.join(" ");
        let pull = u8::from(build.pull_images);
        let script = include_str!("scripts/images.sh");
        steps.push(step(
            "images".to_owned(),
            "pulling images".to_owned(),
            format!("{ways}pull='{pull}'\nimages='{images}'\n{script}"),
        ));
    }
    for (index, command) in build.commands.iter().enumerate() {
        steps.push(step(
            format!("command-{}", index + 1),
            format!("running `{command}`"),
            format!("set -e\n{ways}{command}\n"),
        ));
    }
    steps.push(step(
        "clean".to_owned(),
        "cleaning up".to_owned(),
        include_str!("scripts/clean.sh").to_owned(),
    ));
    steps
}

/// What the step that installs does, for people.
fn installing(build: &Build) -> String {
    let version = &build.kubernetes;
    match build.method {
        BuildMethod::Kubeadm => format!("installing containerd, kubelet and kubeadm {version}"),
        BuildMethod::K3s => format!("installing k3s {version}"),
        BuildMethod::Command => "installing packages".to_owned(),
    }
}

/// The script of the step that installs.
fn install(build: &Build) -> String {
    let parts: Vec<&str> = build.kubernetes.split('.').collect();
    let minor = parts.iter().take(2).copied().collect::<Vec<_>>().join(".");
    let patch = if parts.len() > 2 {
        &*build.kubernetes
    } else {
        ""
    };
    let repository = build.repository.as_deref().unwrap_or_default();
    let script = match build.method {
        BuildMethod::Kubeadm => include_str!("scripts/kubeadm.sh"),
        BuildMethod::K3s => include_str!("scripts/k3s.sh"),
        BuildMethod::Command => "",
    };
    format!(
        "{}minor='{minor}'\npatch='{patch}'\nrepository='{}'\npackages='{}'\n{}{script}",
        ways(build),
        repository.trim_end_matches('/'),
        build.packages.join(" "),
        include_str!("scripts/prepare.sh"),
    )
}

/// What steps know of the ways to packages and images, as variables of the shell.
fn ways(build: &Build) -> String {
    let method = match build.method {
        BuildMethod::Kubeadm => "kubeadm",
        BuildMethod::K3s => "k3s",
        BuildMethod::Command => "command",
    };
    let images = build.image_repository.as_deref().unwrap_or(IMAGES);
    let proxy = build.proxy.as_deref().unwrap_or_default();
    let no_proxy = build.no_proxy.join(",");
    let mut ways = format!(
        "method='{method}'\nimage_repository='{images}'\nproxy='{proxy}'\nno_proxy='{no_proxy}'\n"
    );
    if !proxy.is_empty() {
        ways.push_str(
            "export http_proxy=\"$proxy\" https_proxy=\"$proxy\" no_proxy HTTP_PROXY=\"$proxy\" HTTPS_PROXY=\"$proxy\" NO_PROXY=\"$no_proxy\"\n",
        );
    }
    ways
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::file::BuildAgent;
    use crate::config::scalar::{Duration, VmidRange};
    use crate::controller::template_mark::definition as hash;
    use crate::model::time::Span;

    fn build() -> Build {
        Build {
            storage: "fast".into(),
            kubernetes: "1.34.1".to_owned(),
            packages: vec!["nfs-common".to_owned()],
            ..Build::default()
        }
    }

    #[test]
    fn what_goes_into_a_template_is_in_its_hash_and_where_it_lies_is_not() {
        let base = hash(&build());
        let vmids = Some(VmidRange {
            first: 8000,
            last: 8009,
        });
        let elsewhere = Build {
            vmids,
            hosts: vec!["pve2".to_owned()],
            timeout: Duration(Span::minutes(5)),
            ..build()
        };
        assert_eq!(hash(&elsewhere), base);
        let more = Build {
            packages: vec!["jq".to_owned()],
            ..build()
        };
        assert_ne!(hash(&more), base);
    }

    /// As it was before there were lists: templates of a single storage are not built anew.
    #[test]
    fn a_single_storage_has_the_hash_that_it_had_as_text() {
        let mut written = serde_json::to_value(build().contents()).expect("a table");
        assert_eq!(written["storage"], "fast");
        let of_one = Build {
            storage: ["fast"].into(),
            ..build()
        };
        assert_eq!(hash(&of_one), hash(&build()));
        written["storage"] = serde_json::json!(["fast", "slow"]);
        let of_two = |names: [&str; 2]| Build {
            storage: names.into(),
            ..build()
        };
        let listed = serde_json::to_value(of_two(["fast", "slow"]).contents()).expect("a table");
        assert_eq!(listed, written);
        assert_ne!(hash(&of_two(["fast", "slow"])), hash(&build()));
        assert_ne!(
            hash(&of_two(["fast", "slow"])),
            hash(&of_two(["slow", "fast"]))
        );
    }

    #[test]
    fn firmware_and_tpm_bring_their_disks() {
        let new = TemplateVm {
            vmid: 8000,
            name: "t",
            description: "d",
            storage: "fast",
            image: "local:import/x.qcow2",
            snippet: "local:snippets/x.yaml",
        };
        let uefi = Build {
            bios: Firmware::Ovmf,
            tpm: true,
            vlan: Some(20),
            ..build()
        };
        let parameters = parameters(&uefi, &new);
        let of = |key: &str| {
            let found = parameters.iter().find(|(name, _)| name == key);
            found.map_or("", |(_, value)| value.as_str())
        };
        assert_eq!(
            of("scsi0"),
            "fast:0,import-from=local:import/x.qcow2,discard=on"
        );
        assert_eq!(of("efidisk0"), "fast:1,efitype=4m,pre-enrolled-keys=0");
        assert_eq!(of("tpmstate0"), "fast:1,version=v2.0");
        assert_eq!(of("net0"), "virtio,bridge=vmbr0,tag=20");
        assert_eq!(of("cicustom"), "vendor=local:snippets/x.yaml");
        assert_eq!((of("tags"), of("pool")), ("pve-autoscaler-template", ""));
    }

    #[test]
    fn tags_and_a_resource_pool_come_with_the_vm() {
        let new = TemplateVm {
            vmid: 8000,
            name: "t",
            description: "d",
            storage: "fast",
            image: "local:import/x.qcow2",
            snippet: "local:snippets/x.yaml",
        };
        let owned = Build {
            resource_pool: Some("templates".to_owned()),
            tags: ["web", "debian", "web", "pve-autoscaler-template"]
                .map(str::to_owned)
                .into(),
            ..build()
        };
        let parameters = parameters(&owned, &new);
        for (key, value) in [
            ("pool", "templates"),
            ("tags", "debian;pve-autoscaler-template;web"),
        ] {
            let found = parameters.iter().find(|(name, _)| name == key);
            assert_eq!(found.map(|(_, value)| value.as_str()), Some(value));
        }
    }

    /// What a build's parameters have under a key; nothing where they do not have it.
    fn parameter(build: &Build, key: &str) -> Option<String> {
        let new = TemplateVm {
            vmid: 8000,
            name: "t",
            description: "d",
            storage: "fast",
            image: "local:import/x.qcow2",
            snippet: "local:snippets/x.yaml",
        };
        let mut all = parameters(build, &new).into_iter();
        all.find(|(name, _)| name == key).map(|(_, value)| value)
    }

    #[test]
    fn further_network_cards_come_with_the_vm_and_change_its_hash() {
        let text = |text: &str| Some(text.to_owned());
        let two = Build {
            nic: vec![
                BuildNic {
                    bridge: text("vmbr1"),
                    vlan: Some(30),
                    mtu: Some(9000),
                    ..BuildNic::default()
                },
                BuildNic {
                    bridge: text("vmbr2"),
                    model: Some(NicModel::E1000e),
                    ipconfig: text("ip=dhcp"),
                    ..BuildNic::default()
                },
            ],
            ..build()
        };
        for (key, value) in [
            ("net0", text("virtio,bridge=vmbr0")),
            ("net1", text("virtio,bridge=vmbr1,tag=30,mtu=9000")),
            ("net2", text("e1000e,bridge=vmbr2")),
            ("net3", None),
            ("ipconfig0", text("ip=dhcp")),
            ("ipconfig1", None),
            ("ipconfig2", text("ip=dhcp")),
        ] {
            assert_eq!(parameter(&two, key), value, "{key}");
        }
        assert_ne!(hash(&two), hash(&build()));
    }

    #[test]
    fn the_first_card_and_secure_boot_come_with_the_vm() {
        let of = |change: fn(&mut Build)| {
            let mut changed = build();
            change(&mut changed);
            changed
        };
        for (changed, key, value) in [
            (
                of(|build| build.mtu = Some(9000)),
                "net0",
                "virtio,bridge=vmbr0,mtu=9000",
            ),
            (
                of(|build| build.nic_model = Some(NicModel::E1000)),
                "net0",
                "e1000,bridge=vmbr0",
            ),
            (
                of(|build| (build.vlan, build.firewall) = (Some(20), Some(true))),
                "net0",
                "virtio,bridge=vmbr0,firewall=1,tag=20",
            ),
            (
                of(|build| {
                    build.nic = vec![BuildNic {
                        bridge: Some("vmbr1".to_owned()),
                        firewall: Some(true),
                        ..BuildNic::default()
                    }];
                }),
                "net1",
                "virtio,bridge=vmbr1,firewall=1",
            ),
            (
                of(|build| (build.bios, build.secure_boot) = (Firmware::Ovmf, true)),
                "efidisk0",
                "fast:1,efitype=4m,pre-enrolled-keys=1",
            ),
        ] {
            assert_eq!(parameter(&changed, key).as_deref(), Some(value));
            assert_ne!(hash(&changed), hash(&build()), "{value}");
        }
        // Who writes down what holds anyhow has no template built anew.
        let usual = of(|build| {
            build.firewall = Some(false);
            build.nic_model = Some(NicModel::Virtio);
        });
        assert_eq!(hash(&usual), hash(&build()));
        assert_eq!(parameter(&usual, "net0"), parameter(&build(), "net0"));
        let [without, said] = [None, Some(false)].map(|firewall| Build {
            nic: vec![BuildNic {
                bridge: Some("vmbr1".to_owned()),
                firewall,
                ..BuildNic::default()
            }],
            ..build()
        });
        assert_eq!(hash(&said), hash(&without));
    }

    /// What an earlier version hashed, to the letter: an upgrade builds no template anew.
    #[test]
    fn a_definition_without_newer_keys_has_the_hash_that_it_had() {
        let written = concat!(
            r#"{"vmids":null,"storage":"fast","image_storage":"local","snippet_storage":"local","hosts":[],"#,
            r#""kubernetes":"1.34.1","packages":["nfs-common"],"pull_images":true,"images":[],"commands":[],"#,
            r#""cores":2,"memory":"2GiB","machine":"q35","bios":"seabios","tpm":false,"#,
            r#""scsi_controller":"virtio-scsi-single","cpu_type":"x86-64-v2-AES","bridge":"vmbr0","vga":"serial0","#,
            r#""ipconfig":"ip=dhcp","timeout":"30m"}"#,
        );
        let text = serde_json::to_string(&build().contents()).expect("JSON");
        assert_eq!(text, written);
        assert_eq!(hash(&build()), "6e7fd811e95b");
    }

    #[test]
    fn what_pve_asks_of_the_agent_is_as_the_file_says() {
        let of = |fstrim_cloned_disks, freeze_fs_on_backup| Build {
            agent: Some(BuildAgent {
                fstrim_cloned_disks,
                freeze_fs_on_backup,
            }),
            ..build()
        };
        let usual = "enabled=1,fstrim_cloned_disks=1";
        for (build, text) in [
            (build(), usual),
            (of(true, true), usual),
            (of(false, true), "enabled=1"),
            (
                of(true, false),
                "enabled=1,fstrim_cloned_disks=1,freeze-fs-on-backup=0",
            ),
        ] {
            assert_eq!(parameter(&build, "agent").as_deref(), Some(text));
        }
        // Who writes down what holds anyhow has no template built anew.
        assert_eq!(hash(&of(true, true)), hash(&build()));
        assert_ne!(hash(&of(true, false)), hash(&build()));
    }

    #[test]
    fn a_patch_is_wanted_exactly_and_scripts_are_ascii() {
        let steps = steps(&Build {
            commands: vec!["echo hello".to_owned()],
            ..build()
        });
        let names: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
        assert_eq!(names, ["install", "images", "command-1", "clean"]);
        let wanted = "minor='1.34'\npatch='1.34.1'\nrepository=''\npackages='nfs-common'\n";
        assert!(steps[0].script.contains(wanted));
        assert!(steps.iter().all(|step| step.script.is_ascii()));
    }

    #[test]
    fn a_proxy_is_known_from_the_first_boot_on() {
        assert!(!vendor_data(&build()).contains("bootcmd"));
        let behind = Build {
            proxy: Some("http://proxy.example:3128".to_owned()),
            no_proxy: vec!["10.0.0.0/8".to_owned(), ".example".to_owned()],
            ..build()
        };
        assert!(vendor_data(&behind).contains("proxy=http://proxy.example:3128"));
        let steps = steps(&behind);
        let (clean, others) = steps.split_last().expect("steps");
        assert!(!clean.script.contains("proxy.example"));
        for step in others {
            let lines = "proxy='http://proxy.example:3128'\nno_proxy='10.0.0.0/8,.example'\nexport http_proxy=";
            assert!(step.script.contains(lines), "{}", step.name);
        }
    }

    /// The page on templates made by hand installs what a build installs.
    #[test]
    fn the_page_for_hands_names_the_same_packages() {
        let packages = |text: &'static str, begin: &str| -> BTreeSet<&'static str> {
            let mut lines = text.lines().filter_map(|line| line.split_once(begin));
            let (_, list) = lines.next().expect("the line with the packages");
            let words = list.split_whitespace();
            words.filter(|word| !word.starts_with('$')).collect()
        };
        let script = include_str!("scripts/prepare.sh");
        let mut built = packages(script, "$apt install --no-install-recommends ");
        built.insert("containerd");
        let page = include_str!("../../../docs/template.md");
        let by_hand = packages(page, "apt update && apt install -y ");
        assert_eq!(by_hand, built);
    }

    #[test]
    fn what_nobody_wrote_changes_no_hash() {
        // Templates that were built before these keys are not built anew.
        let text = serde_json::to_string(&build().contents()).expect("JSON");
        for key in [
            "method",
            "repository",
            "proxy",
            "resource_pool",
            "tags",
            "agent",
            "nic",
            "secure_boot",
            "firewall",
            "mtu",
            "nic_model",
        ] {
            assert!(!text.contains(&format!("\"{key}\":")), "{key}: {text}");
        }
    }
}
