//! A bug report in one command, and nothing secret in it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pve_autoscaler::model::memory::Memory;
use pve_autoscaler::model::policy::Policy;
use pve_autoscaler::model::snapshot::Snapshot;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::record::replay::{Replayed, replay};
use pve_autoscaler::record::{Deed, DeedKind, Filter, History};
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};

/// Secrets as somebody may have written them where they do not belong.
const PLANTED: [&str; 4] = [
    "hunter22hunter22",
    "0123456789abcdef",
    "01234567-89ab-cdef-0123-456789abcdef",
    "MIIEvQIBADANBgkq",
];

#[test]
fn a_bug_report_is_one_command_and_has_no_secrets() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        // A reason that a person typed, which is in every view from then on.
        std::fs::create_dir_all(scene.state()).expect("made");
        let reason = format!("password={} token abcdef.{}", PLANTED[0], PLANTED[1]);
        std::fs::write(scene.state().join("paused"), reason).expect("written");
        scene.live(None, 0, visit(), Duration::from_mins(2)).await;
        scene
    });
    let file = scene.state().join("config.toml");
    let written = format!(
        "{config}\n# password = \"{}\"\n# auto@pve!scaler={}\n# -----BEGIN PRIVATE KEY-----\n# {}\n# -----END PRIVATE KEY-----\n# the end\n",
        PLANTED[0], PLANTED[2], PLANTED[3]
    );
    std::fs::write(&file, written).expect("written");
    let archive = scene.state().join("bundle.tar.gz");
    let run = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args([
            "support-bundle",
            "--since",
            "2025-12-31",
            "--socket",
            "/nowhere/at/all",
        ])
        .arg("--config")
        .arg(&file)
        .arg("--state-directory")
        .arg(scene.state())
        .arg("--file")
        .arg(&archive)
        // The folder is this user's alone.
        .args(["--user", "root"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(
        said.contains("not in it: status.json: cannot reach the daemon"),
        "{said}"
    );
    let folder = unpacked(&archive, &scene.state().join("open"));
    let configuration =
        std::fs::read_to_string(folder.join("configuration.toml")).expect("it is in it");
    assert!(
        configuration.contains("max = 3") && configuration.contains("# the end"),
        "{configuration}"
    );
    assert!(configuration.contains("<redacted>"), "{configuration}");
    let doctor = std::fs::read(folder.join("doctor.json")).expect("it is in it");
    let doctor: serde_json::Value = serde_json::from_slice(&doctor).expect("JSON");
    let findings = doctor["findings"].as_array().map_or(0, Vec::len);
    assert!(findings > 3, "{doctor}");
    let (mut decisions, mut text) = (0, configuration);
    let history = History::open(&folder.join("record")).expect("the record is in it");
    history
        .decisions(&Filter::default(), |decision| {
            decisions += 1;
            text.push_str(&decision.state.to_string());
        })
        .expect("read");
    assert!(decisions > 3, "{decisions} decisions");
    assert!(
        text.contains("\"paused\":\"password=<redacted>"),
        "the reason of the pause is in it"
    );
    for name in [
        "about.txt",
        "check.txt",
        "doctor.json",
        "missing.txt",
        "versions/kernel.txt",
    ] {
        text.push_str(&std::fs::read_to_string(folder.join(name)).expect(name));
    }
    for secret in PLANTED {
        assert!(!text.contains(secret), "{secret} is in it");
    }
}

/// What a crash leaves is in the report, and the decision that panicked can be made again. It finds an archive without the files that the
/// daemon's own words ask people to send.
#[test]
fn a_bug_report_has_what_a_crash_left() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        scene.live(None, 0, visit(), Duration::from_secs(50)).await;
        scene
    });
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let state = folder.join("state");
    std::fs::create_dir_all(state.join("journal")).expect("made");
    std::fs::write(folder.join("config.toml"), &config).expect("written");
    for file in ["memory.json", "memory.json.set-aside"] {
        std::fs::copy(scene.state().join("memory.json"), state.join(file)).expect("copied");
    }
    // What `StateFiles::record_panic` and `keep_panicked_view` write.
    let panics = format!(
        "{{\"panics\":[{{\"at\":\"2026-01-01T08:00:00Z\",\"said\":\"password={}\"}}]}}",
        PLANTED[0]
    );
    std::fs::write(state.join("panics.json"), panics).expect("written");
    let decisions = states(&scene.state().join("record"));
    let view = decisions.last().expect("it decided").state["snapshot"].to_string();
    std::fs::write(state.join("panicked-view.json"), view).expect("written");
    std::fs::write(state.join("journal/general-bcdfg.json"), "{\"half").expect("written");
    journal(folder);

    let path = format!(
        "{}:{}",
        folder.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let report = |name: &str, more: &[&str]| {
        let file = format!("{name}.tar.gz");
        let run = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
            .args([
                "support-bundle",
                "--socket",
                "/nowhere/at/all",
                "--user",
                "root",
            ])
            .args(["--config", "config.toml", "--state-directory", "state"])
            .args(["--since", "2025-12-31", "--file", &file])
            .args(more)
            .current_dir(folder)
            .env("PATH", &path)
            .output()
            .expect("it runs");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        unpacked(&folder.join(file), &folder.join(format!("{name}.open")))
    };
    let open = report("whole", &[]);
    let part = |name: &str| std::fs::read_to_string(open.join("state").join(name)).expect(name);
    for memory in ["memory.json", "memory-set-aside.json"] {
        serde_json::from_str::<Value>(&part(memory)).expect(memory);
    }
    assert!(
        part("panics.json").contains("<redacted>"),
        "{}",
        part("panics.json")
    );
    assert_eq!(part("journal/general-bcdfg.json"), "{\"half");
    let asked = std::fs::read_to_string(folder.join("asked")).expect("journalctl was asked");
    for words in [
        "--unit=pve-autoscaler-mail@*",
        "--unit=pve-autoscaler-pinning",
        "--since=@1767",
    ] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    let missing = std::fs::read_to_string(open.join("missing.txt")).expect("it is in it");
    assert!(
        missing.contains("metrics.prom: ") || open.join("metrics.prom").exists(),
        "{missing}"
    );
    let plan = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(["plan", "--config", "config.toml", "--snapshot"])
        .arg(open.join("state/panicked-view.json"))
        .current_dir(folder)
        .output()
        .expect("it runs");
    assert!(
        plan.status.success(),
        "{}",
        String::from_utf8_lossy(&plan.stderr)
    );

    let hashed = report("hashed", &["--hash-names"]);
    let text = all_text(&hashed.join("state"));
    assert!(!text.contains("general"), "{text}");
    let view = std::fs::read(hashed.join("state/panicked-view.json")).expect("it is in it");
    serde_json::from_slice::<Snapshot>(&view).expect("it is a view yet");
    let without = report("without", &["--without-record"]);
    assert!(!without.join("state/panicked-view.json").exists());
    for secret in PLANTED {
        assert!(!all_text(&open).contains(secret), "{secret} is in it");
    }
}

