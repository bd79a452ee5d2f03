use serde_json::json;

use super::*;
use crate::config;
use crate::model::network::NicAddresses;
use crate::model::time::Time;

const FILE: &str = r#"
version = 1
[kubernetes]
name = "test"
[proxmox]
vmids = "9100-9120"
[template.debian]
vmid = 9000
startup = { order = 3 }
[instance_type.small]
cores = 2
memory = "4GiB"
[pool.p]
template = "debian"
instance_types = ["small"]
max = 3
tags = ["shop", "web"]
description = "of the shop"
cpu_units = 200
cpu_limit = 1.5
"#;

/// The mark of a machine of pool `p` on VMID 9100.
pub(super) fn mark() -> Mark {
    Mark {
        cluster: "uid/test".into(),
        machine: "p-abcde".into(),
        vmid: 9100,
        pool: "p".into(),
        instance_type: "small".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(0),
        addresses: NicAddresses::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    }
}

/// The VM as it is when it has all that the file says.
fn vm() -> serde_json::Value {
    json!({
        "cpulimit": "1.50", "cpuunits": 200, "startup": "order=3", "cores": 2,
        "tags": "pve-autoscaler;shop;web", "description": mark().describe("of the shop") + "\n",
    })
}

fn written() -> Written {
    Written {
        tags: vec!["pve-autoscaler".into(), "shop".into(), "web".into()],
        text: Some("of the shop".into()),
        ..Written::default()
    }
}

/// What is to change, as `key: what is -> what is wanted`.
fn found(file: &str, vm: &serde_json::Value, written: &Written) -> Vec<String> {
    let settings = config::parse(file, "file").expect("it is valid");
    let changes = changes(
        (&VmConfig::read(vm), &Beside::default()),
        &mark(),
        &settings,
        written,
    );
    let changes = changes.into_iter();
    changes
        .map(|one| format!("{}: {} -> {}", one.key, one.is, one.wanted))
        .collect()
}

fn with(key: &str, value: &str) -> serde_json::Value {
    let mut vm = vm();
    vm[key] = json!(value);
    vm
}

#[test]
fn what_is_as_the_file_says_is_left_alone() {
    assert_eq!(found(FILE, &vm(), &written()), [""; 0]);
    assert_eq!(found(FILE, &with("onboot", "0"), &written()), [""; 0]);
    // A key that the file does not name: the template's, or a person's.
    let none = FILE.replace("cpu_units = 200\ncpu_limit = 1.5\n", "");
    let none = none.replace("startup = { order = 3 }\n", "");
    assert_ne!(none, FILE);
    assert_eq!(found(&none, &vm(), &written()), [""; 0]);
    // Another pool's machine, or one of a pool that is gone.
    let gone = FILE.replace("[pool.p]", "[pool.q]");
    assert_eq!(found(&gone, &vm(), &written()), [""; 0]);
}

#[test]
fn what_the_file_says_otherwise_is_to_change() {
    let file = FILE.replace("200", "300").replace("1.5", "2");
    let file = file.replace("order = 3", "order = 4");
    assert_eq!(
        found(&file, &with("onboot", "1"), &written()),
        [
            "cpulimit: 1.50 -> 2",
            "cpuunits: 200 -> 300",
            "onboot: 1 -> 0",
            "startup: order=3 -> order=4"
        ]
    );
}

/// Options of PVE's follow the file where a VM takes them while it runs; the others are left to the machines that come.
#[test]
fn options_that_a_vm_takes_while_it_runs_follow_the_file() {
    let options = "options = { tablet = false, shares = 500, migrate_downtime = 0.5, rng0 = \"/dev/urandom\", kvm = true }";
    let file = FILE.replace("vmid = 9000", &format!("vmid = 9000\n{options}"));
    assert_ne!(file, FILE);
    assert_eq!(
        found(&file, &with("tablet", "1"), &written()),
        [
            "migrate_downtime:  -> 0.5",
            "shares:  -> 500",
            "tablet: 1 -> 0"
        ]
    );
    let mut vm = with("tablet", "0");
    vm["shares"] = json!(500);
    vm["migrate_downtime"] = json!("0.50");
    assert_eq!(found(&file, &vm, &written()), [""; 0]);
}

