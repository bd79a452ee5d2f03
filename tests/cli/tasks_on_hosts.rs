//! Tasks of an operator, `docs/tasks.md`, that need a host, a cluster and their machines: 4 to 6 and 8 to 10. Their commands are taken from
//! the page and typed one after the other; a command that the page has and no test here does fail.

use std::collections::{BTreeMap, BTreeSet};

use pve_autoscaler::sim::pve::{AdminAct, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Act, WorkloadKind, WorkloadPods};

use super::site::{FIRST, SECOND, Site};
use super::tasks::commands;

/// The VMID of the template that machines are cloned from at first, and of the one that a person makes.
const OLD_TEMPLATE: u32 = 9000;
const NEW_TEMPLATE: u32 = 9002;
/// What pods of the workload have, which a budget is for.
const WEB: &str = "web";

/// Each of them has a site of its own and waits for most of its time: side by side they take no longer than the longest.
#[test]
fn tasks_that_need_a_host_are_done_by_the_commands_of_the_page() {
    let tasks: [(&str, fn()); 9] = [
        ("4, mend a failing template", mend_template),
        ("5, drain a host", drain_host),
        ("6, roll a pool", roll_pool),
        ("6, roll a pool by hand", roll_pool_by_hand),
        ("8, restore it", restore_daemon),
        ("9, move it", move_daemon),
        ("9, the package of the old host", remove_old_package),
        (
            "10, remove it with its machines",
            remove_daemon_and_machines,
        ),
        ("10, remove it alone", remove_daemon_alone),
    ];
    let running = tasks.map(|(name, task)| (name, std::thread::spawn(task)));
    let failed: Vec<&str> = running
        .into_iter()
        .filter_map(|(name, running)| running.join().is_err().then_some(name))
        .collect();
    assert!(
        failed.is_empty(),
        "{failed:?}; what went wrong stands above"
    );
}

/// Two pods of which each fills a machine, and a working node for each.
fn with_two_pods() -> Site {
    let site = Site::begin();
    site.play(Act::Deploy {
        name: WEB.to_owned(),
        replicas: 2,
        pods: WorkloadPods::of("1500m", "1Gi"),
    });
    site.until("both pods run", |site| {
        site.runs(2) && site.count_working_nodes() == 2
    });
    site
}

/// No pod of the workload may be evicted, until [`end_budget`].
fn begin_budget(site: &Site) {
    site.play(Act::Budget {
        name: WEB.to_owned(),
        most_unavailable: 0,
    });
}

fn end_budget(site: &Site) {
    site.play(Act::Delete {
        kind: WorkloadKind::Budget,
        name: WEB.to_owned(),
    });
}

fn scale(site: &Site, replicas: u32) {
    site.play(Act::Scale {
        name: WEB.to_owned(),
        replicas,
    });
}

/// Names of the machines that there are.
fn names(site: &Site) -> BTreeSet<String> {
    site.machines().into_keys().collect()
}

/// Task 4. It finds a fault that `status`, `plan` or `doctor` does not name, a `doctor` that does not pass once the template is mended, and a
/// pool that waits on after that.
fn mend_template() {
    const FAULT: &str = "VM 9000 is locked (backup)";
    let [status, plan, history, doctor, retry] = &commands("4. ")[..] else {
        panic!("five commands");
    };
    let mut site = Site::begin();
    site.play(Act::Deploy {
        name: WEB.to_owned(),
        replicas: 1,
        pods: WorkloadPods::of("1500m", "1Gi"),
    });
    site.until("the pod runs", |site| site.runs(1));
    let before = names(&site);
    let node = before.first().expect("one");
    let lock = |lock: Option<&str>| AdminAct::Lock {
        vmid: OLD_TEMPLATE,
        lock: lock.map(str::to_owned),
    };
    site.act(&lock(Some("backup")));
    // Before a pod asks for a machine: no clone is tried.
    site.type_until(FIRST, (status, &[]), |said| said.contains(FAULT));
    scale(&site, 2);
    site.type_until(FIRST, (plan, &[]), |said| {
        said.contains(FAULT) && said.contains(&format!("default/{WEB}-"))
    });
    let of_pool = [("POOL", "general")];
    let said = site.type_line(FIRST, history, &of_pool);
    assert!(said.contains(node.as_str()), "{said}");
    let said = site.type_in_vain(FIRST, doctor);
    let wrong = format!("WRONG: template debian: {FAULT}");
    assert!(said.contains(&wrong), "{said}");
    assert_eq!(names(&site), before, "no machine is made of it");

    site.act(&lock(None));
    site.type_line(FIRST, doctor, &[]);
    let said = site.type_line(FIRST, retry, &of_pool);
    assert!(said.contains("general"), "{said}");
    site.until("both pods run", |site| site.runs(2));
    assert_eq!(site.count_clones_of(OLD_TEMPLATE), 2, "one for each pod");
}

