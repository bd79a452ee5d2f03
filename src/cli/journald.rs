//! Records for journald: what happened as a sentence with all that belongs to it, so that `journalctl -u` says
//! it, and each field by itself, so that `journalctl F_MACHINE=…` finds it.
//!
//! The protocol is journald's native one (a datagram of fields, `systemd.journal-fields(7)`), spoken here since
//! the message must have the fields in it: a line that says `failed` helps nobody.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::model::foreign;

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// A journald that does not read may hold us up for this long a record, then the record is lost: the socket's
/// queue is full by then, and nobody would see it anyway.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest message that is sent again, cut, when a record is too large for a datagram (200 kB as Linux is
/// shipped; the largest of ours, a configuration's errors, has some 10).
const CUT: usize = 32 * 1024;

/// The layer that writes to the journal.
#[derive(Debug)]
pub(super) struct JournaldLayer {
    socket: UnixDatagram,
}

impl JournaldLayer {
    /// Connects to journald.
    pub(super) fn open(path: &Path) -> io::Result<JournaldLayer> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(JournaldLayer { socket })
    }
}

impl<S: Subscriber> Layer<S> for JournaldLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut told = JournaldEntry::default();
        event.record(&mut told);
        let metadata = event.metadata();
        let message = told.message();
        let record = |message: &str| {
            let mut record = Vec::new();
            put(&mut record, "PRIORITY", priority(*metadata.level()));
            put(&mut record, "SYSLOG_IDENTIFIER", "pve-autoscaler");
            put(&mut record, "TARGET", metadata.target());
            put(&mut record, "MESSAGE", message);
            record
        };
        let mut whole = record(&message);
        for (name, value) in &told.fields {
            put(&mut whole, &format!("F_{}", name.to_uppercase()), value);
        }
        if self.socket.send(&whole).is_err() && whole.len() > CUT {
            let end = message.floor_char_boundary(CUT);
            // Where that cannot be sent either there is nobody left to tell.
            let _ = self.socket.send(&record(&message[..end]));
        }
    }
}

/// What an event tells.
#[derive(Default)]
struct JournaldEntry {
    text: String,
    fields: Vec<(&'static str, String)>,
}

impl JournaldEntry {
    /// The text, then every field that it does not tell already. The error comes last, since it is the longest.
    fn message(&self) -> String {
        let mut message = self.text.clone();
        let mut parts: Vec<_> = self
            .fields
            .iter()
            .filter(|(_, value)| !value.is_empty() && !self.text.contains(value.as_str()))
            .collect();
        parts.sort_by_key(|(name, _)| *name == "error");
        for (at, (name, value)) in parts.into_iter().enumerate() {
            let before = if at == 0 && !message.is_empty() {
                ": "
            } else {
                " "
            };
            let _ = write!(message, "{before}{name}={value}");
        }
        message
    }

    fn tell(&mut self, field: &Field, value: &str) {
        // Whoever reads the journal reads it in a terminal.
        let value = foreign::lines(value).into_owned();
        if field.name() == "message" {
            self.text = value;
        } else {
            self.fields.push((field.name(), value));
        }
    }
}

impl Visit for JournaldEntry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.tell(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.tell(field, &format!("{value:?}"));
    }
}

/// One field. A value with line breaks goes with its length in front, as the protocol has it.
fn put(record: &mut Vec<u8>, name: &str, value: &str) {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    record.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        record.push(b'\n');
        record.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        record.push(b'=');
    }
    record.extend_from_slice(value.as_bytes());
    record.push(b'\n');
}

