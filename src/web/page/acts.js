// What a person who is logged in may do.

import { h, say, mark } from "./dom.js";
import { ask } from "./live.js";

/// Whether there is anything to do: told by the daemon once somebody is logged in.
export const may = { act: false };

/// What came of it: `done`, whether it made a difference, and what there is to say of it.
function act(what) {
  return ask("/api/act", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(what) });
}

/// Pause with a reason, or resume: what fits.
export class PausePanel {
  constructor() {
    this.said = h("p", { class: "note", role: "status" });
    this.reason = h("input", { id: "reason", maxlength: 200, placeholder: "storage move" });
    this.pause = h("form", { class: "acts", on: { submit: (event) => { event.preventDefault(); this.do({ do: "pause", reason: this.reason.value }); } } },
      h("label", { for: "reason" }, "Why"), this.reason, h("button", { type: "submit" }, "Pause"),
      h("span", { class: "note" }, "Until somebody resumes, no machine is made or removed. What has begun is finished."));
    this.resume = h("div", { class: "acts" },
      h("button", { type: "button", on: { click: () => this.do({ do: "resume" }) } }, "Resume"),
      h("span", { class: "note" }, "Machines are made and removed again."));
    this.element = h("section", { "aria-labelledby": "acts" }, h("h2", { id: "acts" }, "Pause"), this.pause, this.resume, this.said);
  }

  update(paused) {
    this.element.hidden = !may.act;
    if (this.pause.hidden === paused && this.resume.hidden === !paused) return;
    const held = this.element.contains(document.activeElement) && document.activeElement.closest("form, div.acts");
    this.pause.hidden = paused;
    this.resume.hidden = !paused;
    // Who paused is at what resumes, and the other way round.
    if (held) (paused ? this.resume.querySelector("button") : this.reason).focus({ preventScroll: true });
  }

  async do(what) {
    try {
      const answer = await act(what);
      this.reason.value = "";
      say(this.said, what.do === "pause" ? whatPaused(answer) : answer.done ? "Resumed." : "Nothing was paused.");
    } catch (error) {
      this.said.replaceChildren(mark("warn", error.message));
    }
  }
}

/// That it is paused, and for what it was before, as where somebody else was faster.
function whatPaused({ reason_before: before }) {
  return before === null ? "Paused." : `Paused; it was so before: ${before}`;
}

/// Empties a host of machines, or lets it have them again. What came of it stays beside the button, which becomes the other one.
export class EvacuateButton {
  constructor(region, name) {
    Object.assign(this, { region, name, evacuated: null });
    this.said = h("p", { class: "why", role: "status" });
    this.button = h("button", { type: "button", class: "quiet", on: { click: () => this.do() } });
    this.elements = [this.button, this.said];
  }

  update(evacuated) {
    if (this.evacuated === evacuated) return;
    this.evacuated = evacuated;
    say(this.button, evacuated ? "End the evacuation" : "Evacuate");
    this.button.setAttribute("aria-label", evacuated ? `End the evacuation of ${this.name}` : `Evacuate ${this.name}`);
  }

  async do() {
    const end = this.evacuated;
    try {
      const { done, host } = await act({ do: "evacuate", region: this.region, host: this.name, end });
      say(this.said, !end ? whatGoes(host) : done ? "It may have machines again." : "It was not evacuated.");
    } catch (error) {
      this.said.replaceChildren(mark("warn", error.message));
    }
  }
}

/// What an evacuated host has, and when that goes, as far as it is known now.
function whatGoes({ machines, coming, offline, held }) {
  if (!machines.length) return "It has no machine.";
  const one = machines.length === 1;
  const said = [`It has ${machines.join(", ")}.`];
  if (held) said.push(`Nothing is removed for now: ${held.replace(/\.+$/, "")}.`);
  if (offline) said.push("The host is offline: nothing of it is removed before it is back.");
  const nodes = machines.filter((name) => !coming.includes(name));
  const then = held || offline ? "After that " : "";
  if (nodes.length) said.push(`${then}${coming.length ? nodes.join(", ") : then ? (one ? "it" : "they") : one ? "It" : "They"} ${nodes.length === 1 ? "goes once its" : "go once their"} pods have a place elsewhere.`);
  if (coming.length) said.push(`On the way up: ${coming.join(", ")}; ${coming.length === 1 ? "it goes once it works" : "they go once they work"}.`);
  return said.join(" ");
}

/// Ends the waits of a pool, and says which.
export function retryButton(pool) {
  const said = h("p", { class: "why", role: "status" });
  const click = async () => {
    try {
      const { ended } = await act({ do: "retry", pool });
      say(said, ended.length ? ended.map((wait) => `No longer waits: ${wait}.`).join(" ") : "Nothing was waited for.");
    } catch (error) {
      said.replaceChildren(mark("warn", error.message));
    }
  };
  return [h("button", { type: "button", "aria-label": `Retry ${pool}`, on: { click } }, "Retry"), said];
}