/// Task 5. It finds a host that is not emptied, gets a machine, or gets none after the end; and an `explain` that does not say what keeps
/// a node there.
fn drain_host() {
    let [evacuate, status, explain, end] = &commands("5. ")[..] else {
        panic!("four commands");
    };
    let mut site = with_two_pods();
    begin_budget(&site);
    let machines = site.machines();
    let hosts: BTreeSet<&str> = machines.values().map(|vm| &*vm.host).collect();
    assert_eq!(hosts.len(), 2, "{machines:#?}");
    // On pve1 are guests of others, too: the next machine would come to another host.
    let mut machines = machines.iter().filter(|(_, vm)| vm.host != "pve1");
    let (node, vm) = machines.next().expect("one of two hosts");
    let host = vm.host.clone();

    // While all is paused it promises nothing, and afterwards what comes true.
    let one = format!("It has 1 machine: {node}. ");
    site.type_line(FIRST, "pve-autoscaler pause lunch", &[]);
    let said = site.type_line(FIRST, evacuate, &[("HOST", &host)]);
    let begun = format!("{host} is evacuated: no machine is made there");
    let held = format!("{one}Nothing is removed for now: paused: lunch");
    assert!(said.contains(&begun) && said.contains(&held), "{said}");
    site.type_line(FIRST, "pve-autoscaler resume", &[]);
    let said = site.type_line(FIRST, evacuate, &[("HOST", &host)]);
    let goes = format!("{one}It goes once its pods have a place elsewhere.");
    assert!(said.contains(&goes), "{said}");
    // Why it is to go comes first, then what keeps it.
    let said = site.type_until(FIRST, (explain, &[("NODE", node)]), |said| {
        said.contains("NotEnoughPdb") && said.contains("evacuated")
    });
    // A pod that is there says so, too.
    let pods = said.split_whitespace();
    let mut pods = pods.filter(|word| word.starts_with("default/web"));
    let pod = pods.next().unwrap_or_else(|| panic!("{said}"));
    let pod = pod.trim_end_matches(|last: char| !last.is_alphanumeric());
    let said = site.type_line(FIRST, &format!("pve-autoscaler explain pod {pod}"), &[]);
    let goes = format!("which is to go (NotEnoughPdb): its host {host} is evacuated since ");
    assert!(
        said.contains(&goes) && said.contains("The pod blocks: "),
        "{said}"
    );
    let said = site.type_line(FIRST, status, &[]);
    assert!(said.contains("evacuated since"), "{said}");
    let table = said.split("Evacuated hosts\n").nth(1);
    let row = table.and_then(|table| table.lines().nth(1));
    let row = row.unwrap_or_else(|| panic!("{said}"));
    assert!(
        row.contains(&host) && row.contains(node.as_str()) && row.contains("disruption budget"),
        "{said}"
    );
    assert!(site.machines().contains_key(node), "a budget keeps it");

    end_budget(&site);
    site.until("the host has no machine", |site| {
        site.machines().values().all(|vm| vm.host != host)
    });
    site.until("both pods run", |site| site.runs(2));
    let machines = site.machines();
    for node in site.nodes_of_pods().expect("they run") {
        assert_ne!(machines[&node].host, host, "{machines:#?}");
    }
    assert_eq!(site.count_clones_of(OLD_TEMPLATE), 3, "one in its place");
    site.type_until(FIRST, (status, &[]), |said| {
        said.contains("evacuated since") && !said.contains(node.as_str())
    });

    let said = site.type_line(FIRST, end, &[("HOST", &host)]);
    assert_eq!(said, format!("{host} may have machines again\n"));
    // It is the emptiest host now.
    scale(&site, 3);
    site.until("a machine comes to the host", |site| {
        site.machines().values().any(|vm| vm.host == host)
    });
}