/// A write whose answer was lost may have been carried out: what the VM has since is ours all the same, and follows the file.
#[test]
fn what_was_asked_without_an_answer_is_ours() {
    let settings = |file: &str| config::parse(file, "file").expect("it is valid");
    let next = FILE
        .replace("of the shop", "of the new shop")
        .replace("\"web\"", "\"blue\"");
    let vm_before = VmConfig::read(&vm());
    let mut written = written();
    let asked = changes(
        (&vm_before, &Beside::default()),
        &mark(),
        &settings(&next),
        &written,
    );
    assert_eq!(asked.len(), 2, "{asked:?}");
    let ours = vm_config::tags(&settings(&next).pools["p"]);
    written.asks(&asked, &ours);
    let mut there = with("tags", "blue;pve-autoscaler;shop");
    there["description"] = json!(mark().describe("of the new shop") + "\n");
    assert_eq!(
        found(&next, &there, &written),
        [""; 0],
        "it was carried out"
    );
    assert_eq!(
        found(FILE, &there, &written),
        [
            "tags: blue;pve-autoscaler;shop -> pve-autoscaler;shop;web",
            "description: of the new shop -> of the shop"
        ]
    );
    // It was not: then it is asked for again.
    assert_eq!(found(&next, &vm(), &written).len(), 2);
}

#[test]
fn tags_of_others_stay_and_ours_follow_the_file() {
    let theirs = with("tags", "Backup;pve-autoscaler;shop;web");
    assert_eq!(found(FILE, &theirs, &written()), [""; 0]);
    let file = FILE.replace("\"shop\", \"web\"", "\"web\", \"blue\"");
    assert_eq!(
        found(&file, &theirs, &written()),
        ["tags: Backup;pve-autoscaler;shop;web -> Backup;blue;pve-autoscaler;web"]
    );
    // Whose `shop` is, is not known where somebody else wrote it.
    assert_eq!(
        found(&file, &theirs, &Written::default()),
        ["tags: Backup;pve-autoscaler;shop;web -> Backup;blue;pve-autoscaler;shop;web"]
    );
    // However PVE writes and sorts them.
    let sorted = with("tags", "web,Shop pve-autoscaler");
    assert_eq!(found(FILE, &sorted, &written()), [""; 0]);
}

#[test]
fn notes_that_somebody_edited_stay() {
    let file = FILE.replace("of the shop", "of the bank");
    assert_eq!(
        found(&file, &vm(), &written()),
        ["description: of the shop -> of the bank"]
    );
    let edited = with("description", &mark().describe("of the shop; call Ann"));
    assert_eq!(found(&file, &edited, &written()), [""; 0]);
    assert_eq!(found(&file, &vm(), &Written::default()), [""; 0]);
    let bare = with("description", &mark().line());
    assert_eq!(
        found(&file, &bare, &Written::default()),
        ["description:  -> of the bank"]
    );
}

#[test]
fn the_mark_stays_below_the_notes() {
    let settings = config::parse(&FILE.replace("shop\"\ncpu", "bank\"\ncpu"), "file");
    let settings = settings.expect("it is valid");
    let changes = changes(
        (&VmConfig::read(&vm()), &Beside::default()),
        &mark(),
        &settings,
        &written(),
    );
    assert_eq!(changes.len(), 1);
    let value = changes[0].value(&mark());
    assert_eq!(value, mark().describe("of the bank"));
}

/// A person who changes the value in PVE may have mended what was wrong: it is tried again, once.
#[test]
fn a_value_that_was_given_up_is_tried_again_when_somebody_changed_it_in_pve() {
    let failed = FailedWrite {
        why: "400 Parameter verification failed".into(),
        at: Time(0),
        for_good: true,
    };
    let change = |is: &str, wanted: &str| SettingChange {
        key: "cpuunits",
        is: is.into(),
        wanted: wanted.into(),
    };
    let mut written = written();
    written.give_up(&change("150", "300"), failed.clone());
    assert_eq!(written.given_up(&change("150", "300")), Some(&failed));
    assert_eq!(written.given_up(&change("100", "300")), None);
    written.give_up(&change("100", "300"), failed.clone());
    for is in ["100", "150"] {
        let known = written.given_up(&change(is, "300"));
        assert!(known.is_some(), "{is}: never in a loop");
    }
    written.give_up(&change("100", "400"), failed.clone());
    assert_eq!(written.given_up(&change("150", "400")), None);
    // An older program kept no more than the file's value.
    written.given_up_at.clear();
    assert!(written.given_up(&change("7", "400")).is_some());
    written.done("cpuunits");
    assert_eq!(written.given_up(&change("100", "400")), None);
}

