// The last days: numbers by time, each decision on the line, and how long machines took.

import { h, say, mark } from "./dom.js";
import { span, count, millis, step, when, UP } from "./format.js";
import { Table } from "./table.js";
import { ask } from "./live.js";
import { linkTo } from "./now.js";
import { MARK, picture, place } from "./chart.js";
import { enable, enabled, renew } from "./keep.js";
import { pictureOfStarts, sumsOfSteps } from "./starts.js";
import { legendOfStarts, legendOfWhen } from "./legend.js";

const WINDOWS = [[1, "1 hour"], [6, "6 hours"], [24, "24 hours"], [72, "3 days"], [168, "7 days"], [336, "14 days"]];
const PANELS = [
  { title: "Pods pending", lines: [{ name: "pending", value: (point) => point.pending, fill: true }] },
  { title: "Nodes of pools: there, wanted (dashes)", lines: [
    { name: "there", value: (point) => point.there, fill: true }, { name: "wanted", value: (point) => point.wanted }] },
];
/// In milliseconds: the record of a daemon that is at work is never older. While nothing changes, it says so every ten minutes (`QUIET` in
/// src/record/writer.rs), with a turn that comes within half a minute.
const HOLDS = 11 * 60_000;
const HOUR = 3_600_000;
/// What a mark says of the worst or largest of its deeds.
const SIGNS = {
  failed: ["bad", "✖"], create: ["good", "▲"], remove: ["idle", "▼"], other: ["busy", "●"], idle: ["warn", "‖"], begun: ["idle", "○"],
};

export class When {
  title = "When";

