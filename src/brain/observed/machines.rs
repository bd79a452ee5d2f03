//! Our machines by name, side by side: every step walks over them, few look for one.

use std::ops::Index;

use crate::index::{IndexVec, MachineIndex};
use crate::observed::view::MachineView;

/// Machines in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct MachineViews<'a>(IndexVec<MachineIndex, MachineView<'a>>);

impl<'a> MachineViews<'a> {
    /// From machines that come in the order of their names.
    pub(crate) fn in_order(machines: IndexVec<MachineIndex, MachineView<'a>>) -> MachineViews<'a> {
        debug_assert!(machines.is_sorted_by(|a, b| a.name < b.name));
        MachineViews(machines)
    }

    /// All of them.
    pub(crate) fn values(&self) -> std::slice::Iter<'_, MachineView<'a>> {
        self.0.iter()
    }

    /// The one with a name.
    pub(crate) fn get(&self, name: &str) -> Option<&MachineView<'a>> {
        let found = self
            .0
            .binary_search_by(|machine| (**machine.name).cmp(name));
        found.ok().map(|found| &self.0[MachineIndex(found)])
    }
}

impl<'a> Index<MachineIndex> for MachineViews<'a> {
    type Output = MachineView<'a>;

    fn index(&self, machine: MachineIndex) -> &MachineView<'a> {
        &self.0[machine]
    }
}
