//! What a simulated cluster of Proxmox VE 8 refuses and 9 does not, and the other way round: answers as PVE 8.4's and 9.2's own code gave
//! them.

use http::Method;
use serde_json::json;

use super::super::{AclSpec, PveSpec, TokenSpec};
use super::wire::CONFIG;
use super::{Bench, send};

/// The guest agent's privilege of each release.
const OF_8: &str = "VM.Monitor";
const OF_9: &str = "VM.GuestAgent.Unrestricted";

/// A cluster with a token for each of both privileges.
fn bench(version: &str) -> Bench {
    let token = |name: &str, privilege: &str| TokenSpec {
        id: format!("scaler@pve!{name}"),
        secret: "secret".to_owned(),
        privsep: true,
        acl: vec![AclSpec {
            path: "/".to_owned(),
            privileges: vec![privilege.to_owned()],
        }],
    };
    Bench::with(PveSpec {
        version: version.to_owned(),
        tokens: vec![token("old", OF_8), token("new", OF_9)],
        ..PveSpec::default()
    })
}

/// It finds a simulator that lets a token with PVE 9's rights do on 8 what it may not do there.
#[tokio::test(start_paused = true)]
async fn the_guest_agent_has_another_privilege() {
    let path = "/nodes/pve1/qemu/100/agent/exec-status?pid=1";
    let missing = "Permission check failed (/vms/100, VM.Monitor)";
    let agent = "Permission check failed (/vms/100, VM.GuestAgent.Unrestricted)";
    for (version, works, other, refused) in [
        ("8.4.21", "old", "new", missing),
        ("9.2.11", "new", "old", agent),
    ] {
        let bench = bench(version);
        let outside = bench.pve.router();
        let ask = async |token: &str, path: &str| {
            let credentials = format!("PVEAPIToken=scaler@pve!{token}=secret");
            let header = [("authorization", credentials.as_str())];
            send(&outside, Method::GET, path, "", &header).await
        };
        ask(other, path).await.refused(403, refused);
        ask(works, path)
            .await
            .refused(500, "No QEMU guest agent configured");
        let held = ask(works, "/access/permissions?path=%2F").await;
        let name = if works == "old" { OF_8 } else { OF_9 };
        assert_eq!(held.data()["/"], json!({ name: 1 }), "{version}");
        let held = ask(other, "/access/permissions?path=%2F").await;
        assert_eq!(held.data()["/"], json!({}), "{version}");
    }
}

/// It finds a simulator in which a role can be given what PVE does not have.
#[tokio::test(start_paused = true)]
async fn a_role_has_the_privileges_of_its_release() {
    for (version, has, lacks) in [("8.4.21", OF_8, OF_9), ("9.2.11", OF_9, OF_8)] {
        let bench = bench(version);
        let add = async |role: &str, privileges: &str| {
            let form = format!("roleid={role}&privs={privileges}");
            bench.call(Method::POST, "/access/roles", &form).await
        };
        let refused = add("one", &format!("Sys.Audit,{lacks}")).await;
        refused.refused(400, "Parameter verification failed.");
        let why = format!("invalid format - invalid privilege '{lacks}'\n");
        assert_eq!(refused.body["errors"], json!({ "privs": why }), "{version}");
        assert_eq!(add("one", has).await.status, 200, "{version}");
    }
}

/// It finds a simulator that takes for 8 what came with 9.
#[tokio::test(start_paused = true)]
async fn options_of_9_are_unknown_to_8() {
    for (version, knows) in [("8.4.21", false), ("9.2.11", true)] {
        let bench = bench(version);
        let answer = bench.call(Method::PUT, CONFIG, "allow-ksm=0").await;
        if knows {
            assert_eq!(answer.status, 200, "{answer:?}");
            continue;
        }
        answer.refused(400, "Parameter verification failed.");
        let why =
            "property is not defined in schema and the schema does not allow additional properties";
        assert_eq!(answer.body["errors"], json!({ "allow-ksm": why }));
    }
}

/// The same of CPUs.
#[tokio::test(start_paused = true)]
async fn cpus_of_9_are_unknown_to_8() {
    for (cpu, words) in [
        ("EPYC-Turin", "Built-in cputype 'EPYC-Turin' is not defined"),
        (
            "host,flags=%2Baes;%2Bnested-virt",
            "VM-specific CPU flags must be a subset of: pcid, ",
        ),
    ] {
        let form = format!("cpu={}", cpu.replace(';', "%3B"));
        let answer = bench("8.4.21").call(Method::PUT, CONFIG, &form).await;
        answer.refused(400, "Parameter verification failed.");
        let why = answer.body["errors"]["cpu"].as_str().unwrap_or_default();
        assert!(why.contains(words), "{answer:?}");
        let answer = bench("9.2.11").call(Method::PUT, CONFIG, &form).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let answer = bench("8.4.21")
        .call(Method::PUT, CONFIG, "cpu=EPYC-Milan")
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
