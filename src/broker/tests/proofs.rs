//! Tests of the proofs by which the broker knows a template, a task or a placeholder for ours. Each proof is taken away alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rig::rig_with;
use super::world::{HOST, bare, mark, policy};
use crate::broker::intents::CloneIntent;
use crate::broker::owned;
use crate::broker::policy::BrokerPolicy;
use crate::config::settings::PoolAllow;
use crate::model::action::NO_TEMPLATE;
use crate::model::mark::Mark;
use crate::model::time::{Span, Time};
use crate::pve::{LATE_CALL, TaskState, Upid, VmConfig};

/// When the clone was asked for.
const ASKED: Time = Time(1_795_000_000_000);

fn text(text: &str) -> String {
    text.to_owned()
}

/// A task that began so many seconds after the clone was asked for.
fn upid(kind: &str, id: &str, user: &str, seconds: i64) -> Upid {
    let began = ASKED.0 / 1000 + seconds;
    let text = format!("UPID:pve1:0003A1B2:00C3D4E5:{began:08X}:{kind}:{id}:{user}:");
    text.parse().expect("a UPID")
}

fn clone_intent() -> CloneIntent {
    CloneIntent::new(&mark(9050), HOST, 9000, ASKED)
}

fn config(data: &Value) -> VmConfig {
    VmConfig::read(data)
}

#[test]
fn a_template_is_named_by_vmid_by_name_or_by_all_its_tags() {
    let tagged = || vec![vec![text("k8s"), text("golden")]];
    let named = |change: &dyn Fn(&mut BrokerPolicy)| {
        let mut policy = policy();
        policy.allow.template_vmids.clear();
        policy.allow.template_names.clear();
        change(&mut policy);
        policy
    };
    let by_vmid = named(&|policy| policy.allow.template_vmids = vec![9000]);
    let by_name = named(&|policy| policy.allow.template_names = vec![text("debian-13")]);
    let by_tags = named(&|policy| policy.allow.template_tags = tagged());
    let by_nothing = named(&|_| {});
    let data = json!({"name": "debian-13", "tags": "golden;k8s", "template": 1});
    for (policy, vmid, what) in [
        (&by_vmid, 9000, "VMID"),
        (&by_name, 200, "name"),
        (&by_tags, 200, "tags"),
    ] {
        assert_eq!(
            owned::template(policy, vmid, &config(&data)),
            Ok(()),
            "{what}"
        );
        let mut no_template = data.clone();
        no_template["template"] = json!(0);
        let refused = owned::template(policy, vmid, &config(&no_template));
        assert!(
            refused.is_err_and(|why| why.contains("is not a template")),
            "{what}"
        );
    }
    let other = json!({"name": "debian-12", "tags": "golden", "template": 1});
    for policy in [&by_vmid, &by_name, &by_tags, &by_nothing] {
        let refused = owned::template(policy, 200, &config(&other));
        assert!(refused.is_err_and(|why| why.contains("names")));
    }
}

#[test]
fn a_machine_is_cloned_from_its_pools_template_by_vmid_by_name_or_by_tags() {
    let of_pool = |change: &dyn Fn(&mut PoolAllow)| {
        let mut policy = policy();
        let pool = policy.allow.pools.get_mut("small").expect("there");
        (pool.template_vmid, pool.template_name) = (None, None);
        change(pool);
        policy
    };
    let by_vmid = of_pool(&|pool| pool.template_vmid = Some(9000));
    let by_name = of_pool(&|pool| pool.template_name = Some(text("debian-13")));
    let by_tags = of_pool(&|pool| pool.template_tags = vec![text("golden")]);
    let by_nothing = of_pool(&|_| {});
    let right = config(&json!({"name": "debian-13", "tags": "golden", "template": 1}));
    let other = config(&json!({"name": "debian-12", "tags": "old", "template": 1}));
    let fits = |policy: &BrokerPolicy, template: u32, config: &VmConfig| {
        owned::fits_pool(policy, &mark(9050), HOST, template, config)
    };
    assert_eq!(fits(&by_vmid, 9000, &other), Ok(()));
    assert_eq!(fits(&by_name, 200, &right), Ok(()));
    assert_eq!(fits(&by_tags, 200, &right), Ok(()));
    for policy in [&by_vmid, &by_name, &by_tags, &by_nothing] {
        let refused = fits(policy, 200, &other);
        assert!(refused.is_err_and(|why| why.contains("is not the template of pool small")));
    }
    assert!(fits(&by_nothing, 9000, &right).is_err());
}

