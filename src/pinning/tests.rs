//! Passes over made-up trees, and one over threads that run.

use std::cell::RefCell;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};

use super::*;
use crate::model::mark::Mark;
use crate::model::time::Time;

/// Threads of nobody: where each may run, and how often one was moved.
#[derive(Debug, Default)]
struct Threads {
    at: RefCell<BTreeMap<i32, CpuSet>>,
    moved: RefCell<usize>,
    /// Done right before a thread is looked at: a file has another text, or a directory is gone.
    before: RefCell<Option<(PathBuf, Option<String>)>>,
}

impl Affinity for &Threads {
    fn get(&self, tid: i32) -> io::Result<CpuSet> {
        if let Some((path, text)) = self.before.borrow_mut().take() {
            match text {
                Some(text) => std::fs::write(path, text)?,
                None => std::fs::remove_dir_all(path)?,
            }
        }
        let at = self.at.borrow();
        at.get(&tid)
            .cloned()
            .ok_or_else(|| io::Error::from_raw_os_error(nix::libc::ESRCH))
    }

    fn set(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.at.borrow_mut().insert(tid, cpus.clone());
        *self.moved.borrow_mut() += 1;
        Ok(())
    }
}

fn set(text: &str) -> CpuSet {
    CpuSet::read(text).expect("a set")
}

/// The mark of a machine with this affinity, among lines of its configuration or alone.
fn mark(vmid: u32, lines: &str) -> String {
    let affinity = lines.lines().next().unwrap_or_default();
    let affinity = affinity.strip_prefix("affinity: ").unwrap_or(affinity);
    let mark = Mark {
        cluster: "uid/home".into(),
        machine: format!("fast-{vmid}"),
        vmid,
        pool: "fast".into(),
        instance_type: "f4".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(0),
        addresses: BTreeMap::new(),
        cpus: CpuSet::read(affinity).unwrap_or_default(),
        unknown: [].into(),
    };
    mark.line()
}

/// A host: the kernel of two sockets with a node each, of two cores of two threads (CPU 7 is off), and what runs on it.
struct Host {
    directory: tempfile::TempDir,
    roots: Roots,
    threads: Threads,
}

impl Host {
    fn new() -> Host {
        let directory = tempfile::tempdir().expect("a directory");
        let roots = Roots::below(directory.path());
        let devices = roots.sys.join("devices");
        std::fs::create_dir_all(&devices).expect("made");
        let kernel = topology::tests::kernel();
        std::fs::rename(kernel.keep(), devices.join("system")).expect("moved");
        let host = Host {
            directory,
            roots,
            threads: Threads::default(),
        };
        for cpu in 0..7 {
            host.write(&governor(cpu), "powersave\n");
        }
        host.write("proc/interrupts", &[
            "           CPU0       CPU1",
            "  16:          0          5   IO-APIC   16-fasteoi   ehci_hcd",
            "  45:          0          0   PCI-MSI 524288-edge      vfio-msi[0](0000:01:00.0)",
            "  46:          9          0   PCI-MSIX-0000:01:00.1   1-edge      vfio-msix[1](0000:01:00.1)",
            "  47:          9          0   PCI-MSIX-0000:02:00.0   0-edge      vfio-msix[0](0000:02:00.0)",
            " NMI:          0          0   Non-maskable interrupts",
        ].join("\n"));
        for number in [16, 45, 46, 47] {
            host.write(&format!("proc/irq/{number}/smp_affinity_list"), "0-6\n");
        }
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn text(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.path(path)).expect("it is there");
        text.trim().to_owned()
    }

    fn governors(&self) -> Vec<String> {
        (0..7).map(|cpu| self.text(&governor(cpu))).collect()
    }

