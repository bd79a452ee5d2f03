//! What a machine is given to join with, by whichever way: the token that is made for it, or a secret of the configuration.

use std::time::Duration;

use rand::RngExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::sleep;

use crate::config::cloud_init::{GapValues, may_name_cards};
use crate::config::settings::{JoinMethod, JoinSettings, PoolSettings};
use crate::controller::drift;
use crate::controller::guest::GuestProbe;
use crate::controller::join::{self, JoinError, JoinInput, JoinTrust, RKE2_PORT};
use crate::controller::nocloud;
use crate::controller::nocloud::first_boot::{self, FirstBoot};
use crate::controller::secret_file;
use crate::kubernetes::{Authority, BootstrapToken, certificate};
use crate::model::drift::Drift;
use crate::model::facts;
use crate::model::foreign::ForeignOutput;
use crate::model::scheduling::{Labels, Taint};
use crate::model::time::Span;

use super::vm;
use super::work::{Stop, Work};

/// Between two looks whether cluster-info is signed with the new token …
const SIGN_POLL: Duration = Duration::from_millis(200);
/// … and how many: five seconds, as long as kubeadm itself waits before it looks again.
const SIGN_TRIES: usize = 25;
/// Longest life of a bootstrap token, whatever the configuration says.
const MAX_TOKEN_LIFE: Span = Span::minutes(15);
/// A secret that is shorter is no secret, and would blot out ordinary words.
const SHORTEST: usize = 6;

/// The settings of the machine's pool; how it joins is as it was planned.
fn pool(work: &Work) -> PoolSettings {
    let pools = &work.tools.settings.pools;
    let now = pools.get(work.mark.pool.as_str());
    let entry = work.tools.journal.get(&work.machine);
    let planned = entry.and_then(|entry| entry.joins);
    match (now, planned) {
        (Some(now), Some(planned)) => {
            let mut pool = now.clone();
            planned.apply(&mut pool);
            pool
        }
        // The pool is not in the file any more.
        (None, Some(planned)) => PoolSettings {
            join: planned.settings,
            kubelet: planned.kubelet,
            ..PoolSettings::default()
        },
        (now, None) => now.cloned().unwrap_or_default(),
    }
}

/// It is cloud-init that joins the machine, at its first boot.
pub(super) fn at_first_boot(work: &Work) -> bool {
    pool(work).join.at_first_boot
}

/// Whether the machine joins by itself or by cloud-init, so that nothing in the guest is asked while it does.
pub(super) fn asks_nobody(work: &Work) -> bool {
    pool(work).join.asks_nobody()
}

/// How the machine joins.
pub(super) fn method(work: &Work) -> JoinMethod {
    pool(work).join.method
}

/// What a guest said, without the secret that its pool's command is given.
pub(super) async fn without_secret(work: &Work, log: ForeignOutput) -> ForeignOutput {
    let JoinMethod::Command {
        secret_file: Some(path),
        ..
    } = method(work)
    else {
        return log;
    };
    match tokio::task::spawn_blocking(move || secret_file::read(&path)).await {
        Ok(Ok(secret)) if secret.expose_secret().len() >= SHORTEST => log
            .raw()
            .replace(secret.expose_secret(), "<redacted>")
            .into(),
        _ => log,
    }
}

/// What a join is made of, beside its token.
struct JoinParts {
    pool: PoolSettings,
    labels: Labels,
    taints: Vec<Taint>,
    provider_id: Option<String>,
}

impl JoinParts {
    fn of(work: &Work) -> Result<JoinParts, Stop> {
        let mut pool = pool(work);
        let provider_id = match &pool.join.provider_id {
            Some(text) => Some(work.filled("provider_id", text)?),
            None => None,
        };
        // As it was planned with.
        if let (Some(most), Some(terms)) = (pool.kubelet.get_mut("maxPods"), work.terms()?) {
            *most = terms.max_pods.into();
        }
        Ok(JoinParts {
            pool,
            labels: work.node_labels()?,
            taints: work.pool_taints()?,
            provider_id,
        })
    }

    fn payload(
        &self,
        work: &Work,
        version: &str,
        endpoint: &str,
        trust: JoinTrust<'_>,
    ) -> Result<SecretString, JoinError> {
        join::payload(&JoinInput {
            version,
            node_name: &work.machine,
            endpoint,
            trust,
            labels: &self.labels,
            taints: &self.taints,
            provider_id: self.provider_id.as_deref(),
            kubelet: &self.pool.kubelet,
            settings: &self.pool.join,
        })
    }
}

/// Adds what texts for cloud-init may name of the node that the machine is to be.
pub(super) fn add_words(work: &Work, words: &mut GapValues) -> Result<(), Stop> {
    let parts = JoinParts::of(work)?;
    let own = parts.labels.iter();
    let own = own.filter(|(key, _)| join::kubelet_may_set(key));
    words.labels = own
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    words.taints = join::taints(&parts.taints).collect();
    words.provider_id = parts.provider_id.unwrap_or_default();
    Ok(())
}

