//! Traces of machines' lives for OpenTelemetry: each machine is one trace, each phase of its life a span in it.
//!
//! [`life`] hears what the executor does and makes spans of it; [`otlp`] writes them as OTLP wants them in JSON; [`send`]
//! posts them, beside the loop and never in its way. Off, none of it is there.

pub mod life;
mod otlp;
pub mod send;

pub use life::Lives;
pub(crate) use send::obstacles;
pub use send::{Account, Exporter, try_collector};

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::model::mark::Mark;
use crate::model::time::Time;

/// Which trace a span belongs to. It follows from the machine's mark, so that every daemon that works on the machine
/// makes the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// A span's own id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The trace of the machine with this mark.
    pub fn of(mark: &Mark) -> TraceId {
        let created = mark.created.0.to_string();
        let vmid = mark.vmid.to_string();
        let mut id = [0; 16];
        id.copy_from_slice(&digest(&[&mark.cluster, &mark.machine, &vmid, &created])[..16]);
        TraceId(id)
    }

    /// The span that all others of the trace are below.
    pub fn root(self) -> SpanId {
        self.span("machine", Time(0))
    }

    /// The span of this name that began then; a machine does one thing at a time.
    pub fn span(self, name: &str, began: Time) -> SpanId {
        let mut id = [0; 8];
        id.copy_from_slice(&digest(&[&self.to_string(), name, &began.0.to_string()])[..8]);
        SpanId(id)
    }
}

/// A hash of words. All zeros, which would be no id, come of one word in 2^64 at most.
fn digest(words: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.as_bytes());
        hash.update([0]);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A phase of a machine's life that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    /// Whose trace it is in.
    pub trace: TraceId,
    /// The span's id, by which the spans below it name it as their `parent`.
    pub id: SpanId,
    /// What it is below; `None` for the root.
    pub parent: Option<SpanId>,
    /// What was done.
    pub name: &'static str,
    /// When it began.
    pub began: Time,
    /// When it ended; not before it began.
    pub ended: Time,
    /// The machine.
    pub machine: Arc<TracedMachine>,
    /// Why it was done; empty where that is said above it.
    pub reason: Arc<str>,
    /// What happened in it, and when.
    pub events: Vec<(&'static str, Time)>,
    /// Why it failed, if it did.
    pub failure: Option<PhaseFault>,
}

/// Why a phase failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseFault {
    /// In which step: a word of few.
    pub step: &'static str,
    /// What came back.
    pub message: Arc<str>,
}

/// What is told of a machine with each of its spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedMachine {
    /// The machine's name, which is its node's too.
    pub name: Arc<str>,
    /// Id of the cluster that the machine is of, `UID/NAME`.
    pub cluster: Arc<str>,
    /// The region that its VM is in.
    pub region: Arc<str>,
    /// The host that its VM was last known to be on.
    pub host: Arc<str>,
    /// VMID of its VM.
    pub vmid: u32,
    /// The pool that it is of.
    pub pool: Arc<str>,
    /// Name of the instance type that it was made with.
    pub instance_type: Arc<str>,
    /// Name of the template that it was made of.
    pub template: Arc<str>,
    /// SMBIOS UUID of its VM, once that was seen.
    pub uuid: Option<Arc<str>>,
    /// UID of its node, once there is one.
    pub node: Option<Arc<str>>,
}
