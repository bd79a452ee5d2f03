// What hosts have for machines beside shares of CPU and memory: storages, PCI devices, CPUs of their own; and the addresses of networks.

import { h, bar, mark } from "./dom.js";
import { bytes, count } from "./format.js";
import { Table } from "./table.js";

export class Stores {
  /// `section(title, id, ...content)` makes a section; `machineLink(name)` a link to what is told of a machine.
  constructor(section, machineLink) {
    this.storages = storageTable();
    this.devices = deviceTable(machineLink);
    this.ownCpus = ownCpuTable(machineLink);
    this.networks = networkTable();
    const tables = [
      ["Storages", this.storages], ["PCI devices", this.devices], ["CPUs of their own", this.ownCpus], ["Addresses", this.networks],
    ];
    this.sections = tables.map(([title, table]) => section(title, title.toLowerCase().replaceAll(" ", "-"), table.element));
  }

  /// Shows what the status tells. A section with nothing in it is hidden.
  update(status) {
    const all = [
      [this.storages, storagesOf(status)], [this.devices, devicesOf(status)], [this.ownCpus, ownCpusOf(status)], [this.networks, networksOf(status)],
    ];
    all.forEach(([table, rows], place) => {
      this.sections[place].hidden = rows.length === 0;
      table.update(rows);
    });
  }
}

/// How somebody was seen who has an address, in the words of `status`.
const SEEN = {
  neighbour: "answers on the wire", former_neighbour: "was in use on the wire a moment ago", tcp: "answers over TCP",
  own_host: "is an address of the daemon's own host",
};

/// A name within its region, where there are several regions.
function within(regions, region, name) {
  return Object.keys(regions).length > 1 ? `${region}/${name}` : name;
}

function storagesOf(status) {
  const regions = status.storages ?? {};
  return Object.entries(regions).flatMap(([region, storages]) => Object.entries(storages).map(([key, state]) => ({
    ...state, key: `${region}/${key}`, name: within(regions, region, state.storage), place: state.hosts.join(", "),
    hinders: (state.notes_details ?? []).some((note) => note.code !== "shares_space"),
  })));
}

function devicesOf(status) {
  const regions = status.devices ?? {};
  const none = { has: 0, free: 0, note: "PVE shows no host with a device of it" };
  return Object.entries(regions).flatMap(([region, mappings]) => Object.entries(mappings).flatMap(([mapping, hosts]) => {
    const name = within(regions, region, mapping);
    const states = Object.keys(hosts).length > 0 ? Object.entries(hosts) : [["", none]];
    return states.map(([host, state]) => ({ ...state, name, host, key: `${region}/${mapping}/${host}` }));
  }));
}

function ownCpusOf(status) {
  const regions = status.own_cpus ?? {};
  return Object.entries(regions).flatMap(([region, hosts]) => Object.entries(hosts).flatMap(([host, nodes]) =>
    Object.entries(nodes).map(([numa, state]) => ({ ...state, name: within(regions, region, host), numa, key: `${region}/${host}/${numa}` }))));
}

function networksOf(status) {
  return Object.entries(status.networks ?? {}).flatMap(([name, families]) =>
    Object.entries(families).map(([family, state]) => ({ ...state, name, key: `${name}/${family}` })));
}

/// What is said of a row, marked where something is in the way.
function notesCell(notes, hinders) {
  return {
    sign: `${hinders} ${notes.join("\n")}`,
    make: () => notes.map((note) => h("p", { class: "why" }, hinders ? mark("warn", note) : note)),
  };
}

/// A part of a whole, with a bar of what is taken of it.
function partCell(free, all, words) {
  return {
    sign: `${free} ${all}`,
    make: () => {
      if (!all) return "not known";
      const taken = (all - free) / all;
      return [bar(taken, taken >= 1 ? "bad" : taken > 0.9 ? "warn" : ""), h("span", { class: "of" }, `${words(free)} of ${words(all)}`)];
    },
  };
}

