//! One planted bug for each rule of consolidation, surpluses, floors and atomic pools.

use super::planted;
use crate::check::{CheckRule, check_plan};
use crate::tests::lab::{Lab, lab, owner};
use model::action::{Action, Kind, Reason};
use model::cluster::ReadyStatus;
use model::disruption::{Consolidation, ConsolidationPolicy, NodeBudget, Saving, Share};
use model::policy::{LEAVING_TAINT, PoolPolicy};
use model::scheduling::Taint;
use model::time::Span;

const LOOK: Span = Span::seconds(15);

/// A pool of dear and cheap nodes that is consolidated.
fn pool() -> Lab {
    lab()
        .kind("dear", 8, 8192)
        .kind("cheap", 2, 4096)
        .edit_kind("dear", |kind| kind.price = Some(400))
        .edit_kind("cheap", |kind| kind.price = Some(100))
        .pool("p", &["cheap", "dear"])
        .edit_pool("p", |pool| {
            pool.consolidation = Some(Consolidation {
                policy: ConsolidationPolicy::WhenUnderused,
                after: Span::ZERO,
                min_saving: Saving {
                    permille: 500,
                    price: 0,
                },
            });
        })
}

fn edit(lab: &mut Lab, change: impl FnOnce(&mut PoolPolicy)) {
    change(lab.policy.pools.get_mut("p").expect("p"));
}

fn policy(lab: &mut Lab, policy: ConsolidationPolicy) {
    edit(lab, |pool| {
        pool.consolidation.as_mut().expect("consolidated").policy = policy;
    });
}

/// The one action of the decision after a span.
fn after(mut lab: Lab, span: Span) -> (Lab, Action) {
    assert_eq!(lab.turn().plan, []);
    let lab = lab.after(span);
    let plan = lab.decide().plan;
    assert_eq!(plan.len(), 1, "{plan:#?}");
    (lab, plan[0].clone())
}

/// A cheap machine is to take the place of n1.
fn replacement() -> (Lab, Action) {
    after(
        pool().ours("n1", "p", "dear").bound("web", "n1", 500, 1),
        LOOK,
    )
}

fn edit_node(lab: &mut Lab, change: impl FnOnce(&mut model::cluster::Node)) {
    *lab = lab.clone().edit_node("n1", change);
}