/// A person makes a template and writes it into the file, and more into the pool.
fn change_template(site: &Site, of_pool: &str) {
    let machines = PveSpec::default().machines.into_iter();
    let mut new = machines
        .into_iter()
        .find(|vm| vm.vmid == OLD_TEMPLATE)
        .expect("the template");
    new.vmid = NEW_TEMPLATE;
    let uuid = format!("uuid=5fd1a1c0-0000-4000-8000-{NEW_TEMPLATE:012}");
    for (key, value) in [("name", "debian-14-k8s"), ("smbios1", &uuid)] {
        new.config.insert(key.to_owned(), value.to_owned());
    }
    site.act(&AdminAct::AddMachine(new));
    site.edit_file(FIRST, "\"debian-13-k8s\"", "\"debian-14-k8s\"");
    site.edit_file(FIRST, "max = 4\n", &format!("max = 4\n{of_pool}"));
}

/// None of these machines is left, and as many as before are there and work.
fn is_rolled(site: &Site, old: &BTreeSet<String>) -> bool {
    let now = names(site);
    now.is_disjoint(old) && now.len() == old.len() && site.runs(old.len())
}

/// Task 6, with `replace_drifted`. It finds a node that goes before the one in its place works, a machine too many, and one that is
/// cloned from the template before.
fn roll_pool() {
    let [reload, watch, explain, ..] = &commands("6. ")[..] else {
        panic!("three commands, and those by hand");
    };
    let mut site = with_two_pods();
    begin_budget(&site);
    let old = names(&site);
    change_template(&site, "replace_drifted = true\n");
    site.type_line(FIRST, reload, &[]);
    site.watch_line(FIRST, watch, "drifted (template)");
    let node = old.first().expect("two");
    site.type_until(FIRST, (explain, &[("NODE", node)]), |said| {
        said.contains("NotEnoughPdb") && said.contains("outdated")
    });
    assert_eq!(names(&site), old, "a budget keeps them");

    end_budget(&site);
    let mut fewest = usize::MAX;
    site.until("all machines are new", |site| {
        fewest = fewest.min(site.count_working_nodes());
        is_rolled(site, &old)
    });
    assert_eq!(fewest, 2, "nodes that worked at a time");
    assert_eq!(site.count_clones_of(NEW_TEMPLATE), 2, "one for each");
    assert_eq!(site.count_clones_of(OLD_TEMPLATE), 2, "those before");
}

/// Task 6, by hand.
fn roll_pool_by_hand() {
    let [_, _, _, reload, get, drain, status] = &commands("6. ")[..] else {
        panic!("three commands, and four by hand");
    };
    let mut site = with_two_pods();
    let old = names(&site);
    change_template(&site, "");
    site.type_line(FIRST, reload, &[]);
    let said = site.type_line(FIRST, get, &[("POOL", "general")]);
    let listed: BTreeSet<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(listed, old);
    for node in &old {
        site.type_line(FIRST, drain, &[("NODE", node)]);
        site.until("both pods run", |site| site.runs(2));
        site.type_until(FIRST, (status, &[]), |said| {
            said.contains(", 0 pods pending")
        });
    }
    site.until("all machines are new", |site| is_rolled(site, &old));
    assert_eq!(site.count_clones_of(NEW_TEMPLATE), 2, "one for each");
}

/// It is the VM that it was, with its mark, and runs.
fn is_same(now: &VmFacts, before: &VmFacts) -> bool {
    let named = |vm: &VmFacts| {
        (
            vm.vmid,
            vm.host.clone(),
            vm.uuid.clone(),
            vm.description.clone(),
        )
    };
    now.running && named(now) == named(before)
}

