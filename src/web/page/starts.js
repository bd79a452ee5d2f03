// How long machines took on their way up, as a picture: a bar a machine, its parts the steps, one above the other in their order.

import { h } from "./dom.js";
import { count, span, step, UP } from "./format.js";
import { axis, canvas, LEFT, place, RIGHT, svg } from "./chart.js";

const PANEL = 120;
const HEAD = 24;
const FOOT = 20;
/// How wide a bar is, in pixels: as wide as there is room for all of them, within these.
const [THIN, WIDE] = [2, 6];

/// The picture. `rows`: machines with `name`, `time` (of the last step), `total`, `ok` and `phases` of `{step, took, ok}`.
export function pictureOfStarts(rows, window, width) {
  const height = HEAD + PANEL + FOOT;
  const base = HEAD + PANEL;
  const { whole, parts: all } = canvas("picture starts", width, height, summaryOfStarts(rows));
  all.append(...axis(window, width, { top: HEAD - 6, foot: base }));
  const most = ceiling(Math.max(1_000, ...rows.map((row) => row.total)));
  const high = (took) => (took / most) * PANEL;
  for (const value of [0, most / 2, most]) {
    const y = base - high(value);
    all.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
    all.append(svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, short(value)));
  }
  all.append(svg("text", { class: "panel", x: LEFT, y: HEAD - 10 }, "How long each machine took, by steps"));
  const bar = Math.min(WIDE, Math.max(THIN, Math.floor((width - LEFT - RIGHT) / Math.max(1, rows.length)) - 1));
  const ordered = [...rows].sort((one, other) => one.time - other.time);
  const left = spread(ordered.map((row) => place(row.time, window, width) - bar / 2), bar + 1, [LEFT, width - RIGHT]);
  ordered.forEach((row, index) => all.append(stack(row, { x: left[index], bar, base, high })));
  return whole;
}

/// One machine's bar.
function stack(row, { x, bar, base, high }) {
  const parts = row.phases.map((phase) => `${step(phase.step)} ${span(phase.took)}${phase.ok ? "" : " (failed)"}`);
  const group = svg("g", { class: "machine" }, svg("title", {}, `${row.name}: ${span(row.total)}; ${parts.join(", ")}`));
  let y = base;
  for (const phase of row.phases) {
    const tall = high(phase.took);
    y -= tall;
    group.append(svg("rect", { class: `phase-${phase.step}${phase.ok ? "" : " failed"}`, x: x.toFixed(1), y: y.toFixed(1), width: bar, height: Math.max(0.5, tall).toFixed(1) }));
  }
  if (!row.ok) group.append(svg("text", { class: "failed", x: x + bar / 2, y: y - 3, "text-anchor": "middle" }, "✖"));
  return group;
}

/// Places of bars from left to right, each `room` wide: those that would lie on one another stand beside each other, and none leaves the picture.
export function spread(wanted, room, [from, to]) {
  const places = [];
  wanted.forEach((x, index) => places.push(Math.max(x, from, index ? places[index - 1] + room : from)));
  let end = to;
  for (let index = places.length - 1; index >= 0; index -= 1) {
    places[index] = Math.max(from, Math.min(places[index], end - room));
    end = places[index];
  }
  return places;
}

/// A time at or above this, in milliseconds, which halves well.
function ceiling(took) {
  const SECOND = 1_000;
  const nice = [2, 4, 10, 20, 30, 60, 120, 180, 240, 360, 600, 1_200, 1_800, 3_600, 7_200].map((seconds) => seconds * SECOND);
  return nice.find((value) => value >= took) ?? Math.ceil(took / 7_200_000) * 7_200_000;
}

/// A time on the axis, which has little room.
function short(millis) {
  const seconds = millis / 1000;
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7_200 ? `${seconds / 60} m` : `${seconds / 3_600} h`;
}

/// The one in the middle: half of them are no larger.
function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

/// What each step took over all machines, in the order of the steps; failed ones apart.
function byStep(rows) {
  return UP.map((name) => {
    const all = rows.flatMap((row) => row.phases).filter((phase) => phase.step === name);
    const took = all.filter((phase) => phase.ok).map((phase) => phase.took);
    return { name, took, failed: all.length - took.length };
  }).filter(({ took, failed }) => took.length + failed > 0);
}

/// What the picture shows, in words.
export function summaryOfStarts(rows) {
  if (rows.length === 0) return "No machine came up in this time.";
  const totals = rows.map((row) => row.total);
  const steps = byStep(rows).filter(({ took }) => took.length).map(({ name, took }) => [name, median(took)]);
  const [longest, lasts] = steps.reduce((most, one) => (one[1] > most[1] ? one : most), ["", -1]);
  const some = rows.length === 1 ? `1 machine on its way up took ${span(totals[0])}` : `${count(rows.length, "machine")} on their way up: usually ${span(median(totals))}, at most ${span(Math.max(...totals))}`;
  return `${some}.${lasts >= 0 ? ` The longest step is ${step(longest)}, usually ${span(lasts)}.` : ""}`;
}

/// The steps with their colours, and what each usually took: what the picture shows for those who do not see it, and its legend for those who do.
export function sumsOfSteps(rows) {
  if (rows.length === 0) return [];
  const items = byStep(rows).map(({ name, took, failed }) => {
    const said = took.length === 0 ? "" : took.length === 1 ? span(took[0]) : `usually ${span(median(took))}, at most ${span(Math.max(...took))}`;
    return h("div", {}, h("dt", {}, h("i", { class: `swatch phase-${name}`, "aria-hidden": "true" }), step(name)), h("dd", {}, [said, failed ? `${failed} failed` : ""].filter(Boolean).join(", ")));
  });
  return [h("p", { class: "note" }, summaryOfStarts(rows)), h("dl", { class: "legend steps-took" }, items)];
}