/// Unpacks an archive; its folder.
fn unpacked(archive: &Path, to: &Path) -> PathBuf {
    std::fs::create_dir(to).expect("made");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(to)
        .status();
    assert!(tar.expect("tar runs").success());
    let mut parts = std::fs::read_dir(to).expect("read");
    parts.next().expect("one").expect("read").path()
}

fn bundle(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args([
            "support-bundle",
            "--socket",
            "/nowhere/at/all",
            "--user",
            "root",
        ])
        .arg("--config")
        .arg(folder.join("config.toml"))
        .arg("--state-directory")
        .arg(folder.join("state"))
        .args(more)
        .current_dir(folder)
        .output()
        .expect("it runs")
}

/// What is a secret by the key that it stands at, in a file that is right and in one that has an error.
#[test]
fn what_is_a_secret_by_its_key_is_not_in_a_bug_report() {
    let config = r##"version = 1
[proxmox]
vmids = "9000-9099"
[template.debian]
vmid = 8000
[template.debian.cloud_init]
storage = "local"
user_data = """
#cloud-config
chpasswd: { list: "root:PLANTED1" }
"""
vendor_data = "#!/bin/sh\necho PLANTED2\n"
[notification.chat]
kind = "webhook"
url = "https://hooks.slack.com/services/T000/B000/PLANTED3" # the team's
[notification.push]
kind = "webhook"
url = "https://ntfy.example.org/PLANTED4?auth=PLANTED5"
body = '{"key": "PLANTED6"}'
"##;
    for (more, kept) in [
        ("", "valid"),
        ("maxx = 3\n", "unknown key `maxx`"),
        ("oops\n", "check"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.toml");
        std::fs::write(file, format!("{config}{more}")).expect("written");
        let run = bundle(folder.path(), &["--file", "b.tar.gz"]);
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{said}");
        let open = unpacked(&folder.path().join("b.tar.gz"), &folder.path().join("open"));
        let mut text = said;
        for name in [
            "configuration.toml",
            "check.txt",
            "doctor.json",
            "missing.txt",
        ] {
            text += &std::fs::read_to_string(open.join(name)).unwrap_or_default();
        }
        assert!(text.contains(kept), "{kept} is not in {text}");
        assert!(!text.contains("PLANTED"), "{text}");
        if more.is_empty() {
            for words in [
                "url = \"https://hooks.slack.com/<redacted>\" # the team's",
                "url = \"https://ntfy.example.org/<redacted>\"",
                "body = \"<redacted: 1 line>\"",
                "<redacted: 2 lines>",
            ] {
                assert!(text.contains(words), "{words} is not in {text}");
            }
        }
    }
}

#[test]
fn a_wrong_command_line_writes_no_bug_report() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.toml"), "version = 1\n").expect("written");
    for (more, code, words) in [
        (
            ["--since", "bar"],
            2,
            "--since: \"bar\" is no point in time",
        ),
        (
            ["--file", "typo/x.tgz"],
            1,
            "--file typo/x.tgz: there is no directory typo",
        ),
    ] {
        let run = bundle(folder.path(), &more);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words} is not in {said}");
        let left = std::fs::read_dir(folder.path()).expect("read").count();
        assert_eq!(left, 1, "only the configuration is there");
    }
}

