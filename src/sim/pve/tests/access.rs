//! Who may: credentials, tokens and their rights.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::super::{AclSpec, PveSpec, TEMPLATE, TagAccess, TokenSpec, UserTags};
use super::wire::{CONFIG, TOKEN};
use super::{Bench, send};

#[tokio::test(start_paused = true)]
async fn credentials() {
    let bench = Bench::new();
    let outside = bench.pve.router();
    let began = Instant::now();
    let nobody = send(&outside, Method::GET, "/version", "", &[]).await;
    nobody.refused(401, "No ticket");
    assert!(nobody.body.is_null());
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let wrong = ("authorization", "PVEAPIToken=scaler@pve!sim=wrong");
    send(&outside, Method::GET, "/version", "", &[wrong])
        .await
        .refused(401, "Authentication failed!");
    assert_eq!(
        send(&outside, Method::GET, "/version", "", &[TOKEN])
            .await
            .status,
        200
    );

    let login = "username=root%40pam&password=simulated";
    let bad = send(
        &outside,
        Method::POST,
        "/access/ticket",
        "username=root%40pam&password=x",
        &[],
    )
    .await;
    bad.refused(401, "authentication failure");
    assert_eq!(bad.body["data"], json!(null));
    let good = send(&outside, Method::POST, "/access/ticket", login, &[]).await;
    let ticket = good.data()["ticket"].as_str().expect("a ticket").to_owned();
    let csrf = good.data()["CSRFPreventionToken"]
        .as_str()
        .expect("a token")
        .to_owned();
    let cookie = format!("PVEAuthCookie={}", ticket.replace('=', "%3D"));
    let cookie = ("cookie", cookie.as_str());
    assert_eq!(
        send(&outside, Method::GET, CONFIG, "", &[cookie])
            .await
            .status,
        200
    );
    let bare = send(&outside, Method::PUT, CONFIG, "cores=2", &[cookie]).await;
    bare.refused(401, "Permission denied - invalid csrf token");
    let csrf = ("CSRFPreventionToken", csrf.as_str());
    assert_eq!(
        send(&outside, Method::PUT, CONFIG, "cores=2", &[cookie, csrf])
            .await
            .status,
        200
    );

    tokio::time::sleep(Duration::from_secs(7_201)).await;
    send(&outside, Method::GET, CONFIG, "", &[cookie])
        .await
        .refused(401, "Authentication failed!");
    let minted = bench.pve.ticket("root@pam");
    let header = format!("PVEAuthCookie={}", minted.0);
    let header = ("authorization", header.as_str());
    assert_eq!(
        send(&outside, Method::GET, CONFIG, "", &[header])
            .await
            .status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn what_only_root_in_person_may() {
    let bench = Bench::new();
    let outside = bench.pve.router();
    let roots = (
        "authorization",
        "PVEAPIToken=root@pam!sim=00000000-0000-4000-8000-000000000002",
    );
    for token in [TOKEN, roots] {
        for key in [
            "affinity=0-1",
            "hugepages=2",
            "args=-foo",
            "lock=backup",
            "vmgenid=1",
            "hookscript=local:snippets/x",
        ] {
            let name = key.split('=').next().unwrap_or_default();
            send(&outside, Method::PUT, CONFIG, key, &[token])
                .await
                .refused(500, &format!("only root can set '{name}' config"));
        }
        let skip = send(
            &outside,
            Method::POST,
            "/nodes/pve1/qemu/100/status/stop",
            "skiplock=1",
            &[token],
        )
        .await;
        assert_eq!(
            skip.body["errors"]["skiplock"],
            json!("Only root may use this option.")
        );
    }
    assert_eq!(
        bench.call(Method::PUT, CONFIG, "affinity=0-1").await.status,
        200
    );
    assert_eq!(
        bench
            .call(Method::POST, "/access/ticket", "username=a&password=b")
            .await
            .status,
        401
    );
}

/// Without separated privileges root's token passes every check of rights, and is not root all the same.
#[tokio::test(start_paused = true)]
async fn roots_token_has_roots_rights_and_is_not_root() {
    let mut spec = PveSpec::default();
    for (name, privsep) in [("root@pam!whole", false), ("root@pam!none", true)] {
        spec.tokens.push(TokenSpec {
            id: name.to_owned(),
            secret: "secret".to_owned(),
            privsep,
            acl: Vec::new(),
        });
    }
    let bench = Bench::with(spec);
    let outside = bench.pve.router();
    let whole = [("authorization", "PVEAPIToken=root@pam!whole=secret")];
    let none = [("authorization", "PVEAPIToken=root@pam!none=secret")];
    let status = async |method: Method, path: &str, form: &str, token: &[(&str, &str)]| {
        send(&outside, method, path, form, token).await.status
    };
    for (token, wanted) in [(&whole, 200), (&none, 403)] {
        let read = status(Method::GET, CONFIG, "", token).await;
        let changed = status(Method::PUT, CONFIG, "cores=2", token).await;
        assert_eq!((read, changed), (wanted, wanted), "{token:?}");
    }
    let held = |permissions: &serde_json::Value| {
        let held = permissions["data"]["/"]
            .as_object()
            .map(serde_json::Map::len);
        held.unwrap_or_default()
    };
    let of_root = bench
        .call(Method::GET, "/access/permissions", "")
        .await
        .body;
    let of_whole = send(&outside, Method::GET, "/access/permissions", "", &whole).await;
    assert!(held(&of_root) > 20, "{of_root}");
    assert_eq!(held(&of_whole.body), held(&of_root));
    send(&outside, Method::PUT, CONFIG, "affinity=0-1", &whole)
        .await
        .refused(500, "only root can set 'affinity' config");
    let path = "/nodes/pve1/qemu/100/status/stop";
    let skip = send(&outside, Method::POST, path, "skiplock=1", &whole).await;
    let words = &skip.body["errors"]["skiplock"];
    assert_eq!(*words, json!("Only root may use this option."));
}

#[tokio::test(start_paused = true)]
async fn a_pools_token_sees_its_pool_and_nothing_else() {
    let pool = |path: &str, privileges: &[&str]| AclSpec {
        path: path.to_owned(),
        privileges: privileges.iter().map(|one| (*one).to_owned()).collect(),
    };
    let mut spec = PveSpec::default();
    spec.tokens.push(TokenSpec {
        id: "pool@pve!one".to_owned(),
        secret: "secret".to_owned(),
        privsep: true,
        acl: vec![
            pool(
                "/pool/k8s",
                &[
                    "VM.Clone",
                    "VM.Allocate",
                    "VM.Audit",
                    "VM.PowerMgmt",
                    "VM.Config.CPU",
                ],
            ),
            pool("/storage/shared", &["Datastore.AllocateSpace"]),
            pool("/sdn/zones/localnetwork", &["SDN.Use"]),
        ],
    });
    for machine in &mut spec.machines {
        machine.pool = (machine.vmid == TEMPLATE).then(|| "k8s".to_owned());
    }
    let bench = Bench::with(spec);
    let outside = bench.pve.router();
    let token = [("authorization", "PVEAPIToken=pool@pve!one=secret")];
    let ask =
        |method, path: &'static str, form: &'static str| send(&outside, method, path, form, &token);
    let seen = ask(Method::GET, "/cluster/resources", "type=vm").await;
    assert_eq!(seen.data().as_array().map(Vec::len), Some(1));
    ask(Method::GET, CONFIG, "")
        .await
        .refused(403, "Permission check failed (/vms/100, VM.Audit)");
    let outside_pool = ask(Method::POST, "/nodes/pve1/qemu/9000/clone", "newid=5001").await;
    outside_pool.refused(403, "Permission check failed (/vms/5001, VM.Allocate)");
    let upid = ask(
        Method::POST,
        "/nodes/pve1/qemu/9000/clone",
        "newid=5001&pool=k8s",
    )
    .await
    .upid();
    assert_eq!(bench.end(&upid).await, "OK");
    assert_eq!(
        ask(Method::PUT, "/nodes/pve1/qemu/5001/config", "cores=2")
            .await
            .status,
        200
    );
    let memory = ask(Method::PUT, "/nodes/pve1/qemu/5001/config", "memory=4096").await;
    memory.refused(403, "Permission check failed (/vms/5001, VM.Config.Memory)");
    // Its own task it may see, though not all tasks; the cluster's list shows it nothing.
    let status = send(
        &outside,
        Method::GET,
        &format!("/nodes/pve1/tasks/{upid}/status"),
        "",
        &token,
    )
    .await;
    assert_eq!(status.data()["exitstatus"], json!("OK"));
    assert_eq!(
        ask(Method::GET, "/cluster/tasks", "").await.data(),
        &json!([])
    );
    // What is gone is out of the pool: forbidden, not missing.
    assert_eq!(
        bench
            .call(Method::PUT, "/nodes/pve1/qemu/5001/config", "protection=0")
            .await
            .status,
        200
    );
    assert_eq!(
        bench
            .task(Method::DELETE, "/nodes/pve1/qemu/5001", "")
            .await,
        "OK"
    );
    assert_eq!(
        ask(Method::GET, "/nodes/pve1/qemu/5001/config", "")
            .await
            .status,
        403
    );
}

/// Tags for those with `Sys.Modify` on `/` alone, and a list for all others: what is set and what is taken away counts, and what stays does not.
#[tokio::test(start_paused = true)]
async fn tags_are_refused_as_the_datacenter_says() {
    let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
    let with = |access: TagAccess| {
        let bench = Bench::with(PveSpec {
            tag_access: access,
            ..PveSpec::default()
        });
        bench.pve.router()
    };
    let refused =
        |tag: &str| format!("Permission check failed (/, Sys.Modify for modifying tag '{tag}')");
    let path = "/nodes/pve1/qemu/9000/config";
    let registered = || TagAccess {
        registered: list(&["debian"]),
        ..TagAccess::default()
    };
    let users = |user_allow: UserTags, of_list: &[&str]| TagAccess {
        user_allow,
        user_allow_list: list(of_list),
        ..TagAccess::default()
    };
    // The template has debian and template.
    for (access, form, word) in [
        (TagAccess::default(), "tags=a", None),
        (registered(), "tags=a", Some("debian")),
        (registered(), "delete=tags", Some("debian")),
        (registered(), "tags=debian%3Ba", None),
        (
            users(UserTags::List, &["a"]),
            "tags=a%3Bdebian%3Btemplate",
            None,
        ),
        (
            users(UserTags::List, &["a"]),
            "tags=a%3Bdebian",
            Some("template"),
        ),
        (users(UserTags::Existing, &[]), "tags=debian", None),
        (users(UserTags::Existing, &[]), "tags=a", Some("a")),
        (
            users(UserTags::None, &["a"]),
            "tags=a%3Bdebian%3Btemplate",
            Some("a"),
        ),
    ] {
        let answer = send(&with(access), Method::PUT, path, form, &[TOKEN]).await;
        match word {
            Some(tag) => answer.refused(403, &refused(tag)),
            None => assert_eq!(answer.status, 200, "{form}: {answer:?}"),
        }
    }
    let some = TagAccess {
        registered: list(&["debian"]),
        user_allow: UserTags::Existing,
        user_allow_list: list(&["a"]),
    };
    let told = send(
        &with(some.clone()),
        Method::GET,
        "/cluster/options",
        "",
        &[TOKEN],
    )
    .await;
    assert_eq!(told.data()["allowed-tags"], json!(["a", "template"]));
    assert_eq!(told.data()["registered-tags"], json!(["debian"]));
    let users = json!({ "user-allow": "existing", "user-allow-list": ["a"] });
    assert_eq!(told.data()["user-tag-access"], users);
    // Root in person has `Sys.Modify` everywhere.
    let bench = Bench::with(PveSpec {
        tag_access: some,
        ..PveSpec::default()
    });
    assert_eq!(bench.call(Method::PUT, path, "tags=b").await.status, 200);
}