#[test]
fn a_pools_machines_are_on_the_hosts_that_it_names_and_not_on_those_it_excludes() {
    let template = config(&json!({"name": "debian-13", "template": 1}));
    for (hosts, excluded, host, may) in [
        (vec![], vec![], "pve1", true),
        (vec!["pve1"], vec![], "pve1", true),
        (vec!["pve1"], vec![], "pve2", false),
        (vec!["pve1", "pve2"], vec![], "pve2", true),
        (vec![], vec!["pve2"], "pve1", true),
        (vec![], vec!["pve2"], "pve2", false),
        (vec!["pve2"], vec!["pve2"], "pve2", false),
    ] {
        let mut policy = policy();
        let pool = policy.allow.pools.get_mut("small").expect("there");
        pool.hosts = hosts.iter().map(|host| text(host)).collect();
        pool.exclude_hosts = excluded.iter().map(|host| text(host)).collect();
        let fits = owned::fits_pool(&policy, &mark(9050), host, 9000, &template);
        assert_eq!(fits.is_ok(), may, "{hosts:?} {excluded:?} {host}: {fits:?}");
    }
}

/// Whether a task in a list is one that may have made the VM; then whether it runs, and whether it failed.
#[test]
fn a_task_is_judged_by_its_kind_its_end_and_its_words() {
    let read = |intent: &CloneIntent, kind: &str, id: &str, status: Option<&str>, ended: bool| {
        let mut entry = json!({"upid": upid(kind, id, "root@pam", 1).as_str()});
        if let Some(status) = status {
            entry["status"] = json!(status);
        }
        if ended {
            entry["endtime"] = json!(1_795_000_100);
        }
        let tasks = owned::making_tasks(&json!([entry]), intent);
        tasks.first().map(|task| (task.running, task.failed))
    };
    let (runs, failed, well) = (
        Some((true, false)),
        Some((false, true)),
        Some((false, false)),
    );
    for (status, ended, expected) in [
        (None, false, runs),
        (Some("RUNNING"), false, runs),
        (Some("running"), false, runs),
        (Some("RUNNING"), true, failed),
        (None, true, failed),
        (Some("no space left"), true, failed),
        (Some("no space left"), false, failed),
        (Some("OK"), true, well),
        (Some("OK"), false, well),
        (Some("WARNINGS: 2"), true, well),
    ] {
        let clone = read(&clone_intent(), "qmclone", "9000", status, ended);
        assert_eq!(clone, expected, "{status:?} {ended}");
    }
    let made = CloneIntent::new(&bare(9050), HOST, NO_TEMPLATE, ASKED);
    for (intent, kind, id, counts) in [
        (&clone_intent(), "qmclone", "9000", true),
        (&clone_intent(), "qmclone", "300", true),
        (&clone_intent(), "qmcreate", "9050", false),
        (&clone_intent(), "qmigrate", "9000", false),
        (&made, "qmcreate", "9050", true),
        (&made, "qmcreate", "9051", false),
        (&made, "qmclone", "9050", false),
    ] {
        let read = read(intent, kind, id, None, false);
        assert_eq!(read.is_some(), counts, "{} {kind} {id}", intent.template);
    }
}

fn task(upid: &Upid, running: bool, failed: bool) -> owned::CloneTask {
    owned::CloneTask {
        upid: upid.clone(),
        running,
        failed,
    }
}

#[test]
fn a_clone_is_under_way_that_runs_and_is_no_other_machines() {
    let (own, other) = (
        upid("qmclone", "9000", "root@pam", 1),
        upid("qmclone", "9000", "root@pam", 2),
    );
    let foreign = upid("qmclone", "300", "root@pam", 2);
    let (none, claimed) = (BTreeSet::new(), BTreeSet::from([other.clone()]));
    let open = clone_intent();
    let answered = clone_intent().answered(own.clone());
    let unknown = CloneIntent::new(&mark(9050), HOST, 0, ASKED);
    for (intent, upid, running, claims, counts) in [
        (&open, &other, true, &none, true),
        (&open, &other, false, &none, false),
        (&open, &other, true, &claimed, false),
        (&open, &foreign, true, &none, false),
        (&answered, &own, true, &none, true),
        (&answered, &other, true, &none, false),
        // The template is not known: it may be a clone of any.
        (&unknown, &foreign, true, &none, true),
    ] {
        let tasks = [task(upid, running, false)];
        let under_way = owned::clone_under_way(&tasks, intent, claims);
        assert_eq!(under_way, counts.then_some(upid), "{upid} {running}");
    }
}