    fn renames(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).expect("renamed");
    }

    /// A VM runs: these notes, lines of its configuration, vCPUs, words of QEMU's command line.
    fn runs(&self, vmid: u32, notes: &str, lines: &str, vcpus: i32, words: &str) {
        let encoded = |line: &str| line.replace('%', "%25").replace(':', "%3A");
        let notes: Vec<String> = notes.lines().map(encoded).collect();
        let notes = format!("#{}\n", notes.join("\n#"));
        let pid = i32::try_from(vmid).expect("small") * 10;
        let text =
            format!("{notes}cores: {vcpus}\nname: x\n{lines}\n\n[before]\n#old\naffinity: 0\n");
        self.write(&format!("etc/pve/qemu-server/{vmid}.conf"), &text);
        self.write(&format!("run/qemu-server/{vmid}.pid"), &format!("{pid}\n"));
        let line = format!("/usr/bin/kvm\0-id\0{vmid}\0{}", words.replace(' ', "\0"));
        self.write(&format!("proc/{pid}/cmdline"), &line);
        let others = [(pid, "kvm"), (pid + 1, "iothread-virtio")];
        let vcpus = (0..vcpus).map(|number| (pid + 2 + number, format!("CPU {number}/KVM")));
        let others = others.map(|(tid, name)| (tid, name.to_owned()));
        for (tid, name) in others.into_iter().chain(vcpus) {
            self.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("{name}\n"));
            self.threads.at.borrow_mut().insert(tid, set("0-6"));
        }
    }

    fn ends(&self, vmid: u32) {
        std::fs::remove_file(self.path(&format!("run/qemu-server/{vmid}.pid"))).expect("it ran");
    }

    fn pinner(&self, wishes: Wishes) -> Pinner<&Threads> {
        Pinner::new(self.roots.clone(), wishes, &self.threads)
    }

    /// Where the vCPUs of a VM are.
    fn vcpus(&self, vmid: i32, count: i32) -> Vec<String> {
        let at = self.threads.at.borrow();
        (0..count)
            .map(|number| at[&(vmid * 10 + 2 + number)].to_string())
            .collect()
    }

    fn at(&self, tid: i32) -> String {
        self.threads.at.borrow()[&tid].to_string()
    }
}

fn governor(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
}

fn all() -> Wishes {
    Wishes {
        housekeeping: Some(set("0,4")),
        interrupts: true,
        governor: Some("performance".to_owned()),
    }
}

const DEVICES: &str =
    "-device vfio-pci,host=0000:01:00.0,id=hostpci0 -device vfio-pci,host=0000:01:00.1,id=hostpci1";

#[test]
fn each_vcpu_has_a_cpu_and_all_else_is_elsewhere() {
    let host = Host::new();
    host.runs(
        910,
        &format!("of the shop\n{}", mark(910, "1,5,2,6")),
        "affinity: 1,5,2,6\nnuma: 1",
        4,
        DEVICES,
    );
    let pinner = host.pinner(all());
    let outcome = pinner.pass();
    // Threads of one core beside each other.
    assert_eq!(host.vcpus(910, 4), ["1", "5", "2", "6"]);
    assert_eq!(
        (host.at(9100), host.at(9101)),
        ("0,4".to_owned(), "0,4".to_owned())
    );
    let irq = |number| host.text(&format!("proc/irq/{number}/smp_affinity_list"));
    assert_eq!(
        [16, 45, 46, 47].map(irq),
        ["0-6", "1-2,5-6", "1-2,5-6", "0-6"]
    );
    let (slow, fast) = ("powersave", "performance");
    assert_eq!(host.governors(), [slow, fast, fast, slow, slow, fast, fast]);
    let machine = &outcome.machines[&910];
    assert_eq!(
        (machine.machine.as_str(), machine.problems.len()),
        ("fast-910", 0),
        "{machine:?}"
    );
    assert_eq!(machine.interrupts, [45, 46].into());
    // Nothing is done twice.
    let moved = *host.threads.moved.borrow();
    assert_eq!(
        (pinner.pass().changes, *host.threads.moved.borrow()),
        (Vec::new(), moved)
    );
    // A thread that came since, and one that somebody moved.
    host.write("proc/9100/task/9199/comm", "worker\n");
    host.threads.at.borrow_mut().insert(9199, set("1"));
    host.threads.at.borrow_mut().insert(9103, set("0-6"));
    assert_eq!(pinner.pass().changes.len(), 2);
    assert_eq!(
        (host.at(9199), host.at(9103)),
        ("0,4".to_owned(), "5".to_owned())
    );
    host.ends(910);
    let outcome = pinner.pass();
    assert_eq!(host.governors(), [slow; 7], "{outcome:?}");
    assert!(outcome.machines.is_empty());
}

#[test]
fn the_vcpus_of_a_guests_node_are_where_its_memory_is() {
    let host = Host::new();
    let lines = "affinity: 1,5,2,6\nnuma0: cpus=0-1,hostnodes=2,memory=512,policy=bind\nnuma1: cpus=2-3,hostnodes=0,memory=512,policy=bind";
    host.runs(910, &mark(910, lines), lines, 4, "");
    let pinner = host.pinner(Wishes::default());
    pinner.pass();
    assert_eq!(host.vcpus(910, 4), ["2", "6", "1", "5"]);
    assert_eq!(host.at(9100), "0-6", "PVE's place stands");
    assert_eq!(host.governors(), ["powersave"; 7]);
    assert_eq!(host.text("proc/irq/45/smp_affinity_list"), "0-6");
}