/// The level as syslog counts it.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// What journald would store of what `say` logs.
    fn stored(say: impl FnOnce()) -> Vec<BTreeMap<String, String>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let journald = UnixDatagram::bind(&path).expect("bound");
        journald.set_nonblocking(true).expect("set");
        let journal = JournaldLayer::open(&path).expect("open");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), say);
        let mut records = Vec::new();
        let mut buffer = vec![0; 300_000];
        while let Ok(length) = journald.recv(&mut buffer) {
            records.push(read(&buffer[..length]));
        }
        records
    }

    /// As journald reads a record.
    fn read(mut record: &[u8]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        while !record.is_empty() {
            let end = record.iter().position(|b| matches!(b, b'=' | b'\n'));
            let (name, rest) = record.split_at(end.expect("a name ends"));
            let (value, rest) = if rest[0] == b'=' {
                let end = rest.iter().position(|b| *b == b'\n').expect("a line ends");
                (&rest[1..end], &rest[end + 1..])
            } else {
                let length: [u8; 8] = rest[1..9].try_into().expect("eight");
                let end = 9 + usize::try_from(u64::from_le_bytes(length)).expect("small");
                assert_eq!(rest[end], b'\n');
                (&rest[9..end], &rest[end + 1..])
            };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            fields.insert(text(name), text(value));
            record = rest;
        }
        fields
    }

    #[test]
    fn a_line_says_what_of_whom_and_why() {
        let records = stored(|| {
            let error = std::io::Error::other("no such host");
            tracing::warn!(%error, machine = "workers-a", code = 3, "failed");
            tracing::info!(vmid = 9000, nothing = "", "machine 9000 is gone");
        });
        assert_eq!(records.len(), 2);
        let message = "failed: machine=workers-a code=3 error=no such host";
        assert_eq!(records[0]["MESSAGE"], message);
        assert_eq!(records[0]["PRIORITY"], "4");
        assert_eq!(records[0]["F_MACHINE"], "workers-a");
        assert_eq!(records[0]["F_ERROR"], "no such host");
        assert_eq!(records[0]["SYSLOG_IDENTIFIER"], "pve-autoscaler");
        assert_eq!(records[1]["MESSAGE"], "machine 9000 is gone");
        assert_eq!(records[1]["F_VMID"], "9000");
    }

    #[test]
    fn lines_of_a_log_stay_lines_and_forge_no_field() {
        let log = "first\nPRIORITY=0\nlast";
        let records = stored(|| tracing::error!(log, "kubeadm join failed"));
        assert_eq!(
            records[0]["MESSAGE"],
            format!("kubeadm join failed: log={log}")
        );
        assert_eq!(records[0]["F_LOG"], log);
        assert_eq!(records[0]["PRIORITY"], "3");
    }

    /// What guests and others say must not write into the terminal of who reads the journal.
    #[test]
    fn words_of_others_steer_nobody() {
        let records = stored(|| {
            let error = "a\0b\u{1b}]0;x\u{7}\u{202e}";
            tracing::warn!(%error, plain = error, debug = ?error, "failed: {error}");
        });
        let mut values = records[0].iter();
        let steers = |text: &str| text.chars().any(|c| c != '\n' && foreign::steers(c));
        assert!(!values.any(|(_, value)| steers(value)), "{records:#?}");
        assert_eq!(records[0]["F_ERROR"], r"a\u{0}b\u{1b}]0;x\u{7}\u{202e}");
    }

    #[test]
    fn what_is_too_large_for_a_datagram_comes_cut() {
        let log = "ü".repeat(400_000);
        let records = stored(|| tracing::error!(log, "kubeadm join failed"));
        assert_eq!(records.len(), 1);
        let message = &records[0]["MESSAGE"];
        assert!(message.starts_with("kubeadm join failed: log=üü"));
        assert!(message.len() <= CUT);
    }

    /// A journald that hangs costs records, not the daemon.
    #[test]
    fn a_journald_that_does_not_read_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _journald = UnixDatagram::bind(&path).expect("bound");
        let journal = JournaldLayer::open(&path).expect("open");
        let patience = journal.socket.write_timeout().expect("it has one");
        assert_eq!(patience, Some(PATIENCE));
        let mut sent = 0;
        while journal.socket.send(b"MESSAGE=x\n").is_ok() {
            sent += 1;
            assert!(sent < 100_000, "the queue never was full");
        }
    }
}
