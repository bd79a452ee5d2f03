//! PCI devices that machines can get, by mapping and host: how many there are, who has them, how many are free.

use model::pci;
use model::reasons::Refused;
use model::region::Region;
use model::store_states::DeviceState;

use crate::decision::turn::DecisionBuilder;
use crate::scale_up::devices::{DeviceRoom, DeviceUser, DeviceUses};
use crate::scale_up::limits::LimitTracker;
use crate::simulation::takes::{self, HostMapping};

/// Writes the devices into the report: of each mapping that an instance type names, on each host that has some.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>, limits: &LimitTracker) {
    let (snapshot, policy) = (turn.view.snapshot, turn.view.policy);
    for name in snapshot.regions.keys() {
        let mappings = policy.devices_in(name);
        if mappings.is_empty() || turn.holds.unread_in(name).is_some() {
            continue;
        }
        // A mapping that PVE does not show is there without hosts.
        let of_region = turn.report.devices.entry(name.clone()).or_default();
        for (mapping, mdev) in mappings {
            of_region.entry(pci::called(mapping, mdev)).or_default();
        }
    }
    if turn.report.devices.is_empty() {
        return;
    }
    let (stores, indexes) = limits.stores();
    let uses = DeviceUses::of(turn);
    for (mapping, room) in indexes.mappings.iter().zip(stores.devices()) {
        let region = snapshot.regions.get(&mapping.region);
        let of_region = turn.report.devices.get_mut(&mapping.region);
        let of_mapping = of_region.and_then(|of| of.get_mut(&mapping.called()));
        if let Some((hosts, region)) = of_mapping.zip(region) {
            let state = state(region, mapping, room, &uses);
            hosts.insert(mapping.host.clone(), state);
        }
    }
}

fn state(
    region: &Region,
    mapping: &HostMapping,
    room: &DeviceRoom,
    uses: &DeviceUses<'_>,
) -> DeviceState {
    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let known = takes::known(
        region,
        &mapping.host,
        &mapping.mapping,
        mapping.mdev.as_ref(),
    );
    let why = known.err().or_else(|| room.refusal(mapping));
    let note = why.clone().map(|refusal| {
        let host = mapping.host.clone();
        Refused::Host { host, refusal }.to_string()
    });
    let mut state = DeviceState {
        has: number(room.has()),
        free: number(room.free()),
        note,
        note_details: why,
        ..DeviceState::default()
    };
    for user in uses.users(mapping) {
        match user {
            DeviceUser::Machine(name) => *state.machines.entry(name.clone()).or_default() += 1,
            DeviceUser::Guest(vmid) => *state.guests.entry(vmid).or_default() += 1,
        }
    }
    state
}
