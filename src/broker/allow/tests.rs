//! The list against PVE's whole API, against the client, and against tricks with the wire form.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::broker::tests::world::policy;
use crate::model::pci::PciDevice;
use crate::pve::PveRequest;

const FORM: &str = "application/x-www-form-urlencoded";

fn raw<'a>(method: &'a str, path: &'a str) -> RawRequest<'a> {
    let form = method == "POST" || method == "PUT";
    RawRequest {
        method,
        path,
        query: None,
        content_type: form.then_some(FORM),
        body: b"",
    }
}

/// The listed calls in PVE's own spelling of paths.
fn listed() -> BTreeSet<(String, String)> {
    RULES
        .iter()
        .map(|rule| {
            let path: String = rule
                .path
                .iter()
                .map(|segment| match segment {
                    PathSegment::Fixed(word) => format!("/{word}"),
                    PathSegment::Host => "/{node}".to_owned(),
                    PathSegment::Vmid => "/{vmid}".to_owned(),
                    PathSegment::Upid => "/{upid}".to_owned(),
                    PathSegment::Storage => "/{storage}".to_owned(),
                    PathSegment::Mapping => "/{pci-id-or-mapping}".to_owned(),
                    // PVE takes both as one name.
                    PathSegment::Isos => "/{volume}".to_owned(),
                    PathSegment::Iso => String::new(),
                    PathSegment::Position => "/{pos}".to_owned(),
                })
                .collect();
            (rule.method.to_string(), path)
        })
        .collect()
}

/// A real path for a pattern of PVE's.
fn filled(pattern: &str) -> String {
    let path = pattern
        .replace("{node}", "pve1")
        .replace("{vmid}", "9001")
        .replace("{pos}", "0")
        .replace(
            "{volume}",
            "x1%3Aiso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        )
        .replace(
            "{upid}",
            "UPID%3Apve1%3A0003A1B2%3A00C3D4E5%3A66F0A1B2%3Aqmstart%3A9001%3Aroot%40pam%3A",
        );
    let parts: Vec<&str> = path
        .split('/')
        .map(|part| if part.starts_with('{') { "x1" } else { part })
        .collect();
    format!("/api2/json{}", parts.join("/"))
}

/// Whether a request by this name and path finds a line of the list at all.
fn found(method: &str, path: &str) -> bool {
    find(raw(method, path)).is_ok()
}

#[test]
fn of_pves_whole_api_only_the_list_passes() {
    // Beside the repository, or beside its worktrees.
    let places = [
        concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/pve/api-schema.json"),
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../shared/pve/api-schema.json"
        ),
    ];
    let mut texts = places
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    let Some(text) = texts.next() else {
        println!("skipped: the API schema is not beside this repository");
        return;
    };
    let mut schema: Vec<Value> = serde_json::from_str(&text).expect("the schema is JSON");
    assert!(schema.len() > 100, "the schema is whole");
    // The schema leaves containers, mappings, the removal of firewall rules and the datacenter's firewall out.
    for more in [
        include_str!("../../sim/pve/tests/containers.json"),
        include_str!("../../sim/pve/tests/mappings.json"),
        include_str!("../../sim/pve/tests/firewall.json"),
        include_str!("../../sim/pve/tests/load.json"),
        include_str!("../../sim/pve/tests/sdn.json"),
    ] {
        schema.extend(serde_json::from_str::<Vec<Value>>(more).expect("JSON"));
    }
    let listed = listed();
    let mut seen = BTreeSet::new();
    for entry in &schema {
        let pattern = entry["path"].as_str().expect("a path");
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let key = (method.to_owned(), pattern.to_owned());
            assert_eq!(
                found(method, &filled(pattern)),
                listed.contains(&key),
                "{method} {pattern}"
            );
        }
        let method = entry["method"].as_str().expect("a method");
        let key = (method.to_owned(), pattern.to_owned());
        if listed.contains(&key) {
            parameters_exist(method, pattern, entry);
            seen.insert(key);
        }
    }
    assert_eq!(seen, listed, "every listed call is one of PVE's");
}

