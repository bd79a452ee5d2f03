//! The election on a real Lease (`coordination.k8s.io/v1`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Election, ElectionStep, LeaseRecord, Timing};
use crate::kubernetes::client::{KubeClient, KubeRequest, encode};
use crate::kubernetes::error::KubeError;
use crate::kubernetes::wire::Meta;
use crate::model::time::Span;

/// Longer than any instance of ours asks others to wait.
const LONG_WAIT: Duration = Duration::from_mins(10);

/// Which Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
}

/// Whether we lead: to be asked before every effect. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<Mutex<Option<Instant>>>,
    holder: watch::Receiver<Holder>,
}

/// Who holds the lease, as far as we know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The holder's identity; empty when nobody holds the lease or nothing could be read yet.
    pub identity: String,
    /// It is us.
    pub ours: bool,
    /// What hinders the election now.
    pub error: Option<String>,
}

impl Leadership {
    /// Whether we hold the lease at this very moment; false in good time before anybody else can.
    pub fn held(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Who holds it; changes wake the receiver.
    pub fn holder(&self) -> watch::Receiver<Holder> {
        self.holder.clone()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeaseObject {
    metadata: Meta,
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    lease_transitions: Option<i32>,
    acquire_time: Option<String>,
}

impl From<LeaseObject> for LeaseRecord {
    fn from(lease: LeaseObject) -> LeaseRecord {
        LeaseRecord {
            version: lease.metadata.resource_version.unwrap_or_default(),
            holder: lease.spec.holder_identity.unwrap_or_default(),
            // a holder that names no duration is given ours
            duration: lease
                .spec
                .lease_duration_seconds
                .map_or(Timing::DEFAULT.duration, Duration::from_secs),
            transitions: lease.spec.lease_transitions.unwrap_or(0),
            acquired: lease.spec.acquire_time.unwrap_or_default(),
        }
    }
}

/// Stands for election. The future runs until `stop` resolves and then gives the lease back, so
/// that another instance can take over at once: `stop` must resolve only after the last effect
/// ended. `rng` spreads the tries of several contenders.
pub fn elect(
    client: KubeClient,
    lease: LeaseName,
    identity: String,
    timing: Timing,
    rng: StdRng,
    stop: impl Future<Output = ()> + Send,
) -> (Leadership, impl Future<Output = ()> + Send) {
    let until = Arc::new(Mutex::new(None));
    let (sender, holder) = watch::channel(Holder::default());
    let leadership = Leadership {
        until: until.clone(),
        holder,
    };
    let mut contender = Contender {
        client,
        lease,
        election: Election::new(identity, timing),
        timing,
        start: Instant::now(),
        until,
        sender,
        rng,
        error: None,
    };
    let run = async move {
        tokio::select! {
            biased;
            () = stop => {}
            () = contender.run() => {}
        }
        contender.release().await;
    };
    (leadership, run)
}

impl KubeClient {
    /// Who holds a Lease, as it stands in it; `None` when nobody does or there is none. One whose holder died keeps his
    /// name until another takes it.
    pub async fn lease_holder(&self, lease: &LeaseName) -> Result<Option<String>, KubeError> {
        let read = self.read::<LeaseObject>(request(lease, "get")).await;
        match read.map(LeaseRecord::from) {
            Ok(record) => Ok(Some(record.holder).filter(|holder| !holder.is_empty())),
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A request about a Lease.
fn request(lease: &LeaseName, verb: &'static str) -> KubeRequest {
    let LeaseName { namespace, name } = lease;
    let base = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        encode(namespace)
    );
    let path = if verb == "create" {
        base
    } else {
        format!("{base}/{}", encode(name))
    };
    // There may be none yet, and another may write it first. Where none can be made, its namespace is not there.
    let expected: &[u16] = if verb == "create" {
        &[409]
    } else {
        &[404, 409]
    };
    KubeRequest::new(verb, "leases", format!("{namespace}/{name}"), path).expect_refusals(expected)
}

struct Contender {
    client: KubeClient,
    lease: LeaseName,
    election: Election,
    timing: Timing,
    start: Instant,
    until: Arc<Mutex<Option<Instant>>>,
    sender: watch::Sender<Holder>,
    rng: StdRng,
    /// What the last try failed with.
    error: Option<String>,
}

impl Contender {
    async fn run(&mut self) {
        loop {
            self.error = match self.turn().await {
                Ok(hindered) => hindered,
                Err(error) => Some(error.cause()),
            };
            self.publish();
            let wait = self.timing.retry;
            // Contenders that began together must not collide for ever.
            let spread = wait.mul_f64(self.rng.random_range(0.0..0.2));
            let next = Instant::now() + wait + spread;
            if let Some(until) = self.election.held_until(self.now())
                && self.start + until < next
            {
                tokio::time::sleep_until(self.start + until).await;
                self.publish();
            }
            tokio::time::sleep_until(next).await;
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// One try: renew what is ours without reading; else read and do what is to be done. Says what a person may have to do.
    async fn turn(&mut self) -> Result<Option<String>, KubeError> {
        if let Some(own) = self.election.own().cloned() {
            match self.write(Some(&own)).await {
                Err(error) if error.conflict() || error.not_found() => {}
                other => return other.map(|()| None),
            }
        }
        let read = self.bounded("get", self.get()).await?;
        let now = self.now();
        match self.election.observe(now, read) {
            ElectionStep::Create => self.write(None).await?,
            ElectionStep::Take(record) | ElectionStep::Renew(record) => {
                self.write(Some(&record)).await?;
            }
            ElectionStep::Wait(_) => return Ok(self.long_wait(now)),
        }
        Ok(None)
    }

    /// What to do about a Lease that asks others to wait for much longer than ours ever does, and that nobody has renewed for as long as ours
    /// would last: whoever wrote it may be gone. The words stay the same, so that they wake nobody.
    fn long_wait(&self, now: Duration) -> Option<String> {
        let (record, unchanged) = self.election.seen_for(now)?;
        let LeaseName { namespace, name } = &self.lease;
        let long = record.duration > LONG_WAIT && unchanged > self.timing.duration;
        long.then(|| {
            format!(
                "{} holds the lease, does not renew it, and asks others to wait for {} after its last renewal: if it runs no more, `kubectl -n {namespace} delete lease {name}`",
                record.holder,
                Span::seconds(i64::try_from(record.duration.as_secs()).unwrap_or(i64::MAX / 1000))
            )
        })
    }

    async fn write(&mut self, old: Option<&LeaseRecord>) -> Result<(), KubeError> {
        let wall = micro_time(self.client.clock().now());
        let record = self.election.write_over(old, &wall);
        let sent = self.now();
        let result = self
            .bounded("update", self.put(&record, &wall, old.is_none()))
            .await;
        let now = self.now();
        let written = result?;
        self.election.written(sent, now, written);
        Ok(())
    }

    fn publish(&mut self) {
        let until = self.election.held_until(self.now());
        let until = until.map(|until| self.start + until);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        let ours = until.is_some();
        // Whose time is over does not hold it any more, though the Lease still names it: until it is written again nobody leads.
        let stale = !ours && self.election.names_us();
        let identity = if stale { "" } else { self.election.holder() };
        let holder = Holder {
            identity: identity.to_owned(),
            ours,
            error: self.error.clone(),
        };
        self.sender.send_if_modified(|old| {
            let news = old.ours != holder.ours || old.identity != holder.identity;
            if news {
                tracing::info!(holder = holder.identity, ours = holder.ours, "lease");
            }
            let changed = news || old.error != holder.error;
            *old = holder;
            changed
        });
    }

    /// Gives the lease back, if it is ours. A renewal that was on its way when we stopped may have changed it: then it is read, and given
    /// back as it is now.
    async fn release(&mut self) {
        self.election.give_up();
        self.publish();
        let Some(own) = self.election.own().cloned() else {
            return;
        };
        let holder = own.holder.clone();
        let mut given = self.free(own).await;
        if given.as_ref().is_err_and(KubeError::conflict) {
            given = match self.bounded("get", self.get()).await {
                Ok(Some(now)) if now.holder == holder => self.free(now).await,
                other => other.map(drop),
            };
        }
        if let Err(error) = given {
            tracing::warn!(%error, "could not give the lease back; others wait until it runs out");
        }
    }

    /// Writes over a lease of ours that nobody holds it.
    async fn free(&self, own: LeaseRecord) -> Result<(), KubeError> {
        let free = LeaseRecord {
            holder: String::new(),
            duration: Duration::from_secs(1),
            ..own
        };
        let wall = micro_time(self.client.clock().now());
        let put = self.put(&free, &wall, false);
        self.bounded("update", put).await.map(drop)
    }

    async fn bounded<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, KubeError>>,
    ) -> Result<T, KubeError> {
        match timeout(self.timing.call, call).await {
            Ok(result) => result,
            Err(_) => Err(self
                .client
                .unanswered(self.request(verb).call, self.timing.call)),
        }
    }

    fn request(&self, verb: &'static str) -> KubeRequest {
        request(&self.lease, verb)
    }

    async fn get(&self) -> Result<Option<LeaseRecord>, KubeError> {
        match self.client.read::<LeaseObject>(self.request("get")).await {
            Ok(lease) => Ok(Some(lease.into())),
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(
        &self,
        record: &LeaseRecord,
        wall: &str,
        create: bool,
    ) -> Result<LeaseRecord, KubeError> {
        let mut metadata = json!({
            "name": self.lease.name,
            "namespace": self.lease.namespace,
        });
        if !create {
            metadata["resourceVersion"] = json!(record.version);
        }
        let acquired = if record.acquired.is_empty() {
            wall
        } else {
            &record.acquired
        };
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": record.duration.as_secs(),
                "leaseTransitions": record.transitions,
                "acquireTime": acquired,
                "renewTime": wall,
            },
        });
        let request = self.request(if create { "create" } else { "update" });
        self.client
            .read::<LeaseObject>(request.json(body))
            .await
            .map(LeaseRecord::from)
    }
}

/// Kubernetes' `MicroTime`: RFC 3339 with six decimals.
fn micro_time(time: crate::model::time::Time) -> String {
    jiff::Timestamp::from_millisecond(time.0)
        .map(|timestamp| format!("{timestamp:.6}"))
        .unwrap_or_default()
}
