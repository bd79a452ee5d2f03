//! What `template build` runs in a guest, run by a shell: in a folder that stands for the guest's root, with programs that stand for
//! its package manager and the web.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest as _, Sha256};

use super::templates::{Bench, SUM};
use super::text;

/// The web: files of `web`, by their last part. What was asked for is written down, with the proxy.
const CURL: &str = r#"#!/bin/sh
out= url=
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    -w | --retry) shift ;;
    -*) ;;
    *) url=$1 ;;
  esac
  shift
done
echo "$url by ${https_proxy:-nothing}" >>"$ROOT/asked"
case $url in
  */channels/v1.34) echo https://github.com/k3s-io/k3s/releases/tag/v1.34.3%2Bk3s1 ;;
  */channels/*) echo https://github.com/k3s-io/k3s/issues ;;
  *)
    file=$ROOT/web/$(basename "$url")
    if [ ! -f "$file" ]; then echo "curl: (22) The requested URL returned error: 404" >&2; exit 22; fi
    cp "$file" "$out"
    ;;
esac
"#;

/// Programs that do nothing but say what they were asked.
const MUTE: [&str; 12] = [
    "apt-get",
    "apt-mark",
    "dnf",
    "gpg",
    "modprobe",
    "swapoff",
    "sysctl",
    "systemctl",
    "update-grub",
    "cloud-init",
    "uname",
    "containerd",
];

/// A guest's root, and the script that a build runs in it.
struct Root {
    bench: Bench,
    root: PathBuf,
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("it can be run");
}

impl Root {
    fn new() -> Root {
        let bench = Bench::new();
        let root = bench.simulators.path("root");
        for folder in [
            "web",
            "bin",
            "tmp",
            "usr/local/bin",
            "etc/modules-load.d",
            "etc/sysctl.d",
            "etc/systemd/system",
            "etc/apt/sources.list.d",
        ] {
            std::fs::create_dir_all(root.join(folder)).expect("made");
        }
        let release = "ID=debian\nPRETTY_NAME='Debian GNU/Linux 13 (trixie)'\n";
        std::fs::write(root.join("etc/os-release"), release).expect("written");
        std::fs::write(root.join("etc/fstab"), "").expect("written");
        for name in MUTE {
            let text = format!("#!/bin/sh\necho \"{name} $*\" >>\"$ROOT/called\"\n");
            program(&root.join("bin").join(name), &text);
        }
        program(&root.join("bin/curl"), CURL);
        program(&root.join("bin/uname"), "#!/bin/sh\necho x86_64\n");
        program(
            &root.join("bin/kubeadm"),
            "#!/bin/sh\ncase $1 in\nversion) echo v1.34.3 ;;\nconfig) echo \"$7/pause:3.10\" ;;\nesac\n",
        );
        program(
            &root.join("bin/containerd"),
            "#!/bin/sh\necho '    sandbox = \"registry.k8s.io/pause:3.8\"'\n",
        );
        Root { bench, root }
    }

    /// Puts a file into the web.
    fn serve(&self, name: &str, text: &str) {
        std::fs::write(self.root.join("web").join(name), text).expect("written");
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Builds with these lines, and runs the step that installs.
    fn install(&self, lines: &str, method: &str) -> Output {
        self.bench.define(lines, SUM);
        let config = std::fs::read_to_string(&self.bench.config).expect("it is there");
        let join = format!("{config}\n[pool.general.join]\nmethod = \"{method}\"\n");
        std::fs::write(&self.bench.config, join).expect("written");
        self.bench.good(&["build", "--host", "pve1", "--again"]);
        let guests = std::fs::read_dir(self.bench.simulators.path("guests")).expect("a folder");
        let scripts = guests.map(|guest| guest.expect("a guest").path().join("install.sh"));
        let newest = scripts.max_by_key(|script| {
            let kept = std::fs::metadata(script).and_then(|script| script.modified());
            kept.ok()
        });
        let script = std::fs::read_to_string(newest.expect("one was built")).expect("kept");
        let root = self.root.display().to_string();
        let mut fenced = script;
        for folder in ["/etc/", "/tmp/", "/usr/local/bin"] {
            fenced = fenced.replace(folder, &format!("@ROOT@{folder}"));
        }
        let fenced = fenced.replace("@ROOT@", &root);
        let path = std::env::var("PATH").unwrap_or_default();
        let _ = std::fs::remove_file(self.root.join("asked"));
        Command::new("sh")
            .arg("-c")
            .arg(&fenced)
            .env("ROOT", &root)
            .env("PATH", format!("{root}/bin:{path}"))
            .env_remove("https_proxy")
            .output()
            .expect("it runs")
    }
}

fn told(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn k3s_comes_from_its_releases_and_only_with_the_checksum_that_they_name() {
    let root = Root::new();
    let program = "#!/bin/sh\necho k3s version v1.34.3+k3s1\n";
    let bytes = Sha256::digest(program);
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    let sum = digits.collect::<Vec<_>>().concat();
    root.serve("k3s", program);
    let sums = format!(
        "{sum}  k3s\n{}  k3s-airgap-images-amd64.tar.zst\n",
        "0".repeat(64)
    );
    root.serve("sha256sum-amd64.txt", &sums);
    let done = root.install("method = \"k3s\"\nkubernetes = \"1.34\"", "k3s");
    let said = told(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("k3s version v1.34.3+k3s1"), "{said}");
    let asked = root.read("asked");
    let from = "https://github.com/k3s-io/k3s/releases/download/v1.34.3%2Bk3s1/k3s by nothing\n";
    assert!(asked.contains(from), "{asked}");
    assert_eq!(root.read("usr/local/bin/k3s"), program);
    let unit = root.read("etc/systemd/system/k3s-agent.service");
    assert!(unit.contains("/usr/local/bin/k3s agent\n"), "{unit}");
    let called = root.read("called");
    assert!(!called.contains("enable --now k3s"), "{called}");
    assert!(!called.contains("start k3s"), "{called}");
    assert_eq!(root.read("etc/default/k3s-agent"), "");

    // A program that was changed on its way is not installed.
    root.serve("k3s", "another");
    std::fs::remove_file(root.root.join("usr/local/bin/k3s")).expect("it was there");
    let exact = "method = \"k3s\"\nkubernetes = \"1.34.1+k3s1\"\nrepository = \"https://mirror.example/k3s/\"\nproxy = \"http://proxy.example:3128\"\nno_proxy = [\".example\"]";
    let failed = root.install(exact, "k3s");
    let said = told(&failed);
    assert!(!failed.status.success(), "{said}");
    let words = format!("sha256sum-amd64.txt says {sum}");
    assert!(said.contains(&words), "{said}");
    assert!(!root.root.join("usr/local/bin/k3s").exists());
    let asked = root.read("asked");
    let from = "https://mirror.example/k3s/v1.34.1%2Bk3s1/k3s by http://proxy.example:3128\n";
    assert!(asked.contains(from), "{asked}");

    // Then it is, and its containerd knows the proxy.
    root.serve("k3s", program);
    let done = root.install(exact, "k3s");
    assert!(done.status.success(), "{}", told(&done));
    assert_eq!(
        root.read("etc/default/k3s-agent"),
        "CONTAINERD_HTTP_PROXY=http://proxy.example:3128\nCONTAINERD_HTTPS_PROXY=http://proxy.example:3128\nCONTAINERD_NO_PROXY=.example\n"
    );

    let none = root.install("method = \"k3s\"\nkubernetes = \"1.99\"", "k3s");
    let said = told(&none);
    assert!(!none.status.success(), "{said}");
    assert!(said.contains("is no release of k3s 1.99"), "{said}");
}

#[test]
fn kubeadm_comes_from_a_mirror_and_pods_pause_from_the_clusters_registry() {
    let root = Root::new();
    root.serve("Release.key", "a key");
    let done = root.install("kubernetes = \"1.34\"", "kubeadm");
    assert!(done.status.success(), "{}", told(&done));
    let source = root.read("etc/apt/sources.list.d/kubernetes.list");
    assert!(
        source.ends_with(" https://pkgs.k8s.io/core:/stable:/v1.34/deb/ /\n"),
        "{source}"
    );
    let containerd = root.read("etc/containerd/config.toml");
    assert_eq!(containerd, "    sandbox = \"registry.k8s.io/pause:3.10\"\n");

    let lines = "kubernetes = \"1.34\"\nrepository = \"https://mirror.example/kubernetes/core:/stable:\"\nimage_repository = \"registry.example/k8s\"\nproxy = \"http://proxy.example:3128\"";
    let done = root.install(lines, "kubeadm");
    assert!(done.status.success(), "{}", told(&done));
    let source = root.read("etc/apt/sources.list.d/kubernetes.list");
    let mirror = " https://mirror.example/kubernetes/core:/stable:/v1.34/deb/ /\n";
    assert!(source.ends_with(mirror), "{source}");
    let asked = root.read("asked");
    let from = "https://mirror.example/kubernetes/core:/stable:/v1.34/deb/Release.key by http://proxy.example:3128\n";
    assert_eq!(asked, from);
    let containerd = root.read("etc/containerd/config.toml");
    assert_eq!(
        containerd,
        "    sandbox = \"registry.example/k8s/pause:3.10\"\n"
    );
    let unit = root.read("etc/systemd/system/containerd.service.d/90-pve-autoscaler-proxy.conf");
    assert!(
        unit.contains("\"HTTPS_PROXY=http://proxy.example:3128\""),
        "{unit}"
    );
}

/// Of a package that is there apt-get installs the newest version, unless it is told otherwise.
#[test]
fn a_version_of_containerd_that_the_file_pins_stays() {
    let root = Root::new();
    root.serve("Release.key", "a key");
    let lines = "kubernetes = \"1.34\"\npackages = [\"containerd=1.7*\"]";
    let done = root.install(lines, "kubeadm");
    assert!(done.status.success(), "{}", told(&done));
    let called = root.read("called");
    let of_containerd = |line: &&str| line.starts_with("apt-get ") && line.contains("containerd");
    let installs: Vec<&str> = called.lines().filter(of_containerd).collect();
    assert_eq!(installs.len(), 2, "{called}");
    assert!(installs[0].ends_with(" containerd=1.7*"), "{called}");
    assert!(installs[1].contains(" --no-upgrade "), "{called}");
}

#[test]
fn a_template_for_a_command_has_nothing_of_kubernetes() {
    let root = Root::new();
    let done = root.install(
        "method = \"command\"\npackages = [\"nfs-common\"]\ncommands = [\"install-rke2\"]",
        "rke2",
    );
    assert!(done.status.success(), "{}", told(&done));
    let called = root.read("called");
    assert!(called.contains(" socat nfs-common\n"), "{called}");
    assert!(!called.contains("kubelet"), "{called}");
    assert_eq!(root.read("asked"), "");
}

/// apt-get whose lists somebody else holds twice.
const BUSY_APT: &str = r#"#!/bin/sh
echo "apt-get $*" >>"$ROOT/called"
case "$*" in
  *update)
    echo x >>"$ROOT/updates"
    if [ "$(wc -l <"$ROOT/updates")" -le 2 ]; then
      echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 471 (apt-get)' >&2
      exit 100
    fi
    ;;
esac
"#;

#[test]
fn the_lists_of_packages_are_waited_for() {
    let root = Root::new();
    root.serve("Release.key", "a key");
    program(&root.root.join("bin/apt-get"), BUSY_APT);
    program(
        &root.root.join("bin/sleep"),
        "#!/bin/sh\necho \"slept $*\" >>\"$ROOT/called\"\n",
    );
    let done = root.install("kubernetes = \"1.34\"", "kubeadm");
    assert!(done.status.success(), "{}", told(&done));
    let called = root.read("called");
    let slept = called.lines().filter(|line| *line == "slept 5").count();
    assert_eq!(slept, 2, "{called}");
    // The timers that would begin it anew are switched off before.
    let before = called.split(" update\n").next().unwrap_or_default();
    let off = "systemctl disable --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service\n";
    assert!(before.contains(off), "{called}");

    // What is wrong for good is told at once.
    let broken =
        "#!/bin/sh\necho 'E: The repository does not have a Release file.' >&2\nexit 100\n";
    program(&root.root.join("bin/apt-get"), broken);
    std::fs::write(root.root.join("called"), "").expect("written");
    let failed = root.install("kubernetes = \"1.34\"", "kubeadm");
    let said = told(&failed);
    assert!(!failed.status.success(), "{said}");
    assert!(said.contains("does not have a Release file"), "{said}");
    assert!(!root.read("called").contains("slept"), "{said}");
}

/// A guest whose packages dnf installs.
fn rocky() -> Root {
    let root = Root::new();
    let release = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nPRETTY_NAME=\"Rocky Linux 10\"\n";
    std::fs::write(root.root.join("etc/os-release"), release).expect("written");
    for folder in ["etc/yum.repos.d", "etc/cloud/cloud.cfg.d"] {
        std::fs::create_dir_all(root.root.join(folder)).expect("made");
    }
    root
}

/// dnf of a distribution that has no containerd, and knows Docker's once the file of its repository is there.
const DNF_WITHOUT_CONTAINERD: &str = r#"#!/bin/sh
echo "dnf $*" >>"$ROOT/called"
case "$*" in
  *"list --available containerd") exit 1 ;;
  *install*containerd.io*)
    if [ ! -f "$ROOT/etc/yum.repos.d/docker-ce.repo" ]; then
      echo 'Error: Unable to find a match: containerd.io' >&2
      exit 1
    fi
    ;;
esac
"#;

/// Without a word of the file it is the newest; what the file pins is asked for once its repository is there, and stays.
#[test]
fn a_version_of_dockers_containerd_is_pinned_and_stays() {
    const REPOSITORY: &str =
        "[docker-ce-stable]\nname=Docker CE Stable\nenabled=1\n\n[docker-ce-test]\nenabled=0\n";
    let root = rocky();
    program(&root.root.join("bin/dnf"), DNF_WITHOUT_CONTAINERD);
    root.serve("docker-ce.repo", REPOSITORY);
    let file = "etc/yum.repos.d/docker-ce.repo";
    let installs = |root: &Root| {
        let called = root.read("called");
        let install = called.lines().filter(|line| line.contains("containerd.io"));
        install.map(str::to_owned).collect::<Vec<String>>()
    };
    for (packages, installed, pinned) in [
        ("[\"jq\"]", "containerd.io", false),
        ("[\"containerd.io\", \"jq\"]", "containerd.io", false),
        (
            "[\"containerd.io-2.1.5\", \"jq\"]",
            "containerd.io-2.1.5",
            true,
        ),
    ] {
        for old in [file, "called"] {
            let _ = std::fs::remove_file(root.root.join(old));
        }
        let lines = format!("kubernetes = \"1.34\"\npackages = {packages}");
        let done = root.install(&lines, "kubeadm");
        assert!(done.status.success(), "{packages}: {}", told(&done));
        assert_eq!(installs(&root), [format!("dnf -y install {installed}")]);
        assert!(root.read("called").contains(" socat jq\n"), "{packages}");
        let wanted = if pinned {
            REPOSITORY.replacen("stable]\n", "stable]\nexclude=containerd.io\n", 1)
        } else {
            REPOSITORY.to_owned()
        };
        assert_eq!(root.read(file), wanted, "{packages}");
    }
    // Where other commands install Kubernetes it is a package as any other.
    let _ = std::fs::remove_file(root.root.join("called"));
    let lines = "method = \"command\"\npackages = [\"containerd.io-2.1.5\"]\ncommands = [\"true\"]";
    let done = root.install(lines, "rke2");
    assert!(done.status.success(), "{}", told(&done));
    let called = installs(&root);
    assert!(
        called[0].ends_with(" socat containerd.io-2.1.5"),
        "{called:?}"
    );
}

#[test]
fn a_distribution_with_dnf_gets_the_same() {
    let root = rocky();
    let done = root.install("kubernetes = \"1.34.1\"", "kubeadm");
    assert!(done.status.success(), "{}", told(&done));
    let called = root.read("called");
    // `--disableexcludes`, as it was called, is unknown to dnf 5.
    let line = "dnf -y install --setopt=disable_excludes=kubernetes kubelet-1.34.1 kubeadm-1.34.1 cri-tools\n";
    assert!(called.contains(line), "{called}");
    let repository = root.read("etc/yum.repos.d/kubernetes.repo");
    assert!(
        repository.contains("baseurl=https://pkgs.k8s.io/core:/stable:/v1.34/rpm/\n"),
        "{repository}"
    );
    assert!(!called.contains("apt-get"), "{called}");
    // By name behind 90_dpkg.cfg, which images of Debian and Ubuntu may have: the last one decides.
    let sources = root.read("etc/cloud/cloud.cfg.d/99-pve-autoscaler.cfg");
    assert_eq!(sources, "datasource_list: [NoCloud, ConfigDrive, None]\n");
}
