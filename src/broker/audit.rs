//! One line in the journal for every call that changes something; of a question to a guest that is
//! repeated the first has a line, and the rest are counted. Refused calls have lines as long as they are
//! not many.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::allow::AdmittedCall;
use super::peer::PeerProcess;
use super::waits::Repeated;

/// Longest value that stands in a line.
const MAX_VALUE: usize = 80;
/// Refusals that stand in the journal line by line in each [`WINDOW`]; more are only counted.
const SHOWN: u32 = 30;
/// How often the count of the others is told.
const WINDOW: Duration = Duration::from_mins(1);

/// Refused calls: whoever sends them by the thousand does not fill the journal, in which the changes
/// stand. Its clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalAudit(Arc<Mutex<RefusalWindow>>);

#[derive(Debug, Default)]
struct RefusalWindow {
    /// When its minute began.
    began: Option<Instant>,
    shown: u32,
    hidden: u64,
}

impl RefusalAudit {
    /// Whether the refusal at hand gets a line of its own.
    pub(super) fn shown(&self) -> bool {
        let mut window = self.window();
        if window.began.is_none_or(|began| began.elapsed() >= WINDOW) {
            tell(std::mem::take(&mut *window).hidden);
            window.began = Some(Instant::now());
        }
        if window.shown < SHOWN {
            window.shown += 1;
            return true;
        }
        window.hidden += 1;
        if window.hidden == 1 {
            // Told even if nothing comes any more.
            let refusals = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(WINDOW).await;
                tell(std::mem::take(&mut *refusals.window()).hidden);
            });
        }
        false
    }

    fn window(&self) -> MutexGuard<'_, RefusalWindow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(hidden: u64) {
    if hidden > 0 {
        tracing::warn!(
            target: "pve_autoscaler::audit",
            calls = hidden,
            "more broker calls were refused within a minute than stand here line by line"
        );
    }
}

/// Reports a changing call that the list admitted, with what became of it.
pub(super) fn call(
    peer: PeerProcess,
    call: &AdmittedCall,
    outcome: &str,
    detail: &str,
    took: Duration,
) {
    tracing::info!(
        target: "pve_autoscaler::audit",
        uid = peer.uid,
        pid = peer.pid,
        call = call.rule.name,
        method = %call.rule.method,
        path = %call.path,
        params = %params(call),
        outcome,
        detail,
        ms = took.as_millis(),
        "broker call"
    );
}

/// Reports how often a call was repeated with the same answer since the last line about it.
pub(super) fn repeated(repeated: &Repeated) {
    tracing::info!(
        target: "pve_autoscaler::audit",
        uid = repeated.uid,
        call = repeated.call,
        path = %repeated.path,
        outcome = %repeated.outcome,
        times = repeated.times,
        seconds = repeated.within.as_secs(),
        "broker call repeated"
    );
}

/// Reports a request that the list does not admit. Of the request itself only a bounded, printable
/// beginning is shown.
pub(super) fn refused(peer: PeerProcess, method: &str, path: &str, why: &str) {
    let shown: String = path
        .chars()
        .take(MAX_VALUE * 2)
        .map(|c| if c.is_ascii_graphic() { c } else { '?' })
        .collect();
    tracing::warn!(
        target: "pve_autoscaler::audit",
        uid = peer.uid,
        pid = peer.pid,
        method,
        path = %shown,
        outcome = "refused-by-broker",
        detail = why,
        "broker call refused"
    );
}

/// Every parameter's name, and the value where it may be shown.
fn params(call: &AdmittedCall) -> String {
    let mut text = String::new();
    for (name, value) in &call.params {
        if !text.is_empty() {
            text.push(' ');
        }
        let rule = call.rule.params.iter().find(|param| param.name == name);
        if rule.is_some_and(|param| param.loggable) {
            let value: String = value.chars().take(MAX_VALUE).collect();
            let _ = write!(text, "{name}={value:?}");
        } else {
            let _ = write!(text, "{name}=({} bytes)", value.len());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::broker::allow::{RawRequest, admit};
    use crate::broker::tests::world::{mark, policy};
    use crate::pve::form;

    #[test]
    fn a_line_has_every_name_and_no_secret() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let description = mark(9050).describe("for the shop");
        let clone = form(&[
            pair("newid", "9050"),
            pair("name", "small-09050"),
            pair("description", &description),
        ]);
        let exec = form(&[
            pair("command", "/bin/sh"),
            pair("command", "hidden-script"),
            pair("input-data", "hidden-input"),
        ]);
        for (path, body, shown) in [
            (
                "/api2/json/nodes/pve1/qemu/9000/clone",
                &clone,
                format!(
                    "newid=\"9050\" name=\"small-09050\" description=({} bytes)",
                    description.len()
                ),
            ),
            (
                "/api2/json/nodes/pve1/qemu/9001/agent/exec",
                &exec,
                "command=(7 bytes) command=(13 bytes) input-data=(12 bytes)".to_owned(),
            ),
        ] {
            let raw = RawRequest {
                method: "POST",
                path,
                query: None,
                content_type: Some("application/x-www-form-urlencoded"),
                body: body.as_bytes(),
            };
            let call = admit(&policy(), raw).expect("admitted");
            assert_eq!(super::params(&call), shown);
        }
    }
}
