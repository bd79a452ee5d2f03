//! PCI devices: who may give them, and which one a VM gets.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;

use super::super::spec::{AclSpec, PveSpec, TEMPLATE};
use super::{Answer, Bench, send};

/// `gpu` has two devices on pve1, `one` has one of them; `far` has one on pve2.
fn spec() -> PveSpec {
    let mut spec = PveSpec::default();
    let mut map = |id: &str, host: &str, devices: &[&str]| {
        let devices = devices.iter().map(|device| (*device).to_owned());
        let hosts = BTreeMap::from([(host.to_owned(), devices.collect())]);
        spec.mappings.insert(id.to_owned(), hosts);
    };
    map("gpu", "pve1", &["0000:01:00.0", "0000:02:00"]);
    map("one", "pve1", &["0000:02:00.0"]);
    map("far", "pve2", &["0000:01:00.0"]);
    spec
}

async fn cloned(bench: &Bench, vmid: u32) {
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    let form = format!("newid={vmid}");
    assert_eq!(bench.task(Method::POST, &path, &form).await, "OK");
}

fn said(answer: &Answer) -> String {
    format!("{} {} {}", answer.status, answer.reason, answer.body)
}

async fn set(bench: &Bench, vmid: u32, form: &str) -> String {
    let path = format!("/nodes/pve1/qemu/{vmid}/config");
    said(&bench.call(Method::PUT, &path, form).await)
}

async fn start(bench: &Bench, vmid: u32) -> String {
    let path = format!("/nodes/pve1/qemu/{vmid}/status/start");
    bench.task(Method::POST, &path, "").await
}

