// Why: the explanation of one pod, node or machine, as `explain` gives it, and the search that leads there.

import { h, say, keyed, since, mark, bar } from "./dom.js";
import { cores, bytes, percent, count, millis, step, chosenHost } from "./format.js";
import { Table } from "./table.js";
import { linkTo } from "./now.js";
import { announce, renew } from "./keep.js";
import { ask } from "./live.js";

/// Time between two letters and the search.
const PAUSE = 200;
/// An explanation that is looked at is asked for anew with a turn, and not more often than this.
const ANEW = 5_000;

export class Search {
  title = "Why";

  /// `typed`: what somebody searched for before.
  constructor(typed) {
    this.input = h("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", on: { input: () => this.later() } });
    this.said = h("p", { class: "none", role: "status" });
    this.lists = h("div", { class: "found" });
    this.element = h("section", {},
      h("h1", {}, "Why"),
      h("p", {}, "Why does a pod wait, why does a node stay or go, how is a machine?"),
      h("form", { role: "search", on: { submit: (event) => { event.preventDefault(); this.search(); } } },
        h("label", { for: "search" }, "Part of a name of a pod, a node or a machine"), this.input),
      this.said, this.lists);
    this.input.value = typed?.part ?? "";
    this.search();
  }

  /// What is lost with this view, unless it is kept.
  typed() {
    return { part: this.input.value };
  }

  /// A search that had no answer is made again once the daemon has looked; one that found nothing with each turn.
  update(view) {
    if ((this.unanswered || this.foundNone) && view.status.at) this.search();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), PAUSE);
  }

  async search() {
    clearTimeout(this.timer);
    const part = this.input.value.trim();
    try {
      const found = await ask(`/api/find?q=${encodeURIComponent(part)}`);
      if (part !== this.input.value.trim()) return;
      this.unanswered = false;
      const kinds = [["pod", "Pods", found.pods], ["node", "Nodes", found.nodes], ["machine", "Machines that are no node yet", found.machines]];
      const all = kinds.reduce((sum, kind) => sum + kind[2].length, 0);
      this.foundNone = all === 0;
      say(this.said, all === 0 ? "Nothing has such a name." : found.more ? "There are more; type more of the name." : `${all} found.`);
      keyed(this.lists, kinds.filter((kind) => kind[2].length), (kind) => kind[0],
        (kind) => h("section", {}, h("h2", {}, kind[1]), h("ul", { class: "names" })),
        (element, kind) => keyed(element.lastElementChild, kind[2], (name) => name, (name) => h("li", {}, linkTo(kind[0], name)), () => {}));
    } catch (error) {
      this.unanswered = Boolean(error.later);
      say(this.said, this.unanswered ? `${error.message} It is searched again once it answers.` : error.message);
      keyed(this.lists, []);
    }
  }

  leave() {
    clearTimeout(this.timer);
  }
}

/// The explanation of one thing. `kind`: pod, node or machine.
export class Explained {
  constructor(kind, parts) {
    this.kind = kind;
    this.name = parts.join("/");
    this.title = this.name;
    const wanted = kind === "pod" ? 2 : 1;
    const path = parts.map(encodeURIComponent).join("/");
    this.path = parts.length === wanted && parts.every(Boolean) ? `/api/explain/${kind === "pod" ? "pod" : "node"}/${path}` : null;
    this.head = h("div", { class: "told" });
    this.body = h("div");
    this.tables = new Map();
    this.element = h("article", {}, h("p", { class: "crumb" }, h("a", { href: "#/why" }, "Why"), ` › ${kind}`), h("h1", {}, this.name), this.head, this.body);
    this.asked = -Infinity;
    this.look();
  }

