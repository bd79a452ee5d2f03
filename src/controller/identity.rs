//! Which Kubernetes cluster this is. Marks name it, so all ownership hangs on it.
//!
//! The kubeconfig may be replaced while we run. Until the cluster behind the new one has said which
//! it is, none is known and nothing is decided; and if it is another, everything that was seen and is
//! being done belongs to the one before: the loop must begin anew.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::model::snapshot::Snapshot;

/// After the cluster could not be asked.
const RETRY: Duration = Duration::from_secs(5);

/// Logs once that the journal has machines of other clusters; `told` are those of which it was said.
pub fn tell_former(told: &mut BTreeMap<Arc<str>, Vec<Arc<str>>>, snapshot: &Snapshot) {
    if snapshot.former != *told {
        for (cluster, machines) in &snapshot.former {
            tracing::warn!(%cluster, machines = machines.len(),
                "the journal has machines of another cluster, which are left alone; `pve-autoscaler adopt` shows what is left of it");
        }
        told.clone_from(&snapshot.former);
    }
}

/// Finds out the cluster's id, `UID/name`, with `ask` for its UID; again whenever `clients`, the count
/// of clients made from a kubeconfig, changes. Ends when it is another cluster.
pub async fn identify<F, E>(
    mut ask: impl FnMut() -> F,
    mut clients: watch::Receiver<u64>,
    name: String,
    (id, hindrance): (
        watch::Sender<Option<Arc<str>>>,
        watch::Sender<Option<String>>,
    ),
) where
    F: Future<Output = Result<Arc<str>, E>>,
    E: Display,
{
    let mut known: Option<Arc<str>> = None;
    // What was said last: while it stays the same it is no news.
    let mut said = String::new();
    loop {
        clients.mark_unchanged();
        match ask().await {
            Ok(uid) => {
                if let Some(known) = known.as_ref().filter(|known| **known != uid) {
                    tracing::error!(%known, %uid, "the kubeconfig leads to another cluster now; all begins anew");
                    return;
                }
                id.send_replace(Some(Arc::from(format!("{uid}/{name}"))));
                hindrance.send_replace(None);
                known = Some(uid);
                said.clear();
                if clients.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                id.send_replace(None);
            }
            Err(error) => {
                let error = error.to_string();
                if error != said {
                    tracing::warn!(
                        error,
                        "cannot read the UID of namespace kube-system, which names our cluster"
                    );
                    said.clone_from(&error);
                    hindrance.send_replace(Some(error));
                }
                sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;

    type Answer = Result<Arc<str>, &'static str>;

    /// The answers in turn; the last one for ever.
    fn asked(answers: &[Answer]) -> impl FnMut() -> Ready<Answer> + use<> {
        let mut left = answers.to_vec();
        move || {
            ready(if left.len() > 1 {
                left.remove(0)
            } else {
                left[0].clone()
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_kubeconfig_of_the_same_cluster_is_asked_and_goes_on() {
        let (clients, changes) = watch::channel(0);
        let (id, mut seen) = watch::channel(None);
        let uid = || Ok(Arc::from("a"));
        let answers = [Err("away"), uid(), Err("away"), uid()];
        let mut task = tokio::spawn(identify(
            asked(&answers),
            changes,
            "home".into(),
            (id, watch::channel(None).0),
        ));
        let known = |id: &Option<Arc<str>>| id.as_deref() == Some("a/home");
        seen.wait_for(known).await.expect("it is known");
        clients.send_replace(1);
        seen.wait_for(Option::is_none).await.expect("it is not");
        seen.wait_for(known).await.expect("it is known again");
        tokio::select! {
            _ = &mut task => panic!("it ended"),
            () = sleep(RETRY * 10) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubeconfig_of_another_cluster_ends_it_with_none_known() {
        let (clients, changes) = watch::channel(0);
        let (id, mut seen) = watch::channel(None);
        let answers = [Ok(Arc::from("a")), Ok(Arc::from("b"))];
        let task = tokio::spawn(identify(
            asked(&answers),
            changes,
            "home".into(),
            (id, watch::channel(None).0),
        ));
        seen.wait_for(Option::is_some).await.expect("it is known");
        clients.send_replace(1);
        task.await.expect("it ends");
        assert_eq!(*seen.borrow(), None);
    }
}