/// Others' VMs, whatever they look like, and ours that are not sure: nothing of them is touched.
#[test]
fn what_is_not_surely_ours_is_left_alone() {
    let affinity = "affinity: 1-2";
    for (notes, lines, words) in [
        ("mine", affinity, DEVICES),
        ("pve-autoscaler", affinity, ""),
        (&*mark(911, affinity), affinity, DEVICES),
        (&*format!("{}x", mark(910, affinity)), affinity, ""),
        (&*format!("{}\nmine", mark(910, affinity)), affinity, ""),
        (&*mark(910, ""), "", DEVICES),
        (&*mark(910, ""), "affinity: x", ""),
        // Root gave it an affinity, and somebody who may edit notes a mark.
        (&*mark(910, ""), affinity, DEVICES),
        (&*mark(910, "1-3"), affinity, DEVICES),
    ] {
        let host = Host::new();
        host.runs(910, notes, lines, 2, words);
        let outcome = host.pinner(all()).pass();
        assert_eq!(outcome, PinningOutcome::default(), "{notes} {lines}");
        assert_eq!(*host.threads.moved.borrow(), 0, "{notes} {lines}");
        assert_eq!(host.governors(), ["powersave"; 7]);
        assert_eq!(host.text("proc/irq/45/smp_affinity_list"), "0-6");
    }
    // The process id is another program's by now.
    let host = Host::new();
    host.runs(910, &mark(910, affinity), affinity, 2, "");
    host.write("proc/9100/cmdline", "/usr/bin/kvm\0-id\x00300\0");
    assert_eq!(host.pinner(all()).pass(), PinningOutcome::default());
}

/// The mark, the affinity or the process goes between the look and the change.
#[test]
fn ownership_is_proven_right_before_each_change() {
    for (path, text) in [
        (
            "etc/pve/qemu-server/910.conf",
            "#mine\ncores: 2\naffinity: 1-2\n".to_owned(),
        ),
        (
            "etc/pve/qemu-server/910.conf",
            format!(
                "#{}\ncores: 2\naffinity: 5-6\n",
                mark(910, "5-6").replace(':', "%3A")
            ),
        ),
        ("run/qemu-server/910.pid", "77\n".to_owned()),
        ("proc/9100/cmdline", "/bin/sh\0".to_owned()),
    ] {
        let host = Host::new();
        host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, DEVICES);
        *host.threads.before.borrow_mut() = Some((host.path(path), Some(text.clone())));
        let outcome = host.pinner(all()).pass();
        assert_eq!(*host.threads.moved.borrow(), 0, "{path} {text}");
        assert_eq!(outcome.changes, Vec::<String>::new(), "{path} {text}");
        assert!(!outcome.machines[&910].problems.is_empty());
        assert_eq!(host.governors(), ["powersave"; 7]);
    }
}

#[test]
fn what_does_not_fit_is_said_and_left_where_pve_put_it() {
    for (lines, vcpus, said) in [
        ("affinity: 1-2", 4, "an affinity of 2 CPUs"),
        ("affinity: 1,7", 2, "not online here: 7"),
        (
            "affinity: 1-2\nvcpus: 1",
            2,
            "it has 1 vCPUs and an affinity of 2",
        ),
        (
            "affinity: 1,5\nnuma0: cpus=0-1,hostnodes=2,memory=5",
            2,
            "too few CPUs in NUMA node 2",
        ),
        (
            "affinity: 1\nvcpus: 1",
            2,
            "QEMU has 2 threads for vCPUs, 1 are configured",
        ),
        (
            "affinity: 1,5\nnuma0: cpus=0,hostnodes=0,memory=5",
            2,
            "name 1 vCPUs of 2",
        ),
    ] {
        let host = Host::new();
        host.runs(910, &mark(910, lines), lines, vcpus, "");
        let outcome = host.pinner(Wishes::default()).pass();
        let problems = outcome.machines[&910].problems.join("; ");
        assert!(problems.contains(said), "{problems}");
        assert_eq!(*host.threads.moved.borrow(), 0, "{lines}");
    }
}

