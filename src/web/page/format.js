// Numbers and times with their units.

export function cores(milli) {
  const whole = milli / 1000;
  return Number.isInteger(whole) ? String(whole) : whole.toFixed(Math.abs(whole) < 10 ? 2 : 1).replace(/0$/, "");
}

export function bytes(amount) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = Math.abs(amount);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${amount < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

/// A span of milliseconds: `45 s`, `3 m 05 s`, `2 h 07 m`, `3 d 4 h`.
export function span(millis) {
  const seconds = Math.max(0, Math.floor(millis / 1000));
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${two(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/// A point in time as people say it, seen from now.
export function when(at, now) {
  return at > now ? `in ${span(at - now)}` : `${span(now - at)} ago`;
}

export function count(number, one) {
  return `${number} ${one}${number === 1 ? "" : "s"}`;
}

/// Milliseconds of a time as the API writes it; null for none.
export function millis(text) {
  return text ? Date.parse(text) : null;
}

/// A step of a machine's life as `status`, `history` and the glossary call it.
export function step(name) {
  return name.replaceAll("_", " ");
}
/// What happens in a step.
const STEPS = {
  intent: "it is noted what will be made", clone: "the template is cloned", configure: "the VM's settings are written", resize: "its disk grows",
  start: "the VM starts", agent: "its guest agent must answer", os: "its system must be ready", join: "it joins the cluster",
  register: "its node must appear", initialize: "its node must be Ready, and gets its labels", done: "it is a working node",
  drain: "its pods are evicted", detach: "its volumes must be detached", shutdown: "the VM shuts down", delete_node: "its Node object goes", destroy: "the VM is destroyed",
};
export function stepTells(name) {
  return STEPS[name] ?? "";
}
export const UP = ["clone", "configure", "resize", "start", "agent", "os", "join", "register", "initialize"];
export const DOWN = ["drain", "detach", "shutdown", "delete_node", "destroy"];

/// Names as people list them: `a`, `a and b`, `a, b and c`.
export function listed(names) {
  const last = names.length - 1;
  return last < 1 ? names.join("") : `${names.slice(0, last).join(", ")} and ${names[last]}`;
}

/// What a machine was made with that is not as it should be: the file says otherwise now, or it was moved away from its CPUs.
export function drift(parts) {
  const words = { cloud_init: "cloud-init", cpus: "CPUs of its own" };
  return `drifted: ${listed(parts.map((part) => words[part] ?? part.replaceAll("_", " ")))}`;
}

/// On which host a machine was made and why there: the words that `plan`, `history` and `explain` have.
export function chosenHost(made) {
  return `on ${made.choice.host}: ${made.why}`;
}

/// The CPUs that a machine has for itself, and the NUMA nodes of its host that they are of; empty where it runs on any.
export function pinned(cpus, numa) {
  if (!cpus) return "";
  return `CPUs ${cpus} for itself${numa?.length ? `, NUMA node${numa.length > 1 ? "s" : ""} ${listed(numa.map(String))}` : ""}`;
}
