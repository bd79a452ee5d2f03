//! A ticket of root@pam and its CSRF token, from PVE's own code.
//!
//! PVE signs tickets with a key that root can read; how is its own business, so its own code does
//! it, in one short Perl run. Nothing secret stands in the command line or the log. Source:
//! pve-access-control PVE/AccessControl.pm, `assemble_ticket`, `assemble_csrf_prevention_token`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::pve::percent;

use super::perl;

/// PVE accepts a ticket for 2 h. After half of that a new one is made beside …
const RENEW: Duration = Duration::from_hours(1);
/// … and after this the old one is not used any more.
const LIFE: Duration = Duration::from_mins(100);
/// A Perl run takes about a second; on a loaded host some more.
const RUN: Duration = Duration::from_secs(15);
/// After a failed run the next one waits: each costs a second of a core.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest text of a failed run that is reported.
const MAX_REPORT: usize = 400;

/// Prints ticket and token as JSON. A failing `cfs_update` means that /etc/pve is not there.
const SCRIPT: &str = r"PVE::Cluster::cfs_update(1);
my $user = 'root@pam';
print JSON::PP::encode_json({
    ticket => PVE::AccessControl::assemble_ticket($user),
    token => PVE::AccessControl::assemble_csrf_prevention_token($user),
});";

/// What goes with every call, as headers. Their `Debug` shows `Sensitive`.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) cookie: HeaderValue,
    pub(super) token: HeaderValue,
    made: Instant,
}

#[derive(Deserialize)]
struct PrintedTicket {
    ticket: String,
    token: String,
}

#[derive(Debug, Default)]
struct TicketState {
    ticket: Option<Ticket>,
    failed: Option<(Instant, String)>,
}

/// Makes tickets when they are needed; its clones are one.
#[derive(Clone, Debug)]
pub(super) struct Tickets {
    perl: PathBuf,
    systemd_run: PathBuf,
    state: Arc<std::sync::Mutex<TicketState>>,
    /// Held during a Perl run.
    run: Arc<Mutex<()>>,
}