#[test]
fn a_placeholder_may_be_another_clones_that_did_not_end_well() {
    let at = |user: &str, id: &str, seconds: i64| upid("qmclone", id, user, seconds);
    let none = BTreeSet::new();
    let own = at("root@pam", "9000", 10);
    let answered = clone_intent().answered(own.clone());
    // The task of the clone itself (`own`) is known, so a task on the VMID that began earlier has left nothing of this clone.
    for (upid, running, failed, may_be) in [
        (&own, true, false, false),
        (&at("root@pam", "9000", 9), false, true, false),
        (&at("root@pam", "300", 10), false, true, true),
        (&at("root@pam", "300", 11), true, false, true),
        (&at("root@pam", "300", 11), false, false, false),
    ] {
        let tasks = [task(upid, running, failed)];
        let others = owned::others_clone(&tasks, &answered, &none);
        assert_eq!(others, may_be.then_some(upid), "{upid} {running} {failed}");
    }
    let claimed = BTreeSet::from([at("root@pam", "300", 11)]);
    let tasks = [task(&at("root@pam", "300", 11), true, false)];
    assert_eq!(owned::others_clone(&tasks, &answered, &claimed), None);
    // It is not known: root's one of the template, while it could be begun, may be ours.
    let open = clone_intent();
    let last = LATE_CALL.0 / 1000 + owned::CLOCKS;
    for (upid, may_be) in [
        (at("root@pam", "9000", 0), false),
        (at("root@pam", "9000", last), false),
        (at("root@pam", "9000", last + 1), true),
        (at("root@pam", "9000", -owned::CLOCKS), false),
        (at("ann@pam", "9000", -owned::CLOCKS), true),
        (at("ann@pam", "9000", -owned::CLOCKS - 1), false),
        (at("root@pam", "300", 0), true),
    ] {
        let tasks = [task(&upid, false, true)];
        let others = owned::others_clone(&tasks, &open, &none);
        assert_eq!(others, may_be.then_some(&upid), "{upid}");
    }
    let two = [at("root@pam", "9000", 1), at("root@pam", "9000", 2)];
    let tasks: Vec<_> = two.iter().map(|upid| task(upid, false, true)).collect();
    assert_eq!(owned::others_clone(&tasks, &open, &none), Some(&two[1]));
    let twice = CloneIntent {
        unanswered: vec![ASKED, ASKED + Span::seconds(1)],
        ..clone_intent()
    };
    assert_eq!(owned::others_clone(&tasks, &twice, &none), None);
    // The second call was answered, the first one may have come as well: the known task is none of those that are looked for.
    let first_is_open = CloneIntent {
        unanswered: vec![ASKED],
        ..answered
    };
    let tasks = [&own, &two[0]].map(|upid| task(upid, false, true));
    assert_eq!(owned::others_clone(&tasks, &first_is_open, &none), None);
}

#[test]
fn a_placeholder_has_no_name_no_notes_of_its_own_and_no_disk() {
    let bare = json!({"lock": "clone", "digest": "d1"});
    for (key, value, is_one) in [
        ("lock", "clone", true),
        ("description", "", true),
        ("description", " \n", true),
        ("description", "qmclone temporary file", true),
        ("description", "the shop", false),
        ("name", "small-09050", false),
        ("scsi0", "ceph:vm-9050-disk-0,size=8G", false),
    ] {
        let mut data = bare.clone();
        data[key] = json!(value);
        let judged = owned::placeholder(9050, &config(&data));
        assert_eq!(judged.is_ok(), is_one, "{key}={value}: {judged:?}");
    }
}

#[test]
fn what_a_task_says_of_a_placeholder() {
    let taken = "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/9050.conf' failed: File exists";
    for (state, is_ours) in [
        (TaskState::Running, false),
        (TaskState::Failed(taken.into()), false),
        (TaskState::Failed("no space left".into()), true),
        (TaskState::Ok, false),
        (TaskState::Warnings("a".into()), false),
    ] {
        let judged = owned::not_taken(9050, &state);
        assert_eq!(judged.is_ok(), is_ours, "{state:?}: {judged:?}");
    }
}

#[test]
fn volumes_that_pve_makes_go_with_their_vm_and_those_of_others_do_not() {
    for (volume, goes) in [
        ("ceph:vm-9001-disk-0,size=8G", true),
        ("ceph:vm-9001-cloudinit,media=cdrom", true),
        ("ceph:vm-9001-state-before", true),
        ("local:9001/vm-9001-disk-0.qcow2,size=8G", true),
        ("local:9001/vm-9001-cloudinit.qcow2,media=cdrom", true),
        ("ceph:vm-9001-pvc-0b5f,size=8G", false),
        ("local:9001/vm-9001-pvc-0b5f.raw,size=8G", false),
        ("ceph:vm-9001-mine", false),
        // By its name another VM's: PVE does not destroy it with this one.
        ("ceph:vm-9002-pvc-0b5f,size=8G", true),
        ("vm-9001-pvc-0b5f", true),
    ] {
        let judged = owned::no_data(9001, &config(&json!({"scsi3": volume})));
        assert_eq!(judged.is_ok(), goes, "{volume}: {judged:?}");
    }
}

