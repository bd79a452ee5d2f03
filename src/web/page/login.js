// Logging in and out, where the daemon wants it.

import { h, say, mark } from "./dom.js";
import { enable, enabled } from "./keep.js";
import { ask } from "./live.js";

/// The form that is shown instead of a view. `done` is called once one is logged in.
export class LogIn {
  constructor(done) {
    this.title = "Log in";
    const said = h("p", { class: "note", role: "alert" });
    const name = h("input", { id: "user", name: "user", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true, maxlength: 64 });
    const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true, maxlength: 72 });
    const button = h("button", { type: "submit" }, "Log in");
    const submit = async (event) => {
      event.preventDefault();
      if (!enabled(button)) return;
      enable(button, false);
      say(said, "");
      try {
        await send("/api/login", { user: name.value, password: password.value });
        password.value = "";
        done();
      } catch (error) {
        said.replaceChildren(mark("warn", error.message));
        password.select();
      } finally {
        enable(button, true);
      }
    };
    this.element = h("section", { class: "login" },
      h("h1", {}, "Log in"),
      h("form", { on: { submit } },
        h("label", { for: "user" }, "Name"), name,
        h("label", { for: "password" }, "Password"), password,
        h("div", { class: "go" }, button), said),
      h("p", { class: "note" }, "On the host, ", h("code", {}, "pve-autoscaler web-password NAME"), " sets a password."));
    this.focus = () => name.focus();
  }
}

export async function logOut() {
  await send("/api/logout", {});
}

function send(path, what) {
  return ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(what) });
}
