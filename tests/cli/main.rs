//! The program from outside: exit codes, where things are printed, what `generate` writes.

mod adopt;
mod demo;
mod doctor;
mod doctor_and_daemon;
mod doctor_faults;
mod doctor_network;
mod doctor_regions;
mod live;
mod migrate;
mod moving;
mod notifications;
mod old_records;
mod page;
mod pinning;
mod receivers;
mod service;
mod setup;
mod setup_addresses;
mod simulators;
mod site;
mod strangers;
mod tasks;
mod tasks_on_hosts;
mod template_clusters;
mod template_scripts;
mod template_trial;
mod templates;
mod terminal;
mod traces;

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
}

fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).expect("written");
    (folder, path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_valid_file_is_told_in_words_and_ends_with_0() {
    let contrib = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/pve-autoscaler.toml");
    let output = program()
        .args(["check", "--config", contrib])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("not configured"),
        "{}",
        text(&output.stdout)
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn a_wrong_file_ends_with_2_and_names_the_place_on_stderr() {
    let (_folder, path) = file("version = 1\ncolour = 1\n[pool.a]\nmin = \"x\"\n");
    let output = program()
        .arg("check")
        .arg("--config")
        .arg(&path)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    let name = path.display();
    assert!(
        said.contains(&format!("{name}:2:1: colour: unknown key")),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            "{name}:4:7: pool.a.min = \"x\": expected a whole number"
        )),
        "{said}"
    );
}

/// Options of PVE's by their names: an unknown one, one that has a key, one that leads out of the guest, and a value that PVE refuses.
#[test]
fn a_wrong_option_of_pves_is_told_with_its_line_and_what_to_write() {
    let text_of_file = "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.a]\nvmid = 8000\n[template.a.options]\n\
        rng = \"/dev/urandom\"\nonboot = true\nargs = \"-S\"\nkeyboard = \"dvorak\"\ntablet = false\nvlan = 20\nboot_disk = \"scsi0\"\n\
        bootdisk = \"scsi0\"\nssh_keys = [\"x\"]\nusb14 = \"spice\"\ncolour = \"red\"\n";
    let (_folder, path) = file(text_of_file);
    let output = program()
        .arg("check")
        .arg("--config")
        .arg(&path)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let (said, name) = (text(&output.stderr), path.display());
    for wanted in [
        "7:1: template.a.options.rng: PVE has no such option of a VM; did you mean `rng0`? the options here are acpi, ",
        "8:1: template.a.options.onboot: cannot be set here: expected template.a.onboot",
        "9:1: template.a.options.args: cannot be set here: arguments of QEMU reach every file",
        "10:12: template.a.options.keyboard = \"dvorak\": expected one of de, de-ch",
        "12:1: template.a.options.vlan: is no option of PVE's but a key of [template.a]; expected it there, above the line [template.a.options]",
        "13:1: template.a.options.boot_disk: is no option of PVE's but a key of [template.a]; ",
        "14:1: template.a.options.bootdisk: cannot be set here: expected template.a.create.boot, or template.a.boot_disk\n",
        "15:12: template.a.options.ssh_keys = [\"x\"]: is no option of PVE's but a key of [template.a]; ",
        "16:1: template.a.options.usb14: PVE has no such option of a VM; it has usb0 to usb13\n",
        "17:1: template.a.options.colour: PVE has no such option of a VM; the options here are told above\n",
    ] {
        assert!(
            said.contains(&format!("{name}:{wanted}")),
            "{wanted}: {said}"
        );
    }
    assert!(!said.contains("tablet ="), "{said}");
    // The name is what is wrong, and it is what is underlined.
    assert!(said.contains("vlan = 20\n"), "{said}");
    let below = said.split("vlan = 20\n").nth(1).unwrap_or_default();
    let marks = below.lines().next().unwrap_or_default();
    assert!(marks.trim_end().ends_with("| ^^^^"), "{marks:?}: {said}");
    assert_eq!(said.matches("vmstatestorage").count(), 1, "{said}");
}

