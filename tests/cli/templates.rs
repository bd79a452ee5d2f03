//! `template build|list|prune` against a simulated cluster whose guests are scripts.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pve_autoscaler::clock::Clock;
use pve_autoscaler::controller::template_mark::{BuildStage, TemplateMark};
use pve_autoscaler::pve::transport::https::{Https, TokenOptions};
use pve_autoscaler::pve::{Client, CloneVm, ConfigUpdate, GuestResource, Poll};
use pve_autoscaler::sim::pve::{PveSpec, StorageKind};
use sha2::{Digest as _, Sha256};

use super::live::TEMPLATE;
use super::simulators::Simulators;
use super::terminal::on_terminal;
use super::{program, text};

pub(crate) const IMAGE: &str = "https://images.example/debian-13.qcow2";
pub(crate) const SUM: &str = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

/// A guest whose agent answers once it has booted. What is run in it is kept and not run: the scripts are for a template.
const GUEST: &str = r#"#!/bin/sh
here=$GUEST_DIR/..
case $1 in
start) : >"$GUEST_DIR/up" ;;
stop | shutdown) rm -f "$GUEST_DIR/up" ;;
ping) test -e "$GUEST_DIR/up" && ! test -e "$here/mute" ;;
exec)
  script=$6
  step=$8
  if test -e "$here/refuse"; then
    echo "agent: The command guest-exec has been disabled for this instance" >&2
    exit 126
  fi
  case $script in
  *template-trial*)
    sed "s/NAME/$GUEST_NAME/; s/CLOCK/$(date +%s)/" "$here/facts"
    echo "$8" >"$here/tried"
    ;;
  *build-start*)
    cat >"$GUEST_DIR/$step.sh"
    echo state=started
    ;;
  *build-follow*)
    said="the guest runs $step"
    code=0
    if test -e "$here/fail-$step"; then
      # dpkg runs on a terminal of its own, and a progress bar overwrites itself.
      said=$(printf ' 10%%\r 90%%\rall of it\r\nUnpacking gizmo (1.0) ...\r\nE: Unable to locate package gizmo')
      code=100
    fi
    if test -e "$here/hang-$step"; then
      printf 'state=running\nsize=0\nnext=0\n---\n'
      exit 0
    fi
    size=$((${#said} + 1))
    printf 'state=exited\nexit=%s\nsize=%s\nnext=%s\n---\n' "$code" "$size" "$size"
    if test "$9" = 0; then echo "$said"; fi
    ;;
  esac
  ;;
esac
"#;

/// Files of a host's own storages, as root of this machine reaches them: no resolver knows a host's name, and of two clusters the second,
/// `west`, has other addresses. What it was called with is kept.
const SSH: &str = r#"#!/bin/sh
for word in "$@"; do script=$word; done
address=
for word in "$@"; do case $word in root@*) address=${word#root@} ;; esac; done
mkdir -p "$FILES"
printf '%s\n' "$*" >>"$FILES/ssh.log"
case $address in
192.0.2.*) files=$FILES ;;
198.51.100.*) files=$FILES/west ;;
*)
  echo "ssh: Could not resolve hostname $address: Name or service not known" >&2
  exit 255
  ;;
