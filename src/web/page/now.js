// The first view: how things stand.

import { h, say, fill, keyed, since, bar, mark } from "./dom.js";
import { cores, bytes, span, count, millis, step, stepTells, drift, pinned, chosenHost, UP, DOWN } from "./format.js";
import { Table } from "./table.js";
import { ask, now } from "./live.js";
import { panel } from "./demo.js";
import { legendOfNow } from "./legend.js";
import { Stores } from "./stores.js";
import { EvacuateButton, may, PausePanel, retryButton } from "./acts.js";

const VERDICTS = {
  no_compatible_pool: ["bad", "no pool can run it"], held: ["warn", "has to wait"], unread: ["idle", "not judged yet"],
  batched: ["busy", "planned for soon"], triggers: ["busy", "a machine is planned"], fits_machine: ["busy", "a machine comes"],
  fits_node: ["good", "fits a node"], ignored: ["idle", "left alone"],
};

/// A link into the explanation of something.
export function pathTo(kind, name) {
  return `#/${kind}/${name.split("/").map(encodeURIComponent).join("/")}`;
}
export function linkTo(kind, name) {
  return h("a", { href: pathTo(kind, name) }, name);
}
const linked = (kind, name) => ({ sign: `${kind}/${name}`, make: () => linkTo(kind, name) });

