//! Rules of VMs' firewalls, and what becomes of them with the VM (pve-firewall, `PVE/API2/Firewall/Rules.pm`).

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::super::{AdminAct, FirewallRule, PveSpec, TEMPLATE};
use super::wire::TOKEN;
use super::{Bench, send};

const RULES: &str = "/nodes/pve1/qemu/100/firewall/rules";

#[tokio::test(start_paused = true)]
async fn a_new_rule_comes_before_all_others_and_one_goes_by_place_and_digest() {
    let bench = Bench::new();
    let add = async |form: &'static str| bench.call(Method::POST, RULES, form).await;
    assert_eq!(bench.get(RULES).await.data(), &json!([]));
    assert_eq!(
        add("type=group&action=web&iface=net0&enable=1")
            .await
            .status,
        200
    );
    assert_eq!(
        add("type=group&action=db&pos=7&comment=x").await.status,
        200
    );
    let rules = bench.get(RULES).await;
    let rules = rules.data();
    assert_eq!(rules[0]["action"], "db", "wherever it was to come");
    assert_eq!(rules[0]["enable"], 0, "off, if it is not said");
    assert_eq!(rules[0]["comment"], "x");
    assert_eq!(rules[1]["iface"], "net0");
    let digest = rules[0]["digest"].as_str().expect("a digest");
    add("type=group&action=web&iface=eth0")
        .await
        .refused(400, "Parameter verification failed.");
    add("type=in&action=web")
        .await
        .refused(400, "Parameter verification failed.");
    add("type=group")
        .await
        .refused(400, "Parameter verification failed.");
    let first = format!("{RULES}/0");
    let remove = async |query: String| {
        let path = format!("{first}?{query}");
        bench.call(Method::DELETE, &path, "").await
    };
    remove("digest=00".to_owned()).await.refused(
        500,
        "detected modified configuration - file changed by other user? Try again.",
    );
    assert_eq!(remove(format!("digest={digest}")).await.status, 200);
    // The rules are others now.
    remove(format!("digest={digest}")).await.refused(
        500,
        "detected modified configuration - file changed by other user? Try again.",
    );
    assert_eq!(remove(String::new()).await.status, 200);
    remove(String::new())
        .await
        .refused(500, "no rule at position 0");
}

#[tokio::test(start_paused = true)]
async fn a_clone_has_its_templates_rules_and_they_go_with_it() {
    let bench = Bench::new();
    let rules = vec![FirewallRule {
        kind: "group".to_owned(),
        action: "base".to_owned(),
        enable: true,
        ..FirewallRule::default()
    }];
    let act = AdminAct::Firewall {
        vmid: TEMPLATE,
        rules: rules.clone(),
    };
    bench.pve.administer(&act).expect("done");
    let options = |vmid: u32| format!("/nodes/pve1/qemu/{vmid}/firewall/options");
    let of_template = options(TEMPLATE);
    let enabled = async |vmid: u32| bench.get(&options(vmid)).await.data()["enable"].clone();
    assert_eq!(enabled(TEMPLATE).await, 0);
    for (form, on) in [("enable=1", 1), ("", 1), ("enable=0", 0), ("enable=1", 1)] {
        let put = bench.call(Method::PUT, &of_template, form).await;
        assert_eq!(put.status, 200);
        assert_eq!(enabled(TEMPLATE).await, on, "{form}");
    }
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    assert_eq!(bench.task(Method::POST, &path, "newid=5001").await, "OK");
    assert_eq!(bench.pve.vm(5001).expect("there").rules, rules);
    assert_eq!(enabled(5001).await, 1);
    let unprotect = "/nodes/pve1/qemu/5001/config";
    assert_eq!(
        bench
            .call(Method::PUT, unprotect, "protection=0")
            .await
            .status,
        200
    );
    let vm = "/nodes/pve1/qemu/5001";
    assert_eq!(bench.task(Method::DELETE, vm, "").await, "OK");
    assert_eq!(
        bench.get(&format!("{vm}/firewall/rules")).await.data(),
        &json!([])
    );
    assert_eq!(enabled(5001).await, 0);
}

/// PVE says nothing of a switch that nobody touched. One that is on for trial goes off again after a minute.
#[tokio::test(start_paused = true)]
async fn the_datacenters_firewall_is_off_until_somebody_switches_it_on() {
    let options = "/cluster/firewall/options";
    let bench = Bench::new();
    let enable = async || bench.get(options).await.data().get("enable").cloned();
    assert_eq!(enable().await, None);
    let now = 1_760_000_000;
    for (written, told) in [(1, json!(1)), (0, json!(0)), (now, json!(now))] {
        let act = AdminAct::DatacenterFirewall { enable: written };
        bench.pve.administer(&act).expect("done");
        assert_eq!(enable().await, Some(told));
    }
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(enable().await, Some(json!(0)), "the trial is over");
    let spec = PveSpec {
        datacenter_firewall: Some(1),
        ..PveSpec::default()
    };
    assert_eq!(Bench::with(spec).get(options).await.data()["enable"], 1);
}

#[tokio::test(start_paused = true)]
async fn the_datacenters_firewall_is_told_to_auditors() {
    let options = "/cluster/firewall/options";
    let mut spec = PveSpec::default();
    let told = Bench::with(spec.clone()).pve.router();
    let told = send(&told, Method::GET, options, "", &[TOKEN]).await;
    assert_eq!(told.status, 200, "{told:?}");
    spec.tokens[0].acl[0]
        .privileges
        .retain(|one| one != "Sys.Audit");
    let hidden = Bench::with(spec).pve.router();
    send(&hidden, Method::GET, options, "", &[TOKEN])
        .await
        .refused(403, "Permission check failed (/, Sys.Audit)");
}
