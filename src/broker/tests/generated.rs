//! Generated requests: none changes a VM that is not ours.

use proptest::prelude::*;

use super::rig::{PEER, rig};
use super::world::mark;
use crate::broker::allow::RawRequest;
use crate::pve::{HttpMethod, PveRequest};

/// Whether what reached PVE may have: the VM in its path carries our mark, or it is a clone of our
/// template that carries one.
fn rightful(request: &PveRequest) -> bool {
    let param = |name: &str| {
        let found = request.params.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    let named = [
        "lock",
        "args",
        "hookscript",
        "import-from",
        "hostpci0",
        "archive",
        "force",
    ];
    if request
        .params
        .iter()
        .any(|(name, _)| named.contains(&name.as_str()))
    {
        return false;
    }
    if request.path == "/nodes/pve1/qemu/9000/clone" {
        let id = param("newid").and_then(|id| id.parse().ok()).unwrap_or(0);
        return (9001..=9099).contains(&id) && param("description").is_some();
    }
    let start = "/nodes/pve1/qemu/9001";
    request.path == start || request.path.starts_with(&format!("{start}/"))
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "api2",
        "json",
        "nodes",
        "pve1",
        "pve2",
        "localhost",
        "qemu",
        "lxc",
        "9000",
        "9001",
        "9002",
        "9003",
        "9004",
        "9005",
        "9006",
        "9007",
        "9008",
        "9009",
        "200",
        "300",
        "400",
        "config",
        "clone",
        "resize",
        "status",
        "start",
        "stop",
        "shutdown",
        "current",
        "agent",
        "ping",
        "exec",
        "exec-status",
        "tasks",
        "cluster",
        "resources",
        "access",
        "storage",
        "..",
        ".",
        "",
        "%2e%2e",
        "9001%2f..%2f9002",
        "9001;9002",
        "9001%00",
        "move_disk",
        "template",
        "snapshot",
        "migrate",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

fn target() -> impl Strategy<Value = String> {
    let vmid = prop::sample::select(vec![
        "9001",
        "9002",
        "9003",
        "9004",
        "9005",
        "9006",
        "9007",
        "9008",
        "9009",
        "9000",
        "200",
        "300",
        "400",
        "9099",
        "09001",
        "9001%20",
        "+9001",
        "9001/../9002",
    ]);
    let rest = prop::sample::select(vec![
        "",
        "/config",
        "/clone",
        "/resize",
        "/status/start",
        "/status/stop",
        "/status/shutdown",
        "/agent/ping",
        "/agent/exec",
        "/agent/exec-status",
        "/template",
        "/migrate",
        "/move_disk",
        "/../9002/status/stop",
        "/config/../../9002/config",
        "%2fconfig",
        "/config/",
    ]);
    prop_oneof![
        3 => (vmid, rest).prop_map(|(vmid, rest)| format!("/api2/json/nodes/pve1/qemu/{vmid}{rest}")),
        1 => prop::collection::vec(word(), 0..9).prop_map(|words| format!("/{}", words.join("/"))),
    ]
}

fn parameter() -> impl Strategy<Value = String> {
    let names = vec![
        "newid",
        "name",
        "description",
        "tags",
        "cores",
        "memory",
        "purge",
        "skiplock",
        "lock",
        "args",
        "hookscript",
        "scsi0",
        "hostpci0",
        "disk",
        "size",
        "timeout",
        "pid",
        "command",
        "storage",
        "vmid",
        "node",
        "delete",
        "digest",
        "overrule-shutdown",
        "import-from",
        "target",
    ];
    let values = vec![
        "9001".to_owned(),
        "9002".to_owned(),
        "9050".to_owned(),
        "1".to_owned(),
        "0".to_owned(),
        "scsi0".to_owned(),
        "16G".to_owned(),
        "small-09050".to_owned(),
        "small-09001".to_owned(),
        "/etc/shadow".to_owned(),
        "local:0,import-from=/dev/sda".to_owned(),
        "a%3Bb".to_owned(),
        "a;vmid=9002".to_owned(),
        "ceph".to_owned(),
        "pve2".to_owned(),
        crate::pve::percent(&mark(9050).line()),
        crate::pve::percent(&mark(9001).line()),
        crate::pve::percent(&mark(9002).line()),
    ];
    (prop::sample::select(names), prop::sample::select(values))
        .prop_map(|(name, value)| format!("{name}={value}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_generated_request_changes_a_vm_that_is_not_ours(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "DELETE", "PATCH", "post"]),
        path in target(),
        params in prop::collection::vec(parameter(), 0..5),
        in_query in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = runtime.expect("a runtime").block_on(async {
            let rig = rig();
            let text = params.join("&");
            let raw = RawRequest {
                method,
                path: &path,
                query: (in_query && !text.is_empty()).then_some(text.as_str()),
                content_type: (!in_query).then_some("application/x-www-form-urlencoded"),
                body: if in_query { b"" } else { text.as_bytes() },
            };
            rig.service.answer(PEER, raw).await;
            rig.world.changes()
        });
        for request in sent {
            prop_assert!(request.method == HttpMethod::Get || rightful(&request), "{request:?} {:?}", request.params);
        }
    }
}
