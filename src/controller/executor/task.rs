//! How a task of PVE's failed, in words that help.

use std::fmt;

use crate::model::foreign::ForeignText;
use crate::pve::FailureCause;
use crate::pve::remedy::{self, RemedyContext};

/// Lines of a failed task's log that are told, the last ones that show no mere progress …
const LINES_TOLD: usize = 4;
/// … in at most this many characters.
const MOST_SAID: usize = 400;

/// How a task failed. PVE's last word on it is often no more than `exit code 1`; what went wrong stands in the
/// lines before it in the task's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskFailure {
    text: ForeignText,
    said: ForeignText,
    /// What to do about it.
    advice: Option<String>,
}

impl TaskFailure {
    /// The last word, and the end of the log, of a task about what `context` tells.
    pub(super) fn new(
        text: ForeignText,
        log: &[String],
        context: &RemedyContext<'_>,
    ) -> TaskFailure {
        let tells = |line: &&str| {
            let noise = [
                "TASK ",
                "transferred ",
                "progress ",
                "create full clone",
                "create linked clone",
            ];
            !line.is_empty()
                && !noise.iter().any(|start| line.starts_with(start))
                && !is_lvm_done(line)
                && !text.contains(*line)
        };
        let lines: Vec<&str> = log.iter().map(|line| line.trim()).filter(tells).collect();
        let last = &lines[lines.len().saturating_sub(LINES_TOLD)..];
        let said = ForeignText::new(last.join("; ")).cut(MOST_SAID);
        let advice = remedy::of_task(&text, &said, context);
        TaskFailure { text, said, advice }
    }

    /// What to do about it, if that is known.
    pub(super) fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// How it failed, without what to do about it.
    pub(super) fn words(&self) -> String {
        if self.said.is_empty() {
            return self.text.to_string();
        }
        format!("{}; the task's log says: {}", self.text, self.said)
    }

    /// What kind of failure it is. Only PVE's last word tells: the log may speak of locks that were had.
    pub(super) fn cause(&self) -> FailureCause {
        FailureCause::of(&self.text)
    }
}

/// Whether LVM says that something went well, as it does of each volume that is made, changed or removed.
fn is_lvm_done(line: &str) -> bool {
    let done = [
        " created.",
        " changed.",
        " successfully removed.",
        " successfully resized.",
    ];
    let of_volume =
        line.starts_with("Logical volume ") && done.iter().any(|end| line.ends_with(end));
    let by_the_way = [
        "Renamed \"",
        "Rounding up size to full physical extent",
        "Size of logical volume ",
    ];
    of_volume || by_the_way.iter().any(|start| line.starts_with(start))
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words())?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_that_leaves_a_disk_is_advised_by_its_log() {
        let log = ["Could not remove disk 'tank:vm-9001-disk-0', check manually: zfs error: cannot destroy 'tank/vm-9001-disk-0': dataset is busy".to_owned()];
        let context = RemedyContext {
            host: Some("pve2"),
            vmid: Some(9001),
            ..RemedyContext::default()
        };
        let failure = TaskFailure::new("WARNINGS: 1".into(), &log, &context);
        let advice = failure.advice().expect("advice");
        assert!(
            advice.contains("a process on pve2 has the disk open"),
            "{advice}"
        );
        assert!(
            failure.to_string().contains("'tank:vm-9001-disk-0'"),
            "{failure}"
        );
    }

    fn failure(text: &str, log: &[&str]) -> TaskFailure {
        let log: Vec<String> = log.iter().map(|line| (*line).to_owned()).collect();
        TaskFailure::new(text.into(), &log, &RemedyContext::default())
    }

    #[test]
    fn a_failed_task_is_told_with_what_its_log_says_and_judged_by_its_last_word() {
        let text = "clone failed: copy failed: command 'qemu-img convert' failed: exit code 1";
        let log = [
            "create full clone of drive scsi0 (local:9000/base-9000-disk-0.qcow2)",
            "trying to acquire lock... can't lock file 'x' - got timeout",
            "transferred 19.0 GiB of 20.0 GiB (95.00%)",
            "qemu-img: error while writing: No space left on device",
            "",
            "TASK ERROR: clone failed: copy failed: command 'qemu-img convert' failed: exit code 1",
        ];
        let told = failure(text, &log);
        let advice = told.advice().expect("a full storage is known");
        assert!(advice.starts_with("free space on the storage"), "{advice}");
        assert!(told.to_string().ends_with(advice), "{told}");
        let shown = told.words();
        assert!(
            shown.starts_with(text) && shown.ends_with("No space left on device"),
            "{shown}"
        );
        assert!(
            !shown.contains("transferred") && !shown.contains("TASK"),
            "{shown}"
        );
        assert_eq!(shown.matches("exit code 1").count(), 1, "{shown}");
        assert_eq!(told.cause(), FailureCause::of(text));
    }

    /// A log as clones on LVM-thin have it: what went well before, and while it was taken back, explains nothing.
    #[test]
    fn what_lvm_did_well_is_not_told_with_a_failure() {
        let text = "clone failed: copy failed: command 'qemu-img convert' failed: exit code 1";
        let log = [
            "  Rounding up size to full physical extent 4.00 MiB",
            "  Logical volume \"vm-9000-disk-0\" created.",
            "  Logical volume pve/vm-9000-disk-0 changed.",
            "qemu-img: error while writing: Input/output error",
            "  Logical volume \"vm-9000-disk-0\" successfully removed.",
        ];
        assert_eq!(
            failure(text, &log).words(),
            format!(
                "{text}; the task's log says: qemu-img: error while writing: Input/output error"
            )
        );
    }

    #[test]
    fn a_log_that_says_no_more_or_too_much_is_no_burden() {
        let text = "the daemon of some storage said no";
        assert_eq!(failure(text, &[]).to_string(), text);
        let same = format!("TASK ERROR: {text}");
        assert_eq!(failure(text, &[&same, text]).to_string(), text);
        let long = "kvm\u{1b}[31m ".repeat(1_000);
        let shown = failure(text, &[&long]).to_string();
        assert!(
            shown.chars().count() < 600 && !shown.contains('\u{1b}'),
            "{shown}"
        );
    }
}