/// Makes what the guest's join script reads. `probe`: what the guest said of itself.
pub(super) async fn payload(work: &Work, probe: &GuestProbe) -> Result<SecretString, Stop> {
    let version = match method(work) {
        JoinMethod::Kubeadm => &*probe.kubeadm,
        JoinMethod::K3s => &*probe.k3s,
        JoinMethod::Rke2 => &*probe.rke2,
        JoinMethod::Command { .. } | JoinMethod::Itself => "",
    };
    let mut made = payloads(work, &[version]).await?;
    let first = made.pop().unwrap_or(Err(JoinError::Changed));
    first.map_err(|error| Stop::Failed(error.to_string()))
}

/// Makes the script by which cloud-init joins the machine: which version of kubeadm or of an agent the guest has, it asks itself.
pub(super) async fn first_boot(work: &Work) -> Result<SecretString, Stop> {
    let program = match method(work) {
        JoinMethod::Kubeadm => Some("kubeadm"),
        JoinMethod::K3s => Some("k3s"),
        JoinMethod::Rke2 => Some("rke2"),
        JoinMethod::Command { .. } | JoinMethod::Itself => None,
    };
    let minors = match program {
        Some(_) => &join::CHANGES[..],
        None => &[0],
    };
    let versions: Vec<String> = minors.iter().map(|minor| format!("v1.{minor}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let made = payloads(work, &versions).await?;
    let made = minors.iter().copied().zip(made);
    let mut payloads: Vec<(u32, Result<SecretString, String>)> = Vec::new();
    for (minor, payload) in made {
        let payload = payload.map_err(|error| error.to_string());
        let same = payloads
            .last()
            .is_some_and(|(_, last)| match (last, &payload) {
                (Ok(last), Ok(next)) => last.expose_secret() == next.expose_secret(),
                _ => false,
            });
        if !same {
            payloads.push((minor, payload));
        }
    }
    Ok(first_boot::script(&FirstBoot {
        program,
        payloads,
        token: &work.mark.token,
    }))
}

/// What a guest is told, for each of these versions of its program, with one token for all.
async fn payloads(
    work: &Work,
    versions: &[&str],
) -> Result<Vec<Result<SecretString, JoinError>>, Stop> {
    let mut parts = JoinParts::of(work)?;
    let words = filled_in(work, &mut parts.pool).await?;
    // The address is that of now, whenever the machine was planned.
    let endpoint = drift::endpoint(&parts.pool.join);
    work.record(|entry| {
        if let Some(made_of) = entry.made_of.get_mut(&Drift::Endpoint) {
            *made_of = endpoint;
        }
    })?;
    match &parts.pool.join.method {
        JoinMethod::Kubeadm => by_kubeadm(work, &parts, versions).await,
        JoinMethod::K3s => by_agent(work, &parts, versions, None).await,
        JoinMethod::Rke2 => by_agent(work, &parts, versions, Some(RKE2_PORT)).await,
        JoinMethod::Command {
            script,
            secret_file,
        } => by_command(work, (&parts, &words), script, secret_file.as_deref()).await,
        // Nobody asks: a reload changed the method in between.
        JoinMethod::Itself => Ok(versions.iter().map(|_| Err(JoinError::Changed)).collect()),
    }
}

/// Fills the kubelet's arguments in for this machine; says what the pool's command may name of its network cards. They are as the VM's
/// configuration has them, which is read only where a text may name them.
async fn filled_in(work: &Work, pool: &mut PoolSettings) -> Result<GapValues, Stop> {
    let JoinSettings {
        method,
        kubelet_args,
        ..
    } = &mut pool.join;
    let script = match method {
        JoinMethod::Command { script, .. } => Some(&*script),
        _ => None,
    };
    let mut texts = kubelet_args.values().chain(script);
    let words = if texts.any(|text| may_name_cards(text)) {
        nocloud::words(&vm::ours(work).await?, &work.zone(&work.entry()?))
    } else {
        GapValues {
            zone: work.zone(&work.entry()?).to_string(),
            ..GapValues::default()
        }
    };
    for (key, text) in kubelet_args {
        if facts::has_gaps(text) {
            let what = format!("join.kubelet_args.{key}");
            *text = work.filled_for_node(&what, text, &words, &[])?;
        }
    }
    Ok(words)
}

type Payloads = Vec<Result<SecretString, JoinError>>;

async fn by_kubeadm(work: &Work, parts: &JoinParts, versions: &[&str]) -> Result<Payloads, Stop> {
    let kube = &work.tools.kube;
    let info = work
        .patiently_kube("reading cluster-info", || kube.cluster_info())
        .await?;
    let token = token(work, &parts.pool).await?;
    let before = info.signatures.get(&token.id).map(String::as_str);
    signed(work, &token.id, before).await?;
    let named = parts.pool.join.endpoint.as_deref();
    let endpoint = named.unwrap_or(&info.endpoint);
    let of = |version: &&str| {
        let trust = JoinTrust::Keys((&token.id, &token.secret), &info.ca_hashes);
        parts.payload(work, version, endpoint, trust)
    };
    Ok(versions.iter().map(of).collect())
}

async fn by_agent(
    work: &Work,
    parts: &JoinParts,
    versions: &[&str],
    port: Option<u16>,
) -> Result<Payloads, Stop> {
    let authority = authority(work)?;
    let hash = certificate::bundle_hash(&authority.ca_pem)
        .map_err(|why| Stop::Failed(format!("the CA of the kubeconfig: {why}")))?;
    let endpoint = endpoint(&parts.pool, &authority, port)?;
    let token = token(work, &parts.pool).await?;
    let of = |version: &&str| {
        let trust = JoinTrust::Bundle((&token.id, &token.secret), &hash);
        parts.payload(work, version, &endpoint, trust)
    };
    Ok(versions.iter().map(of).collect())
}

async fn by_command(
    work: &Work,
    (parts, cards): (&JoinParts, &GapValues),
    script: &str,
    file: Option<&std::path::Path>,
) -> Result<Payloads, Stop> {
    let authority = authority(work)?;
    let endpoint = endpoint(&parts.pool, &authority, None)?;
    let (labels, taints) = join::words(&parts.labels, &parts.taints);
    let words = [
        ("endpoint", &*endpoint),
        ("labels", &*labels),
        ("provider_id", parts.provider_id.as_deref().unwrap_or("")),
        ("taints", &*taints),
    ];
    let script = work.filled_for_node("join.command", script, cards, &words)?;
    let secret = match file {
        Some(path) => {
            let path = path.to_owned();
            let read = tokio::task::spawn_blocking(move || secret_file::read(&path)).await;
            read.map_err(|error| Stop::Transient(error.to_string()))?
                .map_err(Stop::Failed)?
        }
        None => token(work, &parts.pool).await?.text(),
    };
    let trust = JoinTrust::Script(&secret, &authority.ca_pem, &script);
    Ok(vec![parts.payload(work, "", &endpoint, trust)])
}

/// The API server as our own kubeconfig knows it.
fn authority(work: &Work) -> Result<Authority, Stop> {
    work.tools.kube.authority().ok_or_else(|| {
        Stop::Failed(
            "the kubeconfig has no certificate-authority: machines could not tell the cluster from another"
                .to_owned(),
        )
    })
}

/// `host:port` that machines register with.
fn endpoint(pool: &PoolSettings, authority: &Authority, port: Option<u16>) -> Result<String, Stop> {
    if let Some(named) = &pool.join.endpoint {
        return Ok(named.clone());
    }
    join::endpoint(&authority.server, port).map_err(Stop::Failed)
}

/// Makes the machine's bootstrap token.
async fn token(work: &Work, pool: &PoolSettings) -> Result<BootstrapToken, Stop> {
    let kube = &work.tools.kube;
    let life = Span(pool.join.token_ttl.0.clamp(60_000, MAX_TOKEN_LIFE.0));
    let token = BootstrapToken {
        id: work.mark.token.clone(),
        secret: secret(work),
        expires: work.tools.clock.now() + life,
        description: format!("join of machine {} by pve-autoscaler", work.machine),
    };
    // One left by an attempt that a crash cut short has a secret that nobody knows any more.
    work.patiently_kube("creating the bootstrap token", || {
        kube.replace_token(&token)
    })
    .await?;
    Ok(token)
}

/// Waits until the cluster's signer has signed cluster-info with the token. kubeadm takes the first
/// signature it sees under the token's id, also one of an earlier token, and fails when it is not
/// right; and where it sees none it asks again only after five seconds.
async fn signed(work: &Work, id: &str, before: Option<&str>) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    for _ in 0..SIGN_TRIES {
        let info = work
            .patiently_kube("reading cluster-info", || kube.cluster_info())
            .await?;
        let signature = info.signatures.get(id).map(String::as_str);
        if signature.is_some() && signature != before {
            return Ok(());
        }
        sleep(SIGN_POLL).await;
    }
    // Not ours to judge: kubeadm waits for it, and says what is missing.
    work.note(
        "cluster-info is not signed with the token yet; is the controller bootstrapsigner on?",
    );
    Ok(())
}

/// A bootstrap token's secret: 16 characters of `[a-z0-9]`.
fn secret(work: &Work) -> SecretString {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = work.tools.rng();
    let text: String = (0..16)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect();
    SecretString::from(text)
}