/// What of a record is in the bundle of the daemon at a socket, and what `support-bundle` says; no directory is named.
fn bundle_of(folder: &Path, socket: &str) -> (PathBuf, String) {
    let archive = format!("{socket}.tar.gz");
    let run = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(["support-bundle", "--user", "root", "--since", "2020-01-01"])
        .args(["--config", "config.toml", "--socket", socket])
        .args(["--file", &archive])
        .current_dir(folder)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{said}");
    let open = unpacked(
        &folder.join(archive),
        &folder.join(format!("{socket}.open")),
    );
    (open.join("record"), said)
}

/// A daemon of another directory says where its record is. The record of one that says nothing is left out: what lies in the package's
/// directory is another daemon's.
#[test]
fn the_record_in_a_bug_report_is_that_of_the_daemon_at_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("config.toml"), "version = 1\n").expect("written");
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/records/0.1.0");
    std::fs::create_dir_all(at("state/record")).expect("made");
    for segment in std::fs::read_dir(&old).expect("read") {
        let segment = segment.expect("read");
        std::fs::copy(segment.path(), at("state/record").join(segment.file_name()))
            .expect("copied");
    }
    answers(&at("told.sock"), &json!({ "record": at("state/record") }));
    let (record, said) = bundle_of(folder.path(), "told.sock");
    assert!(!said.contains("the record of decisions:"), "{said}");
    assert!(!states(&record).is_empty(), "{said}");

    answers(&at("silent.sock"), &json!({ "record": "" }));
    for socket in ["silent.sock", "none.sock"] {
        let (record, said) = bundle_of(folder.path(), socket);
        let missing = format!(
            "not in it: the record of decisions: the daemon at {socket} does not say where it is; --state-directory"
        );
        assert!(said.contains(&missing), "{missing:?} is not in {said}");
        assert!(!record.exists(), "{socket}");
    }
}

