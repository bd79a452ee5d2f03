// A picture of numbers by time, drawn as wide as there is room; its styles are in look.css.

const SVG = "http://www.w3.org/2000/svg";
export const LEFT = 44;
export const RIGHT = 12;
const PANEL = 104;
const GAP = 30;
const AXIS = 20;
/// A mark on the line takes this much room; what is closer together becomes one.
export const MARK = 26;

/// A picture, and where its parts go: it is one thing with one text to those who do not see it.
export function canvas(kind, width, height, label) {
  const parts = svg("g", { "aria-hidden": "true" });
  const whole = svg("svg", { class: kind, width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, parts);
  return { whole, parts };
}

/// An element of a picture.
export function svg(name, attributes = {}, ...children) {
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

/// The lines of the times from `top` to `foot`, and their names below. A name that would leave the picture ends or begins at its edge.
export function axis(window, width, { top, foot }) {
  const { every, found } = ticks(window, width);
  return found.flatMap((at) => {
    const x = place(at, window, width);
    const words = tickWords(at, every);
    // A letter is no wider than this.
    const half = words.length * 3.8;
    const [from, anchor] = x + half > width - 4 ? [width - 4, "end"] : x < half ? [2, "start"] : [x, "middle"];
    return [
      svg("line", { class: "grid", x1: x, x2: x, y1: top, y2: foot }),
      svg("text", { class: "tick time", x: from, y: foot + 15, "text-anchor": anchor }, words),
    ];
  });
}

/// The picture: `panels` of `{title, lines: [{name, value, fill}]}` one above the other; behind them `bands` of `{name, from, to, title}`.
export function picture(points, span, panels, width, label, bands = []) {
  const height = panels.length * (PANEL + GAP) + AXIS;
  const x = (at) => place(at, span, width);
  const { whole, parts: all } = canvas("picture", width, height, label);
  const foot = panels.length * (PANEL + GAP);
  for (const band of bands) {
    const [begin, end] = [Math.max(band.from, span.from), Math.min(band.to, span.to)].map(x);
    if (end < begin) continue;
    const place = { x: begin.toFixed(1), width: Math.max(2, end - begin).toFixed(1), y: GAP - 6, height: foot - GAP + 6 };
    all.append(svg("rect", { class: `band ${band.name}`, ...place }, svg("title", {}, band.title)));
  }
  all.append(...axis(span, width, { top: GAP - 6, foot }));
  panels.forEach((panel, index) => {
    const base = (index + 1) * (PANEL + GAP);
    const most = top(points.flatMap((point) => panel.lines.map((line) => line.value(point))));
    const y = (value) => base - (value / most) * PANEL;
    for (const value of [0, most / 2, most]) {
      all.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
      all.append(svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
    }
    all.append(svg("text", { class: "panel", x: LEFT, y: base - PANEL - 10 }, panel.title));
    if (points.length === 0) return;
    const [first, last] = [x(points[0].at), x(points[points.length - 1].at)];
    for (const line of panel.lines) {
      const path = steps(points, line.value, x, y);
      if (line.fill) all.append(svg("path", { class: `area ${line.name}`, d: `${path}V${base}H${first.toFixed(1)}Z` }));
      all.append(svg("path", { class: `line ${line.name}`, d: path }));
      if (points.length === 1) all.append(svg("circle", { class: `dot ${line.name}`, cx: last, cy: y(line.value(points[0])), r: 3 }));
    }
  });
  return whole;
}
