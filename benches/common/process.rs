//! What the kernel says of a process: memory and processor time. Linux's `/proc`, as proc(5) has it.

use std::fs;
use std::time::Duration;

/// The kernel's ticks in a second of processor time (`USER_HZ`), which is 100 on every architecture
/// Debian has.
const TICKS_PER_SECOND: u32 = 100;

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All that is resident now (`VmRSS`).
    pub(crate) resident: u64,
    /// What of it is the process's own and no file's (`RssAnon`).
    pub(crate) anonymous: u64,
    /// The most that was ever resident (`VmHWM`).
    pub(crate) peak: u64,
}

/// A process's memory; `None` when it is gone.
pub(crate) fn memory(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        let number: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(number * 1024)
    };
    Some(Memory {
        resident: kib("VmRSS:")?,
        anonymous: kib("RssAnon:")?,
        peak: kib("VmHWM:")?,
    })
}

/// User and system time that a process has used, its ended children not counted, in the kernel's
/// steps of 10 ms; `None` when it is gone.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs(1) * (user + system) / TICKS_PER_SECOND)
}

/// Processor time of a process's ended and awaited children.
pub(crate) fn children_time(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs(1) * (user + system) / TICKS_PER_SECOND)
}
