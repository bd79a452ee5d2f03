// What a person may do to the world of the demo.

import { h, say, mark } from "./dom.js";
import { ask } from "./live.js";

const DEEDS = [
  ["add-workload", "Add a workload"], ["add-giant", "Add a pod that is too large"], ["remove-workloads", "Remove what I added"],
  ["kill-host", "Kill the host pve2"], ["revive-host", "Give it power again"],
  ["break-template", "Break the template"], ["mend-template", "Mend the template"],
];

export function panel(pace) {
  const said = h("p", { class: "note", role: "status" });
  async function act(deed) {
    try {
      const answer = await ask("/demo/act", {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ do: deed }),
      });
      say(said, answer.said);
    } catch (error) {
      said.replaceChildren(mark("warn", error.message));
    }
  }
  const buttons = DEEDS.map(([deed, name]) => h("button", { type: "button", on: { click: () => act(deed) } }, name));
  return h("section", { class: "demo", "aria-labelledby": "demo" },
    h("h2", { id: "demo" }, "This is the demo"),
    h("p", { class: "note" }, `The cluster is simulated, ${pace} of its seconds pass in one. Try what the autoscaler does:`),
    h("div", { class: "deeds" }, buttons), said);
}