#[tokio::test(start_paused = true)]
async fn a_device_is_one_vms_at_a_time() {
    let bench = Bench::with(spec());
    for vmid in 5001..=5004 {
        cloned(&bench, vmid).await;
    }
    for (vmid, form) in [
        (5001, "hostpci0=mapping%3Dgpu"),
        (5002, "hostpci0=mapping%3Dgpu"),
        (5003, "hostpci0=mapping%3Dgpu"),
        (5004, "hostpci0=mapping%3Done"),
    ] {
        set(&bench, vmid, form).await;
    }
    assert_eq!(start(&bench, 5001).await, "OK");
    assert_eq!(start(&bench, 5004).await, "OK");
    let full = "could not find a free device for 'hostpci0'";
    assert_eq!(start(&bench, 5002).await, full);
    let path = "/nodes/pve1/qemu/5004/status/stop";
    assert_eq!(bench.task(Method::POST, path, "").await, "OK");
    assert_eq!(start(&bench, 5002).await, "OK");
    assert_eq!(
        start(&bench, 5004).await,
        "PCI device '0000:02:00.0' already in use by VMID '5002'"
    );
    assert_eq!(start(&bench, 5003).await, full);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_had_is_said_at_the_start() {
    let bench = Bench::with(spec());
    cloned(&bench, 5001).await;
    for (form, words) in [
        (
            "hostpci0=mapping%3Dfar",
            "PCI device mapping not found for 'far'",
        ),
        (
            "hostpci0=mapping%3Dnone",
            "PCI device mapping not found for 'none'",
        ),
        (
            "hostpci0=mapping%3Dgpu,pcie%3D1",
            "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510.",
        ),
        (
            "hostpci0=mapping%3Done&hostpci1=mapping%3Done",
            "device '0000:02:00.0' assigned more than once",
        ),
    ] {
        set(&bench, 5001, form).await;
        assert_eq!(start(&bench, 5001).await, words, "{form}");
    }
    set(&bench, 5001, "machine=q35&delete=hostpci1").await;
    set(&bench, 5001, "hostpci0=mapping%3Dgpu,pcie%3D1").await;
    assert_eq!(start(&bench, 5001).await, "OK");
    for form in [
        "hostpci0=mapping%3Dgpu,gpu%3D1",
        "hostpci0=mapping%3Dgpu,pcie%3D2",
        "hostpci0=mapping%3Dno%20such",
        "hostpci0=gpu",
    ] {
        let text = set(&bench, 5001, form).await;
        assert!(
            text.starts_with("400 ") && text.contains("hostpci0"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_needs_the_mapping_and_gives_no_device_without_one() {
    let mut spec = spec();
    let allowed = AclSpec {
        path: "/mapping/pci/gpu".to_owned(),
        privileges: vec!["Mapping.Use".to_owned()],
    };
    spec.tokens[0].acl.push(allowed);
    let bench = Bench::with(spec);
    cloned(&bench, 5001).await;
    let token = bench.pve.router_as("scaler@pve!sim");
    let path = "/nodes/pve1/qemu/5001/config";
    let put = async |form: &str| said(&send(&token, Method::PUT, path, form, &[]).await);
    let words = "Permission check failed (/mapping/pci/one, Mapping.Use)";
    assert!(put("hostpci0=mapping%3Done").await.contains(words));
    let words = "only root can set 'hostpci0' config for non-mapped devices";
    assert!(put("hostpci0=0000%3A01%3A00.0").await.contains(words));
    assert!(put("hostpci0=mapping%3Dgpu").await.starts_with("200 "));
    let seen = send(&token, Method::GET, "/cluster/mapping/pci", "", &[]).await;
    let ids: Vec<&str> = seen
        .data()
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["id"].as_str())
        .collect();
    assert_eq!(ids, ["gpu"]);
    let map = &seen.data()[0]["map"];
    let first = "id=10de:1b38,iommugroup=14,node=pve1,path=0000:01:00.0,subsystem-id=10de:11d9";
    assert_eq!(map[0], json!(first));
    // What a VM has of others' goes into no clone.
    set(&bench, 5001, "hostpci0=mapping%3Done").await;
    let clone = "/nodes/pve1/qemu/5001/clone";
    let refused = send(&token, Method::POST, clone, "newid=5002&full=1", &[]).await;
    let text = said(&refused);
    assert!(text.contains("/mapping/pci/one, Mapping.Use"), "{text}");
}

/// Two cards on pve1 that make four parts of the small type or two of the large one, and one whole card.
fn vgpus() -> PveSpec {
    let mut spec = spec();
    let addresses = ["0000:41:00.0", "0000:42:00.0"].map(str::to_owned);
    let hosts = BTreeMap::from([("pve1".to_owned(), addresses.to_vec())]);
    spec.mappings.insert("vgpu".to_owned(), hosts.clone());
    spec.mappings.insert("unmarked".to_owned(), hosts);
    spec.mdev_mappings
        .extend(["vgpu", "gpu"].map(str::to_owned));
    let types = BTreeMap::from([("nvidia-63".to_owned(), 4), ("nvidia-64".to_owned(), 2)]);
    let cards = addresses.map(|address| (address, types.clone()));
    spec.mediated.insert("pve1".to_owned(), cards.into());
    spec
}

async fn left(bench: &Bench, of: &str) -> String {
    let path = format!("/nodes/pve1/hardware/pci/{of}/mdev");
    let answer = bench.call(Method::GET, &path, "").await;
    let rows = answer.data().as_array().expect("a list").iter();
    let rows = rows.map(|row| {
        format!(
            "{}={}",
            row["type"].as_str().expect("text"),
            row["available"]
        )
    });
    rows.collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_mediated_device_is_made_of_the_first_card_that_has_one_left() {
    let bench = Bench::with(vgpus());
    assert_eq!(left(&bench, "vgpu").await, "nvidia-63=4 nvidia-64=2");
    assert_eq!(left(&bench, "gpu").await, "");
    assert_eq!(left(&bench, "far").await, "");
    for (vmid, mdev) in [
        (5001, "nvidia-64"),
        (5002, "nvidia-63"),
        (5003, "nvidia-64"),
        (5004, "nvidia-64"),
        (5005, "nvidia-65"),
    ] {
        cloned(&bench, vmid).await;
        let form = format!("hostpci0=mapping%3Dvgpu,mdev%3D{mdev}");
        set(&bench, vmid, &form).await;
    }
    assert_eq!(start(&bench, 5001).await, "OK");
    assert_eq!(left(&bench, "vgpu").await, "nvidia-63=0 nvidia-64=1");
    assert_eq!(
        left(&bench, "0000:42:00.0").await,
        "nvidia-63=4 nvidia-64=2"
    );
    assert_eq!(start(&bench, 5002).await, "OK");
    assert_eq!(
        left(&bench, "0000:42:00.0").await,
        "nvidia-63=3 nvidia-64=0"
    );
    assert_eq!(start(&bench, 5003).await, "OK");
    for vmid in [5004, 5005] {
        assert_eq!(
            start(&bench, vmid).await,
            "could not create mediated device"
        );
    }
    let path = "/nodes/pve1/qemu/5001/status/stop";
    assert_eq!(bench.task(Method::POST, path, "").await, "OK");
    assert_eq!(start(&bench, 5004).await, "OK");
    for (form, words) in [
        (
            "hostpci0=mapping%3Dunmarked,mdev%3Dnvidia-63",
            "PCI device mapping invalid (hardware probably changed): 'mdev' does not match for 'unmarked' (1 != 0)",
        ),
        (
            "hostpci0=mapping%3Dgpu,mdev%3Dnvidia-63",
            "PCI device mapping invalid (hardware probably changed): 'mdev' does not match for 'gpu' (0 != 1)",
        ),
        (
            "hostpci0=0000%3A41%3A00.0%3B0000%3A42%3A00.0,mdev%3Dnvidia-63",
            "cannot use mediated device with multifunction device",
        ),
    ] {
        set(&bench, 5005, form).await;
        assert_eq!(start(&bench, 5005).await, words, "{form}");
    }
    let text = set(&bench, 5005, "hostpci0=mapping%3Dvgpu,mdev%3Da.b").await;
    assert!(
        text.starts_with("400 ") && text.contains("hostpci0.mdev"),
        "{text}"
    );
}
