// What if: more pods, or another configuration. The daemon decides as it always does; nothing is carried out.

import { h, say, fill, mark } from "./dom.js";
import { enable, enabled } from "./keep.js";
import { count } from "./format.js";
import { Table } from "./table.js";
import { linkTo } from "./now.js";
import { ask } from "./live.js";

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 10
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: registry.k8s.io/pause:3.10
        resources:
          requests: {cpu: "1", memory: 2Gi}
`;

const TONES = { no_compatible_pool: "bad", held: "warn", fits_node: "good", ignored: "idle", unread: "idle" };

export class WhatIf {
  title = "What if";

  /// `typed`: what somebody typed here before.
  constructor(typed) {
    /// Whether a plan was asked for, and whether it is to be asked for again, since the daemon did not answer.
    this.planned = false;
    this.again = false;
    this.keys = h("datalist", { id: "keys" });
    this.text = h("textarea", { id: "manifests", spellcheck: "false", autocomplete: "off", rows: 14 });
    this.changes = h("ul", { class: "changes" });
    this.said = h("p", { class: "line said", role: "status" });
    this.go = h("button", { type: "submit", class: "first" }, "Plan it");
    const example = h("button", { type: "button", class: "quiet", on: { click: () => { this.text.value = EXAMPLE; this.text.focus(); } } }, "Put an example in");
    const more = h("button", { type: "button", class: "quiet", on: { click: () => this.addChange().focus() } }, "Change one more key");
    this.more = more;
    this.result = h("div");
    this.element = h("section", {},
      h("h1", {}, "What if"),
      h("p", {}, "What would the plan be? It is made of what the daemon sees now. Nothing is carried out, and nothing of it is kept."),
      h("form", { class: "suppose", on: { submit: (event) => { event.preventDefault(); this.suppose(); } } },
        h("div", {}, h("label", { for: "manifests" }, "More pods: a Pod, Deployment, ReplicaSet, StatefulSet, Job or CronJob in YAML, or what `helm template` prints"), this.text, h("div", { class: "go" }, example)),
        h("div", {}, h("p", { class: "note" }, "Another configuration: keys with their tables, values as they stand in the file"), this.changes, this.keys, h("div", { class: "go" }, more, this.go))),
      this.said, this.result);
    this.tables();
    this.text.value = typed?.text ?? "";
    for (const { key, value } of typed?.changes ?? [{ key: "", value: "" }]) this.addChange(key, value);
    if (typed?.planned) this.suppose();
  }

  /// What is lost with this view, unless it is kept.
  typed() {
    return { text: this.text.value, changes: [...this.changes.children].map((item) => item.change()), planned: this.planned };
  }

  tables() {
    const name = (row) => ({ sign: row.kind + row.name, make: () => row.kind === "node" || row.now ? linkTo(row.kind, row.name) : row.name });
    const lot = {
      name: "What would become of it", wide: true, sort: (row) => row.what,
      cell: (row) => ({ sign: row.what + row.why, make: () => [mark(TONES[row.verdict] ?? "busy", row.what), row.why ? h("p", { class: "why" }, row.why) : null] }),
    };
    const deeds = [
      { name: "Machine", sort: (row) => row.machine, cell: (row) => row.machine },
      { name: "Action", sort: (row) => row.verb, cell: (row) => row.verb },
      { name: "What", sort: (row) => row.what, cell: (row) => row.what },
      { name: "Why", wide: true, cell: (row) => row.why },
    ];
    this.shown = [
      ["pods", "The pods", { key: (row) => row.name, text: (row) => `${row.name} ${row.what}`, columns: [{ name: "Pod", sort: (row) => row.name, cell: name }, lot] }],
      ["more", "Would be done that is not planned now", { empty: "Nothing more than as things are.", key: (row) => row.verb + row.machine, columns: deeds }],
      ["less", "Would not be done", { key: (row) => row.verb + row.machine, columns: deeds }],
      ["others", "Others whose lot would be another", {
        key: (row) => row.kind + row.name, text: (row) => row.name,
        columns: [{ name: "Name", sort: (row) => row.name, cell: name }, { name: "As things are", sort: (row) => row.now, cell: (row) => row.now }, lot],
      }],
    ].map(([part, title, definition]) => {
      const table = new Table({ caption: title, ...definition });
      const section = h("section", { "aria-labelledby": `if-${part}`, hidden: true }, h("h2", { id: `if-${part}` }, title), table.element);
      return { part, table, section, empty: definition.empty };
    });
    this.growth = h("p", { class: "note" });
    this.holds = h("ul", { class: "notes" });
    this.notes = h("ul", { class: "notes" });
    this.result.append(this.growth, this.holds, this.notes, ...this.shown.map((shown) => shown.section));
  }

  /// One more key to change; gives its input.
  addChange(name = "", wanted = "") {
    const key = h("input", { list: "keys", spellcheck: "false", autocomplete: "off" });
    const value = h("input", { spellcheck: "false", autocomplete: "off" });
    [key.value, value.value] = [name, wanted];
    const item = h("li", {}, h("label", {}, "Key", key), h("label", {}, "Value", value),
      h("button", { type: "button", class: "quiet", "aria-label": "Take this change back", on: { click: () => this.takeBack(item) } }, "✕"));
    item.change = () => ({ key: key.value.trim(), value: value.value.trim() });
    this.changes.append(item);
    return key;
  }

  /// A change goes. The focus is at the next one then, or at what makes one.
  takeBack(item) {
    const next = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector("input") ?? this.more;
    item.remove();
    next.focus();
  }

  update(view) {
    const pools = Object.keys(view.status.pools);
    fill(this.keys, pools.join(), () => [
      ...pools.flatMap((pool) => [`pool.${pool}.max`, `pool.${pool}.min`, `pool.${pool}.instance_types`]),
      "scale_up.max_nodes_total", "scale_up.max_in_flight", "scale_down.enabled", "scale_down.utilization_threshold", "scale_down.unneeded_time",
      "limits.max_cpu", "limits.max_memory",
    ].map((key) => h("option", { value: key })));
    // Before its first turn the daemon has nothing to plan with.
    if (this.again && view.status.at) this.suppose();
  }

  async suppose() {
    const changes = [...this.changes.children].map((item) => item.change()).filter((change) => change.key || change.value);
    if (!enabled(this.go)) return;
    enable(this.go, false);
    this.planned = true;
    this.again = false;
    say(this.said, "Planning…");
    try {
      const { outcome } = await ask("/api/what-if", {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ manifests: this.text.value, changes }),
      });
      this.show(outcome);
    } catch (error) {
      this.again = Boolean(error.later);
      this.said.replaceChildren(mark("bad", this.again ? `${error.message} What you typed stays, and is planned once it answers.` : error.message));
      for (const shown of this.shown) shown.section.hidden = true;
      this.growth.hidden = this.holds.hidden = this.notes.hidden = true;
    } finally {
      enable(this.go, true);
    }
  }

  show(outcome) {
    const made = outcome.more.filter((deed) => deed.verb === "create").length;
    const placed = outcome.pods.filter((pod) => ["fits_node", "fits_machine", "triggers"].includes(pod.verdict)).length;
    const parts = [];
    if (outcome.pods.length) parts.push(`${placed} of ${count(outcome.pods.length, "pod")} would have a place`);
    parts.push(made ? `${count(made, "machine")} would be made` : "no machine more would be made");
    say(this.said, `${parts.join(", ")}.`.replace(/^./, (letter) => letter.toUpperCase()));
    say(this.growth, outcome.growth ?? "");
    this.growth.hidden = !outcome.growth;
    this.notes.hidden = outcome.notes.length === 0;
    this.notes.replaceChildren(...outcome.notes.map((note) => h("li", {}, note)));
    this.holds.hidden = outcome.holds.length === 0;
    this.holds.replaceChildren(...outcome.holds.map((hold) => h("li", {}, mark("warn", `On hold: ${hold}`))));
    for (const { part, table, section, empty } of this.shown) {
      const rows = outcome[part];
      section.hidden = rows.length === 0 && !empty;
      table.update(rows, rows.length + (part === "others" ? outcome.more_others : 0));
    }
  }
}