#[test]
fn a_missing_file_ends_with_2() {
    let output = program()
        .args(["check", "--config", "/nowhere/at/all.toml"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("/nowhere/at/all.toml: cannot be read"));
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["fly"][..],
        &[],
        &["check", "--loud"],
        &["explain", "pod", "a/b/c"],
        &["demo", "--speed", "0"],
        &["plan", "-o", "xml"],
    ] {
        let output = program().args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_daemon_that_does_not_run_ends_with_1_and_says_so_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("control.sock");
    let output = program()
        .args(["pause", "lunch", "--socket"])
        .arg(&socket)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("cannot reach the daemon"), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .arg("schema")
        .stdout(writer)
        .status()
        .expect("it runs");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn generate_writes_a_page_for_every_command_and_three_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = program()
        .arg("generate")
        .arg(folder.path())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let help = text(&program().arg("--help").output().expect("it runs").stdout);
    let commands = help
        .split("Commands:")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .unwrap_or_default();
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 4, "{help}");
    for name in names {
        let page = folder.path().join(format!("man/pve-autoscaler-{name}.1"));
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(
            text.contains(".SH DESCRIPTION") && text.contains("SEE ALSO"),
            "{text}"
        );
        assert!(text.contains(".SH EXAMPLES\n.nf\n"), "{name}: {text}");
    }
    let whole = folder.path().join("man/pve-autoscaler.1");
    let whole = std::fs::read_to_string(whole).expect("it is there");
    for words in [
        "EXIT STATUS",
        "PVE_AUTOSCALER_LOG",
        "SIGHUP",
        "control.sock",
        "docs/operations.md",
    ] {
        assert!(whole.contains(words), "{words:?} is not in {whole}");
    }
    let of_the_file = folder.path().join("man/pve-autoscaler.toml.5");
    let of_the_file = std::fs::read_to_string(of_the_file).expect("it is there");
    let keys = of_the_file.matches("\n.TP\n").count();
    assert!(keys > 150, "{keys} keys");
    for words in [
        ".TH pve-autoscaler.toml 5",
        ".SH EXAMPLE",
        ".SS [pool.NAME]\n",
        "\\fBinstance_types\\fR",
    ] {
        assert!(
            of_the_file.contains(words),
            "{words:?} is not in {of_the_file}"
        );
    }
    for name in [
        "pve-autoscaler.bash",
        "_pve-autoscaler",
        "pve-autoscaler.fish",
    ] {
        let completion =
            std::fs::read_to_string(folder.path().join("completions").join(name)).expect(name);
        assert!(completion.contains("PVE_AUTOSCALER_COMPLETE"), "{name}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let output = program().arg("--version").output().expect("it runs");
    assert_eq!(
        text(&output.stdout).trim(),
        format!("pve-autoscaler {}", env!("CARGO_PKG_VERSION"))
    );
}

/// One host with a template, one pending pod that asks for five cores.
const VIEW: &str = r#"{
  "version": 1, "taken": "2026-11-21T12:00:00Z", "cluster_id": "uid/default", "leader": true,
  "sources": {"kube/pods": {"complete": true, "as_of": "2026-11-21T12:00:00Z"},
    "kube/nodes": {"complete": true, "as_of": "2026-11-21T12:00:00Z"},
    "pve/default": {"complete": true, "as_of": "2026-11-21T12:00:00Z"}},
  "cluster": {
    "pods": {"shop/db-0": {"uid": "1", "created": "2026-11-21T11:59:00Z",
      "unschedulable_since": "2026-11-21T11:59:00Z",
      "shape": {"requests": {"cpu_milli": 5000, "memory": 1048576, "pods": 1}}}},
    "nodes": {"cp-1": {"uid": "2", "created": "2026-11-01T00:00:00Z", "ready": {"status": "True"},
      "allocatable": {"cpu_milli": 2000, "memory": 4294967296, "pods": 110}, "capacity": {}}}
  },
  "regions": {"default": {"quorate": true,
    "hosts": {"pve1": {"online": true, "cpus": 32, "memory": 137438953472}},
    "templates": {"debian": [{"vmid": 8000, "host": "pve1", "shared": false, "disk": 21474836480}]}}},
  "machines": {}
}"#;

const POOL: &str = r#"
version = 1
[proxmox]
vmids = "9000-9999"
[template.debian]
vmid = 8000
[instance_type.small]
cores = 2
memory = "4GiB"
[instance_type.big]
cores = 8
memory = "16GiB"
[pool.workers]
template = "debian"
instance_types = ["small", "big"]
max = 5
"#;

#[test]
fn a_saved_view_explains_a_pod_and_a_node() {
    let (folder, config) = file(POOL);
    let view = folder.path().join("view.json");
    std::fs::write(&view, VIEW).expect("written");
    let explain = |what: &[&str]| {
        let output = program()
            .arg("--config")
            .arg(&config)
            .arg("explain")
            .args(what)
            .arg("--snapshot")
            .arg(&view)
            .output()
            .expect("it runs");
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, out, err) = explain(&["pod", "shop/db-0"]);
    assert_eq!(code, Some(0), "{err}");
    for part in [
        "workers/small",
        "asks 5, a node offers",
        "would run",
        "cp-1",
        "2 are free",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    let (code, out, _) = explain(&["node", "cp-1", "-o", "json"]);
    assert_eq!(code, Some(0));
    let told: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(told["node"], "cp-1");
    assert_eq!(told["verdict"]["verdict"], "not_autoscaled");
    let (code, _, err) = explain(&["pod", "web"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no pod default/web"), "{err}");
}

/// What `plan` says on the saved view with this at the end of the file; the view has all sources that count. The host's clock is that of
/// Berlin.
fn plan(more: &str) -> String {
    plan_as("table", more)
}

fn plan_as(format: &str, more: &str) -> String {
    let (folder, config) = file(&format!("{POOL}{more}"));
    let view = folder.path().join("view.json");
    std::fs::write(&view, VIEW).expect("written");
    let output = program()
        .args(["plan", "-o", format, "--config"])
        .arg(&config)
        .arg("--snapshot")
        .arg(&view)
        .env("TZ", "Europe/Berlin")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// People read times by the host's clock, as `history` has them, and programs in UTC. It finds a table with the times of programs, and
/// JSON with those of people.
#[test]
fn times_are_the_hosts_for_people_and_utc_for_programs() {
    let late = "[scale_up]\nnew_pod_scale_up_delay = \"5m\"\n";
    let until = |format: &str| {
        let said = plan_as(format, late);
        let at = said
            .find("2026-11-21")
            .map(|at| said[at..].chars().take(20).collect::<String>());
        (at.unwrap_or_default(), said)
    };
    for format in ["table", "wide"] {
        let (at, said) = until(format);
        assert!(
            at.starts_with("2026-11-21 13:04:00") && !said.contains("T12:04"),
            "{said}"
        );
    }
    for format in ["json", "yaml"] {
        let (_, said) = until(format);
        assert!(
            said.contains("2026-11-21T12:04:00Z") && !said.contains("13:04"),
            "{said}"
        );
    }
}

/// The pod of the view is a minute old.
#[test]
fn a_young_pod_calls_for_no_node_before_new_pod_scale_up_delay() {
    let usual = plan("");
    assert!(
        usual.contains("1 pod fits nowhere else: shop/db-0"),
        "{usual}"
    );
    let over = plan("[scale_up]\nnew_pod_scale_up_delay = \"60s\"\n");
    assert!(over.contains("  create "), "{over}");
    let young = plan("[scale_up]\nnew_pod_scale_up_delay = \"5m\"\n");
    assert!(young.starts_with("Nothing to do now."), "{young}");
    let why = "new_pod_scale_up_delay lets it wait until 2026-11-21 13:04:00";
    assert!(young.contains(why), "{young}");
    assert!(
        young.contains("Next decision at the latest in 4m"),
        "{young}"
    );
}

#[test]
fn a_file_that_is_no_snapshot_is_told_by_its_name_and_version() {
    let (folder, config) = file(POOL);
    let view = folder.path().join("view.json");
    for (content, wanted) in [
        (
            "{\"version\": 99}",
            "view.json is a snapshot of version 99, this program reads version 1",
        ),
        ("[]", "view.json is not a snapshot of this version"),
        ("{", "view.json is not a snapshot, and no whole JSON"),
        ("", "view.json is not a snapshot, and no whole JSON"),
    ] {
        std::fs::write(&view, content).expect("written");
        let output = program()
            .args(["plan", "--config"])
            .arg(&config)
            .arg("--snapshot")
            .arg(&view)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(wanted), "{said}");
    }
}