/// Every parameter of the line is one of PVE's, and every other one of PVE's is refused.
fn parameters_exist(method: &str, pattern: &str, entry: &Value) {
    let path = filled(pattern);
    let (rule, _) = find(raw(method, &path)).expect("listed");
    let names: BTreeSet<String> = entry["parameters"]["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(name, _)| match name.strip_suffix("[n]") {
            Some(stem) => (0..16).map(|number| format!("{stem}{number}")).collect(),
            None => vec![name.clone()],
        })
        .collect();
    // The file itself is no parameter of PVE's: it comes in the form's part `filename`.
    for param in rule.params.iter().filter(|param| param.name != "file") {
        assert!(
            names.contains(param.name),
            "{method} {pattern}: {}",
            param.name
        );
    }
    let unlisted = names
        .iter()
        .filter(|name| rule.params.iter().all(|param| param.name != **name));
    for name in unlisted {
        let text = format!("{name}=1");
        let mut raw = raw(method, &path);
        if rule.method.has_query() {
            raw.query = Some(&text);
        } else {
            raw.body = text.as_bytes();
        }
        let why = admit(&policy(), raw).expect_err("refused");
        assert!(
            why.contains("is not allowed"),
            "{method} {pattern} {name}: {why}"
        );
    }
}

#[test]
fn what_no_schema_is_needed_for_is_refused_too() {
    for (method, path) in [
        ("POST", "/api2/json/access/ticket"),
        ("POST", "/api2/json/access/users"),
        ("PUT", "/api2/json/access/acl"),
        ("POST", "/api2/json/access/users/root@pam/token/t1"),
        ("POST", "/api2/json/nodes/pve1/qemu"),
        ("POST", "/api2/json/nodes/pve1/lxc"),
        ("DELETE", "/api2/json/nodes/pve1/lxc/9001"),
        ("POST", "/api2/json/nodes/pve1/execute"),
        ("POST", "/api2/json/nodes/pve1/termproxy"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/config"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/monitor"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/agent/file-write"),
        ("GET", "/api2/json/nodes/pve1/qemu/9001/agent/file-read"),
        (
            "POST",
            "/api2/json/nodes/pve1/qemu/9001/agent/set-user-password",
        ),
        ("PUT", "/api2/json/nodes/pve1/qemu/9001/unlink"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/move_disk"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/migrate"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/template"),
        ("POST", "/api2/json/nodes/pve1/qemu/9001/vncproxy"),
        ("DELETE", "/api2/json/nodes/pve1/tasks/UPID"),
        ("POST", "/api2/json/nodes/pve1/status"),
        ("POST", "/api2/json/nodes/pve1/storage/local/upload"),
        ("POST", "/api2/json/nodes/pve1/storage/local/download-url"),
        ("GET", "/api2/json/nodes/pve1/query-url-metadata"),
        ("PUT", "/api2/json/cluster/options"),
        ("GET", "/api2/json/cluster/nextid"),
        ("GET", "/api2/json/cluster/config/join"),
        ("GET", "/api2/json"),
        ("GET", "/api2/json/"),
        ("GET", "/api2/extjs/version"),
        ("GET", "/api2/html/version"),
        ("GET", "/version"),
        ("GET", "/"),
        ("GET", ""),
    ] {
        assert!(
            admit(&policy(), raw(method, path)).is_err(),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn every_call_of_the_client_is_listed_and_nothing_more() {
    let mut used = BTreeSet::new();
    for request in crate::pve::tests::all_calls().await {
        if request.call == "permissions" {
            // A token's, which needs no broker.
            admitted(&request).expect_err("it is for tokens alone");
            continue;
        }
        let call = admitted(&request).unwrap_or_else(|why| panic!("{request:?}: {why}"));
        assert_eq!(call.path, request.path);
        assert_eq!(call.params, request.params);
        used.insert(call.rule.name);
    }
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(used, all);
    assert_eq!(RULES.len(), all.len(), "names are unique");
}

fn admitted(request: &PveRequest) -> Result<AdmittedCall, String> {
    let target = request.target();
    let (path, query) = target
        .split_once('?')
        .map_or((target.as_str(), None), |(path, query)| (path, Some(query)));
    let body = request.body().unwrap_or_default();
    let method = request.method.to_string();
    let raw = RawRequest {
        method: &method,
        path,
        query,
        content_type: request.body().is_some().then_some(FORM),
        body: body.as_bytes(),
    };
    let mut policy = policy();
    let kind = policy.allow.types.values_mut().next().expect("a type");
    // What is left of mediated devices is asked where machines get some.
    kind.pci.push(PciDevice {
        mapping: "vgpu".into(),
        mdev: Some("nvidia-63".into()),
        ..PciDevice::default()
    });
    admit(&policy, raw)
}

#[test]
fn a_path_means_one_thing_or_nothing() {
    for path in [
        "/api2/json/nodes/pve1/qemu/9001/../9002/status/stop",
        "/api2/json/nodes/pve1/qemu/9001/status/stop/",
        "/api2/json/nodes/pve1//qemu/9001/status/stop",
        "//api2/json/nodes/pve1/qemu/9001/status/stop",
        "/api2/json/nodes/pve1/qemu/9001%2fstatus%2fstop",
        "/api2/json/nodes/pve1/qemu/9001%2Fstatus/stop",
        "/api2/json/nodes/pve1/qemu/%2e%2e/qemu/9001/status/stop",
        "/api2/json/nodes/pve1/qemu/09001/status/stop",
        "/api2/json/nodes/pve1/qemu/9001%20/status/stop",
        "/api2/json/nodes/pve1/qemu/9001%00/status/stop",
        "/api2/json/nodes/pve1/qemu/9001;9002/status/stop",
        "/api2/json/nodes/pve1/qemu/-9001/status/stop",
        "/api2/json/nodes/pve1/qemu/9.001e3/status/stop",
        "/api2/json/nodes/pve1/qemu/99/status/stop",
        "/api2/json/nodes/pve1/qemu/1000000000/status/stop",
        "/api2/json/nodes/pve1/qemu/4294976297/status/stop",
        "/api2/json/nodes/localhost/qemu/9001/status/stop",
        "/api2/json/nodes/pve1%2fx/qemu/9001/status/stop",
        "/api2/json/nodes/pve1.evil/qemu/9001/status/stop",
        "/api2/json/nodes/-o/qemu/9001/status/stop",
        "/api2/json/nodes/pve1/qemu/9001/status/STOP",
        "http://x/api2/json/nodes/pve1/qemu/9001/status/stop",
    ] {
        assert!(admit(&policy(), raw("POST", path)).is_err(), "{path}");
    }
    // Escaped but plain is the same call.
    let path = "/api2/json/nodes/%70ve1/qemu/900%31/status/stop";
    let call = admit(&policy(), raw("POST", path)).expect("admitted");
    assert_eq!(call.path, "/nodes/pve1/qemu/9001/status/stop");
    for method in ["get", "PATCH", "HEAD", "OPTIONS", "CONNECT", "POST ", ""] {
        let path = "/api2/json/nodes/pve1/qemu/9001/status/stop";
        assert!(admit(&policy(), raw(method, path)).is_err(), "{method}");
    }
}

#[test]
fn parameters_come_one_way_only() {
    let path = "/api2/json/nodes/pve1/qemu/9001/config";
    let with = |query: Option<&'static str>, content_type, body: &'static str| RawRequest {
        query,
        content_type,
        body: body.as_bytes(),
        ..raw("PUT", path)
    };
    assert!(admit(&policy(), with(None, Some(FORM), "cores=2")).is_ok());
    for raw in [
        with(Some("cores=2"), Some(FORM), ""),
        with(Some(""), Some(FORM), "cores=2"),
        with(None, Some("application/json"), r#"{"cores":2}"#),
        with(None, Some("application/json"), "cores=2"),
        with(
            None,
            Some("application/x-www-form-urlencoded; charset=x"),
            "cores=2",
        ),
        with(None, Some("multipart/form-data; boundary=x"), "cores=2"),
        with(None, None, "cores=2"),
        with(None, Some(FORM), "cores=2&cores=2"),
        with(None, Some(FORM), "cores=2;lock=backup"),
        with(None, Some(FORM), "cores=2&lock=backup"),
        with(None, Some(FORM), "cores=2&skiplock=1"),
        with(None, Some(FORM), "cores=2&force=1"),
        with(None, Some(FORM), "cores=2&vmid=9002"),
        with(None, Some(FORM), "cores=2&node=pve2"),
        with(None, Some(FORM), "cores=2&args=-x"),
        with(None, Some(FORM), "hookscript=local:snippets/x"),
        with(None, Some(FORM), "cicustom=user=local:snippets/x"),
        with(None, Some(FORM), "scsi2=local:0,import-from=/dev/sda"),
        with(None, Some(FORM), "scsi0=/dev/sda"),
        with(None, Some(FORM), "hostpci0=mapping=gpu"),
        with(None, Some(FORM), "usb0=host=1-1"),
        with(None, Some(FORM), "serial0=/dev/ttyS0"),
        with(None, Some(FORM), "net1=virtio,bridge=vmbr0"),
        with(None, Some(FORM), "template=1"),
        with(None, Some(FORM), "smbios1=uuid=x"),
        with(None, Some(FORM), "vmgenid=1"),
        with(None, Some(FORM), "revert=cores"),
        with(None, Some(FORM), "affinity=0"),
        with(None, Some(FORM), "CORES=2"),
        with(None, Some(FORM), "cores%00=2"),
        with(None, Some(FORM), "%63ores=%00"),
    ] {
        assert!(admit(&policy(), raw).is_err(), "{raw:?}");
    }
    let read = raw("GET", "/api2/json/version");
    assert!(admit(&policy(), read).is_ok());
    for raw in [
        RawRequest {
            body: b"a=b",
            ..read
        },
        RawRequest {
            query: Some("a=b"),
            ..read
        },
        RawRequest {
            body: b"{}",
            content_type: Some("application/json"),
            ..read
        },
    ] {
        assert!(admit(&policy(), raw).is_err(), "{raw:?}");
    }
}

#[test]
fn only_tasks_of_our_kinds_on_their_own_host_are_shown() {
    let at = |node: &str, kind: &str, user: &str| {
        let upid = format!("UPID:{node}:0003A1B2:00C3D4E5:66F0A1B2:{kind}:9001:{user}:");
        let path = format!(
            "/api2/json/nodes/pve1/tasks/{}/log",
            crate::pve::percent(&upid)
        );
        admit(&policy(), raw("GET", &path)).is_ok()
    };
    assert!(at("pve1", "qmclone", "root@pam"));
    assert!(!at("pve2", "qmclone", "root@pam"));
    assert!(!at("pve1", "vzdump", "root@pam"));
    assert!(!at("pve1", "vncproxy", "root@pam"));
    assert!(!at("pve1", "qmclone", "ann@pve"));
}

#[test]
fn without_a_region_on_this_channel_nothing_passes() {
    let none = BrokerPolicy::default();
    assert!(admit(&none, raw("GET", "/api2/json/version")).is_err());
}

/// Calls that pass, as they stand on the wire: method, path and the text of their parameters.
fn passing() -> Vec<(&'static str, String, String)> {
    let vm = |rest: &str| format!("/api2/json/nodes/pve1/qemu/9001{rest}");
    let task = "UPID%3Apve1%3A0003A1B2%3A00C3D4E5%3A66F0A1B2%3Aqmstart%3A9001%3Aroot%40pam%3A";
    let description = crate::broker::tests::world::mark(9050).describe("for the shop");
    let clone = crate::pve::form(&[
        ("newid".to_owned(), "9050".to_owned()),
        ("name".to_owned(), "small-09050".to_owned()),
        ("description".to_owned(), description),
        ("target".to_owned(), "pve2".to_owned()),
        ("storage".to_owned(), "ceph".to_owned()),
    ]);
    vec![
        ("GET", "/api2/json/version".to_owned(), String::new()),
        ("GET", vm("/config"), String::new()),
        (
            "GET",
            format!("/api2/json/nodes/pve1/tasks/{task}/log"),
            "start=0&limit=500".to_owned(),
        ),
        (
            "GET",
            "/api2/json/nodes/pve1/storage/ceph/content".to_owned(),
            "content=images".to_owned(),
        ),
        (
            "PUT",
            vm("/config"),
            "cores=4&memory=8192&tags=a%3Bb&protection=0&cpu=host&ciuser=+debian&delete=sockets"
                .to_owned(),
        ),
        ("PUT", vm("/resize"), "disk=scsi0&size=32G".to_owned()),
        ("POST", vm("/status/shutdown"), "timeout=60".to_owned()),
        (
            "POST",
            vm("/agent/exec"),
            "command=%2Fbin%2Fsh&command=-c&input-data=x%0Ay".to_owned(),
        ),
        ("DELETE", vm(""), "purge=1".to_owned()),
        (
            "POST",
            "/api2/json/nodes/pve1/qemu/9000/clone".to_owned(),
            clone,
        ),
    ]
}

/// Admits a request whose parameters stand where its method wants them.
fn judge(method: &str, path: &str, text: &str) -> Result<AdmittedCall, String> {
    let in_query = method == "GET" || method == "DELETE";
    admit(
        &policy(),
        RawRequest {
            method,
            path,
            query: (in_query && !text.is_empty()).then_some(text),
            content_type: (!in_query).then_some(FORM),
            body: if in_query { b"" } else { text.as_bytes() },
        },
    )
}

/// What an admitted call must be, however it was spelt.
fn is_clean(call: &AdmittedCall) -> Result<(), String> {
    let segments: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    if segments.len() != call.rule.path.len() {
        return Err(format!("{} has other segments than its rule", call.path));
    }
    for (segment, want) in segments.iter().zip(call.rule.path) {
        let plain = |more: &str| {
            segment
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let right = match want {
            PathSegment::Fixed(word) => segment == word,
            PathSegment::Host => {
                plain("-") && *segment != "localhost" && call.hosts().any(|host| host == *segment)
            }
            PathSegment::Vmid => call.vmid.is_some_and(|vmid| vmid.to_string() == **segment),
            PathSegment::Upid => plain("-%"),
            PathSegment::Storage => plain("-_."),
            PathSegment::Mapping => plain("-_"),
            PathSegment::Isos => segment.ends_with("%3Aiso") && plain("-_.%"),
            PathSegment::Iso => segment.strip_suffix(".iso").is_some() && plain("-."),
            PathSegment::Position => call.position.is_some_and(|at| at.to_string() == **segment),
        };
        if !right {
            return Err(format!("{segment} in {}", call.path));
        }
    }
    // What goes to PVE means the same call again: nothing is left to be read in another way.
    let text = crate::pve::form(&call.params);
    let again = judge(
        &call.rule.method.to_string(),
        &format!("/api2/json{}", call.path),
        &text,
    )?;
    let same =
        again.path == call.path && again.params == call.params && again.rule.name == call.rule.name;
    if same {
        Ok(())
    } else {
        Err(format!("{call:?} became {again:?}"))
    }
}

/// PVE reads no UPID that has something after its last colon.
#[test]
fn a_task_is_named_to_its_end_and_not_beyond() {
    let path = |upid: &str| format!("/api2/json/nodes/pve1/tasks/{upid}/status");
    let upid = "UPID%3Apve1%3A0003A1B2%3A00C3D4E5%3A66F0A1B2%3Aqmstart%3A9001%3Aroot%40pam";
    assert!(judge("GET", &path(&format!("{upid}%3A")), "").is_ok());
    for more in ["", "%3A.", "%3Aword", "%3A%3A"] {
        let said = judge("GET", &path(&format!("{upid}{more}")), "");
        assert!(said.is_err(), "{more}");
    }
}

#[test]
fn what_passes_is_clean_and_stays_so() {
    for (method, path, text) in passing() {
        let call = judge(method, &path, &text).unwrap_or_else(|why| panic!("{path}: {why}"));
        is_clean(&call).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Requests that pass, with a few characters of path and parameters changed or spelt in another way: what still passes
/// means one thing. Some pass and many are refused, or nothing would be tried.
#[test]
fn a_call_that_was_tampered_with_is_refused_or_clean() {
    let (passed, refused) = (Cell::new(0), Cell::new(0));
    let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
    let edit = "(%2[05ef]|%0[0ad9]|%3[bd]|[+;&=%/.,0 -]|[a-z0-9]|%c3%a9|é)";
    let edit = proptest::option::of(edit);
    let edit = (proptest::num::usize::ANY, proptest::bool::ANY, edit);
    let config = proptest::prelude::ProptestConfig::with_cases(2_000);
    proptest::proptest!(config, |(
        which in 0..passing().len(),
        edits in proptest::collection::vec(edit, 1..4),
    )| {
        let (method, path, text) = passing().swap_remove(which);
        let mut whole: Vec<char> = format!("{path}?{text}").chars().collect();
        for (at, instead, what) in edits {
            let at = at % whole.len();
            // Another text there, or the same character spelt in another way.
            let end = if instead || what.is_none() { at + 1 } else { at };
            let what = what.unwrap_or_else(|| format!("%{:02X}", u32::from(whole[at])));
            whole.splice(at..end, what.chars());
        }
        let whole: String = whole.into_iter().collect();
        let (path, text) = whole.split_once('?').unwrap_or((&whole, ""));
        if let Ok(call) = judge(method, path, text) {
            count(&passed);
            let clean = is_clean(&call);
            proptest::prop_assert!(clean.is_ok(), "{whole}: {clean:?}");
        } else {
            count(&refused);
        }
    });
    let (passed, refused) = (passed.get(), refused.get());
    assert!(
        passed >= 10 && refused >= 100,
        "{passed} passed, {refused} were refused"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    /// Hardly any of these passes; what is asked is that each is answered.
    #[test]
    fn no_request_panics(
        method in "(GET|POST|PUT|DELETE)", path in "\\PC{0,80}", tail in "[a-z0-9/%.;]{0,60}",
        query in proptest::option::of("\\PC{0,60}"), body in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
    ) {
        let near = format!("/api2/json/nodes/pve1/qemu/{tail}");
        for path in [path.as_str(), near.as_str()] {
            let raw = RawRequest { method: &method, path, query: query.as_deref(), content_type: Some(FORM), body: &body };
            if let Ok(call) = admit(&policy(), raw) {
                let clean = is_clean(&call);
                proptest::prop_assert!(clean.is_ok(), "{clean:?}");
            }
        }
    }
}

#[test]
fn a_storages_name_is_one_that_pve_has_and_a_nic_has_no_strange_characters() {
    let longest = format!("a{}", "b".repeat(99));
    let longer = format!("{longest}c");
    for (name, fine) in [
        ("ab", true),
        (&*longest, true),
        ("a", false),
        (&*longer, false),
        ("1a", false),
        ("a-", false),
        ("a/b", false),
    ] {
        assert_eq!(values::is_storage(name), fine, "{name}");
    }
    let policy = policy();
    let begins = "virtio=BC:24:11:00:11:22,bridge=vmbr0,trunks=";
    let long = |length: usize| format!("{begins}{}", "2".repeat(length - begins.len()));
    for (nic, fine) in [
        (&*long(256), true),
        (&*long(257), false),
        ("virtio=BC:24:11:00:11:22,bridge=vmbr0,tag=20", true),
        ("virtio=BC:24:11:00:11:22,bridge=vmbr0 tag=20", false),
        ("virtio=BC:24:11:00:11:22,bridge=vmbr0\nargs=1", false),
        ("bridge=vmbr0", false),
    ] {
        assert_eq!(values::net(&policy, nic).is_ok(), fine, "{nic}");
    }
}

/// The keys of a template's VM may be taken away where the file says that machines of some template have none.
#[test]
fn ssh_keys_may_go_where_the_file_says_so() {
    let mut policy = policy();
    assert!(values::deletable(&policy, "sshkeys").is_err());
    policy.guest.no_ssh_keys = true;
    assert_eq!(values::deletable(&policy, "sshkeys,sockets"), Ok(()));
    assert!(values::deletable(&policy, "ciuser").is_err());
    let file = |keys: &str| {
        let text = format!(
            "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.t]\nvmid = 8000\nssh_keys = {keys}\n"
        );
        let settings = crate::config::parse(&text, "file").expect("it is valid");
        BrokerPolicy::of(&settings).guest
    };
    assert!(file("[]").no_ssh_keys && file("[]").ssh_keys.is_empty());
}

/// A card may have the rates that some card of the file has, and no others.
#[test]
fn rates_are_those_of_the_files_cards() {
    let text = "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.t]\nvmid = 8000\nrate = 125\n\
        [[template.t.nic]]\nbridge = \"vmbr1\"\nrate = 20\n[[template.t.nic]]\nbridge = \"vmbr1\"\n";
    let settings = crate::config::parse(text, "file").expect("it is valid");
    assert_eq!(BrokerPolicy::of(&settings).guest.rates, [20, 125].into());
}

/// The configuration call has a parameter for each option that a file may name, and none for one that it may not.
#[test]
fn the_options_that_a_file_may_name_are_parameters() {
    let config = RULES.iter().find(|rule| rule.name == "config");
    let params = config.expect("the call").params;
    let missing: Vec<String> = crate::config::vm_options::names()
        .filter(|name| params.iter().all(|param| param.name != name))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
    for name in ["args", "hookscript", "ivshmem", "lock", "vmgenid", "arch"] {
        assert!(params.iter().all(|param| param.name != name), "{name}");
    }
    assert!(
        params.len() < 192,
        "a form has room for all: {}",
        params.len()
    );
}

type Check = fn(&BrokerPolicy, &str) -> Result<(), String>;

/// Each bound at its last value that passes and the first that does not: a bound that moves by one, or is gone, fails here.
#[test]
fn values_pass_up_to_their_bounds_and_no_further() {
    let policy = policy();
    let (disk, memory) = (policy.allow.max_disk, policy.allow.max_memory >> 20);
    let long = |many: usize| "a".repeat(many);
    let rows: [(&str, Check, String, String); 24] = [
        ("a compared value", values::compared, long(512), long(513)),
        ("tags", values::tags, long(1024), long(1025)),
        ("a label", values::dns_name, long(63), long(64)),
        ("a label's least", values::dns_name, long(1), long(0)),
        ("a digest", values::digest, long(40), long(41)),
        ("a digest's least", values::digest, long(1), long(0)),
        (
            "a guest's word",
            values::guest_text,
            long(128 * 1024),
            long(128 * 1024 + 1),
        ),
        (
            "a guest's input",
            values::guest_input,
            long(64 * 1024),
            long(64 * 1024 + 1),
        ),
        ("a shutdown", values::seconds, "3600".into(), "3601".into()),
        ("a page", values::page, "1000".into(), "1001".into()),
        ("a page's least", values::page, "1".into(), "0".into()),
        (
            "a count",
            values::count,
            u32::MAX.to_string(),
            "4294967296".into(),
        ),
        ("cores", values::cores, "8".into(), "9".into()),
        ("cores' least", values::cores, "1".into(), "0".into()),
        (
            "memory",
            values::memory,
            memory.to_string(),
            (memory + 1).to_string(),
        ),
        ("memory's least", values::memory, "1".into(), "0".into()),
        (
            "a size",
            values::size,
            disk.to_string(),
            (disk + 1).to_string(),
        ),
        ("a size's least", values::size, "1".into(), "0".into()),
        ("a card", values::card, "net7".into(), "net8".into()),
        ("a disk", values::disk_key, "scsi30".into(), "scsi31".into()),
        (
            "a device to delete",
            values::deletable,
            "hostpci15".into(),
            "hostpci16".into(),
        ),
        (
            "a drive to delete",
            values::deletable,
            "sata30".into(),
            "sata31".into(),
        ),
        (
            "a VMID of the range",
            values::our_vmid,
            "9099".into(),
            "9100".into(),
        ),
        ("its first", values::our_vmid, "9001".into(), "9000".into()),
    ];
    for (what, check, most, more) in rows {
        assert_eq!(check(&policy, &most), Ok(()), "{what}");
        assert!(
            check(&policy, &more).is_err(),
            "{what}: {} passes",
            more.len()
        );
    }
}

/// One thing at a time is wrong.
#[test]
fn a_value_has_one_spelling_and_nothing_beside_it() {
    let policy = policy();
    let rows: [(Check, &[&str], &[&str]); 10] = [
        (
            values::host,
            &["pve1", "p", "pve-1"],
            &["localhost", "-pve", "pve-", "pve.1", "pve_1", "pve/1", ""],
        ),
        (
            values::any_vmid,
            &["100", "999999999"],
            &["99", "1000000000", "0100", "+100", "100 ", "1e3", ""],
        ),
        (
            values::tags,
            &["a", "a;b", "a-b_c+d.e"],
            &[
                "", ";", "a;", ";a", "a;;b", "-a", "+a", ".a", "a b", "a,b", "a/b",
            ],
        ),
        (values::digest, &["09afAF"], &["g", "0x1", "a-"]),
        (values::flag, &["0", "1"], &["2", "", "01", "yes"]),
        (values::one, &["1"], &["0", ""]),
        (values::zero, &["0"], &["1", "", "00"]),
        (
            values::card,
            &["net0"],
            &["net", "net00", "net+1", "0", "ens0"],
        ),
        (
            values::disk_key,
            &["ide0", "sata1", "scsi2", "virtio3"],
            &["scsi", "scsi01", "scsihw", "unused0", "efidisk0", "0"],
        ),
        (
            values::deletable,
            &["sockets", "vcpus", "hostpci0,numa1", "ide2", "scsi1"],
            &[
                "",
                "sockets,",
                "cores",
                "virtio0",
                "hostpci",
                "hostpci01",
                "net0",
                "sockets,net0",
            ],
        ),
    ];
    for (check, fine, wrong) in rows {
        for value in fine {
            assert_eq!(check(&policy, value), Ok(()), "{value:?}");
        }
        for value in wrong {
            assert!(check(&policy, value).is_err(), "{value:?} passes");
        }
    }
}

/// The cluster's name stands behind the last slash, and the UID in front of it is one word.
#[test]
fn a_mark_is_of_a_cluster_of_the_configured_name() {
    let policy = policy();
    for (cluster, ours) in [
        ("0b5f3a6e/home", true),
        ("0b5f3a6e/other", false),
        ("/home", false),
        ("home", false),
        ("a/b/home", false),
        (concat!("0b5f3a6e/home", "/"), false),
    ] {
        assert_eq!(
            values::our_cluster(&policy, cluster).is_ok(),
            ours,
            "{cluster}"
        );
    }
    let mut nameless = policy;
    nameless.allow.cluster_name = String::new();
    assert!(values::our_cluster(&nameless, "0b5f3a6e/").is_err());
}

/// A task that some listed call starts, for a VM, by root, and named to its end.
#[test]
fn a_task_is_one_of_ours_by_every_part_of_its_id() {
    let upid = |kind: &str, id: &str, rest: &str| {
        let text = format!("UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:{kind}:{id}:{rest}");
        text.parse::<Upid>()
            .is_ok_and(|upid| values::is_our_task(&upid))
    };
    assert!(upid("qmstart", "9001", "root@pam:"));
    assert!(!upid("qmigrate", "9001", "root@pam:"));
    assert!(!upid("qmstart", "", "root@pam:"));
    assert!(!upid("qmstart", "99", "root@pam:"));
    assert!(!upid("qmstart", "9001", "scaler@pve:"));
    assert!(!upid("qmstart", "9001", "root@pam:more"));
}

/// A storage's images are listed, and other files of it where the policy makes something of them.
#[test]
fn of_a_storage_those_files_are_listed_that_the_policy_has_a_use_for() {
    for (isos, new_vms, iso, import) in [
        (false, false, false, false),
        (true, false, true, false),
        (false, true, true, true),
        (true, true, true, true),
    ] {
        let mut policy = policy();
        if !isos {
            policy.allow.iso_storages.clear();
        }
        if !new_vms {
            policy.allow.new_vms.clear();
        }
        for (content, may) in [
            ("images", true),
            ("iso", iso),
            ("import", import),
            ("backup", false),
        ] {
            let judged = values::images_or_isos(&policy, content);
            assert_eq!(judged.is_ok(), may, "{content}: {isos} {new_vms}");
        }
    }
}

/// It is compared with the VM's own, part by part.
#[test]
fn the_firmwares_tables_are_no_longer_than_what_is_compared() {
    let mut policy = policy();
    let named = [("smbios1".to_owned(), "sku=a".to_owned())];
    let options = [("debian-13".to_owned(), named.into_iter().collect())];
    policy.allow.template_options = options.into_iter().collect();
    let most = "uuid=x".to_owned() + &"y".repeat(512 - 6);
    assert_eq!(values::smbios(&policy, &most), Ok(()));
    assert!(values::smbios(&policy, &(most + "y")).is_err());
}
