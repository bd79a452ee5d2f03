//! Bugs that tests plant, one at a time, to see that somebody finds them.
//!
//! A judge that never saw a fault may be blind to it. So the places that protect people's pods and machines ask
//! `planted!(BUG)`, which is true while a test of the same thread has planted that bug. Programs that people run
//! know nothing of it: without debug assertions the macro is the word `false`, and this module is empty.

#[cfg(debug_assertions)]
mod on {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// A fault of the daemon, wherever it is protected against it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bug {
        /// A VM that carried our mark once counts as ours for ever; nor does the broker look.
        MarkNotReRead,
        /// The intent is only in memory when the clone is asked for.
        IntentNotDurable,
        /// Pods are deleted instead of evicted.
        PodsDeleted,
        /// The brain and the checker act without quorum.
        QuorumIgnored,
        /// The brain and the checker act on views of any age.
        StaleViewsUsed,
        /// What was left behind is cleared away at once.
        NoQuarantine,
        /// A node is a machine's by its name, whatever its UUID.
        UuidNotChecked,
        /// A drain believes the plan's list of pods.
        NoFreshLook,
        /// A drain begins without cordon and taint.
        NoCordon,
        /// A clone whose answer was lost counts as failed.
        LostReplyIsFailure,
        /// A clone that may be under way is not looked for.
        RunningCloneIgnored,
        /// A VM goes though volumes are attached to its node.
        VolumesIgnored,
        /// Without a drain nobody looks whether pods would be lost.
        NothingToLose,
        /// A node whose drain failed stays cordoned.
        NotReleased,
        /// Machines are removed however many have lost their nodes.
        ManyLostIgnored,
        /// The sweep deletes Nodes that are Ready.
        ReadyNodeDeleted,
        /// What is being done goes on without the lease.
        LeaseIgnored,
        /// A pool that failed is tried again at once.
        NoBackoff,
        /// PVE is not asked to forget what it knows of a VM.
        NoPurge,
        /// A failed machine goes though its pool keeps it.
        FailedNotKept,
        /// Before an address is written nobody looks whether another guest has it.
        AddressNotLookedUp,
        /// Addresses of new machines are not asked for on the wire.
        WireNotAsked,
        /// Before CPUs are written nobody looks whether another guest has them.
        CpusNotLookedUp,
        /// A machine is looked at as it was before its action ended.
        NoSettling,
        /// What PVE answers is read however damaged it is, and a VM that its list leaves out is gone.
        AnswersNotChecked,
        /// Nodes take pods as soon as they are ready, in any order.
        OpensAtOnce,
    }

    /// Takes the bug away again when it is dropped.
    #[derive(Debug)]
    #[must_use = "the bug goes with it"]
    pub struct Planted(());

    /// Plants a bug in this thread.
    pub fn plant(bug: Bug) -> Planted {
        PLANTED.set(Some(bug));
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    /// Whether this bug is planted in this thread.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub use on::{Bug, Planted, is_planted, plant};

/// Whether a test of this thread has planted this bug; `false` in programs that people run.
#[cfg(debug_assertions)]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::is_planted($crate::Bug::$bug)
    };
}

/// Whether a test of this thread has planted this bug; `false` in programs that people run.
#[cfg(not(debug_assertions))]
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}
