// A picture of numbers by time, drawn as wide as there is room; its styles are in look.css.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 44;
const RIGHT = 12;
const PANEL = 104;
const GAP = 30;
const AXIS = 20;
/// A mark on the line takes this much room; what is closer together becomes one.
export const MARK = 26;

function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/// A whole number at or above the largest that is shown, which halves well.
function top(values) {
  const most = Math.max(1, ...values);
  const unit = 10 ** Math.floor(Math.log10(most));
  const nice = [1, 2, 4, 6, 8, 10].map((factor) => factor * unit).find((value) => value >= most);
  return Math.max(2, nice);
}

/// Where a time is, in pixels of a picture that is `width` wide.
export function place(at, { from, to }, width) {
  return LEFT + ((at - from) / Math.max(1, to - from)) * (width - LEFT - RIGHT);
}

/// A line that stays at a value until the next.
function steps(points, value, x, y) {
  let path = "";
  let last = null;
  for (const point of points) {
    const [px, py] = [x(point.at).toFixed(1), y(value(point)).toFixed(1)];
    path += last === null ? `M${px} ${py}` : `H${px}V${py}`;
    last = py;
  }
  return path;
}

/// Times to name on the axis: six or so, at full hours or days; of a record that has just begun, at full seconds or minutes.
export function ticks({ from, to }, width) {
  const HOUR = 3_600_000;
  const wanted = Math.max(2, Math.floor(width / 130));
  const steps = [1_000, 5_000, 15_000, ...[1 / 60, 1 / 12, 0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 96].map((hours) => hours * HOUR)];
  const every = steps.find((step) => (to - from) / step <= wanted) ?? 192 * HOUR;
  // Full ones by the clock of the person who looks.
  const shift = new Date(from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((from - shift) / every) * every + shift; at <= to; at += every) found.push(at);
  return { every, found };
}

export function tickWords(at, every) {
  const date = new Date(at);
  return every >= 24 * 3_600_000
    ? date.toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" })
    : date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", ...(every < 60_000 ? { second: "2-digit" } : {}) });
}

/// The picture: `panels` of `{title, lines: [{name, value, fill}]}` one above the other; behind them `bands` of `{name, from, to, title}`.
export function picture(points, span, panels, width, label, bands = []) {
  const height = panels.length * (PANEL + GAP) + AXIS;
  const x = (at) => place(at, span, width);
  const svg = s("svg", { class: "picture", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const { every, found } = ticks(span, width);
  const foot = panels.length * (PANEL + GAP);
  for (const band of bands) {
    const [begin, end] = [Math.max(band.from, span.from), Math.min(band.to, span.to)].map(x);
    if (end < begin) continue;
    const place = { x: begin.toFixed(1), width: Math.max(2, end - begin).toFixed(1), y: GAP - 6, height: foot - GAP + 6 };
    svg.append(s("rect", { class: `band ${band.name}`, ...place }, s("title", {}, band.title)));
  }
  for (const at of found) {
    svg.append(s("line", { class: "grid", x1: x(at), x2: x(at), y1: GAP - 6, y2: foot }));
    svg.append(s("text", { class: "tick", x: x(at), y: foot + 15, "text-anchor": "middle" }, tickWords(at, every)));
  }
  panels.forEach((panel, index) => {
    const base = (index + 1) * (PANEL + GAP);
    const most = top(points.flatMap((point) => panel.lines.map((line) => line.value(point))));
    const y = (value) => base - (value / most) * PANEL;
    for (const value of [0, most / 2, most]) {
      svg.append(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
      svg.append(s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
    }
    svg.append(s("text", { class: "panel", x: LEFT, y: base - PANEL - 10 }, panel.title));
    if (points.length === 0) return;
    const [first, last] = [x(points[0].at), x(points[points.length - 1].at)];
    for (const line of panel.lines) {
      const path = steps(points, line.value, x, y);
      if (line.fill) svg.append(s("path", { class: `area ${line.name}`, d: `${path}V${base}H${first.toFixed(1)}Z` }));
      svg.append(s("path", { class: `line ${line.name}`, d: path }));
      if (points.length === 1) svg.append(s("circle", { class: `dot ${line.name}`, cx: last, cy: y(line.value(points[0])), r: 3 }));
    }
  });
  return svg;
}
