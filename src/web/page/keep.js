// What a person holds on to while the page changes: the focus, what is read, what is told to those who listen.

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

/// Tells a screen reader something at once: what a person did has come to it, or what changed matters.
export function announce(text) {
  const word = document.getElementById("word");
  if (word.textContent !== text) word.textContent = text;
}

/// Those in an element that can have the focus, in their order.
function focusable(element) {
  return [...element.querySelectorAll(FOCUSABLE)].filter((it) => it.checkVisibility());
}

/// Changes what is in an element. Who had the focus in it has it afterwards, too: on the same, wherever it is now, else on a link that is in
/// its place, else on the heading: a button in its place would do what nobody meant.
export function keepFocus(parent, change) {
  const holder = document.activeElement;
  if (!parent.contains(holder) || holder === parent) {
    change();
    return;
  }
  const at = focusable(parent).indexOf(holder);
  const home = parent.closest("section, article, main");
  change();
  if (document.activeElement === holder && holder.checkVisibility()) return;
  const next = holder.isConnected && holder.checkVisibility() ? holder : successor(focusable(parent), at, holder);
  if (next) next.focus({ preventScroll: true });
  else toHeading(home);
}

/// What stands where one was that is gone: the same kind in the same place where that does nothing but lead or open, else the first link after
/// it, else the last before it.
function successor(there, at, gone) {
  const leads = (it) => it.tagName === "A" || it.tagName === "SUMMARY" || it.hasAttribute("aria-expanded");
  if (there[at]?.tagName === gone.tagName && leads(there[at])) return there[at];
  const links = there.filter((it) => it.tagName === "A");
  return links.find((it) => there.indexOf(it) >= at) ?? links[links.length - 1] ?? null;
}

/// The heading of a part: it is read out, and the tab key goes on from there.
export function toHeading(part) {
  const heading = [part, document.getElementById("main")].map((of) => of?.checkVisibility() ? of.querySelector("h1, h2, h3") : null).find(Boolean);
  if (!heading) return;
  heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: true });
}

/// Makes what an element shows like `fresh` in place: what is the same stays, and with it the focus, what is marked, and times that go on.
/// Nothing in it listens to what a person does, but links.
export function renew(element, fresh) {
  keepFocus(element, () => morph(element, fresh));
}

function morph(old, fresh) {
  const there = [...old.childNodes];
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, index) => {
    const known = there[index];
    if (!known) old.append(node);
    else if (known.isEqualNode(node)) return;
    else if (known.nodeType !== Node.ELEMENT_NODE || !known.cloneNode(false).isEqualNode(node.cloneNode(false))) known.replaceWith(node);
    // The words of a time are the clock's.
    else if (!known.hasAttribute("data-since")) morph(known, node);
  });
  for (const node of there.slice(wanted.length)) node.remove();
}

/// Whether a button may be pressed. One that may not keeps the focus, which a disabled one would lose; it does nothing, for its `click` asks
/// `enabled`.
export function enable(button, may) {
  const told = may ? null : "true";
  if (button.getAttribute("aria-disabled") === told) return;
  if (may) button.removeAttribute("aria-disabled");
  else button.setAttribute("aria-disabled", "true");
}

export function enabled(button) {
  return !button.hasAttribute("aria-disabled");
}
