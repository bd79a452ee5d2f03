//! Keys that are right alone and wrong together.

use super::{SMALL, messages, parse};

fn pool(lines: &str) -> String {
    SMALL.replace("max = 3", &format!("max = 3\n{lines}"))
}

fn template(lines: &str) -> String {
    SMALL.replace("vmid = 8000", &format!("vmid = 8000\n{lines}"))
}

/// A template that is built with these lines, for a pool whose machines join by this method.
fn built(lines: &str, method: &str) -> String {
    let build = format!(
        "[template.debian.build]\nvmids = \"8000-8019\"\nvolume = \"local:import/debian-13.qcow2\"\nstorage = \"tank\"\n{lines}\n"
    );
    let text = SMALL.replace("vmid = 8000", &build);
    format!("{text}\n[pool.small.join]\nmethod = \"{method}\"\n")
}

/// What PVE writes to a guest as it is given, and nothing there could use.
#[test]
fn names_for_addresses_and_sentences_for_domains_are_errors() {
    let build = |lines: &str| built(&format!("kubernetes = \"1.34\"\n{lines}"), "kubeadm");
    let servers = "expected addresses of name servers with spaces between";
    let domain = "expected a DNS domain such as home.example, or some with spaces between";
    for (text, said) in [
        (
            template("nameserver = \"foo bar\""),
            format!("template.debian.nameserver = \"foo bar\": {servers}"),
        ),
        (
            template("nameserver = \"192.0.2.1 dns\""),
            format!("template.debian.nameserver = \"192.0.2.1 dns\": {servers}"),
        ),
        (
            template("nameserver = \" \""),
            format!("template.debian.nameserver = \" \": {servers}"),
        ),
        (
            template("searchdomain = \"not a domain!\""),
            format!("template.debian.searchdomain = \"not a domain!\": {domain}"),
        ),
        (
            template("searchdomain = \"\""),
            domain.to_owned(),
        ),
        (
            build("nameserver = \"foo\""),
            format!("template.debian.build.nameserver = \"foo\": {servers}"),
        ),
        (
            build("vga = \"foo\""),
            "template.debian.build.vga = \"foo\": expected a screen of PVE's without options: serial0, std".to_owned(),
        ),
        (
            build("vga = \"std,memory=16\""),
            "template.debian.build.vga = \"std,memory=16\": expected a screen of PVE's".to_owned(),
        ),
    ] {
        let told = messages(&text);
        assert!(told.contains(&said), "{said}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    for text in [
        template("nameserver = \"192.0.2.1, 2001:db8::1\"\nsearchdomain = \"Home.example. lan\""),
        build("nameserver = \"192.0.2.1;192.0.2.2\"\nvga = \"virtio-gl\""),
    ] {
        parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_a_build_cannot_mean_is_an_error() {
    for (text, said) in [
        (
            built("kubernetes = \"1.34\"", "k3s"),
            "pool.small.join.method = \"k3s\": template debian is built for method = \"kubeadm\"; expected [template.debian.build] method = \"k3s\"",
        ),
        (
            built("kubernetes = \"1.34\"", "rke2"),
            "expected [template.debian.build] method = \"command\"",
        ),
        (
            built("method = \"k3s\"\nkubernetes = \"1.34.1+k3s1\"", "kubeadm"),
            "is built for method = \"k3s\"; expected [template.debian.build] method = \"kubeadm\"",
        ),
        (
            built("method = \"k3s\"\nkubernetes = \"1.34.1\"", "k3s"),
            "template.debian.build.kubernetes = \"1.34.1\": expected a version of k3s such as 1.34 or 1.34.1+k3s1",
        ),
        (
            built(
                "method = \"k3s\"\nkubernetes = \"1.34\"\nrepository = \"https://mirror.example/k3s\"",
                "k3s",
            ),
            "template.debian.build.kubernetes = \"1.34\": expected a release such as 1.34.1+k3s1: a mirror",
        ),
        (
            built("method = \"command\"\nkubernetes = \"1.34\"", "rke2"),
            "template.debian.build.kubernetes = \"1.34\": is not for method = \"command\"",
        ),
        (
            built("method = \"command\"", "rke2"),
            "template.debian.build.commands: is missing; with method = \"command\" they install Kubernetes",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nproxy = \"http://me:word@proxy.example:3128\"",
                "kubeadm",
            ),
            "without a name and a password: it stays in the template",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nno_proxy = [\"10.0.0.0/8\"]",
                "kubeadm",
            ),
            "template.debian.build.no_proxy: is for builds with a proxy",
        ),
        (
            built(
                "method = \"k3s\"\nkubernetes = \"1.34\"\nimage_repository = \"registry.example\"",
                "k3s",
            ),
            "template.debian.build.image_repository = \"registry.example\": is for method = \"kubeadm\"",
        ),
        (
            built("kubernetes = \"1.34\"\ntags = [\"Web\"]", "kubeadm"),
            "template.debian.build.tags.0 = \"Web\": expected a tag",
        ),
        (
            built("kubernetes = \"1.34\"\nresource_pool = \"a b\"", "kubeadm"),
            "template.debian.build.resource_pool = \"a b\": expected a resource pool's name",
        ),
        (
            built(
                "kubernetes = \"1.34\"\n[[template.debian.build.nic]]\nvlan = 30",
                "kubeadm",
            ),
            "template.debian.build.nic.0.bridge: is missing",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nnic = [{ bridge = \"vmbr1\" }, { bridge = \"vmbr1\", vlan = 4095 }]",
                "kubeadm",
            ),
            "template.debian.build.nic.1.vlan = 4095: expected a VLAN tag, 1 to 4094",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nnic = [{ bridge = \"vmbr1\", model = \"e1000\", mtu = 9000 }]",
                "kubeadm",
            ),
            "template.debian.build.nic.0.mtu = 9000: PVE sets it for virtio cards alone, and this one is e1000",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nnic_model = \"e1000\"\nmtu = 9000",
                "kubeadm",
            ),
            "template.debian.build.mtu = 9000: PVE sets it for virtio cards alone, and this one is e1000",
        ),
        (
            built("kubernetes = \"1.34\"\nmtu = 500", "kubeadm"),
            "template.debian.build.mtu = 500: expected an MTU, 576 to 65520, or 1 for the bridge's",
        ),
        (
            built("kubernetes = \"1.34\"\nvlan = 4095", "kubeadm"),
            "template.debian.build.vlan = 4095: expected a VLAN tag, 1 to 4094",
        ),
        (
            built("kubernetes = \"1.34\"\nsecure_boot = true", "kubeadm"),
            "template.debian.build.secure_boot = true: expected bios = \"ovmf\" beside it",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nnic = [{ bridge = \"vmbr1\", ipconfig = \"ip=192.0.2.7/24\" }]",
                "kubeadm",
            ),
            "template.debian.build.nic.0.ipconfig = \"ip=192.0.2.7/24\": every machine of the template would have this address",
        ),
        (
            built(
                "kubernetes = \"1.34\"\nagent = { freeze_fs = false }",
                "kubeadm",
            ),
            "unknown key `freeze_fs`; the keys here are `fstrim_cloned_disks` or `freeze_fs_on_backup`",
        ),
    ] {
        let found = messages(&text);
        assert!(found.contains(said), "{said}\n{found}\n{text}");
    }
}

/// A token has its rights on the pool of the machines: a template in there it could change and destroy.
#[test]
fn a_built_template_is_not_in_the_pool_of_machines_on_a_token() {
    let pools = built("kubernetes = \"1.34\"\nresource_pool = \"kube\"", "kubeadm").replace(
        "[template.debian.build]",
        "resource_pool = \"kube\"\n[template.debian.build]",
    );
    let words = "template.debian.build.resource_pool = \"kube\": is the pool of machines of template debian";
    assert_eq!(messages(&pools), "", "through the broker");
    let token = "channel = \"token\"\nendpoints = [\"https://west.example:8006\"]\ntoken_id = \"scaler@pve!sim\"\ntoken_secret_file = \"/etc/pve-autoscaler/west.token\"\nca_file = \"/etc/pve-autoscaler/west.pem\"\nvmids";
    let by_token = pools.replacen("vmids", token, 1);
    assert_ne!(by_token, pools);
    let found = messages(&by_token);
    assert!(found.contains(words), "{found}");
    let apart = by_token.replace(
        "\nresource_pool = \"kube\"\n\n",
        "\nresource_pool = \"templates\"\n\n",
    );
    assert_ne!(apart, by_token);
    assert_eq!(messages(&apart), "");
}

#[test]
fn what_cannot_be_meant_together_is_an_error() {
    let nic = "[[template.debian.nic]]\nbridge = \"vmbr1\"\nnetwork = \"n\"\nipconfig = \"ip=dhcp\"\n[network.n]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.99\"]";
    for (text, said) in [
        (
            pool(
                "taints = [\"a=b:NoSchedule\"]\nstartup_taints = [\"c:NoExecute\", \"a:NoSchedule\"]",
            ),
            "pool.small.startup_taints.1 = \"a:NoSchedule\": is in taints too",
        ),
        (
            template(nic),
            "template.debian.nic.0.ipconfig = \"ip=dhcp\": expected either network or ipconfig",
        ),
        (
            pool("max_memory = \"3GiB\""),
            "pool.small.max_memory = \"3GiB\": no machine of the pool fits into it: the smallest of its instance types has 4GiB",
        ),
        (
            pool("max_cpu = 1"),
            "pool.small.max_cpu = 1: no machine of the pool fits into it: the smallest of its instance types has 2 cores",
        ),
        (
            pool("min = 2\nmax_memory = \"7GiB\""),
            "pool.small.min = 2: 2 nodes of the smallest instance type have 8GiB, more than max_memory",
        ),
        (
            pool("min = 3\nmax_cpu = 5"),
            "pool.small.min = 3: 3 nodes of the smallest instance type have 6 cores, more than max_cpu",
        ),
        (
            pool("keep_failed = 4"),
            "pool.small.keep_failed = 4: expected at most max, which is 3",
        ),
        (
            template("boot_disk = \"scsi99\""),
            "template.debian.boot_disk = \"scsi99\": expected a disk such as scsi0",
        ),
        (
            template("bridge = \"vmbr0123456789ab\""),
            "template.debian.bridge = \"vmbr0123456789ab\": expected a bridge such as vmbr0, at most 15 characters",
        ),
        (
            template("ci_user = \"a b;c\""),
            "template.debian.ci_user = \"a b;c\": expected a user's name",
        ),
        (
            pool("description = \"a\\u0000b\""),
            "pool.small.description = ",
        ),
        (
            pool("description = \"a\\u001b[31m\""),
            "has a control character",
        ),
        (pool("description = \"a\\rb\""), "has a control character"),
    ] {
        let told = messages(&text);
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    for text in [
        pool("taints = [\"a=b:NoSchedule\"]\nstartup_taints = [\"a=b:NoExecute\"]"),
        pool("min = 2\nmax_memory = \"8GiB\"\nmax_cpu = 4\nkeep_failed = 3"),
        template("boot_disk = \"scsi30\"\nbridge = \"vmbr0123456789a\"\nci_user = \"debian\""),
        pool("description = \"a\\nb\\tc\""),
    ] {
        assert_eq!(messages(&text), "", "{text}");
    }
}

#[test]
fn what_can_hardly_be_meant_together_is_warned_of() {
    let prices = "[instance_type.t]\ncores = 2\nmemory = \"4GiB\"\nprice = 0.1\n";
    let two = SMALL.replace("[\"s\"]", "[\"s\", \"t\"]");
    let network = "[network.n]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.99\"]\n";
    let config = |text: &str| {
        format!(
            "{}{network}[template.debian.cloud_init]\nstorage = \"local\"\nnetwork_config = \"\"\"\nversion: 2\n{text}\"\"\"\n",
            pool("network = \"n\"")
        )
    };
    let warned = |text: &str| {
        let settings = parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
        settings.warnings.join("\n")
    };
    for (text, said) in [
        (
            format!("{two}{prices}"),
            "pool.small.instance_types: t has a price and s none",
        ),
        (
            pool("keep_failed_for = \"2h\""),
            "pool.small.keep_failed_for: no machine is kept without keep_failed",
        ),
        (
            pool("min = 3\nreplace_drifted = true"),
            "pool.small.max: no outdated node can be replaced",
        ),
        (
            config("ethernets: {all: {match: {name: 'en*'}, dhcp4: true}}\n"),
            "template.debian.cloud_init.network_config: it names no addresses",
        ),
    ] {
        let told = warned(&text);
        assert!(told.starts_with(said), "{said:?} is not in {told}");
    }
    for text in [
        format!("{two}{}", prices.replace("price = 0.1", "")),
        format!("{two}{prices}pci = [\"gpu\"]\nextended = {{ \"a.b/c\" = 1 }}\n"),
        pool("keep_failed = 1\nkeep_failed_for = \"2h\""),
        // One node more than min has room; a pool that is being removed replaces nothing.
        pool("min = 2\nreplace_drifted = true"),
        SMALL.replace("max = 3", "min = 0\nmax = 0\nreplace_drifted = true"),
        SMALL.replace("max = 3", "min = 0\nmax = 0\nexpire_after = \"30d\""),
        config("ethernets: {a: {addresses: {{ addresses | tojson }}}}\n"),
    ] {
        assert_eq!(warned(&text), "", "{text}");
    }
}

/// A firewall that is on does nothing where no card passes through it. It finds rules that look at `net0` alone, and ones that forget that a
/// card of which the file says nothing is as the template has it.
#[test]
fn a_firewall_that_no_card_of_the_file_passes_through_is_warned_of() {
    let on = |lines: &str| template(&format!("vm_firewall = true\n{lines}"));
    let nic = |line: &str| {
        on(&format!(
            "firewall = false\n[[template.debian.nic]]\nbridge = \"vmbr1\"\n{line}"
        ))
    };
    for (text, warned) in [
        (on("firewall = false"), true),
        (nic("firewall = false"), true),
        (on(""), false),
        (on("firewall = true"), false),
        (on("security_groups = [\"web\"]"), false),
        (nic(""), false),
        (nic("firewall = true"), false),
        (nic("security_groups = [\"web\"]"), false),
        (template("firewall = false"), false),
        (template("firewall = false\nvm_firewall = false"), false),
    ] {
        let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
        let told = settings.warnings.join("\n");
        assert_eq!(told.lines().count(), usize::from(warned), "{text}: {told}");
        let begins = "template.debian.vm_firewall = true: it does nothing unless the template has a further network card";
        assert!(!warned || told.starts_with(begins), "{text}: {told}");
    }
}
