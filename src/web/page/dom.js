// Making elements. Text goes in as text and never as markup: names and labels of the cluster are strangers' words.

import { keepFocus } from "./keep.js";

/// An element with properties (`class`, `on`, attributes) and children: elements, strings, lists of both.
export function h(name, props = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, heard] of Object.entries(value)) element.addEventListener(event, heard);
    } else if (key === "class") {
      element.className = value;
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/// Sets an element's text if it says something else.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/// Fills an element anew if what it shows has another sign.
export function fill(element, sign, make) {
  if (element.shownSign === sign) return;
  element.shownSign = sign;
  keepFocus(element, () => element.replaceChildren(...[make()].flat(Infinity).filter(Boolean)));
}

/// Brings the children of an element in line with items, each by its key; what stays keeps its element, and focus.
export function keyed(parent, items, key, make, update) {
  const old = parent.children_by_key ?? new Map();
  const next = new Map();
  for (const item of items) {
    const name = key(item);
    const element = old.get(name) ?? make(item);
    next.set(name, element);
    update(element, item);
  }
  place(parent, [...next.values()]);
  parent.children_by_key = next;
}

/// Puts these into an element and nothing else. What is gone goes first: what stays is not moved then, for what is moved loses the focus.
export function place(parent, elements) {
  keepFocus(parent, () => {
    const stays = new Set(elements);
    for (const element of [...parent.children]) if (!stays.has(element)) element.remove();
    let at = parent.firstElementChild;
    for (const element of elements) {
      if (element === at) at = at.nextElementSibling;
      else parent.insertBefore(element, at);
    }
  });
}

/// A time that goes on by itself: `since` in milliseconds, shown by how long ago it is.
export function since(millis, how = "ago") {
  return h("time", { datetime: new Date(millis).toISOString(), "data-since": millis, "data-how": how });
}

/// A bar of a share: 0 to 1. What it shows stands beside it in words.
export function bar(share, tone = "") {
  const inner = h("i");
  inner.style.inlineSize = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`;
  return h("span", { class: `share ${tone}`, "aria-hidden": "true" }, inner);
}

/// A word with a sign before it: its tone is in both, not in the colour alone.
const SIGNS = { good: "●", busy: "◐", warn: "▲", bad: "✖", idle: "○" };
export function mark(tone, text) {
  return h("span", { class: `mark ${tone}` }, h("span", { "aria-hidden": "true" }, SIGNS[tone] + "\u00a0"), text);
}