  update(view) {
    if (view.status.at === this.of && !this.unanswered) return;
    this.of = view.status.at;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), Math.max(0, ANEW - (performance.now() - this.asked)));
  }

  leave() {
    this.left = true;
    clearTimeout(this.timer);
  }

  async look() {
    this.asked = performance.now();
    if (!this.path) {
      this.refuse(this.kind === "pod" ? "A pod is named NAMESPACE/NAME." : "The address names no node and no machine.");
      return;
    }
    try {
      const told = await ask(this.path);
      if (this.left) return;
      this.unanswered = false;
      this.body.hidden = false;
      if (this.kind === "pod") this.pod(told);
      else this.node(told);
      this.known = true;
    } catch (error) {
      if (this.left) return;
      this.unanswered = Boolean(error.later);
      // What was told before stays: the banner says how old it is.
      if (!this.known || !this.unanswered) this.refuse(error.message);
    }
  }

  /// What was told of it before no longer holds.
  refuse(why) {
    this.tell(why, h("p", { class: "line" }, mark("warn", why)));
    this.body.hidden = true;
    this.known = false;
  }

  /// Shows what is told of it. Another verdict is said to those who listen; numbers in it change all the while.
  tell(verdict, ...content) {
    renew(this.head, h("div", {}, content));
    if (this.verdict !== undefined && this.verdict !== verdict) announce(`${this.name}: ${this.head.querySelector(".line").textContent}`);
    this.verdict = verdict;
  }

  /// A table that stays, with its order and its page, when the explanation is told anew.
  table(title, definition, rows, note) {
    let known = this.tables.get(title);
    if (!known) {
      const id = `told-${this.tables.size}`;
      const table = new Table({ caption: title, ...definition });
      known = { table, note: h("p", { class: "note" }), section: null };
      known.section = h("section", { "aria-labelledby": id }, h("h2", { id }, title), known.note, table.element);
      this.tables.set(title, known);
      this.body.append(known.section);
    }
    say(known.note, note ?? "");
    known.note.hidden = !note;
    known.section.hidden = rows.length === 0 && !definition.empty;
    known.table.update(rows);
  }

  pod({ story, sentence }) {
    const tone = { no_compatible_pool: "bad", held: "warn", fits_node: "good" }[story.verdict?.verdict] ?? "busy";
    const bound = story.bound ? [mark("good", "It is on the node "), linkTo("node", story.bound), "."] : [mark("idle", `It needs no node: its phase is ${story.phase}.`)];
    this.tell(
      story.verdict?.verdict ?? String(story.bound),
      h("p", { class: "line" }, sentence ? mark(tone, `It ${sentence[0]}.`.replace("It no pool", "No pool")) : bound),
      sentence?.[1] ? h("p", { class: "why" }, sentence[1]) : "",
      facts([
        ["Asks", amounts(story.asks)], ["Priority", String(story.priority)], ["Phase", story.phase], story.place ? ["Place", story.place] : null,
        story.node_to_go ? ["Its node is to go", story.node_to_go.verdict.why] : null,
        story.node_to_go ? ["It then", [fate(story.node_to_go.fate), story.node_to_go.fate.why ? `: ${story.node_to_go.fate.why}` : ""]] : null,
      ]),
      change("What would have to change, one of these", podChanges(story)));
    this.table("New machines", OFFERS, story.offers, "What a new machine of each pool, instance type and host would be to it.");
    if (story.planned?.length || this.tables.has(PLANNED_TITLE)) this.table(PLANNED_TITLE, PLANNED, story.planned ?? [], "What each of them is to it, with the other pods that go there.");
    this.table("Nodes there are", NODES, story.nodes, "What each node, and each machine under way, is to it now.");
    if (story.preferences?.length) this.table("What it prefers", PREFERENCES, story.preferences, story.place ? `Weighed at ${story.place}.` : null);
    this.table("On hold", HOLDS, story.holds);
  }

  node({ story, sentence }) {
    const machine = story.machine;
    const comes = isComing(story);
    const tone = { kept: "good", leaving: "busy", replaced: "busy" }[story.verdict?.verdict] ?? (comes ? "busy" : "idle");
    const decided = sentence ? (sentence[1] ? `${sentence[0]}: ${sentence[1]}` : sentence[0]) : null;
    const stands = comes && story.expected.length ? `${machine.standing}, for ${count(story.expected.length, "pending pod")}` : machine?.standing;
    this.tell(
      story.verdict?.verdict ?? String(machine?.standing),
      h("p", { class: "line" }, mark(tone, decided ?? stands ?? "nothing is decided of it")),
      facts([
        machine ? ["Machine", `${machine.pool} · ${machine.instance_type} · VMID ${machine.vmid} on ${machine.host}${story.regions > 1 ? ` in ${machine.region}` : ""}`] : ["Machine", "none of ours: it is never removed"],
        machine?.cpus ? ["CPUs for itself", machine.cpus] : null,
        machine?.made_of?.template ? ["Made of", madeOf(machine.made_of)] : null,
        machine && decided ? ["Stands", machine.standing] : null,
        machine?.made ? ["Made", [since(millis(machine.made.at)), ` ${chosenHost(machine.made)}`]] : null,
        machine?.made_by ? ["Made", `while the instance on ${machine.made_by} led: why it is on its host is in that one's record (history --machine ${machine.name} on ${machine.made_by})`] : null,
        machine?.step && machine.step[0] !== "done" ? ["Step", [step(machine.step[0]), ", ", since(millis(machine.step[1]), "for")]] : null,
        machine?.waits ? ["It waits", machine.waits] : null,
        story.given_up ? ["It goes once it works", story.given_up.why] : null,
        story.replacement ? ["In its place", replacementFacts(story.replacement)] : null,
        machine?.failure ? ["Failed", [since(millis(machine.failure.at)), `: ${machine.failure.message}`]] : null,
        story.unneeded_since ? ["Unneeded since", since(millis(story.unneeded_since))] : null,
        ...Object.entries(story.requested_permille).map(([name, permille]) => [`${name} asked`, [bar(permille / 1000), ` ${percent(permille / 1000)}`]]),
      ]),
      // Where no machine can be made in its place any of several ways is enough.
      story.changes?.length ? change("What would have to change, one of these", podChanges(story))
        : machine ? change("What would have to change for it to go", nodeChanges(story)) : "");
    // A machine that is no node yet has no pods.
    if (!comes) this.table("If it were removed now", FATES, story.pods);
    if (story.expected.length) this.table("Pending pods that are expected here", EXPECTED, story.expected.map((pod) => ({ pod })));
    this.table("On hold", HOLDS, story.holds);
  }
}

