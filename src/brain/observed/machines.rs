//! Our machines by name, side by side: every step walks over them, few look for one.

use std::ops::Index;

use crate::observed::view::MachineView;

/// Machines in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct MachineViews<'a>(Vec<MachineView<'a>>);

impl<'a> MachineViews<'a> {
    /// From machines that come in the order of their names.
    pub(crate) fn in_order(machines: Vec<MachineView<'a>>) -> MachineViews<'a> {
        debug_assert!(machines.is_sorted_by(|a, b| a.name < b.name));
        MachineViews(machines)
    }

    /// All of them.
    pub(crate) fn values(&self) -> std::slice::Iter<'_, MachineView<'a>> {
        self.0.iter()
    }

    /// The one with a name.
    pub(crate) fn get(&self, name: &str) -> Option<&MachineView<'a>> {
        let found = self.0.binary_search_by(|known| (**known.name).cmp(name));
        self.0.get(found.ok()?)
    }
}

impl<'a> Index<usize> for MachineViews<'a> {
    type Output = MachineView<'a>;

    /// The one at a position in the order of names.
    fn index(&self, position: usize) -> &MachineView<'a> {
        &self.0[position]
    }
}
