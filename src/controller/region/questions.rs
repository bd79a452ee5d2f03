//! Questions of one poll to hosts. Hosts are asked side by side, each one thing after another, all within one bound: a host that hangs
//! costs a poll that long, once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::time::{Instant, sleep, timeout_at};

use crate::clock::Clock;
use crate::model::region::{GuestKind, HostLoad};
use crate::model::time::Time;
use crate::pve::transport::{CallEffect, CallError};
use crate::pve::{Bridge, Client, FirewallRule, GuestPromise, VmConfig};

/// All questions of a poll end within this time.
const ASKING: Duration = Duration::from_secs(15);
/// A host that has answered nothing for this long is asked for its clock beside what it was asked for: one lost call makes no silent host.
const DOUBT: Duration = Duration::from_secs(5);

/// What one host is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostQuestion {
    /// Its clock.
    Clock,
    /// The configuration of a VM of interest, by VMID.
    Config(u32),
    /// What somebody else's guest is promised.
    Promise(GuestKind, u32),
    /// How loaded it is.
    Load,
    /// Its bridges.
    Bridges,
    /// What it has left of a mapping's mediated devices.
    Mediated(Arc<str>),
    /// What the file system of a storage keeps for root. The storage may hang where the host does not: who does not answer this is not silent.
    KeptSpace(Arc<str>),
}

impl fmt::Display for HostQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostQuestion::Clock => f.write_str("its clock"),
            HostQuestion::Config(vmid) => write!(f, "the configuration of VM {vmid}"),
            HostQuestion::Promise(_, vmid) => write!(f, "what guest {vmid} is promised"),
            HostQuestion::Load => f.write_str("its load"),
            HostQuestion::Bridges => f.write_str("its bridges"),
            HostQuestion::Mediated(mapping) => {
                write!(
                    f,
                    "what mediated devices of the mapping {mapping} it has left"
                )
            }
            HostQuestion::KeptSpace(storage) => {
                write!(f, "what the storage {storage} keeps for root")
            }
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(super) enum HostAnswer {
    /// When it was asked, its clock, and when that came.
    Clock(Time, Result<Option<Time>, CallError>, Time),
    /// A configuration, and the rules of the VM's firewall where they are wanted.
    Config(
        u32,
        Result<Arc<VmConfig>, CallError>,
        Option<Result<Vec<FirewallRule>, CallError>>,
    ),
    /// What a guest is promised.
    Promise(u32, Result<GuestPromise, CallError>),
    /// How loaded it is.
    Load(Result<HostLoad, CallError>),
    /// Its bridges, by name.
    Bridges(Result<BTreeMap<String, Bridge>, CallError>),
    /// How many of a mapping's mediated devices it has left, by type.
    Mediated(Arc<str>, Result<BTreeMap<Arc<str>, u32>, CallError>),
    /// Bytes that are kept for root.
    KeptSpace(Arc<str>, Result<Option<i64>, CallError>),
}

impl HostAnswer {
    fn error(&self) -> Option<&CallError> {
        match self {
            HostAnswer::Clock(_, told, _) => told.as_ref().err(),
            HostAnswer::Config(_, told, _) => told.as_ref().err(),
            HostAnswer::Promise(_, told) => told.as_ref().err(),
            HostAnswer::Load(told) => told.as_ref().err(),
            HostAnswer::Bridges(told) => told.as_ref().err(),
            HostAnswer::Mediated(_, told) => told.as_ref().err(),
            HostAnswer::KeptSpace(_, told) => told.as_ref().err(),
        }
    }
}

/// Whether an error shows that somebody is there: a refusal.
fn is_refusal(error: &CallError) -> bool {
    matches!(
        error.outcome,
        CallEffect::Refused | CallEffect::RefusedByBroker
    )
}

/// Whether an answer shows that somebody is there.
pub(super) fn is_heard<T>(told: &Result<T, CallError>) -> bool {
    told.as_ref().err().is_none_or(is_refusal)
}

/// What a host told.
#[derive(Debug, Default)]
pub(super) struct HostTold {
    /// Each answer, or why there is none. What the host was not asked for lack of time is not in it.
    pub(super) answers: Vec<HostAnswer>,
    /// Why it is silent, if it is.
    pub(super) silence: Option<CallError>,
}

/// The questions of one poll, by host.
#[derive(Debug, Default)]
pub(super) struct HostQuestions(BTreeMap<Arc<str>, Vec<HostQuestion>>);

impl HostQuestions {
    /// One more, after those that the host is asked already.
    pub(super) fn add(&mut self, host: &Arc<str>, question: HostQuestion) {
        self.0.entry(host.clone()).or_default().push(question);
    }

