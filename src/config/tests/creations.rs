//! VMs that are made of settings, Talos' machine configurations, and machines that join by themselves: what a file may say of them.

use super::{SMALL, messages, parse};
use crate::config::file::BootDevice;
use crate::config::settings::JoinMethod;

/// The small file with a template without a VM, with more lines for what its machines are made of, and more.
fn with(create: &str, more: &str) -> String {
    let small = SMALL.replace("memory = \"4GiB\"", "memory = \"4GiB\"\ndisk = \"20GiB\"");
    let lines: Vec<&str> = small.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("[template."));
    let at = at.expect("a template");
    let key = lines[at].trim_end_matches(']').to_owned();
    let rest = lines[at + 1..].iter();
    let rest: Vec<&str> = rest
        .skip_while(|line| !line.starts_with('['))
        .copied()
        .collect();
    format!(
        "{}\n{key}]\nbridge = \"vmbr0\"\n{key}.create]\nstorage = \"ceph\"\n{create}\n{}\n{more}",
        lines[..at].join("\n"),
        rest.join("\n")
    )
}

#[test]
fn a_template_may_be_settings() {
    let settings = parse(&with("iso = \"local:iso/a.iso\"", ""), "test.toml");
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}"));
    let template = settings.templates.values().next().expect("a template");
    let new = template.new_vm.as_ref().expect("settings");
    assert_eq!(new.create.boot, [BootDevice::Disk, BootDevice::Cdrom]);
    assert_eq!(new.net, "virtio,bridge=vmbr0");
    assert_eq!(template.boot_disk.as_deref(), Some("scsi0"));
    let allow = &settings.broker.allow;
    assert_eq!(allow.new_vms.len(), 1);
    assert!(allow.pools.values().all(|pool| pool.new_vm.is_some()));
}

#[test]
fn what_no_vm_can_be_made_of_is_an_error() {
    let sizeless = with("", "").replace("disk = \"20GiB\"\n", "");
    let all = messages(&sizeless);
    assert!(all.contains("somebody must say how large"), "{all}");
    for (create, said) in [
        ("image = \"/etc/shadow\"", "create.image = "),
        ("image = \"local:vm-100-disk-0\"", "create.image = "),
        ("image = \"local:import/../a.qcow2\"", "create.image = "),
        ("image = \"local:import/a.ova\"", "create.image = "),
        ("image = \"local:import/a,b.qcow2\"", "create.image = "),
        ("iso = \"local:import/a.iso\"", "create.iso = "),
        ("boot = [\"cdrom\"]", "there is no iso"),
        ("boot = [\"disk\", \"disk\"]", "is there twice"),
        ("secure_boot = true", "expected bios = \"ovmf\""),
        ("storage_ = \"a\"", "storage_"),
    ] {
        let all = messages(&with(create, ""));
        assert!(all.contains(said), "{create}: {all}");
        let volume = said.starts_with("create.");
        assert!(!volume || all.contains("expected a volume"), "{all}");
    }
    let both = with("", "").replace("bridge = \"vmbr0\"", "bridge = \"vmbr0\"\nvmid = 9000");
    let all = messages(&both);
    assert!(all.contains("means a VM to clone"), "{all}");
    let bare = with("", "").replace("bridge = \"vmbr0\"\n", "");
    let all = messages(&bare);
    assert!(all.contains("the bridge of its network card"), "{all}");
}