/// Both machines are what they were, and belong to the daemon of this host: it removes the one that is not needed, and has made none.
fn goes_on(site: &mut Site, at: usize, status: &str, before: &BTreeMap<String, VmFacts>) {
    let said = site.type_until(at, (status, &[]), |said| {
        said.contains(": leader; 2 nodes of ours, 0 pods pending")
    });
    for name in before.keys() {
        assert!(said.contains(name.as_str()), "{name}: {said}");
    }
    let now = site.machines();
    assert_eq!(now.len(), 2, "{now:#?}");
    assert!(before.iter().all(|(name, vm)| is_same(&now[name], vm)));
    assert!(site.runs(2), "its pods run on");
    scale(site, 1);
    site.until("a machine that is not needed goes", |site| {
        site.machines().len() == 1 && site.runs(1)
    });
    assert!(names(site).iter().all(|name| before.contains_key(name)));
    assert_eq!(site.count_clones_of(OLD_TEMPLATE), 2, "none is made anew");
}

/// Task 8. It finds a backup without what the daemon needs, machines that it does not know any more, and machines that are made in
/// their place. The daemon before was cut short, so that the Lease is still its own for half a minute.
fn restore_daemon() {
    let [pack, install, unpack, restart, doctor, status] = &commands("8. ")[..] else {
        panic!("six commands");
    };
    let mut site = with_two_pods();
    let before = site.machines();
    let backup = [("BACKUP", "backup")];
    site.type_line(FIRST, pack, &backup);
    site.type_line(FIRST, "pve-autoscaler pause before", &[]);
    site.reinstall_host(FIRST);
    site.type_line(FIRST, install, &[]);
    let said = site.type_line(FIRST, "pve-autoscaler status", &[]);
    assert!(said.contains("not configured"), "{said}");
    site.type_line(FIRST, unpack, &backup);
    site.type_line(FIRST, restart, &[]);
    site.type_line(FIRST, doctor, &[]);
    // A pause is forgotten.
    goes_on(&mut site, FIRST, status, &before);
}

/// Task 9. It finds an archive without the state, a new host that waits for the old one, and an old one that acts when it is started by
/// mistake.
fn move_daemon() {
    let [
        disable,
        pack,
        install,
        stop,
        unpack,
        restart,
        doctor,
        status,
        purge,
    ] = &commands("9. ")[..]
    else {
        panic!("nine commands");
    };
    let mut site = with_two_pods();
    let before = site.machines();
    assert_eq!(site.add_host("second"), SECOND);
    for (at, line) in [
        (FIRST, disable),
        (FIRST, pack),
        (SECOND, install),
        (SECOND, stop),
        (SECOND, unpack),
        (SECOND, restart),
        (SECOND, doctor),
    ] {
        site.type_line(at, line, &[]);
    }
    // Timers and the record came along.
    let said = site.type_until(SECOND, (status, &[]), |said| said.contains(": leader; 2 "));
    assert!(!said.contains("nobody knows"), "{said}");
    let told = site.read_history(SECOND);
    assert!(
        before.keys().all(|name| told.contains(name.as_str())),
        "{told}"
    );

    site.start_daemon(FIRST);
    let stands_by = |said: &str| said.contains(": standby, ");
    site.type_until(FIRST, (status, &[]), stands_by);
    goes_on(&mut site, SECOND, status, &before);
    let said = site.type_line(FIRST, status, &[]);
    assert!(stands_by(&said), "{said}");

    // The machine that is left is the new host's, whatever becomes of the package on the old one.
    let left = site.machines();
    site.type_line(FIRST, purge, &[]);
    assert_eq!(site.list_files(FIRST), Vec::<std::path::PathBuf>::new());
    let said = site.type_line(SECOND, status, &[]);
    assert!(said.contains(": leader; 1 node of ours"), "{said}");
    let now = site.machines();
    assert_eq!(now.len(), left.len());
    assert!(left.iter().all(|(name, vm)| is_same(&now[name], vm)));
}