    /// Asks them. `rules_of` says of which VMs the rules of the firewall are read with the configuration.
    pub(super) async fn ask(
        self,
        client: &Client,
        clock: &Clock,
        rules_of: &(dyn Fn(&VmConfig) -> bool + Sync),
    ) -> Vec<(Arc<str>, HostTold)> {
        let until = Instant::now() + ASKING;
        let hosts = self.0.into_iter().map(|(host, questions)| {
            let asked = AskedHost {
                client,
                clock,
                rules_of,
                host,
                until,
            };
            asked.ask_all(questions).boxed()
        });
        join_all(hosts).await
    }
}

/// A host that is asked.
struct AskedHost<'a> {
    client: &'a Client,
    clock: &'a Clock,
    rules_of: &'a (dyn Fn(&VmConfig) -> bool + Sync),
    host: Arc<str>,
    until: Instant,
}

impl AskedHost<'_> {
    async fn ask_all(self, questions: Vec<HostQuestion>) -> (Arc<str>, HostTold) {
        let (mut answers, heard) = (Vec::new(), AtomicBool::new(false));
        let doubting = async {
            sleep(DOUBT).await;
            if !heard.load(Ordering::Relaxed) && is_heard(&self.clock_of_host().await) {
                heard.store(true, Ordering::Relaxed);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.ask_in_turn(questions, &mut answers, &heard) => {}
            () = doubting => {}
        }
        let mut unheard = answers.iter().filter_map(|answer| match answer {
            HostAnswer::KeptSpace(..) => None,
            _ => answer.error(),
        });
        let mut silence = unheard
            .next_back()
            .filter(|_| !heard.load(Ordering::Relaxed))
            .cloned();
        if silence.is_some() && Instant::now() < self.until {
            let told = self.clock_of_host().await;
            silence = silence.filter(|_| !is_heard(&told));
        }
        (self.host, HostTold { answers, silence })
    }

    /// Asks one thing after another, until the time is over.
    async fn ask_in_turn(
        &self,
        questions: Vec<HostQuestion>,
        answers: &mut Vec<HostAnswer>,
        heard: &AtomicBool,
    ) {
        for question in questions {
            if Instant::now() >= self.until {
                return;
            }
            let answer = self.ask(&question).await;
            match answer.error() {
                None => heard.store(true, Ordering::Relaxed),
                Some(error) => {
                    heard.fetch_or(is_refusal(error), Ordering::Relaxed);
                    tracing::debug!(host = %self.host, asked = %question, %error, "a host does not tell");
                }
            }
            answers.push(answer);
        }
    }

    async fn ask(&self, question: &HostQuestion) -> HostAnswer {
        let (client, host) = (self.client, &self.host);
        match question {
            HostQuestion::Clock => {
                let sent = self.clock.now();
                let told = self.clock_of_host().await;
                HostAnswer::Clock(sent, told, self.clock.now())
            }
            HostQuestion::Config(vmid) => {
                let told = self.in_time(client.vm_config(host, *vmid).boxed()).await;
                let mut rules = None;
                if let Ok(config) = &told
                    && (self.rules_of)(config)
                {
                    rules = Some(
                        self.in_time(client.firewall_rules(host, *vmid).boxed())
                            .await,
                    );
                }
                HostAnswer::Config(*vmid, told.map(Arc::new), rules)
            }
            HostQuestion::Promise(kind, vmid) => {
                let told = self.in_time(client.guest_promise(host, *kind, *vmid).boxed());
                HostAnswer::Promise(*vmid, told.await)
            }
            HostQuestion::Load => {
                HostAnswer::Load(self.in_time(client.host_load(host).boxed()).await)
            }
            HostQuestion::Bridges => {
                HostAnswer::Bridges(self.in_time(client.bridges(host).boxed()).await)
            }
            HostQuestion::Mediated(mapping) => {
                let told = self.in_time(client.mediated_left(host, mapping).boxed());
                HostAnswer::Mediated(mapping.clone(), told.await)
            }
            HostQuestion::KeptSpace(storage) => {
                let told = self.in_time(client.kept_space(host, storage).boxed());
                HostAnswer::KeptSpace(storage.clone(), told.await)
            }
        }
    }

    async fn clock_of_host(&self) -> Result<Option<Time>, CallError> {
        self.in_time(self.client.host_time(&self.host).boxed())
            .await
    }

    /// An answer, unless the time of all questions is over before. The call is boxed: seven calls' futures within those of all hosts took the
    /// compiler minutes.
    async fn in_time<T>(&self, asked: BoxFuture<'_, Result<T, CallError>>) -> Result<T, CallError> {
        let over = || {
            let message = format!("no answer within {} s", ASKING.as_secs());
            CallError::new(CallEffect::Unknown, message)
        };
        timeout_at(self.until, asked)
            .await
            .unwrap_or_else(|_| Err(over()))
    }
}
