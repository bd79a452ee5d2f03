//! The security groups of a machine's network cards, rule by rule.

use std::time::Duration;

use crate::controller::in_place::groups::{self, GroupChange};
use crate::pve::transport::CallError;
use crate::pve::{FailureCause, FirewallRule, SecurityGroup};

use super::vm;
use super::work::{Stop, Work, is_transient};

/// After a call that PVE could not do just now.
const PAUSE: Duration = Duration::from_secs(1);
/// Rules written or removed in one go at most: more means that somebody else writes them, too.
const MOST_STEPS: usize = 100;

/// The security groups that the file names for the machine, if it says something of them.
pub(super) fn wanted(work: &Work) -> Option<Vec<SecurityGroup>> {
    let templates = &work.tools.settings.templates;
    groups::wanted(templates.get(work.mark.template.as_str())?)
}

/// The rules of the VM's firewall.
pub(super) async fn rules(work: &Work) -> Result<Vec<FirewallRule>, Stop> {
    let (host, vmid) = (work.host()?, work.mark.vmid);
    work.patiently("reading the firewall's rules", || {
        work.pve.firewall_rules(&host, vmid)
    })
    .await
}

/// Gives a machine that is being made the security groups that the file names, before its first start.
pub(super) async fn settled(work: &Work) -> Result<(), Stop> {
    let Some(wanted) = wanted(work) else {
        return Ok(());
    };
    loop {
        match write(work, &wanted).await? {
            Ok(()) => return Ok(()),
            // Gone: the end of a clone moves the VM to its target host.
            Err(error)
                if is_transient(&error)
                    || matches!(error.cause(), FailureCause::Changed | FailureCause::Gone) =>
            {
                work.note_outage(error.to_string());
                work.wait_before_retry(&error, PAUSE).await?;
            }
            Err(error) => {
                return Err(Stop::of_call("writing security groups", &error));
            }
        }
    }
}

/// Writes and removes rules until the VM has these groups. The inner error is the call's that failed.
pub(super) async fn write(
    work: &Work,
    wanted: &[SecurityGroup],
) -> Result<Result<(), CallError>, Stop> {
    for _ in 0..MOST_STEPS {
        let rules = rules(work).await?;
        let Some(step) = groups::next_step(wanted, &rules) else {
            return Ok(Ok(()));
        };
        // PVE takes rules for a VM that is gone, too: the next one of that VMID would have them.
        vm::ours(work).await?;
        let (host, vmid) = (work.host()?, work.mark.vmid);
        let done = match step {
            GroupChange::Remove(rule) => work.pve.remove_firewall_rule(&host, vmid, rule).await,
            GroupChange::Add((group, card)) => {
                let client = &work.pve;
                client.add_security_group(&host, vmid, &group, card).await
            }
        };
        if done.is_err() {
            return Ok(done);
        }
    }
    Err(Stop::Transient(
        "somebody else writes the firewall's rules too".to_owned(),
    ))
}
