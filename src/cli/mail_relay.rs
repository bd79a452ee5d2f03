//! `mail-relay`: one mail, from the daemon's order on standard input to the host's sendmail. systemd starts it with the
//! daemon's connection as its standard input and output, as a user of its own (systemd/pve-autoscaler-mail@.service).

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::{CliFailure, runtime};
use crate::clock::Clock;
use crate::config;
use crate::config::notification::{Mail, NotificationChannel};
use crate::model::foreign;
use crate::notify::mail::{LONGEST, MailAnswer, MailOrder, compose};

/// sendmail only queues the mail.
const PATIENCE: Duration = Duration::from_secs(20);
/// So much of what sendmail says is passed on, in characters.
const SAID: usize = 300;

/// What `mail-relay` is told.
#[derive(Debug, Args)]
pub(super) struct MailRelayOptions {
    /// The host's sendmail.
    #[arg(long, value_name = "PATH", default_value = "/usr/sbin/sendmail")]
    sendmail: PathBuf,
}

/// Hands one mail on, and answers what came of it.
pub(super) fn run(config: &Path, options: &MailRelayOptions) -> Result<(), CliFailure> {
    let answer = match relay(config, options) {
        Ok(()) => MailAnswer::Taken(format!("{} took it", options.sendmail.display())),
        Err(why) => {
            // It stands in the journal, too, where this service's other words are.
            super::say(&format!("pve-autoscaler: the mail was not sent: {why}"));
            MailAnswer::Refused(why)
        }
    };
    let mut output = std::io::stdout().lock();
    output.write_all(&serde_json::to_vec(&answer)?)?;
    Ok(output.flush()?)
}

fn relay(config: &Path, options: &MailRelayOptions) -> Result<(), String> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST).read_to_end(&mut text);
    read.map_err(|error| format!("the order cannot be read: {error}"))?;
    let order: MailOrder = serde_json::from_slice(&text)
        .map_err(|error| format!("the order cannot be read: {error}"))?;
    let settings = config::load(config).map_err(|errors| errors.line())?;
    let notification = settings.notifications.get(order.notification.as_str());
    let Some(NotificationChannel::Mail(mail)) = notification.map(|found| &found.way) else {
        return Err(format!(
            "{} has no notification {:?} of kind mail; systemctl reload pve-autoscaler takes up what was changed",
            config.display(),
            order.notification
        ));
    };
    let host = nix::unistd::gethostname().unwrap_or_default();
    let mut id = [0; 16];
    SysRng
        .try_fill_bytes(&mut id)
        .map_err(|error| format!("the operating system gives no randomness: {error}"))?;
    let id = format!("{:032x}", u128::from_be_bytes(id));
    let now = Clock::System.now();
    let whole = compose(mail, &order, &host.to_string_lossy(), &id, now);
    let runtime = runtime().map_err(|_| "no runtime can be made".to_owned())?;
    runtime.block_on(sendmail(&options.sendmail, mail, &whole))
}

/// Runs sendmail with fixed arguments: no word of the mail is among them, and an address is none of its options.
async fn sendmail(program: &Path, mail: &Mail, whole: &str) -> Result<(), String> {
    let at = |what: String| format!("{} {what}", program.display());
    let mut child = Command::new(program)
        .args(["-i", "-f", &mail.from, "--"])
        .args(&mail.to)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            at(format!(
                "cannot be run: {error}; a mail system such as postfix brings it"
            ))
        })?;
    let mut input = child.stdin.take();
    let written = async move {
        // Where it ends early its exit says more than the pipe that broke.
        if let Some(input) = &mut input {
            let _ = input.write_all(whole.as_bytes()).await;
            let _ = input.shutdown().await;
        }
    };
    let both = futures::future::join(written, child.wait_with_output());
    let ended = timeout(PATIENCE, both).await;
    let ended = ended.map_err(|_| at(format!("did not end within {} s", PATIENCE.as_secs())))?;
    let output = ended.1.map_err(|error| at(format!("was lost: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let said = foreign::line(&said, SAID);
    Err(at(format!("ended with {}: {said}", output.status)))
}