#[test]
fn a_governor_is_given_back_after_a_restart_and_at_the_end() {
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    host.pinner(all()).pass();
    assert_eq!(host.governors()[1..3], ["performance"; 2]);
    // Somebody has given one of them another since.
    host.write(&governor(2), "schedutil\n");
    let again = host.pinner(Wishes {
        governor: Some("performance".to_owned()),
        ..Wishes::default()
    });
    host.write(&governor(2), "schedutil\n");
    assert_eq!(again.end().changes.len(), 1);
    assert_eq!(host.governors()[1..3], ["powersave", "schedutil"]);
    assert_eq!(again.end(), PinningOutcome::default());
}

/// `/etc/pve` is away, a file of a VM cannot be read, or its process id is not written yet: nobody takes it for gone.
#[test]
fn what_cannot_be_read_is_not_gone() {
    let (conf, pid) = ("etc/pve/qemu-server/910.conf", "run/qemu-server/910.pid");
    for (file, directory) in [
        ("etc/pve/qemu-server", false),
        (conf, true),
        (pid, true),
        ("proc/9100/cmdline", false),
    ] {
        let host = Host::new();
        host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
        host.runs(911, "mine", "", 1, "");
        let pinner = host.pinner(all());
        pinner.pass();
        host.renames(file, "away");
        if directory {
            std::fs::create_dir(host.path(file)).expect("made");
        }
        let outcome = pinner.pass();
        assert_eq!(host.governors()[1..3], ["performance"; 2], "{file}");
        assert_eq!(outcome.changes, Vec::<String>::new(), "{file}");
        let problems = outcome.problems.join("; ");
        assert!(problems.contains("VM 910: cannot read"), "{problems}");
        if directory {
            std::fs::remove_dir(host.path(file)).expect("removed");
        }
        host.renames("away", file);
        assert_eq!(pinner.pass().problems, Vec::<String>::new(), "{file}");
    }
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let pinner = host.pinner(all());
    pinner.pass();
    host.write(pid, "");
    let problems = pinner.pass().problems.join("; ");
    assert!(problems.contains("no process id"), "{problems}");
    host.write(pid, "9100\n");
    // One file that is gone from a directory that can be read is gone.
    std::fs::remove_file(host.path(conf)).expect("removed");
    assert_eq!(pinner.pass().problems, Vec::<String>::new());
    assert_eq!(host.governors(), ["powersave"; 7]);
}

/// A thread ends after it was listed, and another program's has its number.
#[test]
fn a_thread_that_is_no_longer_qemus_is_not_moved() {
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let task = host.path("proc/9100/task/9102");
    *host.threads.before.borrow_mut() = Some((task, None));
    host.pinner(all()).pass();
    assert_eq!(host.vcpus(910, 2), ["0-6", "2"]);
}

#[test]
fn a_governor_that_cannot_be_read_is_given_back_later() {
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let pinner = host.pinner(all());
    pinner.pass();
    host.renames(&governor(2), "away");
    host.ends(910);
    let problems = pinner.pass().problems.join("; ");
    assert!(problems.contains("CPU 2 gets powersave back"), "{problems}");
    assert_eq!(pinner.end().problems.len(), 1);
    host.renames("away", &governor(2));
    assert_eq!(host.governors()[1..3], ["powersave", "performance"]);
    assert_eq!(pinner.end().changes.len(), 1);
    assert_eq!(host.governors(), ["powersave"; 7]);
}

#[test]
fn a_governor_that_somebody_sets_stays_while_the_machine_lives() {
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let pinner = host.pinner(all());
    pinner.pass();
    host.write(&governor(1), "powersave\n");
    host.write(&governor(2), "schedutil\n");
    // What it had at first is what a CPU has that was off for a while.
    assert_eq!(pinner.pass().changes.len(), 2);
    assert_eq!(host.governors()[1..3], ["performance", "schedutil"]);
    // Nor is it changed when it is what it was at first, in a service that started again.
    host.write(&governor(2), "powersave\n");
    let again = host.pinner(all());
    assert_eq!(again.pass().changes, Vec::<String>::new());
    host.write(&governor(2), "performance\n");
    host.ends(910);
    again.pass();
    assert_eq!(host.governors()[1..3], ["powersave", "performance"]);
}

#[test]
fn housekeeping_is_on_cpus_that_are_online() {
    let host = Host::new();
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let wishes = |text| Wishes {
        housekeeping: Some(set(text)),
        ..Wishes::default()
    };
    let outcome = host.pinner(wishes("7")).pass();
    assert_eq!((host.at(9100), outcome.problems.len()), ("0-6".into(), 1));
    let pinner = host.pinner(wishes("4,7"));
    pinner.pass();
    assert_eq!(host.at(9100), "4");
    let outcome = pinner.pass();
    let said = "--housekeeping 4,7 names CPUs that are not online here: 7";
    assert_eq!(outcome.problems, [said]);
    assert_eq!(outcome.changes, Vec::<String>::new());
}

