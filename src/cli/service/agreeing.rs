//! Whether the broker is the one that this daemon expects, asked from time to time.

use std::convert::Infallible;

use tokio::time::timeout;

use super::{AGREE, MIND, ServiceShared};
use crate::cli::agreement::{self, Judgement};
use crate::cli::channels;
use crate::config::Settings;
use crate::config::settings::Channel;

/// Asks the broker again from time to time: it is upgraded, reloaded and started apart from us; and as soon as it is
/// known which cluster this is.
pub(super) async fn agreeing(settings: &Settings, shared: &ServiceShared) -> Infallible {
    let mut locals = settings.regions.values();
    let Some(region) = locals.find(|region| region.channel == Channel::Local) else {
        return std::future::pending().await;
    };
    let mut well = true;
    let mut turns = shared.turns.subscribe();
    let mut told = None;
    loop {
        let known = async {
            while shared.cluster_id().is_none() || shared.cluster_id() == told {
                // The sender is our own.
                if turns.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let pause = if well { AGREE } else { MIND };
        // Either is fine.
        let _ = timeout(pause, known).await;
        told = shared.cluster_id();
        // It opened when the loop began.
        let Ok(transport) = channels::open(region, &settings.broker.socket) else {
            continue;
        };
        well = agree(&crate::pve::Client::new(transport), settings, shared).await;
    }
}

/// Asks the broker for its version and policy, and says when they are not ours or it works badly. Whether all is
/// well.
pub(super) async fn agree(
    broker: &crate::pve::Client,
    settings: &Settings,
    shared: &ServiceShared,
) -> bool {
    let info = broker.broker_info().await;
    let ours = shared.cluster_id();
    let binding = info
        .as_ref()
        .ok()
        .and_then(|info| agreement::binding(info, ours.as_deref()));
    if let Some(binding) = &binding
        && shared.standing().problems.get("binding") != Some(binding)
    {
        tracing::error!("{binding}");
    }
    let bound = binding.is_none();
    shared.problem("binding", binding);
    let Judgement { agrees, problem } = agreement::judge(info, settings);
    shared.metrics.policies_agree(agrees);
    if let Some(problem) = &problem
        && shared.standing().problems.get("broker") != Some(problem)
    {
        tracing::warn!("{problem}");
    }
    let well = bound && problem.is_none();
    shared.problem("broker", problem);
    well
}
