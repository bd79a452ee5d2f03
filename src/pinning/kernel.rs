//! Where threads run, as the kernel is asked and told.

use std::fmt::Debug;
use std::io;

use nix::sched;
use nix::unistd::Pid;

use crate::model::cpus::CpuSet;

/// Asks and tells where a thread runs.
pub trait Affinity: Debug {
    /// The CPUs that a thread may run on.
    fn get(&self, tid: i32) -> io::Result<CpuSet>;
    /// Lets a thread run on these.
    fn set(&self, tid: i32, cpus: &CpuSet) -> io::Result<()>;
}

/// The kernel of this host: `sched_getaffinity`, `sched_setaffinity`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Affinity for Kernel {
    fn get(&self, tid: i32) -> io::Result<CpuSet> {
        let told = sched::sched_getaffinity(Pid::from_raw(tid))?;
        let mut cpus = CpuSet::new();
        for cpu in 0..sched::CpuSet::count() {
            if told.is_set(cpu)?
                && let Ok(cpu) = u16::try_from(cpu)
            {
                cpus.insert(cpu);
            }
        }
        Ok(cpus)
    }

    fn set(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        let mut told = sched::CpuSet::new();
        for cpu in cpus.iter() {
            told.set(usize::from(cpu))?;
        }
        Ok(sched::sched_setaffinity(Pid::from_raw(tid), &told)?)
    }
}