#[test]
fn calls_without_answer_are_of_the_same_machine_in_the_same_place() {
    let now = ASKED + Span::seconds(10);
    let again = |change: &dyn Fn(&mut CloneIntent)| {
        let mut later = CloneIntent::new(&mark(9050), HOST, 9000, now);
        change(&mut later);
        later.after(Some(&clone_intent())).unanswered
    };
    assert_eq!(again(&|_| {}), [ASKED, now]);
    assert_eq!(again(&|intent| intent.machine = text("small-other")), [now]);
    assert_eq!(again(&|intent| intent.cluster = text("ffff/home")), [now]);
    assert_eq!(again(&|intent| intent.host = text("pve2")), [now]);
    assert_eq!(again(&|intent| intent.template = 9001), [now]);
}

#[test]
fn a_clone_may_come_or_have_left_a_placeholder_as_long_as_a_call_is_open() {
    let own = upid("qmclone", "9000", "root@pam", 1);
    let open = clone_intent();
    let answered = clone_intent().answered(own.clone());
    assert_eq!(answered.task, Some(own));
    assert!(answered.unanswered.is_empty());
    let late = ASKED + LATE_CALL;
    assert!(open.may_come(late + Span(-1)) && !open.may_come(late));
    assert!(!answered.may_come(ASKED));
    // Seen with its mark: of the calls without answer one made it, if none was answered.
    let settled = open.clone().settle();
    assert!(settled.settled);
    assert!(settled.unanswered.is_empty());
    assert!(answered.clone().settle().unanswered.is_empty());
    let mut one_more = answered.clone();
    one_more.unanswered = vec![ASKED];
    assert_eq!(one_more.clone().settle().unanswered, [ASKED]);
    for (intent, lock, may_be) in [
        (&open, Some("clone"), true),
        (&open, Some("create"), false),
        (&open, Some("backup"), false),
        (&open, None, false),
        (&answered, Some("clone"), true),
        (&settled, Some("clone"), false),
        (&one_more.clone().settle(), Some("clone"), true),
    ] {
        assert_eq!(
            intent.may_be_placeholder(lock),
            may_be,
            "{lock:?} {intent:?}"
        );
    }
    let made = CloneIntent::new(&bare(9050), HOST, NO_TEMPLATE, ASKED);
    assert!(made.may_be_placeholder(Some("create")) && !made.may_be_placeholder(Some("clone")));
    assert_eq!(made.task_id(), Some(9050));
    assert_eq!(open.task_id(), Some(9000));
}

/// A machine that nobody can look at counts by its name, if that is one of a machine's.
#[tokio::test]
async fn a_vm_whose_host_is_away_counts_by_a_machines_name_alone() {
    for (name, counts) in [
        ("small-12345", true),
        ("other-12345", false),
        ("small_12345", false),
        ("small-1234", false),
        ("small", false),
        ("größe", false),
    ] {
        let mut policy = policy();
        policy.allow.pools.get_mut("small").expect("there").max = 1;
        let rig = rig_with(policy);
        let row = json!({"type": "qemu", "node": HOST, "vmid": 9040, "name": name, "maxcpu": 2, "maxmem": 2i64 << 30});
        let host = json!({"type": "node", "node": HOST, "status": "online"});
        let all = json!({ "data": [host, row] });
        rig.world.answer("/cluster/resources", 200, &all);
        let config = format!("/nodes/{HOST}/qemu/9040/config");
        rig.world.answer(&config, 595, &Value::Null);
        let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
        assert_eq!(reply.outcome != "done", counts, "{name}: {reply:?}");
    }
}

/// The VM of a mark is looked at where it is: neither a name nor a cluster that differs makes another's record ours.
#[tokio::test]
async fn a_record_of_another_machine_or_cluster_says_nothing_of_a_vm_of_ours() {
    let path = "/nodes/pve1/qemu/9001/config";
    let unprotect = [("protection", "0"), ("cores", "2")];
    for (machine, cluster, ours) in [
        ("small-09001", super::world::CLUSTER, true),
        ("small-other", super::world::CLUSTER, false),
        ("small-09001", "ffff/home", false),
    ] {
        let rig = rig_with(policy());
        let earlier = Mark {
            machine: machine.into(),
            cluster: cluster.into(),
            ..mark(9001)
        };
        // The clone's record (`configured`) says that the protection copied from the template was taken off; one that is there now is a person's.
        let record = CloneIntent {
            settled: true,
            configured: true,
            unanswered: Vec::new(),
            ..CloneIntent::new(&earlier, HOST, 9000, ASKED)
        };
        rig.service.intents.record(&record).expect("recorded");
        rig.world.set(9001, "protection", json!(1));
        let reply = rig.send("PUT", path, &unprotect).await;
        assert_eq!(
            reply.outcome == "refused-by-broker",
            ours,
            "{machine} {cluster}"
        );
    }
}
