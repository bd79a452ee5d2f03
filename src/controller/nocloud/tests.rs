use super::*;
use crate::controller::guest;

const FACTS: Facts<'_> = Facts {
    machine: "small-abcde",
    vmid: 9001,
    host: "pve1",
    region: "home",
    pool: "small",
    instance_type: "s",
};

fn config() -> VmConfig {
    VmConfig::read(&json!({
        "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ipconfig0": "ip=192.0.2.10/23,gw=192.0.2.1,ip6=2001:db8::1/64,gw6=2001:db8::ff",
        "net1": "virtio=BC:24:11:00:00:02,bridge=vmbr1", "ipconfig1": "ip=dhcp,ip6=auto",
        "net3": "virtio=BC:24:11:00:00:03,bridge=vmbr1",
        "ciuser": "admin", "sshkeys": "ssh-ed25519%20AAAA%20a%2Bb%0Assh-rsa%20BBBB", "nameserver": "192.0.2.1 192.0.2.2", "searchdomain": "example.org",
    }))
}

fn told<'a>(
    texts: &'a CloudInitSettings,
    words: &'a GapValues,
    script: Option<&'a SecretString>,
) -> NocloudInput<'a> {
    NocloudInput {
        texts,
        upgrade: false,
        facts: FACTS,
        words,
        uuid: "0123",
        machine_config: None,
        first_boot: script,
    }
}

#[test]
fn pve_s_own_words_are_said_where_the_file_says_none() {
    let words = words(&config(), "pve1");
    let network: Value =
        serde_json::from_str(&network::config(&words).expect("a network")).expect("JSON");
    let cards = json!([
        {"type": "physical", "name": "eth0", "mac_address": "bc:24:11:00:00:01", "subnets": [
            {"type": "static", "address": "192.0.2.10", "netmask": "255.255.254.0", "gateway": "192.0.2.1"},
            {"type": "static6", "address": "2001:db8::1/64", "gateway": "2001:db8::ff"},
        ]},
        {"type": "physical", "name": "eth1", "mac_address": "bc:24:11:00:00:02", "subnets": [
            {"type": "dhcp4"}, {"type": "ipv6_slaac"},
        ]},
        {"type": "nameserver", "address": ["192.0.2.1", "192.0.2.2"], "search": ["example.org"]},
    ]);
    assert_eq!(network, json!({"version": 1, "config": cards}));
    let texts = CloudInitSettings::default();
    let user = user_data(&told(&texts, &words, None));
    let read: Value = serde_saphyr::from_str(&user).expect("YAML");
    assert!(user.starts_with("#cloud-config\n"));
    assert_eq!(read["ssh_authorized_keys"][0], "ssh-ed25519 AAAA a+b");
    assert_eq!(read["ssh_authorized_keys"][1], "ssh-rsa BBBB");
    assert_eq!(read["fqdn"], "small-abcde.example.org");
    assert_eq!(read["user"], "admin");
    assert_eq!(read["package_upgrade"], false);
    let bare = VmConfig::read(&json!({"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}));
    let bare = super::words(&bare, "pve1");
    assert_eq!(
        network::config(&bare),
        None,
        "cloud-init asks DHCP by itself"
    );
}

#[test]
fn other_data_are_another_instance_and_the_same_the_same_image() {
    let words = words(&config(), "pve1");
    let texts = CloudInitSettings::default();
    let secrets = ["#!/bin/sh\n: one\n", "#!/bin/sh\n: two\n"].map(SecretString::from);
    let image = |number: usize| image(&told(&texts, &words, Some(&secrets[number]))).expect("made");
    assert_eq!(image(0), image(0));
    assert_ne!(image(0), image(1));
    let instance = |image: &[u8]| {
        let text = String::from_utf8_lossy(image).into_owned();
        let at = text.find("instance-id\":\"").expect("an id");
        text[at..at + 40].to_owned()
    };
    assert_ne!(instance(&image(0)), instance(&image(1)));
}

/// The image as other programs see it, where there are some.
#[test]
fn the_image_has_its_label_and_files() {
    let files: [iso::ImageFile<'_>; 3] = [
        ("meta-data", b"m"),
        ("network-config", &[b'n'; 5000]),
        ("user-data", b""),
    ];
    let image = iso::image("cidata", &files).expect("an image");
    assert_eq!(image.len() % 2048, 0);
    assert_eq!(&image[16 * 2048..16 * 2048 + 6], b"\x01CD001");
    assert_eq!(&image[16 * 2048 + 40..16 * 2048 + 48], b"cidata  ");
    assert!(
        iso::image("cidata", &[("b", b""), ("a", b"")]).is_none(),
        "names come in order"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("seed.iso");
    std::fs::write(&path, &image).expect("written");
    let told = std::process::Command::new("blkid")
        .arg("-p")
        .arg(&path)
        .output();
    if let Ok(told) = told
        && told.status.success()
    {
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(
            text.contains("LABEL=\"cidata\"") && text.contains("TYPE=\"iso9660\""),
            "{text}"
        );
    }
}

/// Runs the script with a kubeadm of a version in its way, none when that is empty: its exit code, what it handed over, whether
/// cloud-init is switched off, and what it said.
fn run(script: &str, version: &str) -> (Option<i32>, String, bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    // What it hands the payload to, and where it works, are the test's.
    let joins = format!(
        "cat >{}; echo 0 >{}/exit; echo said abcdef.0123 >{}/log",
        at("got"),
        at("run"),
        at("run")
    );
    let script = script
        .replace(guest::JOIN.trim_end(), &joins)
        .replace("/run/pve-autoscaler", &at("run"))
        .replace("/etc/cloud/cloud-init.disabled", &at("disabled"));
    if !version.is_empty() {
        let kubeadm = folder.path().join("kubeadm");
        std::fs::write(&kubeadm, format!("#!/bin/sh\necho {version}\n")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&kubeadm, mode).expect("allowed");
    }
    let ran = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .output()
        .expect("it runs");
    let got = std::fs::read_to_string(at("got")).unwrap_or_default();
    let off = std::path::Path::new(&at("disabled")).exists();
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (ran.status.code(), got, off, said)
}

/// The script as a shell runs it: what it hands over is what it was given for the guest's version.
#[test]
fn the_script_asks_the_guest_for_its_version() {
    let join = first_boot::FirstBoot {
        program: Some("kubeadm"),
        payloads: vec![
            (20, Err("too old: it's older than 1.22".to_owned())),
            (22, Ok(SecretString::from("run b2xk\n"))),
            (31, Ok(SecretString::from("run bmV3\n"))),
        ],
        token: "abcdef",
    };
    let script = first_boot::script(&join);
    let script = script.expose_secret();
    let new = (
        Some(0),
        "run bmV3\n".to_owned(),
        true,
        "said abcdef.<redacted>\n".to_owned(),
    );
    assert_eq!(run(script, "v1.34.1"), new);
    assert_eq!(run(script, "v1.30.9").1, "run b2xk\n");
    for (version, wanted) in [
        ("", "has no kubeadm"),
        ("v1.21.0", "older than 1.22"),
        ("v1.9.0", "is too old"),
    ] {
        let (code, got, off, said) = run(script, version);
        assert!(
            code != Some(0) && got.is_empty() && !off,
            "{version}: {code:?} {got}"
        );
        assert!(said.contains(wanted), "{version}: {said}");
    }
}
