//! What a disruption budget allows, where a case gives `minAvailable` or `maxUnavailable` and no
//! status: as the disruption controller works it out from the pods there are.

use serde_json::{Value as Json, json};

use crate::model::cluster::{Cluster, ObjectKey, Pod};

use super::expect::selects;

/// A budget that waits for the pods of its case: its name, and what it wants.
#[derive(Clone, Debug)]
pub(super) struct CaseBudget {
    key: ObjectKey,
    min: Option<BudgetAmount>,
    max: Option<BudgetAmount>,
}

/// A number of pods, or a part of all of them in per cent.
#[derive(Clone, Copy, Debug)]
enum BudgetAmount {
    Pods(i64),
    Percent(i64),
}

impl BudgetAmount {
    /// `2` or `50%`.
    fn read(value: &Json) -> Option<BudgetAmount> {
        if let Some(number) = value.as_i64() {
            return Some(BudgetAmount::Pods(number));
        }
        let text = value.as_str()?;
        match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(BudgetAmount::Percent),
            None => text.parse().ok().map(BudgetAmount::Pods),
        }
    }

    /// Rounded up, as the controller does for both bounds.
    fn of(self, all: i64) -> i64 {
        match self {
            BudgetAmount::Pods(number) => number,
            BudgetAmount::Percent(percent) => all.saturating_mul(percent).saturating_add(99) / 100,
        }
    }
}

/// The budget of a manifest, if its status has to be worked out.
pub(super) fn wanted(object: &Json) -> Option<CaseBudget> {
    let open =
        object["kind"] == "PodDisruptionBudget" && object["status"]["disruptionsAllowed"].is_null();
    let amount = |key: &str| BudgetAmount::read(&object["spec"][key]);
    let (min, max) = (amount("minAvailable"), amount("maxUnavailable"));
    let text = |key: &str| object["metadata"][key].as_str();
    (open && (min.is_some() || max.is_some())).then(|| CaseBudget {
        key: ObjectKey::new(
            text("namespace").unwrap_or("default"),
            text("name").unwrap_or_default(),
        ),
        min,
        max,
    })
}

/// Whether an amount can be read.
pub(super) fn readable(text: &str) -> bool {
    BudgetAmount::read(&json!(text)).is_some()
}

/// Fills in what the budgets allow.
pub(super) fn settle(cluster: &mut Cluster, all: &[CaseBudget]) {
    for wanted in all {
        let Some(budget) = cluster.budgets.get_mut(&wanted.key) else {
            continue;
        };
        let Some(selector) = &budget.selector else {
            continue;
        };
        let pods = cluster.pods.iter().filter(|(key, pod)| {
            key.namespace == wanted.key.namespace
                && !pod.phase.terminal()
                && selects(selector, &pod.shape.labels)
        });
        let (mut expected, mut healthy) = (0, 0);
        for (_, pod) in pods {
            expected += 1;
            healthy += i64::from(well(pod));
        }
        let most = wanted.max.map(|max| expected - max.of(expected));
        let desired = wanted.min.map(|min| min.of(expected)).or(most);
        let desired = desired.unwrap_or(0).max(0);
        let allowed = if expected == 0 { 0 } else { healthy - desired };
        budget.allowed = i32::try_from(allowed.max(0)).unwrap_or(i32::MAX);
        budget.healthy = desired > 0 && healthy >= desired;
    }
}

fn well(pod: &Pod) -> bool {
    pod.ready && pod.deletion.is_none()
}