function section(title, id, ...content) {
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

export class Now {
  title = "Now";
  /// It shows nothing but what the daemon's view has.
  waits = true;

  constructor() {
    this.line = h("p", { class: "line" });
    this.demo = h("div");
    this.tiles = h("dl", { class: "tiles" });
    this.care = h("ul", { class: "care" });
    this.careSection = section("To look at", "care", this.care);
    this.pause = new PausePanel();
    /// Sentences whose pods are all shown.
    this.opened = new Set();
    this.pending = pendingTable((key) => {
      if (!this.opened.delete(key)) this.opened.add(key);
      this.showPending(this.lastPending);
    });
    this.work = h("ul", { class: "cards work" });
    this.noWork = h("p", { class: "none" }, "No machine is being made or removed.");
    this.plan = planTable();
    this.growth = h("p", { class: "note" });
    this.pools = poolTable();
    this.hosts = h("ul", { class: "cards hosts" });
    this.noHosts = h("p", { class: "none" }, "No host was read yet.");
    this.stores = new Stores(section, (name) => linkTo("machine", name));
    this.nodes = nodeTable();
    this.element = h("div", {},
      h("h1", { class: "hidden" }, "Now"), this.line, this.demo, this.tiles, legendOfNow(), this.careSection, this.pause.element,
      section("Pending pods", "pending", this.pending.element),
      section("Machines under way", "work", this.noWork, this.work),
      section("Decided in the last turn", "plan", this.growth, this.plan.element),
      section("Pools", "pools", this.pools.element),
      section("Hosts", "hosts", this.noHosts, this.hosts),
      ...this.stores.sections,
      section("Nodes", "nodes", this.nodes.element));
  }

  update(view) {
    const { status } = view;
    say(this.line, headline(view));
    if (view.demo && !this.demo.firstChild) this.demo.append(panel(view.pace));
    this.showTiles(view);
    this.showCare(view);
    this.pause.update(status.paused !== null);
    this.showPending(view.pending);
    this.showWork(view);
    say(this.growth, view.growth ?? "");
    this.growth.hidden = !view.growth;
    this.plan.update(view.plan.map((action, place) => ({ ...action, place })));
    this.pools.update(Object.entries(status.pools).map(([name, pool]) => ({ name, ...pool })));
    this.showHosts(view);
    this.stores.update(status);
    this.nodes.none.textContent = status.unread?.includes("kube/nodes") || !status.at ? "No node was read yet." : "No node is in the cluster.";
    this.nodes.update(view.nodes.map((node) => ({ ...node, behind: behind(node.machine, view) })));
  }

  /// Pods without a node; those of whom the same is said stand together, until somebody opens them.
  showPending(pending) {
    this.lastPending = pending;
    const rows = pending.pods.map((pod) => ({ ...pod, words: pending.sentences[pod.says] }));
    this.pending.update(together(rows, this.opened), pending.total - hiddenIn(rows, this.opened));
  }

  showTiles({ status, nodes, pending }) {
    const pools = Object.values(status.pools);
    const sum = (name) => pools.reduce((all, pool) => all + pool[name], 0);
    const known = !pools.some((pool) => pool.unread);
    const waiting = status.pending.held + status.pending.no_compatible_pool;
    const tiles = [
      ["Nodes of pools", known ? sum("ready") + sum("unready") : "?", `${known && sum("unready") ? `${sum("unready")} not ready; ` : ""}${nodes.length} in the cluster`, ""],
      ["Coming", sum("coming"), onTheWay(sum("coming"), "up"), ""],
      ["Leaving", sum("leaving"), onTheWay(sum("leaving"), "down"), ""],
      ["Pending pods", pending.total, `${status.pending.awaited} ${status.pending.awaited === 1 ? "has" : "have"} a place or one on its way${status.pending.batched ? `, ${status.pending.batched} planned for soon` : ""}`, ""],
      ["Without prospect", waiting, `on hold, or no pool can run ${waiting === 1 ? "it" : "them"}`, waiting ? "warn" : ""],
    ];
    keyed(this.tiles, tiles, (tile) => tile[0],
      (tile) => h("div", {}, h("dt", {}, tile[0]), h("dd", { class: "number" }), h("dd", { class: "sub" })),
      (element, tile) => {
        element.className = tile[3];
        say(element.children[1], String(tile[1]));
        say(element.children[2], tile[2]);
      });
  }

  showCare({ status }) {
    const items = [];
    const add = (tone, kind, text, until) => items.push({ tone, kind, text, until: millis(until) });
    if (status.paused !== null) add("warn", "Paused", status.paused || "by a person");
    for (const problem of status.problems) add("bad", "Daemon", problem);
    for (const trouble of status.troubles) {
      if (trouble.cause) add(trouble.hinders ? "bad" : "warn", "Fault", `${trouble.cause} (${trouble.effect})`);
      else add("warn", "Wait", `${trouble.effect}: it is being read; nothing is decided on it until that ends`);
    }
    for (const hold of status.holds) add("warn", `On hold: ${hold.scope}`, hold.why, hold.until);
    for (const warning of status.warnings) add("warn", "Look at", warning);
    this.careSection.hidden = items.length === 0;
    keyed(this.care, items, (item) => `${item.kind}\n${item.text}`,
      (item) => h("li", {}, h("b", {}, mark(item.tone, item.kind)), h("span", {}, item.text), h("span", { class: "until" })),
      (element, item) => fill(element.lastElementChild, String(item.until), () => item.until ? since(item.until) : null));
  }

  showWork(view) {
    const machines = Object.entries(view.status.machines)
      .map(([name, machine]) => ({ name, ...machine }))
      .filter((machine) => machine.busy || machine.failure || machine.ails || machine.off || (machine.step && machine.step[0] !== "done"));
    this.noWork.hidden = machines.length > 0;
    keyed(this.work, machines, (machine) => machine.name, machineCard, (card, machine) => updateMachine(card, machine, view));
  }

  showHosts({ status, hosts }) {
    const rows = [];
    for (const [region, all] of Object.entries(status.hosts)) {
      for (const [name, host] of Object.entries(all)) {
        rows.push({ region, name, ...host, now: hosts[region]?.[name] ?? null, alone: Object.keys(status.hosts).length === 1 });
      }
    }
    this.noHosts.hidden = rows.length > 0;
    keyed(this.hosts, rows, (host) => `${host.region}/${host.name}`, hostCard, updateHost);
  }

  /// Times of machines under way go on.
  tick(time) {
    for (const card of this.work.children) card.goOn?.(time);
  }
}

/// What is told of the machine behind a node: its place, the CPUs that it has for itself, and how it differs from the file.
function behind(name, view) {
  const machine = view.status.machines[name];
  if (!machine) return { place: "", cpus: "", drifted: "" };
  return { place: placeOf(machine, view), cpus: pinned(machine.cpus, view.numa[name]), drifted: machine.drifted?.length ? drift(machine.drifted) : "" };
}

/// A machine's host, and its region where there are several.
function placeOf(machine, view) {
  return machine.host + (machine.region && Object.keys(view.status.hosts).length > 1 ? ` in ${machine.region}` : "");
}

/// What a number of machines is doing.
function onTheWay(number, where) {
  return number === 1 ? `machine on its way ${where}` : `machines on their way ${where}`;
}

function headline(view) {
  return view.line.charAt(0).toUpperCase() + view.line.slice(1);
}

/// As many pods beside the first one of whom the same is said have a row each, as in `plan`.
const ALIKE = 3;

/// What is said of a pod, as a key.
function lotOf(row) {
  return `${row.verdict}\n${row.words.join("\n")}`;
}

/// A lot as it is remembered while it is open: numbers and times in what is said change all the while.
function keyOf(lot) {
  return lot.replace(/\d+/g, "#");
}

function lots(rows) {
  const found = new Map();
  for (const row of rows) {
    const lot = lotOf(row);
    found.set(lot, [...(found.get(lot) ?? []), row]);
  }
  return found;
}

/// Rows of pods with what is the same of many said once, by the first of them; those that were opened have all.
function together(rows, opened) {
  const found = lots(rows);
  const seen = new Set();
  return rows.flatMap((row) => {
    const lot = lotOf(row);
    const all = found.get(lot);
    if (all.length - 1 <= ALIKE) return [row];
    const first = !seen.has(lot);
    seen.add(lot);
    if (opened.has(keyOf(lot))) return [first ? { ...row, lot, open: true } : row];
    if (!first) return [];
    const sum = (key) => all.reduce((sum, one) => sum + one[key], 0);
    const oldest = all.map((one) => one.since).filter(Boolean).sort()[0] ?? null;
    return [{ ...row, lot, others: all.slice(1).map((one) => one.pod), cpu_milli: sum("cpu_milli"), memory: sum("memory"), since: oldest }];
  });
}

/// How many rows of these stand behind others.
function hiddenIn(rows, opened) {
  return rows.length - together(rows, opened).length;
}

/// A pod, and how many others of whom the same is said stand behind it.
function podCell(row, toggle) {
  const open = Boolean(row.open);
  return {
    sign: `${row.pod} ${row.others?.length ?? ""} ${open}`,
    make: () => row.lot
      ? [linkTo("pod", row.pod), " ", h("button", { type: "button", class: "quiet", "aria-expanded": String(open), on: { click: () => toggle(keyOf(row.lot)) } },
        open ? "Show one for all" : `and ${row.others.length} more`)]
      : linkTo("pod", row.pod),
  };
}

function pendingTable(toggle) {
  return new Table({
    caption: "Pods without a node",
    empty: "No pod waits for a node.",
    key: (row) => row.pod,
    text: (row) => `${row.pod} ${(row.others ?? []).join(" ")} ${row.words.join(" ")}`,
    columns: [
      { name: "Pod", sort: (row) => row.pod, cell: (row) => podCell(row, toggle) },
      {
        name: "What it waits for", wide: true, sort: (row) => row.words.join(" "),
        cell: (row) => ({
          sign: row.verdict + row.words.join("\n"),
          make: () => [mark(VERDICTS[row.verdict]?.[0] ?? "idle", row.words[0]), row.words[1] ? h("p", { class: "why" }, row.words[1]) : null],
        }),
      },
      { name: "Waiting", num: true, sort: (row) => row.since ? -millis(row.since) : null, cell: (row) => ago(row.since) },
      { name: "CPU", num: true, sort: (row) => row.cpu_milli, cell: (row) => cores(row.cpu_milli) },
      { name: "Memory", num: true, sort: (row) => row.memory, cell: (row) => bytes(row.memory) },
    ],
  });
}

function ago(text) {
  return text ? { sign: text, make: () => since(millis(text), "for") } : "";
}

function planTable() {
  return new Table({
    caption: "Actions of the last turn's plan",
    empty: "Nothing to do.",
    key: (row) => `${row.place} ${row.verb} ${row.machine}`,
    columns: [
      { name: "Machine", sort: (row) => row.machine, cell: (row) => linked("machine", row.machine) },
      { name: "Action", sort: (row) => row.verb, cell: (row) => row.verb },
      { name: "What", cell: (row) => row.what },
      { name: "Why", wide: true, cell: (row) => row.why },
    ],
  });
}

export function poolTable() {
  const number = (name, title, key) => ({ name: title, num: true, sort: (row) => row[key], cell: (row) => row.unread ? "?" : String(row[key]) });
  return new Table({
    caption: "Pools",
    empty: "No pool is configured, or none was read yet.",
    key: (row) => row.name,
    columns: [
      { name: "Pool", sort: (row) => row.name, cell: (row) => row.name },
      {
        name: "Nodes, of at most", sort: (row) => row.ready,
        cell: (row) => ({
          sign: `${row.ready} ${row.max} ${row.unread}`,
          make: () => row.unread ? "?" : [bar(row.max ? row.ready / row.max : 0), ` ${row.ready} of ${row.max}`],
        }),
      },
      { name: "At least", num: true, sort: (row) => row.min, cell: (row) => String(row.min) },
      number("coming", "Coming", "coming"), number("leaving", "Leaving", "leaving"), number("unready", "Not ready", "unready"),
      {
        name: "Back-off", wide: true,
        cell: (row) => ({
          sign: `${row.backoff_until} ${row.backoff_message}`,
          make: () => row.backoff_until
            ? [mark("warn", "until "), since(millis(row.backoff_until)), h("p", { class: "why" }, row.backoff_message ?? "none of its machines works yet")]
            : "none",
        }),
      },
      { name: "Failed, kept to look into", cell: keptOf },
      ...(may.act ? [{ name: "After mending", cell: (row) => ({ sign: row.name, make: () => retryButton(row.name) }) }] : []),
    ],
  });
}

/// Failed machines that a pool keeps, and until when.
function keptOf(row) {
  const kept = Object.entries(row.kept ?? {});
  return {
    sign: JSON.stringify(kept),
    make: () => kept.length === 0 ? "none"
      : h("ul", { class: "kept" }, ...kept.map(([name, until]) => h("li", {}, linkTo("machine", name), " until ", since(millis(until))))),
  };
}

function nodeTable() {
  const table = new Table({
    caption: "Nodes",
    empty: "No node is in the cluster.",
    key: (row) => row.name,
    text: (row) => `${row.name} ${row.pool ?? ""} ${Object.values(row.behind).join(" ")} ${(row.verdict ?? []).join(" ")}`,
    detailName: "pods",
    detail: showPods,
    columns: [
      { name: "Node", sort: (row) => row.name, cell: (row) => linked("node", row.name) },
      {
        name: "State", sort: (row) => nodeState(row).join() + row.behind.drifted,
        cell: (row) => ({
          sign: nodeState(row).join() + row.behind.drifted,
          make: () => [mark(...nodeState(row)), row.behind.drifted ? h("p", { class: "why" }, mark("idle", row.behind.drifted)) : null],
        }),
      },
      { name: "Pool", sort: (row) => row.pool ?? "", cell: (row) => row.pool ?? "none of ours" },
      {
        name: "Host", sort: (row) => row.behind.place,
        cell: (row) => ({
          sign: `${row.behind.place}\n${row.behind.cpus}`,
          make: () => [row.behind.place, row.behind.cpus ? h("p", { class: "why" }, row.behind.cpus) : null],
        }),
      },
      asked("CPU asked", "asked_cpu_milli", "cpu_milli", cores),
      asked("Memory asked", "asked_memory", "memory", bytes),
      { name: "Pods", num: true, sort: (row) => row.pods, cell: (row) => `${row.pods} of ${row.max_pods}` },
      {
        name: "Verdict", wide: true, sort: (row) => (row.verdict ?? []).join(" "),
        cell: (row) => ({
          sign: (row.verdict ?? []).join("\n"),
          make: () => row.verdict ? [h("span", {}, row.verdict[0]), row.verdict[1] ? h("p", { class: "why" }, row.verdict[1]) : null] : "",
        }),
      },
    ],
  });
  return table;
}

function asked(name, part, whole, words) {
  const share = (row) => row[whole] ? row[part] / row[whole] : 0;
  return {
    name, num: true, sort: share,
    cell: (row) => ({
      sign: `${row[part]} ${row[whole]}`,
      make: () => [bar(share(row), share(row) > 1 ? "bad" : ""), h("span", { class: "of" }, `${words(row[part])} of ${words(row[whole])}`)],
    }),
  };
}

function nodeState(node) {
  if (!node.ready) return ["bad", "not Ready"];
  return node.cordoned ? ["warn", "cordoned"] : ["good", "Ready"];
}

/// The pods of a node, asked for when its row is opened, and again when its number of pods is another.
async function showPods(node, element) {
  const sign = `${node.name} ${node.pods}`;
  if (element.askedFor === sign) return;
  element.askedFor = sign;
  if (!element.firstChild) element.replaceChildren(h("p", { class: "none" }, "Asking…"));
  try {
    const { pods, more } = await ask(`/api/pods/${encodeURIComponent(node.name)}`);
    const table = new Table({
      caption: `Pods of ${node.name}`, empty: "No pod is on it.", key: (row) => row.pod, text: (row) => row.pod,
      columns: [
        { name: "Pod", sort: (row) => row.pod, cell: (row) => linked("pod", row.pod) },
        { name: "State", sort: podState, cell: podState },
        { name: "Since", num: true, sort: (row) => -millis(row.since), cell: (row) => ago(row.since) },
        { name: "CPU", num: true, sort: (row) => row.cpu_milli, cell: (row) => cores(row.cpu_milli) },
        { name: "Memory", num: true, sort: (row) => row.memory, cell: (row) => bytes(row.memory) },
      ],
    });
    table.update(pods, pods.length + more);
    element.replaceChildren(table.element);
  } catch (error) {
    element.askedFor = null;
    element.replaceChildren(h("p", { class: "none" }, error.message));
  }
}

function podState(pod) {
  if (pod.leaving) return "being deleted";
  return pod.phase === "Running" ? (pod.ready ? "ready" : "running, not ready") : pod.phase.toLowerCase();
}

function machineCard(machine) {
  const card = h("li", {},
    h("h3", {}, linkTo("machine", machine.name)), h("p", { class: "sub" }), h("p", { class: "why" }),
    h("ol", { class: "steps" }), h("p", { class: "time" }), h("p", { class: "waits" }), h("p", { class: "failed" }), h("p", { class: "drift" }));
  return card;
}

function updateMachine(card, machine, view) {
  const [, place, chosen, steps, time, waits, failed, differs] = card.children;
  const { place: host, cpus, drifted } = behind(machine.name, view);
  say(place, `${machine.pool} · ${machine.instance_type} · VMID ${machine.vmid} on ${host}${cpus ? ` · ${cpus}` : ""}`);
  const made = view.made?.[machine.name];
  say(chosen, made ? `Made ${chosenHost(made)}` : "");
  fill(differs, drifted, () => drifted ? mark("idle", drifted) : null);
  const current = machine.step?.[0];
  const down = machine.busy === "down" || DOWN.includes(current);
  const path = down ? DOWN : UP;
  const at = path.indexOf(current);
  fill(steps, `${current} ${machine.busy} ${current === "done"}`, () => path.map((name, index) => {
    const standing = current === "done" || index < at ? "past" : index === at ? "current" : "";
    return h("li", { class: standing, title: stepTells(name), "aria-current": index === at ? "step" : null },
      h("span", { class: "hidden" }, standing === "past" ? "done: " : standing === "current" ? "now: " : "then: "), step(name));
  }));
  const [begun, usual, limit] = [machine.step ? millis(machine.step[1]) : null, view.usual[machine.pool]?.[current], view.deadlines[current]];
  card.goOn = (clock) => showTime(time, { machine, begun, usual, limit, clock });
  card.goOn(now());
  const hindered = machine.waits?.hindered;
  fill(waits, JSON.stringify([machine.waits?.what, hindered, machine.ails, machine.off]), () => {
    const words = machine.waits?.what ?? machine.ails ?? (machine.off ? "Its VM is off." : null);
    return words ? (hindered || machine.ails ? mark("warn", words) : words) : null;
  });
  fill(failed, JSON.stringify(machine.failure), () => machine.failure
    ? [mark("bad", `failed in ${step(machine.failure.step)} `), since(millis(machine.failure.at)), h("span", { class: "words" }, machine.failure.message)]
    : null);
}

/// How long the step has lasted, beside what it usually takes.
function showTime(element, { machine, begun, usual, limit, clock }) {
  if (!begun) {
    fill(element, "unknown", () => "Its step is not known.");
    return;
  }
  const lasted = Math.max(0, clock - begun);
  const compared = usual ? `usually ${span(usual.median)}` : limit ? `at most ${span(limit)}, not measured yet` : "";
  const whole = usual ? usual.median : limit;
  const late = usual ? lasted > usual.median * 2 && lasted > usual.median + 5_000 : limit && lasted > limit;
  const name = step(machine.step[0]);
  fill(element, `${name} ${compared} ${late} ${machine.busy}`, () => {
    element.figure = h("span", { class: "figure" });
    element.share = whole && machine.busy ? bar(0, late ? "warn" : "") : null;
    const idle = machine.busy ? "" : " Nothing is being done with it now.";
    return [element.share, h("b", {}, name), " for ", element.figure, compared && machine.busy ? `, ${compared}.` : ".", late && machine.busy ? mark("warn", "longer than usual") : null, idle];
  });
  say(element.figure, span(lasted));
  if (element.share) element.share.firstElementChild.style.inlineSize = `${Math.min(100, (lasted / whole) * 100)}%`;
}

function hostCard(host) {
  const guests = new Table({
    caption: `Guests of ${host.name}`, empty: "No guest is on it.", key: (row) => String(row.vmid), text: (row) => `${row.vmid} ${row.name}`,
    columns: [
      { name: "Guest", sort: (row) => row.name, cell: (row) => row.machine ? linked("machine", row.machine) : row.name || "not named yet" },
      { name: "VMID", num: true, sort: (row) => row.vmid, cell: (row) => String(row.vmid) },
      { name: "Whose", sort: (row) => (row.machine ? "machine" : "not ours"), cell: (row) => (row.machine ? "machine of a pool" : "not ours") },
      { name: "State", sort: guestState, cell: guestState },
      { name: "CPU", num: true, sort: (row) => row.cpus, cell: (row) => String(row.cpus) },
      { name: "Memory", num: true, sort: (row) => row.memory, cell: (row) => bytes(row.memory) },
    ],
  });
  const card = h("li", {},
    h("h3", {}, host.name), h("p", { class: "state" }),
    h("dl", { class: "facts" }), h("ul", { class: "notes" }),
    h("details", {}, h("summary"), guests.element), h("div", { class: "acts" }));
  card.guests = guests;
  if (may.act) {
    card.evacuate = new EvacuateButton(host.region, host.name);
    card.lastElementChild.append(...card.evacuate.elements);
  }
  return card;
}

function updateHost(card, host) {
  const [title, state, facts, notes, details, acts] = card.children;
  const evacuated = (host.notes_details ?? []).some((note) => note.code === "evacuated");
  acts.hidden = !may.act;
  card.evacuate?.update(evacuated);
  say(title, host.alone ? host.name : `${host.region}/${host.name}`);
  fill(state, String(host.online), () => host.online ? mark("good", "online") : mark("bad", "offline"));
  const of = (part, whole, words) => [whole ? part / whole : 0, whole ? `${words(part)} of ${words(whole)}` : "not known"];
  const rows = [["Memory promised", ...of(host.promised_memory, host.memory, bytes)], ["CPU promised", ...of(host.promised_cpu_milli, host.cpus * 1000, cores)]];
  if (host.now && host.online) {
    rows.push(["Memory in use", ...of(host.now.memory_used, host.memory, bytes)]);
    rows.push(["CPU in use", ...of(host.now.cpu_used_milli, host.cpus * 1000, cores)]);
  }
  rows.push(["Room for machines", null, bytes(host.left_memory)], ["Machines", null, String(host.machines)]);
  fill(facts, JSON.stringify(rows), () => rows.map(([name, share, words]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, h("span", {}, words), share === null ? null : bar(share, share > 1 ? "bad" : share > 0.9 ? "warn" : "")))));
  fill(notes, JSON.stringify(host.notes ?? []), () => (host.notes ?? []).map((note) => h("li", {}, mark("warn", note))));
  // Of a host that is off PVE tells what its guests were.
  const guests = (host.now?.guests ?? []).map((guest) => ({ ...guest, off: !host.online }));
  const ours = guests.filter((guest) => guest.machine).length;
  const running = guests.filter((guest) => guest.running).length;
  const run = host.online ? `${running} running` : "what runs is not known, the host is offline";
  say(details.firstElementChild, `${count(guests.length, "guest")}: ${run}, ${ours} of ours`);
  card.guests.update(guests, guests.length + (host.now?.more ?? 0));
}

function guestState(guest) {
  if (guest.template) return "template";
  if (guest.off) return "not known, its host is offline";
  if (guest.running) return guest.container ? "running container" : "running";
  return guest.onboot ? "off, starts with its host" : "off";
}