/// Names of a world. None is a word of anybody's, nor a part of one.
mod name {
    pub(super) const CLUSTER: &str = "zorblaxen";
    pub(super) const TEMPLATE: &str = "quovintra";
    pub(super) const TYPE: &str = "frimblost";
    pub(super) const POOL: &str = "grenwicko";
    pub(super) const HOST: &str = "vuldramir";
    pub(super) const VM: &str = "tembloquar";
    pub(super) const APP: &str = "plovandish";
    pub(super) const NAMESPACE: &str = "brimquolt";
    pub(super) const POD: &str = "skrelbunt";
    pub(super) const LABEL: &str = "drovimpel";
    pub(super) const IMAGE: &str = "wexlomatic";
    pub(super) const COMMENT: &str = "yundrassel";
    pub(super) const REASON: &str = "hobnarquil";
    pub(super) const LOGGED: &str = "jexintropy";
    pub(super) const ASKED: &str = "kolvermant";
    /// An address of the API server and one of a notification.
    pub(super) const ADDRESSES: [&str; 3] =
        ["10.203.77.41", "2a01:4f8:c0c:77::5", "bc:24:11:7f:3e:91"];

    pub(super) const ALL: [&str; 15] = [
        CLUSTER, TEMPLATE, TYPE, POOL, HOST, VM, APP, NAMESPACE, POD, LABEL, IMAGE, COMMENT,
        REASON, LOGGED, ASKED,
    ];
}

fn config_of_names() -> String {
    let config = HASTY
        .replace("\"test\"", &format!("\"{}\"", name::CLUSTER))
        .replace("debian", name::TEMPLATE)
        .replace("small", name::TYPE)
        .replace("general", name::POOL);
    format!(
        "{config}\n[recorder]\nenabled = true\n[pool.{}.labels]\n\"{}.io/team\" = \"{}\" # of the {}s\n",
        name::POOL,
        name::LABEL,
        name::LABEL,
        name::COMMENT
    )
}

/// What runs in the world: a Deployment that brings nodes, and a pod that no node is for.
fn workload_of_names() -> Workload {
    let mut workload = Workload::visit(
        name::APP,
        2,
        WorkloadPods::of("1", "1Gi"),
        Span::seconds(90),
    );
    let mut create = |path: String, object: Value| {
        workload.steps.push(WorkloadStep {
            at: Span::seconds(1),
            act: Act::Create { path, object },
        });
    };
    create(
        "/api/v1/namespaces".to_owned(),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name::NAMESPACE}}),
    );
    create(
        format!("/api/v1/namespaces/{}/pods", name::NAMESPACE),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{}-0", name::POD), "namespace": name::NAMESPACE,
                "labels": {(format!("{}.io/kind", name::LABEL)): name::LABEL},
            },
            "spec": {
                "nodeSelector": {(name::LABEL): "yes"},
                "containers": [{
                    "name": name::POD, "image": format!("registry.{0}.org/{0}:1.2.3", name::IMAGE),
                    "resources": {"requests": {"cpu": "100m"}},
                }],
            },
        }),
    );
    workload
}

/// A daemon that answers everything with names.
fn answers_names(socket: &Path) {
    let answer = json!({
        "pools": {(name::POOL): {"hosts": [name::HOST], "why": format!("the {} waits for {}", name::POOL, name::ASKED)}},
        "nodes": {(format!("{}-bcdfg", name::POOL)): {"address": name::ADDRESSES[0]}},
        "pods": [format!("{}/{}-0", name::NAMESPACE, name::POD)],
        "password": PLANTED[0],
    });
    answers(socket, &answer);
}

/// A daemon that answers everything with one document, for as long as the test runs.
fn answers(socket: &Path, document: &Value) {
    let listener = UnixListener::bind(socket).expect("bound");
    let answer = json!({ "ok": document });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let _ = stream.read_line(&mut line);
            let _ = stream.get_mut().write_all(answer.to_string().as_bytes());
        }
    });
}

