//! The page on templates that are made by hand: what it types on a host is typed here.

use http::Method;

use super::super::spec::PveSpec;
use super::super::{AdminAct, StorageKind};
use super::Bench;

const PAGE: &str = include_str!("../../../../docs/template.md");

/// The page's section.
fn section() -> &'static str {
    let section = PAGE.split("\n## By hand\n").nth(1).expect("the section");
    section.split("\n## ").next().expect("its end")
}

/// The commands of `qm` in it, word by word.
fn commands() -> Vec<Vec<String>> {
    let whole = section().replace("\\\n", " ");
    let lines = whole.lines().filter(|line| line.starts_with("qm "));
    let words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect());
    words.collect()
}

/// The options of a command, as `qm` hands them to PVE. Keys it reads from the file and encodes.
fn form(options: &[String]) -> String {
    let encode = |text: &str| {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        });
        bytes.collect::<String>()
    };
    let key = "AAAAC3NzaC1lZDI1NTE5AAAAIDbgX3JZ0mK2yN1N5mJ8u6aRkqM0f3T8cYw2h1pLx0Qe";
    let pairs = options.chunks(2).map(|pair| {
        let [option, value] = pair else {
            panic!("{pair:?} is no option with a value");
        };
        let option = option.strip_prefix("--").expect("an option");
        let value = match option {
            "sshkeys" => encode(&format!("ssh-ed25519 {key} a@b")),
            _ => value.clone(),
        };
        format!("{option}={}", encode(&value))
    });
    pairs.collect::<Vec<_>>().join("&")
}

#[tokio::test(start_paused = true)]
async fn what_the_page_types_on_a_host_makes_a_template() {
    let mut spec = PveSpec::default();
    let mut zfs = spec.storages[1].clone();
    zfs.name = "local-zfs".to_owned();
    zfs.kind = StorageKind::ZfsPool;
    spec.storages.push(zfs);
    let bench = Bench::with(spec);
    let vm = "/nodes/pve1/qemu/8000";
    let commands = commands();
    for words in &commands {
        assert_eq!(words[2], "8000", "{words:?}");
        let form = form(&words[3..]);
        match words[1].as_str() {
            "create" => {
                let form = format!("vmid=8000&{form}");
                let end = bench.task(Method::POST, "/nodes/pve1/qemu", &form).await;
                assert_eq!(end, "OK", "{words:?}");
            }
            "set" => {
                let path = format!("{vm}/config");
                let answer = bench.call(Method::PUT, &path, &form).await;
                assert_eq!(answer.status, 200, "{words:?}: {answer:?}");
            }
            "start" => {
                let path = format!("{vm}/status/start");
                assert_eq!(bench.task(Method::POST, &path, "").await, "OK");
            }
            other => panic!("{other} is not known here"),
        }
    }
    assert_eq!(commands.len(), 4, "{commands:?}");
    // The last word in the VM is `poweroff`.
    assert!(section().contains("&& poweroff\n") && section().contains("`qm template 8000`"));
    let off = bench.pve.administer(&AdminAct::PowerOff { vmid: 8000 });
    off.expect("it ran");
    let path = format!("{vm}/template");
    assert_eq!(bench.task(Method::POST, &path, "").await, "OK");
    let made = bench.pve.vms().into_iter().find(|vm| vm.vmid == 8000);
    let made = made.expect("it is there");
    assert!(made.template, "{made:?}");
    for (key, value) in [
        ("agent", "enabled=1"),
        ("boot", "order=scsi0"),
        ("ciuser", "admin"),
        ("cpu", "x86-64-v2-AES"),
        ("ipconfig0", "ip=dhcp"),
        ("scsihw", "virtio-scsi-single"),
    ] {
        assert_eq!(made.config[key], value, "{key}");
    }
    assert!(made.config["scsi0"].starts_with("local-zfs:base-8000-disk-"));
    assert!(made.config["ide2"].starts_with("local-zfs:"));
    assert!(made.config["ide2"].contains("cloudinit"));
}