function storageTable() {
  const pools = (row) => Object.entries(row.pools ?? {}).map(([pool, share]) =>
    `${pool}: ${count(share.machines, "machine")}, ${bytes(share.promised)}${share.min_free ? `, leaves ${bytes(share.min_free)} free` : ""}`);
  return new Table({
    caption: "Storages that disks of machines are on or go to", empty: "No storage was read yet.",
    key: (row) => row.key, text: (row) => `${row.name} ${row.place} ${pools(row).join(" ")} ${(row.notes ?? []).join(" ")}`,
    columns: [
      { name: "Storage", sort: (row) => row.name, cell: (row) => row.name },
      { name: "Host", sort: (row) => row.place, cell: (row) => row.place },
      { name: "Free", num: true, sort: (row) => row.free, cell: (row) => partCell(row.free, row.total, bytes) },
      { name: "Promised to machines", num: true, sort: (row) => row.promised, cell: (row) => bytes(row.promised) },
      { name: "Limit", num: true, sort: (row) => row.most ?? null, cell: (row) => row.most === undefined ? "what is free" : bytes(row.most) },
      { name: "Left for machines", num: true, sort: (row) => row.left ?? null, cell: (row) => row.left === undefined ? "not known" : bytes(row.left) },
      { name: "To whom", cell: (row) => ({ sign: pools(row).join("\n"), make: () => pools(row).map((text) => h("p", {}, text)) }) },
      { name: "Note", wide: true, cell: (row) => notesCell(row.notes ?? [], row.hinders) },
    ],
  });
}

function deviceTable(machineLink) {
  const users = (row) => {
    const times = (number) => number > 1 ? ` (${number})` : "";
    const machines = Object.entries(row.machines ?? {}).map(([name, number]) => [machineLink(name), times(number)]);
    const guests = Object.entries(row.guests ?? {}).map(([vmid, number]) => [`VM ${vmid}, not ours`, times(number)]);
    return [...machines, ...guests].map((parts) => h("p", {}, ...parts));
  };
  return new Table({
    caption: "PCI devices by mapping and host", empty: "No mapping is in use.",
    key: (row) => row.key, text: (row) => `${row.name} ${row.host} ${Object.keys(row.machines ?? {}).join(" ")}`,
    columns: [
      { name: "Mapping", sort: (row) => row.name, cell: (row) => row.name },
      { name: "Host", sort: (row) => row.host, cell: (row) => row.host },
      { name: "Free", num: true, sort: (row) => row.free, cell: (row) => ({ sign: `${row.free} ${row.has}`, make: () => `${row.free} of ${row.has}` }) },
      { name: "Used by", cell: (row) => ({ sign: JSON.stringify([row.machines, row.guests]), make: () => users(row) }) },
      { name: "Note", wide: true, cell: (row) => notesCell(row.note ? [row.note] : [], true) },
    ],
  });
}

function ownCpuTable(machineLink) {
  const owners = (row) => {
    const machines = Object.entries(row.machines ?? {}).map(([name, cpus]) => [machineLink(name), ` (${cpus})`]);
    const guests = Object.entries(row.guests ?? {}).map(([vmid, cpus]) => [`VM ${vmid}, not ours`, ` (${cpus})`]);
    return [...machines, ...guests].map((parts) => h("p", {}, ...parts));
  };
  return new Table({
    caption: "CPUs of hosts that machines get for themselves, by NUMA node", empty: "No pool has cpu_pinning.",
    key: (row) => row.key, text: (row) => `${row.name} ${Object.keys(row.machines ?? {}).join(" ")}`,
    columns: [
      { name: "Host", sort: (row) => row.name, cell: (row) => row.name },
      { name: "NUMA node", num: true, sort: (row) => Number(row.numa), cell: (row) => row.numa },
      { name: "CPUs", cell: (row) => row.cpus },
      { name: "Reserved", cell: (row) => row.reserved ?? "none" },
      { name: "Free", cell: (row) => row.free ?? "none" },
      { name: "Free memory", num: true, sort: (row) => row.free_memory ?? null, cell: (row) => row.free_memory === undefined ? "not counted" : bytes(row.free_memory) },
      { name: "Used by", cell: (row) => ({ sign: JSON.stringify([row.machines, row.guests]), make: () => owners(row) }) },
      { name: "Note", wide: true, cell: (row) => notesCell(row.note ? [row.note] : [], true) },
    ],
  });
}

function networkTable() {
  const notes = (row) => {
    const seen = Object.entries(row.on_wire ?? {}).map(([address, holder]) => `${address} ${SEEN[holder.sign] ?? holder.sign}${holder.mac ? ` (MAC ${holder.mac})` : ""}`);
    return [...(row.note ? [row.note] : []), ...seen];
  };
  return new Table({
    caption: "Addresses of networks", empty: "No network is configured.",
    key: (row) => row.key, text: (row) => `${row.name} ${row.ranges} ${notes(row).join(" ")}`,
    columns: [
      { name: "Network", sort: (row) => row.name, cell: (row) => row.name },
      { name: "Ranges", cell: (row) => row.ranges },
      { name: "Free", num: true, sort: (row) => row.free, cell: (row) => partCell(row.free, row.size, String) },
      { name: "Note", wide: true, cell: (row) => notesCell(notes(row), true) },
    ],
  });
}