/// A log with names that stand nowhere else.
fn journal(folder: &Path) {
    let log = format!(
        "2026-11-28T23:23:11.123456+0100 {host} pve-autoscaler[4711]: machine {pool}-bcdfg is gone: vmid=9100 host={host}\n\
         2026-11-28T23:23:12.123456+0100 {host} pve-autoscaler[4711]: cannot reach https://{logged}.{host}.lan:8006/api2/json at {v4}, [{v6}]:6443, {mac}: password={secret}\n\
         2026-11-28T23:23:13.123456+0100 {host} pve-autoscaler[4711]: the pod {logged} of {namespace}/{logged}-7d4b9c6f5-x2x9k fits nowhere\n",
        host = name::HOST,
        pool = name::POOL,
        logged = name::LOGGED,
        namespace = name::NAMESPACE,
        v4 = name::ADDRESSES[0],
        v6 = name::ADDRESSES[1],
        mac = name::ADDRESSES[2],
        secret = PLANTED[0],
    );
    std::fs::write(folder.join("log"), log).expect("written");
    let program = folder.join("journalctl");
    let at = |name: &str| folder.join(name).display().to_string();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >'{}'\ncat '{}'\n",
        at("asked"),
        at("log")
    );
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// All that is in a folder: names of files, and text; of the record the text of its lines.
fn all_text(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).expect("read") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        text.push_str(&name);
        text.push('\n');
        if name == "record" {
            let history = History::open(&path).expect("a record");
            let mut show = |line: &str| text.push_str(line);
            history.texts(&Filter::default(), &mut show).expect("read");
            for entry in std::fs::read_dir(&path).expect("read") {
                text.push_str(&entry.expect("an entry").file_name().to_string_lossy());
            }
        } else if path.is_dir() {
            text.push_str(&all_text(&path));
        } else {
            text.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
    text
}

/// Keys in the parts of a state after this program has read them: one that it does not know is not among them.
fn keys_read(state: &Value) -> usize {
    fn keys(value: &Value) -> usize {
        match value {
            Value::Object(map) => map.len() + map.values().map(keys).sum::<usize>(),
            Value::Array(list) => list.iter().map(keys).sum(),
            _ => 0,
        }
    }
    fn read<T: serde::de::DeserializeOwned + serde::Serialize>(value: &Value) -> usize {
        let read: T = serde_json::from_value(value.clone()).expect("it is read");
        keys(&serde_json::to_value(read).expect("it is plain"))
    }
    read::<Snapshot>(&state["snapshot"])
        + read::<Policy>(&state["policy"])
        + read::<Memory>(&state["memory"])
}

/// The states of a record, in their order.
fn states(record: &Path) -> Vec<pve_autoscaler::record::Recorded> {
    let mut states = Vec::new();
    let history = History::open(record).expect("a record");
    let damage = history.decisions(&Filter::default(), |decision| states.push(decision.clone()));
    assert_eq!(damage.expect("read"), Vec::<String>::new());
    states
}

/// A daemon's life in a world whose names are words of their own.
fn world_of_names(config: &str) -> Scene {
    let spec = serde_json::to_string(&PveSpec::default()).expect("plain");
    let spec = spec.replace("pve1", name::HOST);
    let spec = spec.replace("debian-13-k8s", name::VM);
    simulate(async {
        let scene = Scene::of(WorldSpec {
            seed: 3,
            pve: serde_json::from_str(&spec).expect("a world"),
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: config.to_owned(),
        });
        let time = Duration::from_mins(2);
        scene.live(None, 0, workload_of_names(), time).await;
        // A reason that a person typed.
        let reason = format!("for {} password={}", name::REASON, PLANTED[0]);
        std::fs::write(scene.state().join("paused"), reason).expect("written");
        scene.live(None, 1, visit(), time).await;
        scene
    })
}

