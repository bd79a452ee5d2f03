//! What this process takes, under the names of Prometheus' own client libraries. Read from `/proc` when somebody asks;
//! what cannot be read keeps its value.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::gauges::FloatGauge;
use crate::clock::Clock;

/// The kernel's ticks a second, as it shows them to every process on every platform that we run on (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The process in numbers.
#[derive(Debug, Default)]
pub(super) struct Process {
    cpu: Counter<f64, AtomicU64>,
    resident: FloatGauge,
    virtual_memory: FloatGauge,
    open_files: FloatGauge,
    max_files: FloatGauge,
    threads: FloatGauge,
    started: FloatGauge,
}

impl Process {
    /// All of them, registered.
    pub(super) fn register(registry: &mut Registry) -> Process {
        let process = Process::default();
        #[expect(clippy::cast_precision_loss, reason = "a metric: 53 bits are plenty")]
        process.started.set(Clock::System.now().0 as f64 / 1000.0);
        registry.register(
            "process_cpu_seconds",
            "User and system CPU time spent in seconds",
            process.cpu.clone(),
        );
        for (name, help, gauge) in [
            (
                "process_resident_memory_bytes",
                "Resident memory in bytes",
                &process.resident,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory in bytes",
                &process.virtual_memory,
            ),
            (
                "process_open_fds",
                "Open file descriptors",
                &process.open_files,
            ),
            (
                "process_max_fds",
                "File descriptors that may be open",
                &process.max_files,
            ),
            ("process_threads", "Threads", &process.threads),
            (
                "process_start_time_seconds",
                "When the process started, in Unix seconds",
                &process.started,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        process
    }

    /// Looks at the process as it is now.
    pub(super) fn look(&self) {
        if let Ok(stat) = fs::read_to_string("/proc/self/stat")
            && let Some(ticks) = cpu_ticks(&stat)
        {
            let seconds = ticks / TICKS;
            self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        }
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            let number = |key: &str| field(&status, key);
            for (key, unit, gauge) in [
                ("VmRSS:", 1024.0, &self.resident),
                ("VmSize:", 1024.0, &self.virtual_memory),
                ("Threads:", 1.0, &self.threads),
            ] {
                if let Some(value) = number(key) {
                    gauge.set(value * unit);
                }
            }
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // One of them is what they are counted with.
            let many = u32::try_from(files.count().saturating_sub(1)).unwrap_or(u32::MAX);
            self.open_files.set(f64::from(many));
        }
        if let Ok(limits) = fs::read_to_string("/proc/self/limits")
            && let Some(most) = field(&limits, "Max open files")
        {
            self.max_files.set(most);
        }
    }
}

/// User and system time of `/proc/self/stat`. The program's name before them may have blanks and parentheses in it.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

/// The first number of the line that begins with `key`.
fn field(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_program_is_called() {
        let stat = "17 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 7 8";
        assert_eq!(cpu_ticks(stat), Some(300.0));
        assert_eq!(cpu_ticks("17 (a) S 1"), None);
        let status = "Name:\ta\nVmRSS:\t   1234 kB\nThreads:\t2\n";
        assert_eq!(field(status, "VmRSS:"), Some(1234.0));
        let limits = "Max open files            1024                 524288               files\n";
        assert_eq!(field(limits, "Max open files"), Some(1024.0));
        assert_eq!(field(status, "VmHWM:"), None);
    }
}