  /// `typed`: what somebody chose here before.
  constructor(typed) {
    /// Null: nobody chose, and the daemon shows the fewest hours that hold the record.
    this.hours = typed?.hours ?? null;
    /// Up to when, in milliseconds; null: up to now, whenever it is read.
    this.until = typed?.until ?? null;
    this.said = h("p", { class: "line", role: "status" });
    this.notes = h("ul", { class: "notes" });
    this.choices = WINDOWS.map(([hours, words]) => h("button", {
      type: "button", "aria-pressed": String(hours === this.hours), on: { click: () => this.choose(hours) },
    }, words));
    const again = h("button", { type: "button", class: "quiet", on: { click: () => this.read() } }, "Read again");
    this.earlier = h("button", { type: "button", class: "quiet", "aria-disabled": "true", on: { click: () => this.look(-1) } }, "Earlier");
    this.later = h("button", { type: "button", class: "quiet", "aria-disabled": "true", on: { click: () => this.look(1) } }, "Later");
    this.of = h("input", {
      type: "search", id: "of", placeholder: "all", spellcheck: "false", autocomplete: "off", maxlength: "507",
      on: { search: () => this.ofOne(), change: () => this.ofOne() },
    });
    this.figure = h("div", { class: "figure" });
    this.line = h("div", { class: "decisions", role: "toolbar", "aria-label": "Decisions, from the oldest to the newest", on: { keydown: (event) => this.step(event) } });
    this.chosen = h("div", { class: "chosen", role: "status" });
    this.startsFigure = h("div", { class: "figure" });
    this.startsSums = h("div");
    this.hint = h("p", { class: "note" }, "Each mark is a decision, or several that are close together: press one to read it; the arrow keys go from one to the next. " +
      `Times are those of this browser's zone, ${zone()}.`);
    this.there = new Set();
    this.open = typed?.open ?? null;
    this.of.value = typed?.of ?? "";
    const machine = (name) => this.machine(name);
    this.deeds = deedTable(machine);
    this.starts = startTable(machine);
    this.numbers = numberTable();
    this.content = h("div", { hidden: true },
      h("section", { "aria-labelledby": "picture" }, h("h2", { id: "picture" }, "Pods, nodes and decisions"),
        h("div", { class: "scene" }, this.figure, this.line), legendOfWhen(), this.hint, this.chosen),
      h("section", { "aria-labelledby": "decisions" }, h("h2", { id: "decisions" }, "Decisions and what came of them"), this.deeds.element),
      h("section", { "aria-labelledby": "starts" }, h("h2", { id: "starts" }, "How long machines took"),
        h("div", { class: "scene" }, this.startsFigure), this.startsSums, this.starts.element, legendOfStarts()),
      h("section", { "aria-labelledby": "numbers" }, h("h2", { id: "numbers" }, "The numbers"),
        h("details", {}, h("summary", {}, "By time, as a table"), this.numbers.element)));
    this.element = h("div", {}, h("h1", {}, "When"),
      h("div", { class: "go", role: "group", "aria-label": "Which time", on: { keydown: (event) => this.page(event) } }, this.choices, this.earlier, this.later, again),
      h("form", { class: "go", on: { submit: (event) => { event.preventDefault(); this.ofOne(); } } },
        h("label", { for: "of" }, "Decisions of one pod (NAMESPACE/NAME), node, machine or pool"), this.of),
      this.said, this.notes, this.content);
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.figure);
    this.read();
  }

  leave() {
    this.left = true;
    this.asking?.abort();
    this.watcher.disconnect();
  }

  /// What is lost with this view, unless it is kept.
  typed() {
    return { hours: this.hours, until: this.until, of: this.of.value, open: this.open };
  }

  /// A reading that had no answer is made again once the daemon is there. What is read does not change else while somebody looks at it.
  update() {
    if (this.unanswered) this.read();
  }

  choose(hours) {
    this.hours = hours;
    this.press(hours);
    this.read();
  }

  /// Shows the time before what is shown, or the one after it: as long, and never later than now. Where less than as much is left after it,
  /// up to now.
  look(way) {
    if (!this.told || !enabled(way < 0 ? this.earlier : this.later)) return;
    this.hours = this.told.hours;
    const to = (way < 0 ? this.told.from : this.told.to + this.hours * HOUR);
    const least = way < 0 ? 0 : this.hours * HOUR;
    this.until = this.told.now - to <= least ? null : to;
    this.read();
  }

  /// The keys that turn pages do it for times, too, from all that chooses one and from the marks.
  page(event) {
    const button = { PageUp: this.earlier, PageDown: this.later }[event.key];
    if (!button || !enabled(button)) return;
    event.preventDefault();
    button.click();
  }

  /// Reads the decisions of one thing, if that is another than before.
  ofOne() {
    if (this.of.value.trim() !== (this.asked ?? "")) this.read();
  }

  question() {
    this.asked = this.of.value.trim();
    const parts = [this.hours === null ? "" : `hours=${this.hours}`, this.until === null ? "" : `until=${this.until}`, this.asked ? `of=${encodeURIComponent(this.asked)}` : ""];
    const query = parts.filter(Boolean).join("&");
    return query ? `/api/when?${query}` : "/api/when";
  }

  press(hours) {
    WINDOWS.forEach(([of], index) => this.choices[index].setAttribute("aria-pressed", String(of === hours)));
  }

  async read() {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.unanswered = false;
    say(this.said, "Reading the record…");
    try {
      const told = await ask(this.question(), { signal: asking.signal });
      if (this.left || this.asking !== asking) return;
      this.show(told);
    } catch (error) {
      if (this.left || this.asking !== asking) return;
      this.unanswered = Boolean(error.later);
      // What was read before stays until there is an answer; to another question it would be the wrong one.
      const kept = this.unanswered && !this.content.hidden;
      const said = [error.message, kept ? "What is below was read before." : "", this.unanswered ? "The record is read again once it answers." : ""];
      this.said.replaceChildren(mark("warn", said.filter(Boolean).join(" ")));
      this.content.hidden = !kept;
    }
  }

  show(told) {
    this.told = told;
    this.press(told.hours);
    this.there = new Set(told.there);
    enable(this.earlier, told.began !== null && told.from > told.began);
    enable(this.later, told.to < told.now);
    say(this.said, [...shownTime(told), summary(told), ...extent(told)].join(" "));
    const notes = [];
    if (told.cut) notes.push("Reading took too long: the older part is missing. Choose a shorter time.");
    if (told.more) notes.push(`There were more decisions; these are the latest ${told.deeds.length}. Earlier ones are seen in a shorter time, or of one thing alone.`);
    for (const damage of told.damage) notes.push(damage);
    this.notes.replaceChildren(...notes.map((note) => h("li", {}, mark("warn", note))));
    this.content.hidden = false;
    this.rows = told.deeds.map((deed, index) => ({ ...deed, index, time: millis(deed.at), there: this.there.has(deed.machine) }));
    this.deeds.update([...this.rows].reverse());
    this.came = starts(told);
    this.starts.update(this.came.map((row) => ({ ...row, there: this.there.has(row.name) })));
    renew(this.startsSums, h("div", {}, sumsOfSteps(this.came)));
    this.numbers.update(hourly(told.points));
    this.drawn = 0;
    this.draw();
  }

  /// Draws anew when there is another width or another record. The decision that somebody reads stays open while the record has it.
  draw() {
    const width = Math.floor(this.figure.clientWidth);
    if (!this.told || width < 100 || width === this.drawn) return;
    this.drawn = width;
    const window = { from: this.told.from, to: this.told.to };
    this.figure.replaceChildren(picture(untilNow(this.told), window, PANELS, width, summary(this.told), bands(this.told)));
    this.startsFigure.parentElement.hidden = this.came.length === 0;
    this.startsFigure.replaceChildren(pictureOfStarts(this.came, window, width));
    const groups = grouped(this.rows, (row) => place(row.time, window, width));
    this.marks = groups.map((group, index) => {
      const [tone, sign] = SIGNS[kindOf(group.rows)];
      const button = h("button", {
        type: "button", class: `deed ${tone}`, tabindex: index === groups.length - 1 ? "0" : "-1", "aria-pressed": "false",
        "aria-label": label(group.rows), title: label(group.rows), on: { click: () => this.pick(index) },
      }, sign);
      button.style.insetInlineStart = `${Math.round(Math.min(width - MARK, Math.max(0, group.x - MARK / 2)))}px`;
      button.rows = group.rows;
      return button;
    });
    const focused = this.line.contains(document.activeElement);
    this.line.replaceChildren(...this.marks);
    this.hint.hidden = groups.length === 0;
    const open = groups.findIndex((group) => group.rows.some((row) => identity(row) === this.open));
    if (open < 0) this.close();
    else this.pick(open, this.open);
    if (focused && groups.length > 0) this.marks[open < 0 ? groups.length - 1 : open].focus();
  }

  /// No decision is open.
  close() {
    this.open = null;
    this.chosen.replaceChildren();
  }

  /// Goes along the line by the arrow keys.
  step(event) {
    this.page(event);
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const at = this.marks.indexOf(document.activeElement);
    const next = Math.min(this.marks.length - 1, Math.max(0, at + by));
    this.stop(next);
    this.marks[next].focus();
  }

  /// The one mark that the tab key stops at.
  stop(index) {
    this.marks.forEach((button, place) => button.setAttribute("tabindex", place === index ? "0" : "-1"));
  }

  /// A deed in words, in which the machine's name leads to it while it is there.
  linked(row) {
    if (!row.machine) return words(row);
    const [before, after] = words(row, row.machine).split(row.machine);
    return [before, this.machine(row.machine), after];
  }

  /// A machine by its name. Of one that is gone nothing is known but what the record tells.
  machine(name) {
    return this.there.has(name) ? linkTo("machine", name) : h("span", { title: "It is gone; what was done with it stands in the table." }, name);
  }

  /// Opens a mark's decisions. `open` is the one that another picture is to open too: a mark's first without it.
  pick(index, open) {
    this.stop(index);
    this.marks.forEach((button, place) => button.setAttribute("aria-pressed", String(place === index)));
    const { rows } = this.marks[index];
    this.open = open ?? identity(rows[0]);
    // What is the same when the record is read again is not told again to those who listen.
    renew(this.chosen, h("div", {}, h("div", { class: "change" },
      h("h3", {}, label(rows)),
      h("ul", {}, rows.map((row) => h("li", {}, `${clock(row.time)}: `, this.linked(row), why(row) ? h("p", { class: "why" }, why(row)) : null))))));
  }
}