/// The file has all cards of such a VM: a firewall that none passes through is a mistake, told with key, value and line, once. It finds rules
/// that look at `net0` alone.
#[test]
fn a_firewall_of_a_vm_of_settings_needs_a_card_that_passes_through_it() {
    let file = |lines: &str| {
        let text = with("iso = \"local:iso/a.iso\"", "");
        text.replace(
            "bridge = \"vmbr0\"",
            &format!("bridge = \"vmbr0\"\n{lines}"),
        )
    };
    let on = |lines: &str| file(&format!("vm_firewall = true\n{lines}"));
    let nic = |line: &str| {
        on(&format!(
            "[[template.debian.nic]]\nbridge = \"vmbr1\"\n{line}"
        ))
    };
    for text in [
        on(""),
        on("firewall = false"),
        on("security_groups = []"),
        nic(""),
        nic("firewall = false"),
    ] {
        let errors = parse(&text, "test.toml").expect_err("it does nothing");
        assert_eq!(errors.problems.len(), 1, "{errors}");
        let mut lines = text.lines();
        let line = lines.position(|line| line == "vm_firewall = true");
        let line = line.expect("the line") + 1;
        let begins = format!(
            "test.toml:{line}:15: template.debian.vm_firewall = true: does nothing: no network card of its machines passes through the firewall; expected firewall = true or security_groups"
        );
        assert!(errors.to_string().starts_with(&begins), "{errors}");
    }
    for text in [
        on("firewall = true"),
        on("security_groups = [\"web\"]"),
        nic("firewall = true"),
        nic("security_groups = [\"web\"]"),
        file("vm_firewall = false\nfirewall = false"),
        file("firewall = false"),
    ] {
        assert_eq!(messages(&text), "", "{text}");
    }
    let told = messages(&on("firewall = false\nsecurity_groups = [\"web\"]"));
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("template.debian.security_groups"), "{told}");
}

/// Keys that would come to nobody are errors, and a machine configuration goes with no other way to join.
#[test]
fn a_machine_that_joins_by_itself_is_told_nothing() {
    let join = "[pool.small.join]\nmethod = \"self\"\n";
    let file = format!("{SMALL}\n{join}");
    let settings = parse(&file, "test.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(settings.pools["small"].join.method, JoinMethod::Itself);
    assert!(settings.policy.pools["small"].joins_itself);
    for (line, key) in [
        ("delivery = \"cloud-init\"", "delivery"),
        ("endpoint = \"a:6443\"", "endpoint"),
        ("kubelet_args = { v = \"2\" }", "kubelet_args"),
    ] {
        let all = messages(&format!("{file}{line}"));
        assert!(
            all.contains(&format!("join.{key}")) && all.contains("is for machines that are told"),
            "{line}: {all}"
        );
    }
    let talos = "machine_config_file = \"/etc/pve-autoscaler/talos.yaml\"";
    let told = |lines: &str, join: &str| {
        let name = SMALL.split("[template.").nth(1).expect("a template");
        let name = name.split(']').next().expect("a name");
        let text =
            format!("{SMALL}\n[template.{name}.cloud_init]\nstorage = \"a\"\n{lines}\n{join}");
        messages(&text)
    };
    assert_eq!(told(talos, join), "");
    assert!(told(talos, "").contains("expected method = \"self\""));
    let both = format!("{talos}\nuser_data = \"#cloud-config\"");
    assert!(told(&both, join).contains("Talos reads no others"));
    let relative = "machine_config_file = \"talos.yaml\"";
    assert!(told(relative, join).contains("expected an absolute path"));
}

/// Machines that could never join, or would never hear of their addresses.
#[test]
fn what_pools_want_of_machines_that_have_it_not_is_an_error() {
    let itself = "[pool.small.join]\nmethod = \"self\"";
    let image = "image = \"local:import/a.qcow2\"";
    let mute = format!("{image}\nagent = false");
    let all = messages(&with(&mute, ""));
    assert!(
        all.contains("create.agent = false: ") && all.contains("expected agent = true"),
        "{all}"
    );
    assert_eq!(messages(&with(&mute, itself)), "");
    let bare = format!("{image}\ncloud_init_drive = false");
    assert_eq!(messages(&with(&bare, "")), "", "DHCP serves them");
    let network = "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.99\"]";
    let fixed = |create: &str| {
        let text = with(create, network);
        text.replace("[pool.small]", "[pool.small]\nnetwork = \"lan\"")
    };
    let all = messages(&fixed(&bare));
    assert!(
        all.contains("create.cloud_init_drive = false: ") && all.contains("[network.lan]"),
        "{all}"
    );
    assert_eq!(messages(&fixed(image)), "");
    let name = SMALL.split("[template.").nth(1).expect("a template");
    let name = name.split(']').next().expect("a name");
    let iso = format!("{bare}\n[template.{name}.cloud_init]\nstorage = \"local\"");
    assert_eq!(messages(&fixed(&iso)), "");
}
