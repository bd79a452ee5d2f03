// The page: which view is shown, how the connection stands, times that go on.

import { h, say } from "./dom.js";
import { span, when, millis } from "./format.js";
import { announce } from "./keep.js";
import { listen, now, whoAmI } from "./live.js";
import { LogIn, logOut } from "./login.js";
import { may } from "./acts.js";
import { Now } from "./now.js";
import { Search, Explained } from "./why.js";
import { When } from "./when.js";
import { WhatIf } from "./whatif.js";

/// A turn comes every half minute at the latest; a view older than this tells that the loop does not turn.
const OLD = 75_000;
/// What a screen reader is told at most once in this time.
const CHATTER = 15_000;

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const link = document.getElementById("link");

let view = null;
let state = "connecting";
let lastHeard = null;
let shown = null;
let lastWord = 0;
/// Ends the stream; null while nobody is logged in who has to be.
let stop = null;
/// Who is logged in, where a login is wanted.
let user = null;
let barred = false;
/// What was typed in views that were left, by the first part of their address, and whose it is: who comes back finds it, also after a login that
/// was wanted in between. Nobody else does.
const drafts = new Map();
let draftsOf = null;
/// Where the view that is shown has its draft.
let shownAt = "";

/// The views by the first part of their address.
const ROUTES = {
  "": () => new Now(),
  why: (_, typed) => new Search(typed),
  pod: (parts) => new Explained("pod", parts),
  node: (parts) => new Explained("node", parts),
  machine: (parts) => new Explained("machine", parts),
  when: (_, typed) => new When(typed),
  "what-if": (_, typed) => new WhatIf(typed),
};

function route(fromPerson) {
  const hash = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  let parts;
  try {
    parts = hash.split("/").map(decodeURIComponent);
  } catch {
    parts = ["?"];
  }
  const make = Object.hasOwn(ROUTES, parts[0]) ? ROUTES[parts[0]] : () => lost();
  if (shown?.typed) drafts.set(shownAt, shown.typed());
  shown?.leave?.();
  shown = barred ? new LogIn(begin) : make(parts.slice(1), drafts.get(parts[0]));
  shownAt = parts[0];
  main.replaceChildren(unread() ? h("p", { class: "none", id: "unread" }, "Nothing was heard from the daemon yet.") : shown.element);
  main.setAttribute("aria-label", shown.title ?? "");
  document.title = shown.title ? `${shown.title} · pve-autoscaler` : "pve-autoscaler";
  for (const anchor of document.querySelectorAll("#views a")) {
    const here = anchor.getAttribute("href") === `#/${parts[0]}` ||
      (anchor.getAttribute("href") === "#/why" && ["pod", "node", "machine"].includes(parts[0]));
    if (here) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (view) shown.update?.(view);
  tick();
  if (fromPerson) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

/// Whether what is to be shown stands in the daemon's view, and none came yet: an empty table would say that nothing is there.
function unread() {
  return Boolean(shown.waits) && !view;
}

function lost() {
  return {
    title: "Not here",
    element: h("section", {}, h("h1", {}, "There is nothing at this address"), h("p", {}, h("a", { href: "#/" }, "To the first view"))),
  };
}

/// Tells a screen reader something that matters, and not too often.
function tell(text) {
  const time = performance.now();
  if (time - lastWord < CHATTER && lastWord > 0) return;
  lastWord = time;
  announce(text);
}

/// Asks who looks, and shows the page or the form to log in. A daemon that does not answer is asked again by the stream.
async function begin() {
  let session = { login: false, user: null };
  try {
    session = await whoAmI();
  } catch {
    // The stream says that it does not answer.
  }
  const entered = barred && Boolean(session.user);
  barred = session.login && !session.user;
  user = session.user;
  if (user) forgetOthers(user);
  may.act = Boolean(session.acts);
  say(document.getElementById("who"), user ?? "");
  for (const id of ["who", "leave"]) document.getElementById(id).hidden = !user;
  if (barred) {
    bar();
    return;
  }
  route(entered);
  stop ??= listen(onView, onState);
}

/// What somebody else typed is not theirs who looks now.
function forgetOthers(who) {
  if (draftsOf !== who) drafts.clear();
  draftsOf = who;
}

/// Shows the form to log in instead of everything else.
function bar() {
  stop?.();
  stop = null;
  view = null;
  barred = true;
  state = "barred";
  say(link, "not logged in");
  link.dataset.state = state;
  say(document.getElementById("version"), "");
  document.body.classList.remove("old");
  for (const id of ["who", "leave"]) document.getElementById(id).hidden = true;
  route(false);
  shown.focus();
}

function onState(next) {
  if (next === "barred") {
    // Once: who is typing a password is left at it.
    if (!barred) bar();
    return;
  }
  if (next === "live") lastHeard = now();
  if (next === state) return;
  const was = state;
  state = next;
  const words = { live: "live", gone: "no answer", full: "refused", closed: "paused", connecting: "connecting" };
  say(link, words[state]);
  link.dataset.state = state;
  document.body.classList.toggle("old", state === "gone" || state === "full");
  if (state === "gone") tell("The daemon does not answer. What is shown is how it was.");
  if (state === "live" && was === "gone") {
    lastWord = 0;
    tell("The daemon answers again.");
  }
  tick();
}

function onView(next) {
  const before = view;
  const first = unread();
  view = next;
  if (first) main.replaceChildren(shown.element);
  say(document.getElementById("version"), `pve-autoscaler ${view.status.version}`);
  shown.update?.(view);
  const faults = (of) => of.status.problems.length + of.status.troubles.length;
  if (before && faults(view) > faults(before)) tell(view.line);
  tick();
}

/// What is wrong with what is shown, in a sentence; null when nothing is.
function trouble() {
  if (state === "gone") {
    const for_ = lastHeard ? ` What is below is how it was ${span(now() - lastHeard)} ago.` : "";
    return `The daemon does not answer.${for_} This page tries again by itself; on the host, “systemctl status pve-autoscaler” tells more.`;
  }
  if (state === "full") return "The daemon is there and refuses this page's stream: too many pages are open. This page tries again by itself.";
  const at = view && millis(view.status.at);
  if (at && now() - at > OLD * view.pace) return `The last turn of the loop was ${when(at, now())}: what is below is how it was then.`;
  return null;
}

/// Times go on, once a second.
function tick() {
  const said = trouble();
  // A daemon that is gone is told of where that is found.
  if (said && banner.hidden && state === "live") tell(said);
  banner.hidden = !said;
  say(banner, said ?? "");
  const time = now();
  for (const element of document.querySelectorAll("[data-since]")) {
    const at = Number(element.dataset.since);
    say(element, element.dataset.how === "for" ? span(time - at) : when(at, time));
  }
  shown?.tick?.(time);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("leave").addEventListener("click", async () => {
  try {
    await logOut();
  } catch (error) {
    // Who is not logged out sees that: the name stays.
    announce(`Not logged out: ${error.message}`);
    return;
  }
  shown?.leave?.();
  shown = null;
  drafts.clear();
  begin();
});
addEventListener("hashchange", () => route(true));
addEventListener("barred", () => { if (!barred) bar(); });
setInterval(tick, 1000);
begin();