/// What failed was the try to write some values: others that differ since were not tried.
#[test]
fn a_failure_is_told_of_the_values_that_were_to_be_written() {
    let failed = FailedWrite {
        why: "got timeout".into(),
        at: Time(0),
        for_good: false,
    };
    let change = |key: &'static str, wanted: &str| SettingChange {
        key,
        is: "1".into(),
        wanted: wanted.into(),
    };
    let mut written = Written {
        failed: Some(failed.clone()),
        failed_for: [("cpuunits".to_owned(), "300".to_owned())].into(),
        ..written()
    };
    let told = |written: &Written, key, wanted| difference(change(key, wanted), written).failed;
    assert_eq!(told(&written, "cpuunits", "300"), Some(failed.clone()));
    assert_eq!(told(&written, "cpuunits", "400"), None);
    assert_eq!(told(&written, "cpulimit", "300"), None);
    // Before it was known which.
    written.failed_for.clear();
    assert_eq!(told(&written, "cpulimit", "300"), Some(failed));
}

/// After a step back to this version its journal is read, whatever a newer one wrote besides.
#[test]
fn records_of_a_newer_version_are_read() {
    let failed = json!({"why": "x", "at": Time(0), "for_good": true, "newer": 1});
    let written = json!({"failed": failed, "given_up": {"tags": ["a", failed]}, "newer": []});
    let read: Written = serde_json::from_value(written).expect("it is read");
    assert!(read.failed.is_some_and(|failed| failed.for_good));
    let failure = json!({"step": "clone", "message": "x", "at": Time(0), "newer": {}});
    let read: Result<crate::model::region::Failure, _> = serde_json::from_value(failure);
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn a_value_that_was_given_up_is_told_until_the_file_has_another() {
    let failed = |for_good| FailedWrite {
        why: "PVE made \"150\" of it".into(),
        at: Time(0),
        for_good,
    };
    let mut written = written();
    let change = SettingChange {
        key: "cpuunits",
        is: "150".into(),
        wanted: "300".into(),
    };
    let given_up = ("300".to_owned(), failed(true));
    written.given_up.insert("cpuunits".into(), given_up);
    assert!(difference(change.clone(), &written).given_up());
    let other = SettingChange {
        wanted: "400".into(),
        ..change
    };
    assert_eq!(difference(other.clone(), &written).failed, None);
    written.failed = Some(failed(false));
    assert_eq!(difference(other, &written).failed, Some(failed(false)));
}

/// A VM without a pool is told by who sees all of them; to a token it may be in one that it may not see.
#[test]
fn a_machine_comes_to_the_resource_pool_that_the_file_names() {
    let named = FILE.replace("vmid = 9000\n", "vmid = 9000\nresource_pool = \"k8s\"\n");
    assert_ne!(named, FILE);
    let seen = |file: &str, pool: Option<&str>| {
        let settings = config::parse(file, "file").expect("it is valid");
        let beside = Beside {
            pool: pool.map(Arc::from),
            rules: None,
        };
        let read = (&VmConfig::read(&vm()), &beside);
        let changes = changes(read, &mark(), &settings, &written()).into_iter();
        changes
            .map(|one| format!("{}: {} -> {}", one.key, one.is, one.wanted))
            .collect::<Vec<String>>()
    };
    assert_eq!(seen(&named, Some("k8s")), [""; 0]);
    assert_eq!(seen(&named, Some("old")), ["pool: old -> k8s"]);
    assert_eq!(seen(&named, Some("")), ["pool:  -> k8s"]);
    assert_eq!(seen(&named, None), [""; 0]);
    assert_eq!(seen(FILE, Some("old")), [""; 0]);
    let bare = GuestResource::default();
    let local = config::parse(&named, "file").expect("it is valid");
    assert_eq!(seen_pool(&local, "default", &bare).as_deref(), Some(""));
    let token = named.replace(
        "[proxmox]\n",
        "[proxmox]\nchannel = \"token\"\nendpoints = [\"https://pve.example:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_secret_file = \"/x\"\nca_file = \"/y\"\n",
    );
    let token = config::parse(&token, "file").expect("it is valid");
    assert_eq!(seen_pool(&token, "default", &bare), None);
    let in_one = GuestResource {
        pool: Some("old".into()),
        ..bare
    };
    assert_eq!(
        seen_pool(&token, "default", &in_one).as_deref(),
        Some("old")
    );
}