#[test]
fn a_replacement_saves_what_it_must_and_takes_the_pods() {
    let base = replacement();
    assert!(matches!(base.1.kind, Kind::Create(_)));
    planted(&base, CheckRule::Saving, &|lab, _| {
        *lab = lab
            .clone()
            .edit_kind("cheap", |kind| kind.price = Some(201));
    });
    planted(&base, CheckRule::Saving, &|_, action| {
        if let Reason::Replaces { saving, .. } = &mut action.reason {
            *saving = 301;
        }
    });
    planted(&base, CheckRule::Saving, &|lab, _| {
        lab.snapshot
            .machines
            .get_mut("n1")
            .expect("n1")
            .mark
            .instance_type = "cheap".into();
        let machine = lab.snapshot.machines["n1"].clone();
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region
            .vms
            .get_mut(&machine.mark.vmid)
            .expect("its VM")
            .ownership = Some(model::mark::Ownership::Marked(machine.mark.clone()));
    });
    planted(&base, CheckRule::Replacement, &|_, action| {
        if let Reason::Replaces { nodes, .. } = &mut action.reason {
            nodes.clear();
        }
    });
    planted(&base, CheckRule::Replacement, &|_, action| {
        if let Reason::Replaces { nodes, .. } = &mut action.reason {
            nodes.push("theirs".into());
        }
    });
    planted(&base, CheckRule::Replacement, &|lab, _| {
        edit_node(lab, |node| node.ready.status = ReadyStatus::False);
    });
    planted(&base, CheckRule::Replacement, &|lab, _| {
        edit_node(lab, |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    });
    planted(&base, CheckRule::Replacement, &|lab, _| {
        *lab = lab
            .clone()
            .shape("web", |shape| shape.requests.cpu_milli = 2001);
    });
    planted(&base, CheckRule::Replacement, &|lab, _| {
        *lab = lab
            .clone()
            .node("other", 1000, 1024)
            .edit("web", |pod| pod.node = Some("other".into()));
    });
    planted(&base, CheckRule::Landing, &|_, action| {
        if let Reason::Replaces { pods, .. } = &mut action.reason {
            pods.clear();
        }
    });
}

#[test]
fn a_replacement_is_what_the_pool_wants_and_its_pods_may_go() {
    let base = replacement();
    for wanted in [ConsolidationPolicy::Never, ConsolidationPolicy::WhenEmpty] {
        planted(&base, CheckRule::Consolidation, &|lab, _| {
            policy(lab, wanted);
        });
    }
    planted(&base, CheckRule::Consolidation, &|lab, _| {
        edit(lab, |pool| pool.consolidation = None);
    });
    planted(&base, CheckRule::Consolidation, &|lab, _| {
        edit(lab, |pool| pool.atomic = true);
    });
    planted(&base, CheckRule::Disabled, &|lab, _| {
        edit(lab, |pool| pool.scale_down_disabled = true);
    });
    planted(&base, CheckRule::Timer, &|lab, _| {
        let now = lab.now;
        edit_node(lab, |node| node.created = now - Span::minutes(9));
    });
    planted(&base, CheckRule::Stranger, &|lab, _| {
        *lab = lab.clone().bound("new", "n1", 100, 1);
    });
    planted(&base, CheckRule::BlockingPod, &|lab, _| {
        *lab = lab.clone().shape("web", |shape| shape.owner = None);
    });
    planted(&base, CheckRule::Budget, &|lab, _| {
        *lab = lab.clone().budget("b", "web", 0);
    });
    planted(&base, CheckRule::Budget, &|lab, _| {
        *lab = lab
            .clone()
            .bound("agent", "n1", 1, 1)
            .shape("agent", |shape| {
                shape.owner = Some(owner("DaemonSet", "agent"));
            })
            .budget("b", "agent", 0);
    });
    planted(&base, CheckRule::Totals, &|lab, _| {
        lab.policy.totals.max_cpu_milli = Some(9000);
    });
}

fn replaced(by: &str, saving: i64) -> Reason {
    Reason::Replaced {
        by: by.into(),
        saving,
        others: Vec::new(),
        gone: Vec::new(),
    }
}

#[test]
fn a_node_goes_when_its_replacement_works() {
    let mut lab = pool().ours("n1", "p", "dear").bound("web", "n1", 500, 1);
    lab.turn();
    let mut lab = lab.after(LOOK);
    let machine = lab.turn().plan[0].target.machine.clone();
    lab.settle();
    let lab = lab.after(Span::minutes(2));
    let plan = lab.decide().plan;
    let base = (lab, plan[0].clone());
    assert!(matches!(base.1.reason, Reason::Replaced { .. }));
    planted(&base, CheckRule::Replacement, &|lab, _| {
        let name = machine.clone();
        *lab = lab.clone().edit_node(&name, |node| {
            node.ready.status = ReadyStatus::False;
        });
    });
    planted(&base, CheckRule::Replacement, &|_, action| {
        action.reason = replaced("n1", 300);
    });
    planted(&base, CheckRule::Replacement, &|_, action| {
        action.reason = replaced(&machine, 0);
    });
    for price in [201, 400] {
        planted(&base, CheckRule::Saving, &|lab, _| {
            *lab = lab
                .clone()
                .edit_kind("cheap", |kind| kind.price = Some(price));
        });
    }
    planted(&base, CheckRule::Saving, &|_, action| {
        action.reason = replaced(&machine, 301);
    });
    planted(&base, CheckRule::Saving, &|lab, _| {
        lab.policy.instance_types.remove("cheap");
    });
    // Others count where they are there, and only what went makes the machine's price a thing of the past.
    planted(&base, CheckRule::Saving, &|lab, action| {
        *lab = lab
            .clone()
            .edit_kind("cheap", |kind| kind.price = Some(400));
        if let Reason::Replaced { others, .. } = &mut action.reason {
            others.extend(["n1".into(), "n9".into(), machine.clone()]);
        }
    });
    planted(&base, CheckRule::Saving, &|lab, action| {
        *lab = lab.clone().ours("n2", "p", "dear");
        if let Reason::Replaced { gone, .. } = &mut action.reason {
            gone.push("n2".into());
        }
    });
    planted(&base, CheckRule::Saving, &|_, action| {
        if let Reason::Replaced { gone, saving, .. } = &mut action.reason {
            gone.push("n2".into());
            *saving = 401;
        }
    });
    planted(&base, CheckRule::Consolidation, &|lab, _| {
        policy(lab, ConsolidationPolicy::WhenEmpty);
    });
    planted(&base, CheckRule::Timer, &|lab, _| {
        edit_node(lab, |node| node.ready.status = ReadyStatus::False);
    });
    planted(&base, CheckRule::Landing, &|_, action| {
        action.precondition.landing.clear();
    });
}

#[test]
fn consolidated_nodes_have_their_time_and_their_budgets() {
    let base = after(
        pool()
            .ours("n1", "p", "dear")
            .bound("web", "n1", 500, 1)
            .node("other", 4000, 4096),
        LOOK,
    );
    assert!(matches!(base.1.reason, Reason::Consolidated { .. }));
    planted(&base, CheckRule::Timer, &|lab, _| {
        edit(lab, |pool| {
            pool.consolidation.as_mut().expect("consolidated").after = Span::seconds(16);
        });
    });
    for wanted in [ConsolidationPolicy::Never, ConsolidationPolicy::WhenEmpty] {
        planted(&base, CheckRule::Consolidation, &|lab, _| {
            policy(lab, wanted);
        });
    }
    planted(&base, CheckRule::NodeBudget, &|lab, _| {
        edit(lab, |pool| {
            pool.budgets = vec![NodeBudget {
                nodes: Share::Nodes(0),
                window: None,
                causes: [].into(),
            }];
        });
    });
    planted(&base, CheckRule::NodeBudget, &|lab, _| {
        *lab = lab
            .clone()
            .ours("n2", "p", "cheap")
            .edit_node("n2", |node| {
                node.ready.status = ReadyStatus::False;
            });
        edit(lab, |pool| {
            pool.budgets = vec![NodeBudget {
                nodes: Share::Percent(50),
                window: None,
                causes: [].into(),
            }];
        });
    });
    planted(&base, CheckRule::Totals, &|lab, _| {
        lab.policy.totals.min_memory = 1;
    });
    planted(&base, CheckRule::ClusterUnhealthy, &|lab, _| {
        for n in 0..4 {
            let name = format!("sick{n}");
            *lab = lab.clone().node(&name, 1, 1).edit_node(&name, |node| {
                node.ready.status = ReadyStatus::False;
            });
        }
    });
    planted(&base, CheckRule::Consolidation, &|_, action| {
        action.reason = Reason::Unneeded {
            since: action.precondition.planned - Span::minutes(60),
            utilization_permille: 62,
        };
    });
}

#[test]
fn surpluses_and_atomic_pools() {
    let crowd = || {
        let lab = lab().kind("one", 1, 1024).pool("p", &["one"]);
        let lab = lab.ours("n1", "p", "one").ours("n2", "p", "one");
        lab.bound("a", "n1", 800, 1)
            .bound("b", "n2", 900, 1)
            .node("other", 4000, 4096)
    };
    let base = after(
        crowd().edit_pool("p", |pool| pool.max = 1),
        Span::minutes(11),
    );
    assert!(matches!(base.1.reason, Reason::AboveMax { .. }));
    planted(&base, CheckRule::Surplus, &|lab, _| {
        edit(lab, |pool| pool.max = 2);
    });
    planted(&base, CheckRule::Timer, &|lab, action| {
        if let Reason::AboveMax { since, .. } = &mut action.reason {
            *since = lab.now - Span::minutes(9);
        }
    });
    // Both nodes of an atomic pool go, or none.
    let mut lab = crowd()
        .shapes("", |shape| shape.requests.cpu_milli = 100)
        .edit_pool("p", |pool| pool.atomic = true);
    lab.turn();
    let lab = lab.after(Span::minutes(11));
    let plan = lab.decide().plan;
    let rule = |lab: &Lab, plan: &[Action]| {
        check_plan(plan, &lab.snapshot, &lab.policy, lab.now).map_err(|refusal| refusal.rule)
    };
    assert_eq!((plan.len(), rule(&lab, &plan)), (2, Ok(())));
    assert_eq!(rule(&lab, &plan[..1]), Err(CheckRule::Atomic));
    let usual = lab.edit_pool("p", |pool| pool.atomic = false);
    assert_eq!(
        rule(&usual, &plan),
        Err(CheckRule::Parallel),
        "one drain at a time"
    );
}

#[test]
fn unready_nodes_stay_where_that_is_switched_off() {
    let mut lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .ours("n1", "p", "one")
        .edit_node("n1", |node| node.ready.status = ReadyStatus::Unknown);
    lab.turn();
    let lab = lab.after(Span::minutes(21));
    let plan = lab.decide().plan;
    let base = (lab, plan[0].clone());
    planted(&base, CheckRule::Disabled, &|lab, _| {
        lab.policy.scale_down.unready_enabled = false;
    });
}
