//! Probes: each looks at one subject, all that can be at the same time, and none waits for another that hangs.

use std::time::Duration;

use futures::future::{LocalBoxFuture, join_all};
use tokio::time::timeout;

use super::finding::{Finding, Findings};

/// How a probe looks at what it is about, and notes what it finds.
type ProbeFn<S> = for<'a> fn(&'a S, &'a mut Findings) -> LocalBoxFuture<'a, ()>;

/// One subject to look at.
pub(super) struct Probe<S: 'static> {
    /// The subject in a word or two, as `-o json` names it.
    pub(super) name: &'static str,
    pub(super) look: ProbeFn<S>,
}

/// What one probe found.
#[derive(Debug)]
pub(super) struct ProbeFindings {
    pub(super) probe: &'static str,
    pub(super) found: Vec<Finding>,
}

/// Has every probe look, side by side. `about` names what they look at, such as `region default`.
pub(super) async fn look_at<S>(
    about: &str,
    probes: &[Probe<S>],
    subject: &S,
    patience: Duration,
) -> Vec<ProbeFindings> {
    let looks = probes.iter().map(|probe| async move {
        let mut findings = Findings::default();
        let look = (probe.look)(subject, &mut findings);
        if timeout(patience, look).await.is_err() {
            give_up(about, probe.name, patience, &mut findings);
        }
        ProbeFindings::new(probe.name, findings)
    });
    join_all(looks).await
}

/// What was found before its time was over counts; what was not, nobody knows.
pub(super) fn give_up(about: &str, name: &str, patience: Duration, findings: &mut Findings) {
    let seconds = patience.as_secs_f64();
    let text = format!("{about}: {name}: not all was seen within {seconds} s");
    findings
        .unseen(text)
        .mend("a longer --timeout waits longer; what hangs is slow or does not answer");
}

impl ProbeFindings {
    pub(super) fn new(probe: &'static str, findings: Findings) -> ProbeFindings {
        ProbeFindings {
            probe,
            found: findings.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const QUICK: Probe<u32> = Probe {
        name: "quick",
        look: |number, findings| Box::pin(async move { findings.fine(number.to_string()) }),
    };
    const HANGS: Probe<u32> = Probe {
        name: "slow",
        look: |_, findings| {
            Box::pin(async move {
                findings.fine("the first half");
                pending::<()>().await;
            })
        },
    };

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_holds_nobody_up_and_keeps_what_it_saw() {
        let patience = Duration::from_secs(20);
        let begun = tokio::time::Instant::now();
        let looked = look_at("region r", &[HANGS, QUICK, HANGS], &7, patience).await;
        assert_eq!(begun.elapsed(), patience, "side by side");
        let said: Vec<String> = looked
            .iter()
            .flat_map(|looked| &looked.found)
            .map(|finding| format!("{} {}", finding.grade.word(), finding.text))
            .collect();
        let late = "unseen region r: slow: not all was seen within 20 s";
        assert_eq!(
            said,
            ["ok the first half", late, "ok 7", "ok the first half", late]
        );
    }
}