/// What tells a decision from all others of the record, however often it is read.
function identity(row) {
  return [row.at, row.deed, row.action, row.machine].join(" ");
}

function clock(at) {
  return new Date(at).toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** The zone of all times that the browser shows, as it names it, and how far it is from UTC now. */
function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes);
  const two = (number) => String(number).padStart(2, "0");
  const offset = `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name ? `${name} (${offset})` : offset;
}

function summary(told) {
  const made = told.points.reduce((all, point) => all + point.makes, 0);
  const removed = told.points.reduce((all, point) => all + point.removes, 0);
  const failed = told.deeds.filter((deed) => deed.failure).length;
  if (told.points.length === 0) return "Nothing was recorded in this time.";
  const most = Math.max(...told.points.map((point) => point.pending));
  const there = told.points.map((point) => point.there);
  const [fewest, many] = [Math.min(...there), Math.max(...there)];
  return `At most ${count(most, "pod")} pending, ${fewest === many ? "" : `${fewest} to `}${count(many, "node")} of pools; ` +
    `${count(made, "machine")} made, ${removed} removed, ${failed} failed.`;
}

/// What of the time that is shown has no record: a picture that is nearly empty says why.
function extent({ points, from, to, now, hours, cut }) {
  if (points.length === 0) return [];
  const [first, last] = [points[0].at, points[points.length - 1].at];
  const said = [];
  if (to - from < hours * HOUR) said.push(`The record began ${when(from, now)}, and this is all of it.`);
  else if (!cut && first - from > HOLDS) said.push(`Nothing was recorded before ${clock(first)}.`);
  if (to - last > HOLDS) said.push(`Nothing was recorded after ${clock(last)}.`);
  return said;
}

/// The numbers by time up to the end of the time that is shown. What was recorded last still holds: a change would have been recorded.
function untilNow({ points, to }) {
  const last = points[points.length - 1];
  return last && last.at < to && to - last.at <= HOLDS ? [...points, { ...last, at: to }] : points;
}

/// Which time is shown, where it does not go on to now, and of what the decisions are.
function shownTime({ from, to, now, kind }) {
  const day = (at) => new Date(at).toLocaleString(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  return [to < now ? `${day(from)} to ${day(to)}.` : "", kind ? `Of one ${kind === "node" ? "node or machine" : kind} alone.` : ""].filter(Boolean);
}

/// The times in which nothing was done, as bands behind the picture.
function bands({ idle, to }) {
  return idle.map((one) => ({
    name: one.idle, from: millis(one.from), to: millis(one.until) ?? to,
    title: one.idle === "on_hold" ? `on hold: ${one.scope}: ${one.why}` : `nothing is recorded: ${one.why}`,
  }));
}

/// Rows that are closer together than a mark is wide, as one.
function grouped(rows, x) {
  const groups = [];
  for (const row of rows) {
    const at = x(row);
    const last = groups[groups.length - 1];
    if (last && at - last.x < MARK) last.rows.push(row);
    else groups.push({ x: at, rows: [row] });
  }
  return groups;
}

function kindOf(rows) {
  if (rows.some((row) => row.failure || row.deed === "not_begun")) return "failed";
  if (rows.some((row) => row.action === "create")) return "create";
  if (rows.some((row) => row.action === "remove")) return "remove";
  if (rows.some((row) => row.action)) return "other";
  return rows.some((row) => row.deed === "on_hold" || row.deed === "unrecorded") ? "idle" : "begun";
}

/// A deed in the words of `history`: with the machine's name, or as it stands beside it.
function words(row, name = "") {
  return name || !row.machine ? row.says : row.says.replace(row.machine, "").replaceAll("  ", " ").trim();
}

function why(row) {
  return row.because;
}

function label(rows) {
  const first = clock(rows[0].time);
  if (rows.length === 1) return `${first}: ${words(rows[0], rows[0].machine)}`;
  const failed = rows.filter((row) => row.failure || row.deed === "not_begun").length;
  return `${first} and after: ${rows.length} entries${failed ? `, ${failed} failed` : ""}`;
}

function deedTable(machine) {
  return new Table({
    caption: "Decisions and what came of them, the newest first",
    empty: "Nothing was decided in this time.",
    key: (row) => String(row.index),
    text: (row) => `${words(row)} ${row.machine ?? ""} ${row.pool ?? ""} ${why(row)}`,
    columns: [
      { name: "When", sort: (row) => row.index, cell: (row) => clock(row.time) },
      { name: "What", sort: (row) => words(row), cell: (row) => ({ sign: words(row), make: () => row.failure || row.deed === "not_begun" ? mark("bad", words(row)) : words(row) }) },
      { name: "Machine", sort: (row) => row.machine ?? "", cell: (row) => ({ sign: row.machine ? `${row.machine} ${row.there}` : "", make: () => row.machine ? machine(row.machine) : null }) },
      { name: "Why", wide: true, cell: why },
    ],
  });
}

/// Machines that came up in this time, by the steps that they took.
function starts(told) {
  const rows = [];
  for (const [name, all] of Object.entries(told.steps)) {
    // A machine that works may be started again, when its host was away: that is no part of its way up.
    const steps = all.filter((phase) => UP.includes(phase.step));
    const last = steps.findIndex((phase) => phase.step === UP[UP.length - 1] && phase.ok);
    const phases = steps.slice(0, last < 0 ? steps.length : last + 1).map((phase) => ({ ...phase, took: phase.took, time: millis(phase.at) }));
    if (phases.length === 0) continue;
    const total = phases.reduce((sum, phase) => sum + phase.took, 0);
    rows.push({ name, phases, total, time: phases[phases.length - 1].time, ok: phases.every((phase) => phase.ok) });
  }
  return rows.sort((one, other) => other.time - one.time);
}

function startTable(machine) {
  return new Table({
    caption: "Machines and the steps of their way up, the newest first",
    empty: "No machine came up in this time.",
    key: (row) => row.name,
    text: (row) => row.name,
    columns: [
      { name: "Machine", sort: (row) => row.name, cell: (row) => ({ sign: `${row.name} ${row.there}`, make: () => machine(row.name) }) },
      { name: "Last step", sort: (row) => row.time, cell: (row) => clock(row.time) },
      {
        name: "Steps", wide: true,
        cell: (row) => ({ sign: JSON.stringify(row.phases), make: () => [strip(row.phases), h("p", { class: "why" }, row.phases.map((phase) => `${step(phase.step)} ${span(phase.took)}${phase.ok ? "" : " (failed)"}`).join(", "))] }),
      },
      { name: "In all", num: true, sort: (row) => row.total, cell: (row) => span(row.total) },
    ],
  });
}

/// A bar whose parts are as long as the steps were.
function strip(phases) {
  return h("span", { class: "strip", "aria-hidden": "true" }, phases.map((phase) => {
    const part = h("i", { class: `phase-${phase.step}${phase.ok ? "" : " bad"}` });
    part.style.flexGrow = String(Math.max(1, phase.took));
    return part;
  }));
}

/// A row an hour at most: the worst of it.
function hourly(points) {
  const rows = new Map();
  for (const point of points) {
    const hour = Math.floor(point.at / 3_600_000) * 3_600_000;
    const row = rows.get(hour) ?? { hour, pending: 0, there: 0, wanted: 0, makes: 0, removes: 0 };
    for (const key of ["pending", "there", "wanted"]) row[key] = Math.max(row[key], point[key]);
    for (const key of ["makes", "removes"]) row[key] += point[key];
    rows.set(hour, row);
  }
  return [...rows.values()].reverse();
}

function numberTable() {
  const number = (name, key) => ({ name, num: true, sort: (row) => row[key], cell: (row) => String(row[key]) });
  return new Table({
    caption: "The most in each hour",
    empty: "Nothing was recorded in this time.",
    key: (row) => String(row.hour),
    columns: [
      { name: "Hour", sort: (row) => row.hour, cell: (row) => new Date(row.hour).toLocaleString(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }) },
      number("Pods pending", "pending"), number("Nodes there", "there"), number("Nodes wanted", "wanted"), number("Made", "makes"), number("Removed", "removes"),
    ],
  });
}