#[test]
fn a_report_is_read_by_doctor_until_it_is_too_old() {
    let host = Host::new();
    let at = |minutes| Time(0) + crate::model::time::Span::minutes(minutes);
    assert_eq!(PinningReport::read(&host.roots, at(0)), Ok(None));
    host.runs(910, &mark(910, "1-2"), "affinity: 1-2", 2, "");
    let outcome = host.pinner(all()).pass();
    let report = PinningReport {
        at: at(0),
        next: at(1),
        outcome,
    };
    report.write(&host.roots).expect("written");
    assert_eq!(
        PinningReport::read(&host.roots, at(3)),
        Ok(Some(report.clone()))
    );
    assert!(
        report.summary().ends_with("2 vCPUs of 1 machine"),
        "{}",
        report.summary()
    );
    let old = PinningReport::read(&host.roots, at(4)).expect_err("it is old");
    assert!(old.contains("nobody has placed"), "{old}");
    PinningReport::remove(&host.roots);
    assert_eq!(PinningReport::read(&host.roots, at(9)), Ok(None));
}

/// What the child's vCPU thread prints once it runs under its name. The test framework prints lines of
/// its own before that, so no word of theirs may stand in it.
const VCPU_IS_UP: &str = "the thread CPU 0/KVM is up";

/// A process with a thread of a vCPU's name, until its standard input ends: the child of
/// `threads_that_run_are_moved`.
#[test]
#[ignore = "it is a child process"]
fn child_with_threads() {
    if std::env::var_os("PINNING_CHILD").is_none() {
        return;
    }
    let thread = std::thread::Builder::new().name("CPU 0/KVM".to_owned());
    thread
        .spawn(|| {
            println!("{VCPU_IS_UP}");
            std::thread::sleep(std::time::Duration::from_mins(5));
        })
        .expect("spawned");
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

/// The kernel itself: a thread of a process that runs is put on one CPU, and the others on another.
#[test]
fn threads_that_run_are_moved() {
    let mine = Kernel.get(0).expect("the kernel tells");
    let known: Vec<u16> = mine.iter().filter(|cpu| *cpu < 7).collect();
    let (Some(first), Some(last)) = (known.first(), known.last()) else {
        return;
    };
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "--test-threads=1",
            "pinning::tests::child_with_threads",
        ])
        .env("PINNING_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut told = String::new();
    let mut out = child.stdout.take().expect("piped");
    while !told.contains(VCPU_IS_UP) {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).expect("it tells"), 1, "{told}");
        told.push(char::from(byte[0]));
    }
    let pid = child.id();
    let host = Host::new();
    let cpu = last.to_string();
    host.runs(910, &mark(910, &cpu), &format!("affinity: {last}"), 0, "");
    let conf = format!(
        "#{}\ncores: 1\naffinity: {last}\n",
        mark(910, &cpu).replace(':', "%3A")
    );
    host.write("etc/pve/qemu-server/910.conf", &conf);
    host.write("run/qemu-server/910.pid", &format!("{pid}\n"));
    host.write(&format!("proc/{pid}/cmdline"), "/usr/bin/kvm\0-id\x00910\0");
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    std::os::unix::fs::symlink(&tasks, host.path(&format!("proc/{pid}/task"))).expect("linked");
    let wishes = Wishes {
        housekeeping: Some(set(&first.to_string())),
        ..Wishes::default()
    };
    let outcome = Pinner::new(host.roots.clone(), wishes, Kernel).pass();
    let mut seen = Vec::new();
    for task in std::fs::read_dir(&tasks).expect("it runs").flatten() {
        let tid: i32 = task
            .file_name()
            .to_str()
            .expect("a number")
            .parse()
            .expect("a number");
        let name = std::fs::read_to_string(task.path().join("comm")).expect("it runs");
        seen.push((
            name.trim() == "CPU 0/KVM",
            Kernel.get(tid).expect("it runs").to_string(),
        ));
    }
    drop(child.stdin.take());
    child.wait().expect("it ends");
    assert!(seen.iter().any(|(vcpu, _)| *vcpu), "{seen:?}");
    for (vcpu, at) in &seen {
        let wanted = if *vcpu { last } else { first };
        assert_eq!(*at, wanted.to_string(), "{seen:?} {outcome:?}");
    }
    assert_eq!(outcome.machines[&910].problems, Vec::<String>::new());
}
