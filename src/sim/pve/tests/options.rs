//! Options of a VM that nobody plans with: who may set them, which a running VM takes, and what PVE warns of.

use http::Method;
use serde_json::{Value, json};

use super::super::{AclSpec, PveSpec, TEMPLATE, TokenSpec};
use super::power::VM;
use super::{Bench, send};

/// The VM's configuration in force.
async fn in_force(bench: &Bench) -> Value {
    let config = bench
        .call(Method::GET, &format!("{VM}/config"), "current=1")
        .await;
    config.data().clone()
}

async fn set(bench: &Bench, form: &str) -> u16 {
    let path = format!("{VM}/config");
    bench.call(Method::PUT, &path, form).await.status
}

#[tokio::test(start_paused = true)]
async fn a_token_reaches_of_the_host_what_is_mapped_to_it() {
    let mut spec = PveSpec::default();
    let on = |path: &str, privileges: &str| AclSpec {
        path: path.to_owned(),
        privileges: privileges.split(' ').map(str::to_owned).collect(),
    };
    spec.tokens.push(TokenSpec {
        id: "scaler@pve!options".to_owned(),
        secret: "secret".to_owned(),
        privsep: true,
        acl: vec![
            on("/vms", "VM.Audit VM.Config.HWType VM.Config.Disk"),
            on("/mapping/usb/key", "Mapping.Use"),
        ],
    });
    let bench = Bench::cloned_in(spec).await;
    let token = bench.pve.router_as("scaler@pve!options");
    let path = format!("{VM}/config");
    for (form, status, reason) in [
        ("rng0=%2Fdev%2Furandom", 200, ""),
        (
            "rng0=source%3D%2Fdev%2Fhwrng",
            403,
            "Permission check failed (/mapping/hwrng, Mapping.Use)",
        ),
        ("usb0=mapping%3Dkey", 200, ""),
        ("usb0=spice", 200, ""),
        (
            "usb0=mapping%3Dother",
            403,
            "Permission check failed (/mapping/usb/other, Mapping.Use)",
        ),
        (
            "usb0=host%3D1-2",
            500,
            "only root can set 'usb0' config for real devices",
        ),
        (
            "usb0=usb3%3D1",
            500,
            "either 'host' or 'mapping' must be set.",
        ),
        ("serial1=socket", 200, ""),
        (
            "serial1=%2Fdev%2FttyS0",
            500,
            "only root can modify 'serial1' config for real devices",
        ),
        (
            "virtiofs0=data",
            403,
            "Permission check failed (/mapping/dir/data, Mapping.Use)",
        ),
        ("amd-sev=snp", 500, "only root can set 'amd-sev' config"),
        (
            "keyboard=de",
            403,
            "Permission check failed (/vms/5001, VM.Config.Options)",
        ),
    ] {
        let answer = send(&token, Method::PUT, &path, form, &[]).await;
        assert_eq!(answer.status, status, "{form}: {answer:?}");
        if status != 200 {
            assert_eq!(answer.reason, reason, "{form}");
            assert_eq!(set(&bench, form).await, 200, "root in person may: {form}");
            // What root gave the VM a token may not change either.
            let key = form.split('=').next().unwrap_or_default();
            assert_eq!(set(&bench, &format!("delete={key}")).await, 200, "{form}");
        }
    }
    let wrong = bench.call(Method::PUT, &path, "watchdog=x").await;
    wrong.refused(400, "Parameter verification failed.");
    assert_eq!(
        wrong.body["errors"]["watchdog"],
        "invalid format - format error\nwatchdog.model: value 'x' does not have a value in the enumeration 'i6300esb, ib700'\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_runs_takes_a_tablet_where_it_takes_usb() {
    let bench = Bench::cloned().await;
    assert_eq!(bench.power("start", "").await, "OK");
    for form in [
        "tablet=0&rng0=%2Fdev%2Furandom&migrate_speed=10",
        "hotplug=disk",
    ] {
        assert_eq!(set(&bench, form).await, 200);
    }
    let config = in_force(&bench).await;
    assert_eq!(
        (&config["tablet"], &config["rng0"], &config["migrate_speed"]),
        (&json!(0), &Value::Null, &json!(10))
    );
    assert_eq!(config["hotplug"], "disk");
    assert_eq!(set(&bench, "tablet=1").await, 200);
    assert_eq!(in_force(&bench).await["tablet"], 0);
    assert_eq!(set(&bench, "hotplug=cpu%2Cusb").await, 200);
    assert_eq!(in_force(&bench).await["hotplug"], "disk");
    assert_eq!(bench.power("stop", "").await, "OK");
    assert_eq!(bench.power("start", "").await, "OK");
    let config = in_force(&bench).await;
    assert_eq!(
        (&config["tablet"], &config["rng0"], &config["hotplug"]),
        (&json!(1), &json!("/dev/urandom"), &json!("cpu,usb"))
    );
}

/// PVE writes the line of an empty list of CPUs and does not read it back: what was there stays, and goes by `delete` alone.
#[tokio::test(start_paused = true)]
async fn an_empty_affinity_changes_nothing() {
    let bench = Bench::cloned().await;
    assert_eq!(set(&bench, "affinity=").await, 200);
    assert_eq!(in_force(&bench).await["affinity"], Value::Null);
    assert_eq!(set(&bench, "affinity=0-1").await, 200);
    assert_eq!(set(&bench, "affinity=").await, 200);
    assert_eq!(in_force(&bench).await["affinity"], "0-1");
    assert_eq!(set(&bench, "delete=affinity").await, 200);
    assert_eq!(in_force(&bench).await["affinity"], Value::Null);
}

/// An MTU is a virtio card's alone: the VM starts without it, and the task ends with a warning.
#[tokio::test(start_paused = true)]
async fn an_mtu_that_a_card_cannot_have_is_a_warning_of_the_start() {
    let bench = Bench::cloned().await;
    let card = |text: &str| format!("net1={}", text.replace('=', "%3D").replace(',', "%2C"));
    for (text, exit, warning) in [
        ("virtio,bridge=vmbr0,mtu=1400", "OK", ""),
        ("e1000,bridge=vmbr0", "OK", ""),
        (
            "e1000,bridge=vmbr0,mtu=1400",
            "WARNINGS: 1",
            "WARN: netdev net1: ignoring MTU '1400', not using VirtIO",
        ),
        (
            "virtio,mtu=1400",
            "WARNINGS: 1",
            "WARN: netdev net1: ignoring MTU '1400', no bridge configured",
        ),
    ] {
        assert_eq!(set(&bench, &card(text)).await, 200, "{text}");
        let start = format!("{VM}/status/start");
        let upid = bench.call(Method::POST, &start, "").await.upid();
        assert_eq!(bench.end(&upid).await, exit, "{text}");
        let log = bench.get(&format!("/nodes/pve1/tasks/{upid}/log")).await;
        let lines = log.data().as_array().cloned().unwrap_or_default();
        let lines: Vec<&str> = lines.iter().filter_map(|line| line["t"].as_str()).collect();
        assert_eq!(lines.last(), Some(&&*format!("TASK {exit}")), "{lines:?}");
        assert_eq!(lines.contains(&warning), !warning.is_empty(), "{lines:?}");
        assert_eq!(bench.power("stop", "").await, "OK");
    }
}

/// Mappings of USB devices and directories are listed, and a VM with one that its host does not have is not started, in PVE's words.
#[tokio::test(start_paused = true)]
async fn a_vm_starts_with_the_mappings_that_its_host_has() {
    let of = |name: &str, host: &str| (name.to_owned(), vec![host.to_owned()]);
    let spec = PveSpec {
        usb_mappings: [of("key", "pve1"), of("far", "pve2")].into(),
        dir_mappings: [of("data", "pve1"), of("far", "pve2")].into(),
        ..PveSpec::default()
    };
    let bench = Bench::with(spec);
    let clone = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    assert_eq!(bench.task(Method::POST, &clone, "newid=5001").await, "OK");
    for kind in ["usb", "dir"] {
        let path = format!("/cluster/mapping/{kind}");
        let told = bench.call(Method::GET, &path, "").await;
        let rows = told.data().as_array().cloned().unwrap_or_default();
        let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert!(ids.contains(&"far"), "{ids:?}");
    }
    let (config, start) = (
        "/nodes/pve1/qemu/5001/config",
        "/nodes/pve1/qemu/5001/status/start",
    );
    for (form, words) in [
        (
            "usb0=mapping%3Dfar",
            "USB device mapping not found for 'far'",
        ),
        (
            "usb0=mapping%3Dnone",
            "USB device mapping not found for 'none'",
        ),
        (
            "usb0=mapping%3Dkey&virtiofs0=none",
            "Directory ID none does not exist.",
        ),
        ("virtiofs0=far", "No directory mapping for node pve1."),
        ("virtiofs0=dirid%3Ddata", "OK"),
    ] {
        assert_eq!(
            bench.call(Method::PUT, config, form).await.status,
            200,
            "{form}"
        );
        assert_eq!(bench.task(Method::POST, start, "").await, words, "{form}");
    }
}
