"""What holds for every view: it can be read, reached and told, by everybody."""

import time

# What is found wrong in a view may pass within this time, in seconds.
SETTLES_WITHIN = 5

# Text against what is behind it, as WCAG 2 counts it: 4.5, and 3 where it is large.
CONTRAST = """
const channel = (value) => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return { r: n[0], g: n[1], b: n[2], a: n.length > 3 ? n[3] : 1 }; };
const light = (c) => 0.2126 * channel(c.r) + 0.7152 * channel(c.g) + 0.0722 * channel(c.b);
const behind = (element) => {
  for (let it = element; it; it = it.parentElement) {
    const colour = parse(getComputedStyle(it).backgroundColor);
    if (colour.a === 1) return colour;
  }
  return { r: 255, g: 255, b: 255 };
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.closest('.hidden, noscript, [aria-disabled]')) continue;
  if (element.closest('body.old main')) continue;
  const style = getComputedStyle(element);
  const [one, other] = [light(parse(style.color)), light(behind(element))];
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
}
return [...new Set(bad)];
"""

# Landmarks, headings, names, tables.
STRUCTURE = """
const bad = [];
const count = (selector) => document.querySelectorAll(selector).length;
for (const [selector, wanted] of [['header', 1], ['main', 1], ['nav[aria-label]', 1], ['footer', 1], ['h1', 1], ['[aria-live]', 1]]) {
  if (count(selector) !== wanted) bad.push(`${count(selector)} of ${selector}`);
}
if (!document.documentElement.lang) bad.push('no language');
const ids = [...document.querySelectorAll('[id]')].map((it) => it.id);
for (const id of new Set(ids)) if (ids.filter((it) => it === id).length > 1) bad.push(`two have the id ${id}`);
let level = 0;
for (const heading of document.querySelectorAll('h1, h2, h3, h4')) {
  const next = Number(heading.tagName[1]);
  if (next > level + 1) bad.push(`h${level} is followed by h${next}: ${heading.textContent}`);
  level = next;
}
for (const it of document.querySelectorAll('button, a, input, select, textarea')) {
  if (!it.checkVisibility()) continue;
  const name = it.textContent.trim() || it.getAttribute('aria-label') || it.labels?.[0]?.textContent;
  if (!name) bad.push(`no name: ${it.outerHTML.slice(0, 80)}`);
}
for (const table of document.querySelectorAll('table')) {
  if (!table.caption?.textContent) bad.push('a table without a caption');
  for (const th of table.querySelectorAll('th')) if (!th.scope) bad.push(`th without scope: ${th.textContent}`);
  for (const th of table.querySelectorAll('thead th')) {
    if (th.querySelector('button') && !th.hasAttribute('aria-sort')) bad.push(`no aria-sort: ${th.textContent}`);
  }
}
for (const it of document.querySelectorAll('[aria-labelledby]')) {
  if (!document.getElementById(it.getAttribute('aria-labelledby'))) bad.push(`labelled by nothing: ${it.outerHTML.slice(0, 80)}`);
}
return bad;
"""

# Nothing is wider than the window.
WIDTH = """
const width = document.documentElement.clientWidth;
const bad = [];
if (document.documentElement.scrollWidth > width) bad.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${width}`);
if (arguments[0]) for (const it of document.querySelectorAll('main *')) {
  const box = it.getBoundingClientRect();
  if (box.width > 1 && box.right > width + 1 && it.checkVisibility() && !it.closest('.hidden, thead')) bad.push(`${it.tagName}.${it.className} ends at ${box.right}: ${it.textContent.slice(0, 40)}`);
}
return bad.slice(0, 8);
"""


def expect(condition, what):
    """An assertion with words."""
    if not condition:
        raise SystemExit(f"page: {what}")


def look_over(browser, view, phone=False):
    """Checks what holds for every view. A page that was given another width draws anew a moment later: what is wrong must stay wrong."""
    for name, script in [("structure", STRUCTURE), ("width", WIDTH)]:
        settled(browser, f"{view}: {name}", script, phone)
    for theme in ["light", "dark"]:
        browser.theme(theme)
        settled(browser, f"{view}, {theme}: contrast", CONTRAST)
    browser.theme("light")


def settled(browser, what, script, *arguments):
    """Waits until the script finds nothing, for a few seconds."""
    end = time.monotonic() + SETTLES_WITHIN
    while found := browser.run(script, *arguments):
        expect(time.monotonic() < end, f"{what}: {found}")
        time.sleep(0.1)