impl Tickets {
    /// Tickets by the Perl at `perl`, which `systemd_run` can start outside of the sandbox.
    pub(super) fn new(perl: PathBuf, systemd_run: PathBuf) -> Tickets {
        Tickets {
            perl,
            systemd_run,
            state: Arc::default(),
            run: Arc::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, TicketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ticket at hand with its age, if it is still good.
    fn held(&self) -> Option<(Ticket, Duration)> {
        let ticket = self.state().ticket.clone()?;
        let age = ticket.made.elapsed();
        (age < LIFE).then_some((ticket, age))
    }

    /// A ticket that is good for some time yet. Several callers wait for one run; an ageing ticket
    /// is renewed beside, so that no call waits for that.
    pub(super) async fn get(&self) -> Result<Ticket, String> {
        if let Some((ticket, age)) = self.held() {
            if age >= RENEW && self.run.try_lock().is_ok() {
                let tickets = self.clone();
                // It ends by itself, with the run's deadline; what it finds it leaves in the state.
                tokio::spawn(async move { tickets.renew(RENEW).await });
            }
            return Ok(ticket);
        }
        self.renew(LIFE).await
    }

    /// Makes a ticket, unless somebody else just made one younger than `age`.
    async fn renew(&self, age: Duration) -> Result<Ticket, String> {
        let _run = self.run.lock().await;
        if let Some((ticket, held)) = self.held()
            && held < age
        {
            return Ok(ticket);
        }
        if let Some((when, why)) = &self.state().failed
            && when.elapsed() < PAUSE
        {
            return Err(why.clone());
        }
        let made = self.make().await;
        let mut state = self.state();
        match &made {
            Ok(ticket) => {
                state.failed = None;
                state.ticket = Some(ticket.clone());
            }
            Err(why) => {
                tracing::warn!(why, "no ticket");
                state.failed = Some((Instant::now(), why.clone()));
            }
        }
        made
    }

    /// PVE did not accept `ticket` (its signing key was renewed, or the clock jumped): the next one
    /// is made anew.
    pub(super) fn refused(&self, ticket: &Ticket) {
        let mut state = self.state();
        if state
            .ticket
            .as_ref()
            .is_some_and(|held| held.made == ticket.made)
        {
            state.ticket = None;
        }
    }

    /// The Perl run; `outside` of the broker's sandbox as a transient service.
    fn command(&self, outside: bool) -> Command {
        let mut command = if outside {
            let mut command = perl::outside(&self.systemd_run, "a PVE ticket", &[]);
            command.arg(&self.perl);
            command
        } else {
            Command::new(&self.perl)
        };
        command
            .args(["-MPVE::Cluster", "-MPVE::AccessControl", "-MJSON::PP", "-e"])
            .arg(SCRIPT)
            .stdin(Stdio::null());
        perl::secluded(&mut command);
        command
    }

    async fn make(&self) -> Result<Ticket, String> {
        match self.make_by(self.command(false)).await {
            // PVE renews a signing key that is older than a day before it signs (`rotate_authkey`),
            // which pvestatd does in time unless it hangs; the sandbox may not write to /etc/pve.
            Err(why) if why.contains("authkey") => {
                tracing::warn!(why, "the ticket is made outside of the sandbox");
                self.make_by(self.command(true)).await
            }
            made => made,
        }
    }

    async fn make_by(&self, mut command: Command) -> Result<Ticket, String> {
        let fail = |why: String| format!("cannot get a ticket from PVE's own code: {why}");
        let output = timeout(RUN, command.output())
            .await
            .map_err(|_| fail(format!("Perl did not end within {RUN:?}")))?
            .map_err(|error| fail(format!("{}: {error}", self.perl.display())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: String = said.trim().chars().take(MAX_REPORT).collect();
            return Err(fail(format!("Perl ended with {}: {said}", output.status)));
        }
        let printed: PrintedTicket = serde_json::from_slice(&output.stdout)
            .map_err(|_| fail("Perl printed something else".to_owned()))?;
        let header = |text: String| {
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| fail("it has characters no header can carry".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        if printed.ticket.is_empty() || printed.token.is_empty() {
            return Err(fail("it is empty".to_owned()));
        }
        Ok(Ticket {
            cookie: header(format!("PVEAuthCookie={}", percent(&printed.ticket)))?,
            token: header(printed.token)?,
            made: Instant::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PRINTED: &str = r#"{"ticket":"a","token":"b"}"#;

    fn program(folder: &tempfile::TempDir, name: &str, script: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    }

    /// Tickets by a program that prints this in Perl's place.
    fn printing(folder: &tempfile::TempDir, text: &str) -> Tickets {
        print(folder, text);
        let at = folder.path().display();
        let script = format!("pwd >>'{at}/runs'; exec cat '{at}/printed'");
        Tickets::new(program(folder, "perl", &script), folder.path().join("none"))
    }

    fn print(folder: &tempfile::TempDir, text: &str) {
        std::fs::write(folder.path().join("printed"), text).expect("written");
    }

    /// A line for each run of the program in Perl's place.
    fn runs(folder: &tempfile::TempDir) -> Vec<String> {
        let text = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Time passes, but for programs.
    async fn pass(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn a_ticket_is_renewed_after_an_hour_beside_the_calls_that_go_on_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let tickets = printing(&folder, PRINTED);
        let first = tickets.get().await.expect("a ticket");
        pass(RENEW).await;
        let waits = tickets.run.lock().await;
        assert_eq!(tickets.get().await.expect("at once").made, first.made);
        drop(waits);
        assert_eq!(tickets.get().await.expect("at once").made, first.made);
        for _ in 0..2_000 {
            if tickets
                .held()
                .is_some_and(|(held, _)| held.made != first.made)
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_ne!(tickets.get().await.expect("the next one").made, first.made);
        // Perl begins in a place of its own.
        assert_eq!(runs(&folder), ["/", "/"]);
    }

    #[tokio::test]
    async fn a_ticket_that_could_not_be_renewed_in_its_time_is_used_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let tickets = printing(&folder, PRINTED);
        let first = tickets.get().await.expect("a ticket");
        pass(LIFE).await;
        print(&folder, "");
        assert!(tickets.get().await.is_err(), "{first:?}");
    }

    #[tokio::test]
    async fn perl_that_fails_is_not_asked_again_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let tickets = printing(&folder, "");
        let why = tickets.get().await.expect_err("nothing is printed");
        assert_eq!(tickets.get().await.expect_err("nor now"), why);
        assert_eq!(runs(&folder).len(), 1);
        print(&folder, PRINTED);
        pass(PAUSE).await;
        tickets.get().await.expect("a ticket");
        assert_eq!(runs(&folder).len(), 2);
    }

    /// PVE's own code renews its key there, which the sandbox forbids. Another failure would be the same outside.
    #[tokio::test]
    async fn a_ticket_whose_key_must_be_renewed_is_made_outside_of_the_sandbox() {
        for (why, way) in [
            ("cannot write authkey.key", &["inside", "outside"][..]),
            ("no quorum", &["inside"]),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let at = folder.path().display();
            let inside = format!("echo inside >>'{at}/runs'; echo '{why}' >&2; exit 1");
            let outside = format!("echo outside >>'{at}/runs'; echo '{PRINTED}'");
            let perl = program(&folder, "perl", &inside);
            let tickets = Tickets::new(perl, program(&folder, "systemd-run", &outside));
            assert_eq!(tickets.get().await.is_ok(), way.len() == 2, "{why}");
            assert_eq!(runs(&folder), way, "{why}");
        }
    }

    /// Headers that are marked so are shown by nobody: not by the ticket's own `Debug`, and not by what logs requests.
    #[tokio::test]
    async fn a_tickets_headers_are_marked_as_secrets() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = r#"{"ticket":"PVE:root@pam:hush","token":"csrf-hush"}"#;
        let ticket = printing(&folder, text).get().await.expect("a ticket");
        assert_eq!(ticket.cookie, "PVEAuthCookie=PVE%3Aroot%40pam%3Ahush");
        assert_eq!(ticket.token, "csrf-hush");
        assert!(ticket.cookie.is_sensitive() && ticket.token.is_sensitive());
        let shown = format!("{ticket:?}");
        assert!(!shown.contains("hush"), "{shown}");
    }

    /// A call with an empty header would be one of nobody.
    #[tokio::test]
    async fn half_a_ticket_is_none() {
        for (text, words) in [
            (r#"{"ticket":"","token":"b"}"#, "it is empty"),
            (r#"{"ticket":"a","token":""}"#, "it is empty"),
            (r#"{"ticket":"a","token":"b\u0000"}"#, "no header can carry"),
            (r#"{"ticket":"a"}"#, "Perl printed something else"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let error = printing(&folder, text).get().await.expect_err("it is none");
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    /// PVE refused a ticket: the next one is made anew, unless that has happened already.
    #[tokio::test]
    async fn a_ticket_that_is_refused_late_does_not_take_the_next_one_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let tickets = printing(&folder, PRINTED);
        let first = tickets.get().await.expect("a ticket");
        assert_eq!(tickets.get().await.expect("the same").made, first.made);
        tickets.refused(&first);
        let second = tickets.get().await.expect("another");
        assert_ne!(second.made, first.made);
        tickets.refused(&first);
        assert_eq!(tickets.get().await.expect("it stays").made, second.made);
    }
}