esac
host=pve$((${address##*.} - 10))
if test -e "$FILES/at-$address"; then host=$(cat "$FILES/at-$address"); fi
called=$host
if test -e "$FILES/called-$address"; then called=$(cat "$FILES/called-$address"); fi
exec sh -c "uname() { echo $called.example.com; }; $(printf %s "$script" | sed "s#'/var/lib/vz#'$files/$host/var/lib/vz#g; s#'/mnt/files#'$files/$host/mnt/files#g")"
"#;

/// A cluster of three hosts with local storage.
pub(crate) struct Bench {
    pub(crate) simulators: Simulators,
    pub(crate) config: PathBuf,
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("it can be run");
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::of(PveSpec::default())
    }

    pub(crate) fn of(mut spec: PveSpec) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let files = folder.path().join("files");
        let simulators = Bench::cluster(folder, &mut spec, &files);
        let config = simulators.config(&simulators.path("admin.conf"), "built", "9100-9120");
        let bench = Bench { simulators, config };
        bench.define("kubernetes = \"1.34\"", SUM);
        bench
    }

    /// A cluster on which templates can be built, in a folder of its own, with the hosts' files at `files`.
    pub(crate) fn cluster(
        folder: tempfile::TempDir,
        spec: &mut PveSpec,
        files: &Path,
    ) -> Simulators {
        let files = format!("{}/{{host}}", files.display());
        for storage in &mut spec.storages {
            if storage.name == "local" {
                "backup,import,iso,snippets,vztmpl".clone_into(&mut storage.content);
                storage.files = Some(format!("{files}/var/lib/vz"));
            } else if storage.name == "files" {
                storage.files = Some(format!("{files}/mnt/files"));
            }
        }
        for privilege in [
            "Datastore.Allocate",
            "Datastore.AllocateTemplate",
            "Sys.AccessNetwork",
            "VM.Config.CDROM",
        ] {
            for token in &mut spec.tokens {
                token.acl[0].privileges.insert(0, privilege.to_owned());
            }
        }
        spec.downloads.insert(IMAGE.to_owned(), SUM.to_owned());
        for name in ["guests", "bin"] {
            std::fs::create_dir(folder.path().join(name)).expect("made");
        }
        script(&folder.path().join("guest"), GUEST);
        script(&folder.path().join("bin/ssh"), SSH);
        Simulators::with_guests(folder, spec)
    }

    /// The definition of the template, on each host's own storage.
    pub(crate) fn define(&self, more: &str, sum: &str) {
        self.define_on("local-lvm", more, sum);
    }

    fn define_on(&self, storage: &str, more: &str, sum: &str) {
        self.define_in(&format!("\"{storage}\""), more, sum);
    }

    /// The definition with this value of `storage`.
    fn define_in(&self, storage: &str, more: &str, sum: &str) {
        let path = self.simulators.path("admin.conf");
        self.simulators.config(&path, "built", "9100-9120");
        let text = std::fs::read_to_string(&self.config).expect("it is there");
        let build = format!(
            "[template.debian.build]\nvmids = \"8000-8019\"\nimage = \"{IMAGE}\"\nchecksum = \"sha256:{sum}\"\nstorage = {storage}\n{more}\n[instance_type.small]"
        );
        let text = text.replace("[instance_type.small]", &build);
        std::fs::write(&self.config, text).expect("written");
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.output(arguments);
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.simulators.path("bin");
        program()
            .arg("template")
            .args(arguments)
            .arg("--config")
            .arg(&self.config)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("FILES", self.simulators.path("files"))
            .output()
            .expect("it runs")
    }

    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, Some(0), "{said}");
        said
    }

    /// What the guests of this kind do from now on.
    pub(crate) fn guests(&self, what: &str) {
        std::fs::write(self.simulators.path("guests").join(what), "").expect("written");
    }

    pub(crate) fn guests_no_more(&self, what: &str) {
        std::fs::remove_file(self.simulators.path("guests").join(what)).expect("it was there");
    }

    /// PVE's list of guests, which may be ten seconds old.
    fn guests_in_list(&self) -> BTreeMap<u32, GuestResource> {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let resources = runtime.block_on(administrator(&self.simulators).resources());
        resources.expect("they are told").guests
    }

    /// VMIDs of all VMs.
    pub(crate) fn vmids(&self) -> Vec<u32> {
        self.guests_in_list().into_keys().collect()
    }

    /// VMIDs of the templates that PVE lists under this name.
    fn named_templates(&self, name: &str) -> Vec<u32> {
        let guests = self.guests_in_list().into_iter();
        let named = guests.filter(|(_, guest)| guest.template && *guest.name == *name);
        named.map(|(vmid, _)| vmid).collect()
    }

    /// Rows of `template list`, without their ages.
    pub(crate) fn listed(&self) -> Vec<String> {
        let said = self.good(&["list", "-o", "wide"]);
        // Below the table stands what is said of old ones.
        let rows = said.lines().skip(1).take_while(|line| !line.is_empty());
        let cells = rows.map(|row| row.split_whitespace().take(7).collect::<Vec<_>>().join(" "));
        cells.collect()
    }
}