/// The folder of a bug report without names, unpacked.
fn hashed_bundle(folder: &Path) -> PathBuf {
    answers_names(&folder.join("asked.sock"));
    journal(folder);
    let path = std::env::var("PATH").unwrap_or_default();
    let archive = folder.join("bundle.tar.gz");
    let run = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(["support-bundle", "--hash-names", "--since", "2025-12-31"])
        .args(["--user", "root"])
        .arg("--socket")
        .arg(folder.join("asked.sock"))
        .arg("--config")
        .arg(folder.join("config.toml"))
        .arg("--state-directory")
        .arg(folder)
        .arg("--file")
        .arg(&archive)
        .env("PATH", format!("{}:{path}", folder.display()))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let failure = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}{failure}");
    let told = "Names in it are hashed; its README.txt says";
    assert!(said.contains(told), "{said}");
    unpacked(&archive, &folder.join("open"))
}

/// A world whose names are words of their own: none is in a bug report, in whatever file; and the record in it is one still.
#[test]
fn a_bug_report_without_names_has_none_and_its_record_is_read() {
    let config = config_of_names();
    let scene = world_of_names(&config);
    let folder = scene.state();
    std::fs::write(folder.join("config.toml"), &config).expect("written");
    let open = hashed_bundle(folder);
    let text = all_text(&open);
    let small = text.to_lowercase();
    let names = name::ALL.iter().chain(&name::ADDRESSES);
    for name in names.chain(&PLANTED[..1]) {
        let near = small.split_once(name).map(|(before, _)| before);
        let near = near.map(|before| before.chars().rev().take(200).collect::<Vec<_>>());
        let near: Option<String> = near.map(|near| near.into_iter().rev().collect());
        assert_eq!(near, None, "{name} is in it, after this");
    }
    // The names were there to be found.
    let mut plain = String::new();
    let history = History::open(&folder.join("record")).expect("a record");
    let mut show = |line: &str| plain.push_str(line);
    history.texts(&Filter::default(), &mut show).expect("read");
    for name in [
        name::CLUSTER,
        name::POOL,
        name::HOST,
        name::VM,
        name::APP,
        name::NAMESPACE,
        name::POD,
        name::LABEL,
        name::REASON,
    ] {
        assert!(plain.contains(name), "{name} is not in the record");
    }
    for words in [
        "vmid=9100",
        "unneeded_time = \"20s\"",
        "kube-system",
        "fits nowhere",
        "cannot reach https://",
        "<redacted>",
    ] {
        assert!(text.contains(words), "{words} is not in it");
    }
    for file in ["status.json", "plan.json", "doctor.json"] {
        let text = std::fs::read(open.join(file)).expect(file);
        serde_json::from_slice::<Value>(&text).expect(file);
    }
    same_decisions(&folder.join("record"), &open.join("record"));
}

/// A record without names has the same decisions and deeds; nothing of a state is lost to who reads it, and each can be decided anew.
fn same_decisions(record: &Path, hashed: &Path) {
    let (all, without) = (states(record), states(hashed));
    assert!(all.len() > 3, "{} decisions", all.len());
    assert_eq!(all.len(), without.len());
    for (one, without) in all.iter().zip(&without) {
        assert_eq!((one.number, one.at), (without.number, without.at));
        let keys = (keys_read(&one.state), keys_read(&without.state));
        assert_eq!(keys.0, keys.1, "of {}", one.at);
        let outcome = replay(without, None);
        let unreadable = matches!(outcome.replayed, Replayed::Unreadable { .. });
        assert!(!unreadable, "{outcome:?}");
    }
    let deeds = |record: &Path| {
        let history = History::open(record).expect("a record");
        let deeds = history.deeds(&Filter::default(), 1_000).expect("read");
        // The daemon's own record went on after the copy, and tells its end.
        let ends = |deed: &Deed| matches!(deed.kind, DeedKind::Unrecorded { .. });
        let deeds = deeds.iter().filter(|deed| !ends(deed));
        let kinds = deeds.map(|deed| std::mem::discriminant(&deed.kind));
        kinds.collect::<Vec<_>>()
    };
    assert!(deeds(record).len() > 2);
    assert_eq!(deeds(record), deeds(hashed));
}
