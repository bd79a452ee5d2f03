//! The security groups of a machine's network cards, rule by rule, and the switch of its VM's firewall.

use std::time::Duration;

use crate::config::settings::TemplateSettings;
use crate::controller::in_place::groups::{self, GroupChange};
use crate::model::region::Step;
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

/// Gives a machine that is being made the security groups that the file names, and switches its VM's firewall on where the file
/// says so, before its first start.
pub(super) async fn settled(work: &Work) -> Result<(), Stop> {
    let template = work.mark.template.as_str();
    if !work.tools.settings.templates.contains_key(template) {
        let why = format!("it has no [template.{template}]");
        return Err(vm::forbidden(&why));
    }
    if let Some(wanted) = wanted(work) {
        while let Err(error) = write(work, &wanted).await? {
            wait_after(work, "writing security groups", error).await?;
        }
    }
    // Last, so that no rule is missing while it is on. Not under a VM that may run: this is gone through again after a restart.
    if is_to_be_on(work) && work.entry()?.step < Step::Start {
        while let Err(error) = switch_on(work).await? {
            wait_after(work, "switching the VM's firewall on", error).await?;
        }
    }
    Ok(())
}

/// Waits after a call that PVE could not do just now; any other failure ends the step.
async fn wait_after(work: &Work, doing: &str, error: CallError) -> Result<(), Stop> {
    // Gone: the end of a clone moves the VM to its target host.
    let passes = matches!(error.cause(), FailureCause::Changed | FailureCause::Gone);
    if !is_transient(&error) && !passes {
        return Err(Stop::of_call(doing, &error));
    }
    work.note_outage(error.to_string());
    work.wait_before_retry(&error, PAUSE).await
}

/// Whether the file says that the firewall of the machine's VM is switched on.
fn is_to_be_on(work: &Work) -> bool {
    let templates = &work.tools.settings.templates;
    let template = templates.get(work.mark.template.as_str());
    template.is_some_and(TemplateSettings::switches_firewall_on)
}

/// Switches the VM's firewall on, if it is off. The inner error is the call's that failed.
async fn switch_on(work: &Work) -> Result<Result<(), CallError>, Stop> {
    let (host, vmid) = (work.host()?, work.mark.vmid);
    let on = work.patiently("reading the firewall's switch", || {
        work.pve.has_firewall_on(&host, vmid)
    });
    if on.await? {
        return Ok(Ok(()));
    }
    // PVE takes the switch for a VM that is gone, too: the next one of that VMID would have it.
    vm::ours(work).await?;
    Ok(work.pve.switch_firewall_on(&work.host()?, vmid).await)
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
