//! Bringing a machine up: from wherever it stands to a working node.

use crate::agent::journal::Entry;
use crate::model::region::{Failure, Step};

use super::tools::Tools;
use super::work::Work;
use super::{clone, guest, node, vm};

/// Brings the machine up. Every step first looks whether it is done already.
pub(super) async fn bring_up(tools: Tools, entry: &Entry) -> Result<(), Failure> {
    let at = tools.clock.now();
    let work = match Work::open(tools, entry) {
        Ok(work) => work,
        Err(stop) => {
            let message = match stop {
                super::work::Stop::Failed(message) | super::work::Stop::Transient(message) => {
                    message
                }
            };
            return Err(Failure {
                step: Step::Intent,
                message: message.into(),
                at,
                transient: false,
            });
        }
    };
    let deadlines = work.tools.settings.deadlines.clone();
    clone::ensure(&work).await?;
    work.step(Step::Configure, deadlines.configure, vm::configured(&work))
        .await?;
    work.step(Step::Resize, deadlines.resize, vm::resized(&work))
        .await?;
    work.step(Step::Start, deadlines.start, vm::started(&work))
        .await?;
    // A node that is registered already (we were away) needs no join.
    let uuid = node::uuid(&work)
        .await
        .map_err(|stop| work.failure(Step::Start, stop))?;
    let joined = node::has_joined(&work, &uuid);
    if !joined.map_err(|stop| work.failure(Step::Start, stop))? {
        work.step(Step::Agent, deadlines.agent, guest::agent_answers(&work))
            .await?;
        let probe = work
            .step(Step::Os, deadlines.os, guest::system_ready(&work))
            .await?;
        let joined = work
            .step(
                Step::Join,
                deadlines.join,
                guest::joined(&work, &probe, &uuid),
            )
            .await;
        node::drop_token(&work).await;
        joined?;
    }
    let name = work
        .step(
            Step::Register,
            deadlines.register,
            node::registers(&work, &uuid),
        )
        .await?;
    work.step(
        Step::Initialize,
        deadlines.initialize,
        node::initialized(&work, &name),
    )
    .await?;
    node::drop_token(&work).await;
    work.record(|entry| {
        entry.step = Step::Done;
        entry.since = work.tools.clock.now();
        entry.upid = None;
        entry.failure = None;
    })
    .map_err(|stop| work.failure(Step::Initialize, stop))
}