#[test]
fn a_template_is_built_on_every_host_rebuilt_when_its_definition_changes_and_old_ones_go() {
    let bench = Bench::new();
    let said = bench.good(&["build"]);
    // Whoever looks right after it, as the daemon and `doctor` do, finds the templates by their name.
    let found = bench.named_templates("built");
    for words in [
        "debian on pve1",
        "downloading https://images.example/debian-13.qcow2 to local:import/pve-autoscaler-",
        "the agent answers,",
        "the guest runs install",
        "the guest runs images",
        "the guest runs clean",
        "VM 8002 is the template built",
        "3 templates built, 0 up to date",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(
        bench.listed(),
        [
            "debian pve1 8000 built ready current 0",
            "debian pve2 8001 built ready current 0",
            "debian pve3 8002 built ready current 0",
        ]
    );
    let left = bench.simulators.path("files/pve1/var/lib/vz/snippets");
    let left: Vec<_> = std::fs::read_dir(left).expect("it was made").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(found, [8000, 8001, 8002], "{said}");
    // Each step has the time since the build began, as times are written everywhere: `29s`.
    for line in said.lines().filter(|line| line.starts_with("debian on ")) {
        let span = line.split_whitespace().nth(3).unwrap_or_default();
        let digits = span.trim_end_matches(['s', 'm']);
        assert!(
            span.ends_with('s') && digits.starts_with(|first: char| first.is_ascii_digit()),
            "{line}"
        );
    }
    // What it was built with went in by standard input.
    let install = bench.simulators.path("guests/8000/install.sh");
    let install = std::fs::read_to_string(install).expect("kept by the guest");
    assert!(install.contains("\nminor='1.34'\npatch=''\n"), "{install}");
    assert!(
        bench
            .good(&["build"])
            .contains("0 templates built, 3 up to date")
    );

    bench.define("kubernetes = \"1.34\"\npackages = [\"nfs-common\"]", SUM);
    assert!(bench.listed().iter().all(|row| row.contains("ready older")));
    let said = bench.good(&["list"]);
    let told = "Machines are made of debian as an older definition says, on pve1, pve2, pve3: `pve-autoscaler template build debian` builds it";
    assert!(said.contains(told), "{said}");
    let said = bench.good(&["build", "--host", "pve1"]);
    assert!(
        said.contains("VM 8000, the template before, is called built-old-8000 now"),
        "{said}"
    );
    assert!(said.contains("the image is there: local:import/"), "{said}");
    // Two of one template on a host, as after every rebuild, on the terminal that everybody has.
    let config = bench.config.display().to_string();
    let shown = on_terminal(80, &["template", "list", "--config", &config]);
    let row = |cells: &str| {
        let mut lines = shown.lines();
        let found = lines.any(|line| {
            let found = line.split_whitespace().collect::<Vec<_>>().join(" ");
            found.starts_with(cells)
        });
        assert!(found, "{cells}: {shown}");
    };
    row("TEMPLATE HOST VMID STATE DEFINITION CLONES AGE");
    row("debian pve1 8000 old older 0 ");
    row("debian pve1 8003 ready current 0 ");
    row("debian pve2 8001 ready older 0 ");
    assert!(!shown.contains("HOST:"), "{shown}");
    let said = bench.good(&["prune"]);
    for words in [
        "debian on pve1: VM 8000 (built-old-8000) is removed",
        "debian on pve2: VM 8001 (built) is in use",
        "debian on pve1: VM 8003 (built) is in use",
        "1 template removed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(bench.listed().len(), 3, "{:?}", bench.listed());
}

/// Hosts of which pve1 has `local-lvm`, pve2 also `local-zfs`, and pve3 `local-zfs` alone.
fn unequal_hosts() -> PveSpec {
    let mut spec = PveSpec::default();
    let hosts = |names: [&str; 2]| Some(names.map(str::to_owned).into());
    let local = spec.storages.iter_mut().find(|of| of.name == "local-lvm");
    let local = local.expect("it is there");
    local.hosts = hosts(["pve1", "pve2"]);
    let mut zfs = local.clone();
    zfs.kind = StorageKind::ZfsPool;
    zfs.hosts = hosts(["pve2", "pve3"]);
    "local-zfs".clone_into(&mut zfs.name);
    spec.storages.push(zfs);
    spec
}

const BOTH: &str = "[\"local-zfs\", \"local-lvm\"]";

#[test]
fn hosts_with_different_storages_get_their_templates_by_one_definition() {
    let bench = Bench::of(unequal_hosts());
    bench.define_in(BOTH, "kubernetes = \"1.34\"", SUM);
    let said = bench.good(&["build"]);
    for (host, vmid, storage) in [
        ("pve1", 8000, "local-lvm"),
        ("pve2", 8001, "local-zfs"),
        ("pve3", 8002, "local-zfs"),
    ] {
        let told = format!("into VM {vmid}, its disks on {storage}");
        assert!(said.contains(&told), "{told:?} is not in {said}");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let client = administrator(&bench.simulators);
        let config = runtime.block_on(client.vm_config(host, vmid));
        let config = config.expect("it is there");
        for disk in ["scsi0", "ide2"] {
            assert_eq!(&*config.disks[disk].storage, storage, "{host} {disk}");
        }
    }
    assert_eq!(
        bench.listed(),
        [
            "debian pve1 8000 built ready current 0",
            "debian pve2 8001 built ready current 0",
            "debian pve3 8002 built ready current 0",
        ]
    );
    let again = bench.good(&["build"]);
    assert!(again.contains("0 templates built, 3 up to date"), "{again}");
    // What is listed is part of the definition.
    bench.define_in(
        "[\"local-lvm\", \"local-zfs\"]",
        "kubernetes = \"1.34\"",
        SUM,
    );
    assert!(bench.listed().iter().all(|row| row.contains("ready older")));
    // A host with none of the list is not built on, and whoever asks for it is told why.
    bench.define_in("[\"local-zfs\", \"tank\"]", "kubernetes = \"1.34\"", SUM);
    let (code, said) = bench.run(&["build", "--host", "pve1"]);
    assert_ne!(code, Some(0), "{said}");
    let told = "storage: none of the storages local-zfs or tank takes a disk there: the host pve1 has no storage local-zfs, the host pve1 has no storage tank";
    assert!(said.contains(told), "{said}");
    let said = bench.good(&["build"]);
    assert!(said.contains("2 templates built, 0 up to date"), "{said}");
}

/// Hosts of which pve1 has `local` for images and snippets, pve2 `files`, and pve3 both.
fn hosts_of_different_files() -> PveSpec {
    let mut spec = PveSpec::default();
    let hosts = |names: [&str; 2]| Some(names.map(str::to_owned).into());
    let local = spec.storages.iter_mut().find(|of| of.name == "local");
    let local = local.expect("it is there");
    local.hosts = hosts(["pve1", "pve3"]);
    let mut files = local.clone();
    files.hosts = hosts(["pve2", "pve3"]);
    "files".clone_into(&mut files.name);
    "import,snippets".clone_into(&mut files.content);
    spec.storages.push(files);
    spec
}

/// What a build needs beside the template's disks comes to the storages that its host has, by one definition, and what interrupted builds left
/// is looked for on each of them.
#[test]
fn hosts_with_different_storages_for_files_get_their_templates_by_one_definition() {
    let bench = Bench::of(hosts_of_different_files());
    bench.define("kubernetes = \"1.34\"\nimage_storage = \"files\"", SUM);
    let (code, said) = bench.run(&["build", "--host", "pve1"]);
    assert_eq!(code, Some(1), "{said}");
    let told = "image_storage: the host pve1 has no storage files";
    assert!(said.contains(told), "{said}");
    let lists = |images: &str| {
        format!(
            "kubernetes = \"1.34\"\nimage_storage = {images}\nsnippet_storage = [\"local\", \"files\"]"
        )
    };
    bench.define(&lists("[\"files\", \"attic\"]"), SUM);
    let (_, said) = bench.run(&["build", "--host", "pve1"]);
    let told = "image_storage: none of the storages files or attic takes content import there: the host pve1 has no storage files, the host pve1 has no storage attic";
    assert!(said.contains(told), "{said}");
    bench.define(&lists("[\"files\", \"local\"]"), SUM);
    let said = bench.good(&["build"]);
    let log = std::fs::read_to_string(bench.simulators.path("files").join("ssh.log"));
    let log = log.expect("files were written");
    for (vmid, images, folder) in [
        (8000, "local", "/var/lib/vz"),
        (8001, "files", "/mnt/files"),
        (8002, "files", "/var/lib/vz"),
    ] {
        let told = format!("importing {images}:import/pve-autoscaler-");
        let line = said
            .lines()
            .find(|line| line.contains(&format!("into VM {vmid}")));
        assert!(
            line.is_some_and(|line| line.contains(&told)),
            "{told:?}: {said}"
        );
        let written = format!("{folder}/snippets/pve-autoscaler-debian-{vmid}.yaml");
        assert!(log.contains(&written), "{written} is not in {log}");
    }
    // A further host's storage builds nothing anew: nothing of these storages is in the template.
    bench.define(&lists("[\"files\", \"local\", \"shared\"]"), SUM);
    assert_eq!(bench.listed().len(), 3);
    assert!(
        bench
            .listed()
            .iter()
            .all(|row| row.contains("ready current"))
    );
    let now = u64::try_from(Clock::System.now().0).expect("after 1970");
    let hour = UNIX_EPOCH + Duration::from_millis(now) - Duration::from_hours(1);
    let left = [
        ("pve1", "local", "var/lib/vz", 8005),
        ("pve2", "files", "mnt/files", 8006),
        ("pve3", "files", "mnt/files", 8007),
    ];
    for (host, _, folder, vmid) in left {
        let folder = bench.simulators.path("files").join(host).join(folder);
        let folder = folder.join("snippets");
        std::fs::create_dir_all(&folder).expect("made");
        let file = std::fs::File::create(folder.join(format!("pve-autoscaler-debian-{vmid}.yaml")));
        file.expect("made").set_modified(hour).expect("it is old");
    }
    let said = bench.good(&["prune"]);
    for (host, storage, _, vmid) in left {
        let told = format!(
            "debian on {host}: {storage}:snippets/pve-autoscaler-debian-{vmid}.yaml is removed"
        );
        assert!(said.contains(&told), "{told:?} is not in {said}");
    }
    assert!(
        said.contains("3 files of interrupted builds removed"),
        "{said}"
    );
}

/// What `doctor` says with this table for machines without a template.
fn doctor_of(bench: &Bench, storage: &str) -> String {
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    let (before, rest) = text.split_once("[template.debian]").expect("a template");
    let (_, after) = rest.split_once("[instance_type.small]").expect("a type");
    let create = format!(
        "[template.debian]\nbridge = \"vmbr0\"\n[template.debian.create]\nstorage = {storage}\n"
    );
    let text = format!("{before}{create}[instance_type.small]{after}");
    let path = bench.simulators.path("created.toml");
    std::fs::write(&path, text).expect("written");
    let output = program().arg("doctor").arg("--config").arg(&path).output();
    let output = output.expect("it runs");
    text_of(&output)
}

fn text_of(output: &Output) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn doctor_says_which_storage_each_host_takes_and_which_host_has_none() {
    let bench = Bench::of(unequal_hosts());
    let said = doctor_of(&bench, BOTH);
    for told in [
        "template debian: VMs are made of settings on pve1 (local-lvm), pve2 (local-zfs), pve3 (local-zfs)",
        "pool general: the disks of a new machine come to local-lvm on pve1, local-zfs on pve2, local-zfs on pve3",
    ] {
        assert!(said.contains(told), "{told:?} is not in {said}");
    }
    let said = doctor_of(&bench, "[\"local-zfs\", \"tank\"]");
    for told in [
        "template debian: no machine is made on pve1: it has no storage local-zfs, it has no storage tank",
        "the host pve1 has no storage local-zfs",
        "VMs are made of settings on pve2 (local-zfs), pve3 (local-zfs)",
    ] {
        assert!(said.contains(told), "{told:?} is not in {said}");
    }
}

/// Whoever made the templates asks the same command for them.
#[test]
fn templates_made_by_hand_are_listed() {
    let bench = Bench::new();
    let path = bench.simulators.path("admin.conf");
    bench.simulators.config(&path, TEMPLATE, "9100-9120");
    clone_as(&bench.simulators, 9_000, 9_110, ("linked", "mine"));
    let said = bench.good(&["list"]);
    let rows: Vec<String> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        rows,
        [
            "TEMPLATE HOST VMID STATE DEFINITION CLONES AGE",
            "debian pve1 9000 ready by hand 1 -",
        ],
        "{said}"
    );
    let (code, said) = bench.run(&["list", "-o", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(told["schema_version"], 1, "{told}");
    let row = &told["templates"][0];
    assert_eq!(row["clones"], serde_json::json!([9_110]), "{told}");
    assert_eq!(row["definition"], "none", "{told}");

    bench.simulators.config(&path, "nowhere", "9100-9120");
    let said = bench.good(&["list"]);
    assert_eq!(
        said,
        "Not there: debian; `pve-autoscaler doctor` says which templates PVE shows.\n"
    );
}

/// A resource pool carries the right to clone what is built anew; old templates stay in it.
#[test]
fn a_built_template_has_its_resource_pool_and_tags() {
    let bench = Bench::new();
    let owned = "kubernetes = \"1.34\"\nresource_pool = \"k8s\"\ntags = [\"web\", \"debian\"]";
    bench.define(owned, SUM);
    for _ in 0..2 {
        bench.good(&["build", "--host", "pve1", "--again"]);
    }
    let guests = bench.guests_in_list();
    for vmid in [8000, 8001] {
        let guest = &guests[&vmid];
        assert_eq!(guest.pool.as_deref(), Some("k8s"), "{vmid}");
        let tags: Vec<&str> = guest.tags.iter().map(|tag| &**tag).collect();
        assert_eq!(tags, ["debian", "pve-autoscaler-template", "web"], "{vmid}");
    }
}

/// Firmware, TPM, screen and what PVE asks of the agent are in the VM of the template, with their disks.
#[test]
fn a_built_template_has_the_hardware_that_its_definition_names() {
    let bench = Bench::new();
    let lines = "kubernetes = \"1.34\"\nmachine = \"q35\"\nbios = \"ovmf\"\nsecure_boot = true\ntpm = true\nvga = \"std\"\n\
        nic = [{ bridge = \"vmbr0\", firewall = true, model = \"e1000\" }]\nfirewall = true\nmtu = 1400\n\
        [template.debian.build.agent]\nfstrim_cloned_disks = false\nfreeze_fs_on_backup = false";
    bench.define(lines, SUM);
    bench.good(&["build", "--host", "pve1"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let pve = administrator(&bench.simulators);
    let config = runtime.block_on(pve.vm_config("pve1", 8000));
    let config = config.expect("it is there").raw;
    for (key, value) in [
        ("machine", "q35"),
        ("bios", "ovmf"),
        ("vga", "std"),
        ("agent", "enabled=1,freeze-fs-on-backup=0"),
    ] {
        assert_eq!(config.get(key).map(String::as_str), Some(value), "{key}");
    }
    for (key, words) in [
        ("efidisk0", &["efitype=4m", "pre-enrolled-keys=1"][..]),
        (
            "net0",
            &["virtio=", "bridge=vmbr0", "firewall=1", "mtu=1400"],
        ),
        ("net1", &["e1000=", "bridge=vmbr0", "firewall=1"]),
    ] {
        let said = config.get(key).cloned().unwrap_or_default();
        for word in words {
            assert!(said.contains(word), "{key}: {word} is not in {said}");
        }
    }
    assert!(config["tpmstate0"].contains("version=v2.0"), "{config:?}");
    assert_eq!(bench.listed(), ["debian pve1 8000 built ready current 0"]);
    // Whatever of it is changed is another definition; what holds anyhow is none.
    bench.define("kubernetes = \"1.34\"", SUM);
    bench.good(&["build", "--host", "pve1"]);
    for (more, state) in [
        ("nic_model = \"virtio\"\nfirewall = false", "current"),
        ("nic_model = \"e1000\"", "older"),
        ("firewall = true", "older"),
        ("mtu = 1400", "older"),
        ("bios = \"ovmf\"", "older"),
    ] {
        bench.define(&format!("kubernetes = \"1.34\"\n{more}"), SUM);
        let listed = bench.listed();
        let row = format!("debian pve1 8001 built ready {state} 0");
        assert!(listed.contains(&row), "{more}: {listed:?}");
    }
}

/// What a build needs for its own boot where there is no DHCP server is no machine's.
#[test]
fn the_address_of_a_build_is_not_passed_on() {
    let bench = Bench::new();
    let lines = "kubernetes = \"1.34\"\nipconfig = \"ip=192.0.2.9/24,gw=192.0.2.1,ip6=2001:db8::9/64\"\nnameserver = \"192.0.2.1\"";
    bench.define(lines, SUM);
    bench.good(&["build", "--host", "pve1"]);
    let client = administrator(&bench.simulators);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = runtime.block_on(client.vm_config("pve1", 8000));
    let config = config.expect("it is told").raw;
    assert_eq!(config["ipconfig0"], "ip=dhcp,ip6=auto");
    for key in ["nameserver", "cicustom"] {
        assert!(!config.contains_key(key), "{key}: {config:?}");
    }
    // It is what the file defines all the same.
    assert_eq!(bench.listed(), ["debian pve1 8000 built ready current 0"]);
}

#[test]
fn a_failing_package_is_told_with_what_the_guest_said_and_leaves_nothing_unless_wanted() {
    let bench = Bench::new();
    bench.guests("fail-install");
    let (code, said) = bench.run(&["build", "--host", "pve2"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("failed with exit code 100; the guest said last:"),
        "{said}"
    );
    for words in [
        "  all of it\n",
        "  Unpacking gizmo (1.0) ...\n",
        "  E: Unable to locate package gizmo\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains('\r') && !said.contains("90%"), "{said}");
    assert!(said.contains("not built: debian on pve2"), "{said}");
    assert!(bench.good(&["list"]).contains("no template is built"));

    let (_, said) = bench.run(&["build", "--host", "pve2", "--keep-failed"]);
    assert!(said.contains("VM 8000 is kept"), "{said}");
    assert_eq!(bench.listed(), ["debian pve2 8000 built failed current 0"]);
    bench.guests_no_more("fail-install");
    let said = bench.good(&["build", "--host", "pve2"]);
    assert!(
        said.contains("removing VM 8000, which an earlier build left"),
        "{said}"
    );
    assert_eq!(bench.listed(), ["debian pve2 8000 built ready current 0"]);
}

#[test]
fn what_is_missing_is_said_before_anything_is_made() {
    let bench = Bench::new();
    bench.define("kubernetes = \"1.34\"", &"0".repeat(64));
    let (code, said) = bench.run(&["build", "--host", "pve1", "--host", "pve1"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches(": FAILED: ").count(), 1, "{said}");
    assert!(
        said.contains("the download failed: checksum mismatch"),
        "{said}"
    );
    bench.define("kubernetes = \"1.34\"\nimage_storage = \"shared\"", SUM);
    let (_, said) = bench.run(&["build", "--host", "pve1"]);
    let words = "storage shared does not have the content type import; `pvesm set shared --content images,import` adds it";
    assert!(said.contains(words), "{said}");
    bench.define(
        "kubernetes = \"1.34\"\nsnippet_storage = \"local-lvm\"",
        SUM,
    );
    let (_, said) = bench.run(&["build", "--host", "pve1"]);
    assert!(
        said.contains("is of type lvmthin, which cannot have the content type snippets"),
        "{said}"
    );
    let (_, said) = bench.run(&["build", "ubuntu"]);
    assert!(said.contains("template ubuntu has no build"), "{said}");
    assert!(bench.good(&["list"]).contains("no template is built"));
}

/// PVE as an administrator reaches it.
pub(crate) fn administrator(simulators: &Simulators) -> Client {
    let secret = std::fs::read_to_string(simulators.path("secret")).expect("it is there");
    let way = Https::new(&TokenOptions {
        endpoints: vec![simulators.pve.clone()],
        token_id: "scaler@pve!sim".to_owned(),
        secret: secret.into(),
        ca_file: None,
        fingerprint: Some(simulators.fingerprint.clone()),
    });
    Client::new(Arc::new(way.expect("a way")))
}

/// Protects a VM, as an administrator does it.
pub(crate) fn protect(bench: &Bench, vmid: u32) {
    let client = administrator(&bench.simulators);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let update = ConfigUpdate {
        set: [("protection".to_owned(), "1".to_owned())].into(),
        ..ConfigUpdate::default()
    };
    runtime.block_on(async {
        let resources = client.resources().await.expect("they are told");
        let host = &resources.guests[&vmid].host;
        let written = client.update_config(host, vmid, &update).await;
        written.expect("it is written");
    });
}

/// Clones a template, linked, as an administrator does it.
fn clone(bench: &Bench, template: u32, vmid: u32) {
    clone_as(&bench.simulators, template, vmid, ("mine", "mine"));
}

/// The same with this name and description.
pub(crate) fn clone_as(
    simulators: &Simulators,
    template: u32,
    vmid: u32,
    (name, description): (&str, &str),
) {
    let client = administrator(simulators);
    let clone = CloneVm {
        newid: vmid,
        name: name.to_owned(),
        description: description.to_owned(),
        pool: None,
        target: None,
        full: None,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let task = client
            .clone_vm("pve1", template, &clone)
            .await
            .expect("begun");
        let within = Duration::from_secs(30);
        let end = client.wait_task(&task, within, Poll::default()).await;
        assert_eq!(format!("{:?}", end.expect("it ends")), "Ok");
    });
}

/// Makes the VM that an interrupted `template try debian` of a configuration without `kubernetes.name` leaves.
pub(crate) fn make_trial(simulators: &Simulators, template: u32, vmid: u32) {
    let mark = TemplateMark {
        template: "debian".to_owned(),
        cluster: "default".to_owned(),
        vmid,
        definition: String::new(),
        stage: BuildStage::Trial,
        by: "pve1/0".to_owned(),
        machine: None,
        begun: 1_795_000_000,
        unknown: [].into(),
    };
    let name = format!("pve-autoscaler-trial-{vmid}");
    clone_as(simulators, template, vmid, (&name, &mark.describe()));
}

/// Waits until PVE lists these guests: hosts tell each other of their VMs every ten seconds.
pub(crate) fn wait_until_listed(simulators: &Simulators, vmids: &[u32]) {
    let client = administrator(simulators);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for _ in 0..60 {
        let resources = runtime.block_on(client.resources());
        let guests = resources.expect("they are told").guests;
        if vmids.iter().all(|vmid| guests.contains_key(vmid)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!("PVE does not list all of {vmids:?}");
}

#[test]
fn a_template_on_shared_storage_is_built_once_and_kept_while_linked_clones_need_it() {
    let bench = Bench::new();
    bench.define_on("shared", "kubernetes = \"1.34\"", SUM);
    assert!(bench.good(&["build"]).contains("1 template built"));
    assert_eq!(bench.listed(), ["debian pve1 8000 built ready current 0"]);
    clone(&bench, 8000, 500);
    bench.define_on("shared", "kubernetes = \"1.34\"\npackages = [\"jq\"]", SUM);
    bench.good(&["build"]);
    let rows = [
        "debian pve1 8000 built-old-8000 old older 1",
        "debian pve1 8001 built ready current 0",
    ];
    assert_eq!(bench.listed(), rows);
    let said = bench.good(&["list"]);
    let words = "Kept while linked clones need it: VM 8000 for 1 clone; later `pve-autoscaler template prune`";
    assert!(said.contains(words), "{said}");
    let said = bench.good(&["prune"]);
    assert!(
        said.contains("VM 8000 (built-old-8000) is kept: linked clones need it: 500"),
        "{said}"
    );
    assert_eq!(bench.listed(), rows);
}

/// Somebody's templates lie in the range: one has our names and tags, one the mark of another VM, from which it was copied.
#[test]
fn what_does_not_carry_its_own_mark_is_never_touched() {
    let mut spec = PveSpec::default();
    let body = r#"{"template":"debian","cluster":"default","vmid":8019,"definition":"0","stage":"failed","by":"x/1","begun":1}"#;
    let sum = Sha256::digest(body)
        .iter()
        .take(6)
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let copied = format!("pve-autoscaler-template:v1 {body} {sum}");
    for (vmid, description) in [(8000, "mine"), (8001, &*copied)] {
        let mut machine = spec.machines[2].clone();
        machine.vmid = vmid;
        "local-lvm".clone_into(&mut machine.storage);
        for (key, value) in [
            ("name", "built"),
            ("tags", "pve-autoscaler-template"),
            ("description", description),
        ] {
            machine.config.insert(key.to_owned(), value.to_owned());
        }
        spec.machines.push(machine);
    }
    let bench = Bench::of(spec);
    let said = bench.good(&["build", "--host", "pve1"]);
    assert!(said.contains("VM 8002 is the template built"), "{said}");
    assert!(!said.contains("8000") && !said.contains("8001"), "{said}");
    bench.define("kubernetes = \"1.33\"", SUM);
    bench.good(&["build", "--host", "pve1"]);
    let said = bench.good(&["prune"]);
    assert!(said.contains("1 template removed"), "{said}");
    assert!(!said.contains("8000") && !said.contains("8001"), "{said}");
    assert_eq!(bench.listed(), ["debian pve1 8003 built ready current 0"]);
}

/// A build that hangs in its first step and is killed there.
fn interrupted(bench: &Bench, meanwhile: impl Fn()) {
    bench.guests("hang-install");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = program()
        .args(["template", "build", "--host", "pve1", "--config"])
        .arg(&bench.config)
        .env(
            "PATH",
            format!("{}:{path}", bench.simulators.path("bin").display()),
        )
        .env("FILES", bench.simulators.path("files"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let begun = bench.simulators.path("guests/8000/install.sh");
    for _ in 0..600 {
        if begun.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.exists(), "the step was never begun");
    meanwhile();
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert_eq!(
        bench.listed(),
        ["debian pve1 8000 built building current 0"]
    );
    bench.guests_no_more("hang-install");
}

#[test]
fn what_an_interrupted_build_left_is_removed_by_the_next_one() {
    let bench = Bench::new();
    interrupted(&bench, || {
        let said = bench.run(&["build", "--host", "pve1"]).1;
        assert!(said.contains("VM 8000 is being built by process"), "{said}");
    });
    let said = bench.good(&["build", "--host", "pve1"]);
    assert!(
        said.contains("removing VM 8000, which an earlier build left"),
        "{said}"
    );
    assert_eq!(bench.listed(), ["debian pve1 8000 built ready current 0"]);
}

/// The files on a host's own storage for snippets.
fn snippets(bench: &Bench, host: &str) -> Vec<String> {
    let folder = bench.simulators.path("files").join(host);
    let files = std::fs::read_dir(folder.join("var/lib/vz/snippets"));
    let files = files.into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// It finds a prune that leaves the file of a build beside its VM, one that takes it while the build is under way, and one that
/// removes anything in a dry run.
#[test]
fn the_file_of_an_interrupted_build_goes_with_its_vm_and_not_before() {
    let bench = Bench::new();
    let file = ["pve-autoscaler-debian-8000.yaml"];
    interrupted(&bench, || {
        let said = bench.good(&["prune"]);
        assert!(said.contains("VM 8000 (built) is being built"), "{said}");
        assert!(said.contains("0 templates removed"), "{said}");
    });
    assert_eq!(snippets(&bench, "pve1"), file);
    let said = bench.good(&["prune", "--dry-run"]);
    let volume = "debian on pve1: local:snippets/pve-autoscaler-debian-8000.yaml";
    let told = format!("{volume} would be removed\n1 template, 1 file of interrupted builds would");
    assert!(said.contains(&told), "{said}");
    assert_eq!(snippets(&bench, "pve1"), file);
    let said = bench.good(&["prune"]);
    let told = format!("{volume} is removed\n1 template, 1 file of interrupted builds removed");
    assert!(said.contains(&told), "{said}");
    assert_eq!(snippets(&bench, "pve1"), [""; 0]);
    assert!(bench.good(&["list"]).contains("no template is built"));
}

/// Files whose VM is gone. It finds a prune that takes what another name, another range, a VM that is there or its age says is
/// somebody's, and one that looks at one host alone.
#[test]
fn of_the_files_without_a_vm_those_go_that_are_old_and_ours() {
    let mut spec = PveSpec::default();
    let mut machine = spec.machines[2].clone();
    machine.vmid = 8006;
    "local-lvm".clone_into(&mut machine.storage);
    spec.machines.push(machine);
    let bench = Bench::of(spec);
    let now = u64::try_from(Clock::System.now().0).expect("after 1970");
    let hour = UNIX_EPOCH + Duration::from_millis(now) - Duration::from_hours(1);
    for (host, name, old) in [
        ("pve1", "pve-autoscaler-debian-8005.yaml", true),
        ("pve2", "pve-autoscaler-debian-8007.yaml", true),
        ("pve2", "pve-autoscaler-debian-8008.yaml", false),
        ("pve2", "pve-autoscaler-debian-8006.yaml", true),
        ("pve2", "pve-autoscaler-debian-8020.yaml", true),
        ("pve2", "pve-autoscaler-ubuntu-8007.yaml", true),
        ("pve2", "pve-autoscaler-debian-8007.yaml.mine", true),
        ("pve2", "mine.yaml", true),
    ] {
        let folder = bench.simulators.path("files").join(host);
        let folder = folder.join("var/lib/vz/snippets");
        std::fs::create_dir_all(&folder).expect("made");
        let file = std::fs::File::create(folder.join(name)).expect("made");
        if old {
            file.set_modified(hour).expect("it is ours");
        }
    }
    let said = bench.good(&["prune"]);
    for words in [
        "debian on pve1: local:snippets/pve-autoscaler-debian-8005.yaml is removed",
        "debian on pve2: local:snippets/pve-autoscaler-debian-8007.yaml is removed",
        "pve-autoscaler-debian-8008.yaml stays: it was written within the last 10m",
        "0 templates, 2 files of interrupted builds removed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(snippets(&bench, "pve1"), [""; 0]);
    let kept = [
        "mine.yaml",
        "pve-autoscaler-debian-8006.yaml",
        "pve-autoscaler-debian-8007.yaml.mine",
        "pve-autoscaler-debian-8008.yaml",
        "pve-autoscaler-debian-8020.yaml",
        "pve-autoscaler-ubuntu-8007.yaml",
    ];
    assert_eq!(snippets(&bench, "pve2"), kept);
}

/// A busy host: PVE calls the start failed before QEMU is up. It finds a build that takes that for the end of it.
#[test]
fn a_start_that_pve_does_not_wait_for_is_no_failed_build() {
    let mut spec = PveSpec::default();
    spec.timings.start_patience = Some(100);
    let bench = Bench::of(spec);
    let said = bench.good(&["build", "--host", "pve1"]);
    for words in [
        "PVE waited no longer for the start, and the VM runs",
        "VM 8000 is the template built",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}
