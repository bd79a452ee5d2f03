// What signs, colours and bars mean, beside what has them.

import { h, bar, mark } from "./dom.js";

/// `rows` of what is seen and what it means. What is seen is for the eyes: who listens hears the words.
function list(rows) {
  return h("dl", { class: "legend" }, rows.map(([seen, means]) =>
    h("div", {}, h("dt", { "aria-hidden": "true" }, seen), h("dd", {}, means))));
}

const sign = (tone, text) => h("span", { class: `deed ${tone}` }, text);
const step = (standing, text) => h("span", { class: "steps" }, h("span", { class: standing }, text));

/// Of the view of how things stand: folded, since most words stand beside their signs.
export function legendOfNow() {
  return h("details", { class: "legends" }, h("summary", {}, "Signs, colours and bars"), list([
    [mark("good", ""), "As it should be: Ready, online, a place is there."],
    [mark("busy", ""), "On its way: a machine is planned or comes."],
    [mark("warn", ""), "Look at it: it waits, is on hold, or takes longer than usual."],
    [mark("bad", ""), "Wrong: failed, offline, not Ready, or no pool can run it."],
    [mark("idle", ""), "Nothing is being done about it: not judged yet, left alone, or drifted (made with what the file says otherwise now)."],
    [bar(0.6), "How much of what there is: nodes of a pool's most, what pods ask of a node, what is promised of a host."],
    [bar(0.95, "warn"), "A host is over 90 % promised; a step of a machine takes longer than usual."],
    [bar(1, "bad"), "More is promised or asked than there is."],
    [step("past", "clone"), "A step of a machine's way that is over. The bar below them is the present step's time beside its usual time."],
    [step("current", "join"), "The step it is in."],
    [step("", "register"), "A step to come."],
  ]));
}

/// Of the picture of the last days.
export function legendOfWhen() {
  return list([
    [h("i", { class: "sample pending" }), "Pods pending"],
    [h("i", { class: "sample there" }), "Nodes there"],
    [h("i", { class: "sample wanted" }), "Nodes wanted: there, coming and planned, without those that leave"],
    [sign("good", "▲"), "A machine is to be made"],
    [sign("idle", "▼"), "A machine is to be removed"],
    [sign("bad", "✖"), "Something failed or was not begun"],
    [sign("busy", "●"), "Another decision, or one that ended"],
    [h("i", { class: "sample on_hold" }), "Something was on hold"],
    [h("i", { class: "sample unrecorded" }), "Nothing is recorded: no daemon ran, or it could not record"],
    [sign("warn", "‖"), "Something is on hold from here on, or nothing is recorded"],
    [sign("idle", "○"), "A record begins: the daemon was started. Or another entry, such as the end of a hold"],
  ]);
}

/// Of the bars of machines' starts.
export function legendOfStarts() {
  return list([
    [h("span", { class: "strip" }, ["clone", "agent", "join"].map((name) => h("i", { class: `phase-${name}` }))), "Steps one after the other, each as long as it took, in the colours above"],
    [h("span", { class: "strip" }, h("i", { class: "bad" })), "A step that failed"],
  ]);
}
