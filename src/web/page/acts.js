// What a person who is logged in may do.

import { h, say, mark } from "./dom.js";
import { ask } from "./live.js";

/// Whether there is anything to do: told by the daemon once somebody is logged in.
export const may = { act: false };

async function act(what) {
  const said = await ask("/api/act", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(what) });
  return said.done;
}

/// Pause with a reason, or resume: what fits.
export class PausePanel {
  constructor() {
    this.said = h("p", { class: "note", role: "status" });
    this.reason = h("input", { id: "reason", maxlength: 200, placeholder: "storage move" });
    this.pause = h("form", { class: "acts", on: { submit: (event) => { event.preventDefault(); this.do({ do: "pause", reason: this.reason.value }, "Paused."); } } },
      h("label", { for: "reason" }, "Why"), this.reason, h("button", { type: "submit" }, "Pause"),
      h("span", { class: "note" }, "Until somebody resumes, no machine is made or removed. What has begun is finished."));
    this.resume = h("div", { class: "acts" },
      h("button", { type: "button", on: { click: () => this.do({ do: "resume" }, "Resumed.") } }, "Resume"),
      h("span", { class: "note" }, "Machines are made and removed again."));
    this.element = h("section", { "aria-labelledby": "acts" }, h("h2", { id: "acts" }, "Pause"), this.pause, this.resume, this.said);
  }

  update(paused) {
    this.element.hidden = !may.act;
    this.pause.hidden = paused;
    this.resume.hidden = !paused;
  }

  async do(what, done) {
    try {
      await act(what);
      this.reason.value = "";
      say(this.said, done);
    } catch (error) {
      this.said.replaceChildren(mark("warn", error.message));
    }
  }
}

/// Empties a host of machines, or lets it have them again.
export function evacuateButton(host) {
  const said = h("p", { class: "why", role: "status" });
  const click = async () => {
    try {
      const { machines } = await act({ do: "evacuate", region: host.region, host: host.name, end: host.evacuated });
      say(said, host.evacuated ? "It may have machines again." : machines.length ? `Its machines go once their pods have a place elsewhere: ${machines.join(", ")}.` : "It has no machine.");
    } catch (error) {
      said.replaceChildren(mark("warn", error.message));
    }
  };
  const words = host.evacuated ? "End the evacuation" : "Evacuate";
  return [h("button", { type: "button", class: "quiet", "aria-label": `${words} of ${host.name}`.replace("Evacuate of", "Evacuate"), on: { click } }, words), said];
}

/// Ends the waits of a pool, and says which.
export function retryButton(pool) {
  const said = h("p", { class: "why", role: "status" });
  const click = async () => {
    try {
      const ended = await act({ do: "retry", pool });
      say(said, ended.length ? ended.map((wait) => `No longer waits: ${wait}.`).join(" ") : "Nothing was waited for.");
    } catch (error) {
      said.replaceChildren(mark("warn", error.message));
    }
  };
  return [h("button", { type: "button", "aria-label": `Retry ${pool}`, on: { click } }, "Retry"), said];
}