/// Whether the story is of a machine that is no node yet.
function isComing({ machine, verdict, pods }) {
  return Boolean(machine?.step) && machine.step[0] !== "done" && !verdict && pods.length === 0;
}

/// The template of a machine, the storages that were chosen for it, and its devices.
function madeOf({ template, storages, devices }) {
  const parts = [`template ${template}`];
  if (storages?.own) parts.push(`its disks on ${storages.own}`);
  for (const [slot, storage] of Object.entries(storages?.further ?? {})) parts.push(`${slot} on ${storage}`);
  for (const [mapping, number] of Object.entries(devices ?? {})) parts.push(`${count(number, "PCI device")} of ${mapping}`);
  return parts.join(", ");
}

/// A machine that comes in the place of a node, and how far it is.
function replacementFacts(machine) {
  const parts = [linkTo("machine", machine.name), ` · ${machine.instance_type} · VMID ${machine.vmid} on ${machine.host} · ${machine.standing}`];
  if (machine.step) parts.push(", ", step(machine.step[0]), ", ", since(millis(machine.step[1]), "for"));
  if (machine.waits) parts.push(`, it waits: ${machine.waits}`);
  return parts;
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function change(title, items) {
  if (items.length === 0) return "";
  return h("section", { class: "change" }, h("h2", {}, title), h("ul", {}, items.map((item) => h("li", {}, item))));
}

/// The ways to a machine; each of them is enough.
function podChanges(story) {
  return (story.changes ?? []).map(({ places, needed }) => [h("b", {}, places.join(", ")), `: ${needed.join("; and ")}`]);
}

function nodeChanges(story) {
  if (story.verdict?.verdict !== "kept") return [];
  const items = [[story.verdict.why || story.verdict.reason]];
  const blocking = story.pods.filter((pod) => pod.fate.does === "blocks" || pod.fate.does === "unplaced");
  for (const pod of blocking.slice(0, 10)) items.push([linkTo("pod", pod.pod), ` ${fate(pod)}${pod.why ? `: ${pod.why}` : ""}`]);
  if (blocking.length > 10) items.push([`and ${count(blocking.length - 10, "more pod")}, below`]);
  for (const hold of story.holds) items.push([`${hold.scope} is on hold: ${hold.why}`]);
  return items;
}

function amounts(resources) {
  const said = [];
  // The largest number there is stands for what cannot be read.
  const say = (name, amount, words) => said.push(`${name} ${amount >= 2 ** 63 ? "an amount that cannot be read or counted" : words(amount)}`);
  if (resources.cpu_milli) say("CPU", resources.cpu_milli, cores);
  if (resources.memory) say("memory", resources.memory, bytes);
  if (resources.ephemeral) say("ephemeral-storage", resources.ephemeral, bytes);
  for (const [name, amount] of Object.entries(resources.extended ?? {})) say(name, amount, String);
  return said.join(", ") || "nothing";
}

/// All that keeps the pod away from there.
function filter_failures(row) {
  return row.filter_failure ? [row.filter_failure, ...(row.further_filter_failures ?? [])] : [];
}

const answered = (row) => ({
  sign: `${filter_failures(row)} ${Object.keys(row.preempts ?? {})}`,
  make: () => row.filter_failure ? [mark("bad", "no"), filter_failures(row).map((filter_failure) => h("p", { class: "why" }, filter_failure))]
    : [mark("good", row.coming ? "yes, once it is up" : "yes"), preempted(row)],
});

function preempted(row) {
  const names = Object.keys(row.preempts ?? {});
  return names.length ? h("p", { class: "why" }, `kube-scheduler will preempt ${names.join(", ")}`) : null;
}

/// A pool with a type, and its region where the pool is in several.
function offered(row) {
  return `${row.pool}/${row.instance_type}${row.region ? ` in ${row.region}` : ""}`;
}

const OFFERS = {
  empty: "There is nothing that could be made.",
  key: (row) => `${offered(row)}@${row.host}`,
  text: (row) => `${offered(row)} ${row.host} ${filter_failures(row).join(" ")} ${row.held ?? ""}`,
  columns: [
    { name: "Pool/type", sort: offered, cell: offered },
    { name: "Host", sort: (row) => row.host, cell: (row) => row.host || "none may be used" },
    { name: "Free CPU", num: true, sort: (row) => row.free.cpu_milli, cell: (row) => cores(row.free.cpu_milli) },
    { name: "Free memory", num: true, sort: (row) => row.free.memory, cell: (row) => bytes(row.free.memory) },
    { name: "Would it run?", wide: true, sort: (row) => filter_failures(row).join(" "), cell: answered },
    {
      name: "Can be made now?", wide: true, sort: (row) => row.held ?? "",
      cell: (row) => ({ sign: String(row.held), make: () => row.held ? [mark("warn", "no"), h("p", { class: "why" }, row.held)] : mark("good", "yes") }),
    },
  ],
};

const PLANNED_TITLE = "Machines that are planned now";

const PLANNED = {
  key: (row) => row.name,
  text: (row) => `${row.name} ${offered(row)} ${row.host} ${filter_failures(row).join(" ")}`,
  columns: [
    { name: "Machine", sort: (row) => row.name, cell: (row) => row.name },
    { name: "Pool/type", sort: offered, cell: offered },
    { name: "Host", sort: (row) => row.host, cell: (row) => row.host },
    { name: "Free CPU", num: true, sort: (row) => row.free.cpu_milli, cell: (row) => cores(row.free.cpu_milli) },
    { name: "Free memory", num: true, sort: (row) => row.free.memory, cell: (row) => bytes(row.free.memory) },
    {
      name: "Would it run?", wide: true, sort: (row) => filter_failures(row).join(" "),
      cell: (row) => row.own && !row.filter_failure ? { sign: "own", make: () => mark("good", "yes, it goes there") } : answered(row),
    },
  ],
};

const NODES = {
  empty: "There is no node.",
  key: (row) => row.name,
  text: (row) => `${row.name} ${filter_failures(row).join(" ")}`,
  columns: [
    { name: "Node", sort: (row) => row.name, cell: (row) => ({ sign: row.name, make: () => linkTo(row.coming ? "machine" : "node", row.name) }) },
    { name: "Free CPU", num: true, sort: (row) => row.free.cpu_milli, cell: (row) => cores(row.free.cpu_milli) },
    { name: "Free memory", num: true, sort: (row) => row.free.memory, cell: (row) => bytes(row.free.memory) },
    { name: "Would it run?", wide: true, sort: (row) => filter_failures(row).join(" "), cell: answered },
  ],
};

const PREFERENCES = {
  key: (row) => `${row.kind} ${row.preference}`,
  columns: [
    { name: "Preference", sort: (row) => row.preference, cell: (row) => row.preference },
    { name: "Weight", num: true, sort: (row) => row.weight ?? null, cell: (row) => (row.weight ? String(row.weight) : "") },
    { name: "Met", sort: (row) => Number(row.met), cell: (row) => ({ sign: String(row.met), make: () => row.met ? mark("good", "yes") : mark("warn", "no") }) },
    { name: "Why", wide: true, cell: (row) => row.why ?? "" },
  ],
};

const HOLDS = {
  key: (row) => `${row.scope} ${row.why}`,
  columns: [
    { name: "What", sort: (row) => row.scope, cell: (row) => row.scope },
    { name: "Why", wide: true, cell: (row) => row.why },
    { name: "Until", cell: (row) => row.until ? { sign: row.until, make: () => since(millis(row.until)) } : "" },
  ],
};

function fate(pod) {
  const { does, to, reason } = pod.fate;
  return { stays: "does not matter", goes: "ends, nothing replaces it", terminates: "is terminating", moves: `moves to ${to}`, unplaced: "finds no place", blocks: `blocks: ${reason}` }[does] ?? does;
}

const FATES = {
  empty: "No pod is on it.",
  key: (row) => row.pod,
  text: (row) => `${row.pod} ${fate(row)}`,
  columns: [
    { name: "Pod", sort: (row) => row.pod, cell: (row) => ({ sign: row.pod, make: () => linkTo("pod", row.pod) }) },
    { name: "What becomes of it", sort: fate, cell: fate },
    { name: "Why", wide: true, cell: (row) => row.why ?? "" },
  ],
};

const EXPECTED = {
  key: (row) => row.pod,
  columns: [{ name: "Pod", sort: (row) => row.pod, cell: (row) => ({ sign: row.pod, make: () => linkTo("pod", row.pod) }) }],
};
