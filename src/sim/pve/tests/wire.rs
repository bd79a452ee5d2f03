//! The wire: parameters, tasks, errors.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::super::{AdminAct, TEMPLATE};
use super::{Answer, Bench, answer_of, send};

pub(super) const CONFIG: &str = "/nodes/pve1/qemu/100/config";
pub(super) const TOKEN: (&str, &str) = (
    "authorization",
    "PVEAPIToken=scaler@pve!sim=00000000-0000-4000-8000-000000000001",
);

#[tokio::test(start_paused = true)]
async fn parameters_are_checked_as_pve_checks_them() {
    let bench = Bench::new();
    let cases = [
        (
            "nosuch=1",
            "nosuch",
            "property is not defined in schema and the schema does not allow additional properties",
        ),
        (
            "cores=many",
            "cores",
            "type check ('integer') failed - got 'many'",
        ),
        ("cores=0", "cores", "value must have a minimum value of 1"),
        (
            "cpulimit=129",
            "cpulimit",
            "value must have a maximum value of 128",
        ),
        (
            "onboot=true",
            "onboot",
            "type check ('boolean') failed - got 'true'",
        ),
        (
            "onboot=yes",
            "onboot",
            "type check ('boolean') failed - got 'yes'",
        ),
        (
            "name=not_a_name",
            "name",
            "invalid format - value does not look like a valid DNS name\n",
        ),
        (
            "tags=a%2Fb",
            "tags",
            "invalid format - invalid characters in tag\n",
        ),
        (
            "tags=a%3Db",
            "tags",
            "invalid format - invalid characters in tag\n",
        ),
        (
            "bios=uefi",
            "bios",
            "value 'uefi' does not have a value in the enumeration 'seabios, ovmf'",
        ),
        (
            "sshkeys=ssh-ed25519+AAAA",
            "sshkeys",
            "invalid format - invalid urlencoded string: ssh-ed25519 AAAA\n",
        ),
        (
            "net0=virtio%2Ctag%3D5000",
            "net0",
            "invalid format - format error\nnet0.tag: value must have a maximum value of 4094\n",
        ),
        (
            "force=1",
            "delete",
            "missing property - 'force' requires this property",
        ),
        (
            "net99=virtio",
            "net99",
            "property is not defined in schema and the schema does not allow additional properties",
        ),
        (
            "memory=8",
            "memory",
            "invalid format - format error\nmemory.current: value must have a minimum value of 16\n",
        ),
        ("delete=nosuch", "delete", "unknown option 'nosuch'"),
    ];
    for (form, name, why) in cases {
        let answer = bench.call(Method::PUT, CONFIG, form).await;
        answer.refused(400, "Parameter verification failed.");
        assert_eq!(answer.body["errors"], json!({ name: why }), "{form}");
        assert_eq!(
            answer.body["message"],
            json!("Parameter verification failed.\n")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_too_long_or_unknown() {
    let bench = Bench::new();
    let missing = bench
        .call(
            Method::POST,
            &format!("/nodes/pve1/qemu/{TEMPLATE}/clone"),
            "",
        )
        .await;
    assert_eq!(
        missing.body["errors"]["newid"],
        json!("property is missing and it is not optional")
    );
    let long = format!("description={}", "x".repeat(8193));
    let long = bench.call(Method::PUT, CONFIG, &long).await;
    assert_eq!(
        long.body["errors"]["description"],
        json!("value may only be 8192 characters long")
    );
    bench
        .call(Method::PUT, CONFIG, "")
        .await
        .refused(500, "no options specified");
    bench
        .get("/nosuch")
        .await
        .refused(501, "Method 'GET /nosuch' not implemented");
    bench
        .call(Method::PATCH, CONFIG, "")
        .await
        .refused(501, "method 'PATCH' not available");
    bench.get("/nodes/pve99/status").await.refused(
        500,
        "hostname lookup 'pve99' failed - failed to get address info for: pve99: Name or service not known",
    );
}

#[tokio::test(start_paused = true)]
async fn forms_split_on_both_separators_and_json_keeps_its_types() {
    let bench = Bench::new();
    // An unescaped semicolon parts parameters: this sets tags=a and complains of b.
    let split = bench.call(Method::PUT, CONFIG, "tags=a;b").await;
    assert_eq!(split.status, 400);
    assert!(split.body["errors"]["b"].is_string());
    assert_eq!(
        bench
            .call(
                Method::PUT,
                CONFIG,
                "tags=B%3Ba+c&description=one%0Atwo+%C3%A9"
            )
            .await
            .status,
        200
    );
    let config = bench.get(CONFIG).await;
    assert_eq!(config.data()["tags"], json!("a;b;c"));
    assert_eq!(config.data()["description"], json!("one\ntwo é"));
    let body = json!({ "cores": 3, "onboot": true, "agent": 1 }).to_string();
    let headers = [("content-type", "application/json")];
    assert_eq!(
        send(&bench.root, Method::PUT, CONFIG, &body, &headers)
            .await
            .status,
        200
    );
    let config = bench.get(CONFIG).await;
    assert_eq!(
        (&config.data()["cores"], &config.data()["onboot"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(
        config.data()["agent"],
        json!(1),
        "a number after JSON wrote it"
    );
    assert_eq!(config.data()["memory"], json!("2048"), "a string");
    let broken = send(&bench.root, Method::PUT, CONFIG, "{", &headers).await;
    assert_eq!(broken.status, 500);
    let clash = bench.call(Method::PUT, CONFIG, "vmid=101&cores=2").await;
    assert!(
        clash.body["errors"]["vmid"]
            .as_str()
            .is_some_and(|why| why.starts_with("duplicate parameter"))
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_finished_ones_first_asked() {
    let bench = Bench::new();
    let upid = bench
        .call(
            Method::POST,
            &format!("/nodes/pve1/qemu/{TEMPLATE}/clone"),
            "newid=5001&full=1",
        )
        .await
        .upid();
    let ids = |answer: &Answer| -> Vec<String> {
        let rows = answer.data().as_array().expect("rows");
        rows.iter()
            .map(|row| row["upid"].as_str().expect("a UPID").to_owned())
            .collect()
    };
    let list = "/nodes/pve1/tasks";
    assert_eq!(ids(&bench.get(list).await), Vec::<String>::new());
    assert_eq!(
        ids(&bench.call(Method::GET, list, "source=active").await),
        [upid.as_str()]
    );
    let running = bench.get(&format!("/nodes/pve1/tasks/{upid}/status")).await;
    assert_eq!(
        (&running.data()["status"], &running.data()["exitstatus"]),
        (&json!("running"), &json!(null))
    );
    assert_eq!(bench.end(&upid).await, "OK");
    assert_eq!(ids(&bench.get(list).await), [upid.as_str()]);
    assert_eq!(
        ids(&bench.call(Method::GET, list, "source=active").await),
        Vec::<String>::new()
    );
    assert_eq!(
        ids(&bench
            .call(Method::GET, list, "vmid=9000&typefilter=qmclone")
            .await),
        [upid.as_str()]
    );
    assert_eq!(
        ids(&bench.call(Method::GET, list, "vmid=5001").await),
        Vec::<String>::new()
    );
    assert_eq!(
        ids(&bench.call(Method::GET, list, "errors=1").await),
        Vec::<String>::new()
    );
    let log = bench.get(&format!("/nodes/pve1/tasks/{upid}/log")).await;
    let lines = log.data().as_array().expect("lines");
    assert_eq!(lines.last().map(|line| &line["t"]), Some(&json!("TASK OK")));
    assert_eq!(log.body["total"], json!(lines.len()));
    let unknown = bench
        .get(&format!(
            "/nodes/pve1/tasks/{}/status",
            upid.replace("9000", "9001")
        ))
        .await;
    assert_eq!(unknown.body["errors"]["upid"], json!("no such task"));
    let nonsense = bench.get("/nodes/pve1/tasks/nonsense/status").await;
    assert_eq!(
        nonsense.body["errors"]["upid"],
        json!("unable to parse worker upid")
    );
    // A log is a file that is not there.
    let path = format!("/nodes/pve1/tasks/{}/log", upid.replace("9000", "9001"));
    assert_eq!(
        bench.get(&path).await.data()[0]["t"],
        json!("unable to open file - No such file or directory")
    );
    let key = "sshkeys=ssh-ed25519%2520AAAA%2520me";
    bench
        .call(Method::PUT, CONFIG, key)
        .await
        .refused(500, "SSH public key validation error");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_went_away_is_carried_out_all_the_same() {
    let bench = Bench::new();
    let call = bench.call(Method::PUT, CONFIG, "description=done");
    assert!(
        tokio::time::timeout(Duration::from_millis(5), call)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.pve.vm(100).expect("the VM").description, "done");
    let last = bench.pve.requests().pop().expect("a request");
    assert_eq!(
        (
            last.method.as_str(),
            last.path.as_str(),
            last.changing,
            last.status
        ),
        ("PUT", CONFIG, true, Some(200))
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_may_be_half_a_megabyte() {
    let bench = Bench::new();
    let form = format!("description={}", "x".repeat(512 * 1024));
    bench
        .call(Method::PUT, CONFIG, &form)
        .await
        .refused(501, "for data too large");
    let request = Request::get("/api2/html/version")
        .body(Body::empty())
        .expect("a request");
    let other = answer_of(
        bench
            .root
            .clone()
            .oneshot(request)
            .await
            .expect("an answer"),
    )
    .await;
    assert_eq!(other.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_and_a_lost_quorum() {
    let bench = Bench::new();
    let off = |online| AdminAct::HostOnline {
        host: "pve2".to_owned(),
        online,
    };
    bench.pve.administer(&off(false)).expect("off");
    let began = Instant::now();
    bench
        .get("/nodes/pve2/status")
        .await
        .refused(595, "Connection timed out");
    assert_eq!(began.elapsed(), Duration::from_secs(30));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let began = Instant::now();
    bench
        .get("/nodes/pve2/status")
        .await
        .refused(595, "No route to host");
    assert!(began.elapsed() < Duration::from_secs(10));
    let nodes = bench
        .call(Method::GET, "/cluster/resources", "type=node")
        .await;
    let lost = nodes
        .data()
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["node"] == "pve2").cloned());
    let lost = lost.expect("pve2");
    assert_eq!(
        (&lost["status"], &lost["maxmem"]),
        (&json!("offline"), &json!(null))
    );
    assert_eq!(
        bench.get("/cluster/status").await.data()[0]["quorate"],
        json!(1)
    );

    let third = AdminAct::HostOnline {
        host: "pve3".to_owned(),
        online: false,
    };
    bench.pve.administer(&third).expect("off");
    assert_eq!(
        bench.get("/cluster/status").await.data()[0]["quorate"],
        json!(0)
    );
    let clone = bench
        .call(
            Method::POST,
            &format!("/nodes/pve1/qemu/{TEMPLATE}/clone"),
            "newid=5001",
        )
        .await;
    clone.refused(500, "cluster not ready - no quorum?");
    let start = bench
        .call(Method::POST, "/nodes/pve1/qemu/100/status/start", "")
        .await;
    start.refused(500, "cluster not ready - no quorum?");
    bench.call(Method::PUT, CONFIG, "cores=3").await.refused(
        500,
        "unable to open file '/etc/pve/nodes/pve1/qemu-server/100.conf.tmp.158' - Permission denied",
    );
    assert_eq!(bench.get(CONFIG).await.status, 200);
    assert_eq!(bench.get("/cluster/nextid").await.status, 200);
    bench.pve.administer(&off(true)).expect("on");
    assert_eq!(bench.call(Method::PUT, CONFIG, "cores=3").await.status, 200);
}