/// Task 9, its last line. It finds machines of the new host that are called unmanaged on the old one, with what would destroy them, and
/// machines that nobody names where the daemon is off.
fn remove_old_package() {
    let commands = commands("9. ");
    let (disable, purge) = (&commands[0], &commands[8]);
    let mut site = with_two_pods();
    let before = site.machines();
    site.write_pve_files(FIRST);
    site.type_line(FIRST, disable, &[]);
    // Both hosts of a site have the name of this machine.
    site.give_lease("pve9_0000000000000007");
    let said = site.type_line(FIRST, purge, &[]);
    let begun =
        "pve-autoscaler on pve9 holds the Lease. While it runs there, it manages these machines";
    assert!(said.starts_with(begun), "{said}");
    for wrong in ["not managed any more", "qm destroy"] {
        assert!(!said.contains(wrong), "{said}");
    }
    // Without its file nobody knows where the Lease is.
    let unknown = site.type_line(FIRST, purge, &[]);
    let begun = "Unless pve-autoscaler runs on another host of this cluster: ";
    assert!(unknown.starts_with(begun), "{unknown}");
    for name in before.keys() {
        for said in [&said, &unknown] {
            assert!(said.contains(&format!("\n  {name} (VM ")), "{said}");
        }
    }
    let now = site.machines();
    assert!(before.iter().all(|(name, vm)| is_same(&now[name], vm)));
}

/// The second half of task 10, from the manifest on. Gives what `apt` says.
fn remove_package(site: &mut Site) -> String {
    let [.., print, purge, delete_manifest, delete_others] = &commands("10. ")[..] else {
        panic!("four commands");
    };
    site.type_line(FIRST, print, &[]);
    let said = site.type_line(FIRST, purge, &[]);
    site.type_line(FIRST, delete_manifest, &[]);
    site.type_line(FIRST, delete_others, &[]);
    assert_eq!(site.list_files(FIRST), Vec::<std::path::PathBuf>::new());
    for (version, kinds) in [
        (
            "rbac.authorization.k8s.io/v1",
            &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"][..],
        ),
        (
            "admissionregistration.k8s.io/v1",
            &[
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
            ],
        ),
        ("coordination.k8s.io/v1", &["Lease"]),
        ("v1", &["ConfigMap"]),
    ] {
        for kind in kinds {
            for object in site.kube.objects(version, kind) {
                let name = object["metadata"]["name"].as_str().expect("a name");
                assert!(!name.starts_with("pve-autoscaler"), "{kind} {name} is left");
            }
        }
    }
    said
}

/// VMs that no machine of ours is.
fn vmids_of_others(site: &Site) -> Vec<u32> {
    let vms = site.pve.vms().into_iter().map(|vm| vm.vmid);
    vms.filter(|vmid| !(9100..=9120).contains(vmid)).collect()
}

/// Task 10, with the machines. It finds a machine that is made for the pods that a drain leaves without a place, one that stays, and
/// rights or files that are left.
fn remove_daemon_and_machines() {
    let [reload, status, _, _, _, _] = &commands("10. ")[..] else {
        panic!("six commands");
    };
    let by_hand = commands("6. ");
    let mut drains = by_hand
        .iter()
        .filter(|line| line.starts_with("kubectl drain "));
    let (Some(drain), None) = (drains.next(), drains.next()) else {
        panic!("one drain");
    };
    let mut site = with_two_pods();
    let others = vmids_of_others(&site);
    site.edit_file(FIRST, "max = 4\n", "max = 0\n");
    site.type_line(FIRST, reload, &[]);
    for node in names(&site) {
        site.type_line(FIRST, drain, &[("NODE", &node)]);
    }
    site.until("no machine is left", |site| site.machines().is_empty());
    site.type_until(FIRST, (status, &[]), |said| {
        said.contains(": leader; 0 nodes of ours") && !said.contains("MACHINE ")
    });
    let said = remove_package(&mut site);
    assert_eq!(said, "", "no machine stays");
    assert_eq!(site.count_clones_of(OLD_TEMPLATE), 2, "none was made");
    assert!(site.kube.objects("v1", "Node").is_empty());
    assert_eq!(
        vmids_of_others(&site),
        others,
        "templates, and VMs of others"
    );
}

/// Task 10, at once. It finds a machine that is touched, or that nobody names.
fn remove_daemon_alone() {
    let mut site = with_two_pods();
    let before = site.machines();
    let said = remove_package(&mut site);
    for name in before.keys() {
        assert!(said.contains(&format!("\n  {name} (VM ")), "{said}");
    }
    let now = site.machines();
    assert_eq!(now.len(), before.len());
    assert!(before.iter().all(|(name, vm)| is_same(&now[name], vm)));
    assert!(site.runs(2) && site.count_working_nodes() == 2);
}
