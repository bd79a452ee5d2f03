// The stream of views from the daemon: opened while somebody looks, opened again when it ends.

/// No event for this long: the daemon is gone, or the way to it. It says something every ten seconds.
const SILENCE = 25_000;
/// Pauses before the next attempt.
const PAUSES = [500, 1_000, 2_000, 4_000, 5_000];
/// A page that nobody sees lets its stream go after this long: a browser has six connections to a daemon, and a seventh tab's
/// question would wait for one.
const UNSEEN = 2_000;

/// The daemon's clock, as it was told last.
const clock = { now: Date.now(), at: performance.now(), pace: 1 };

/// What the daemon's clock shows by now, in milliseconds.
export function now() {
  return clock.now + (performance.now() - clock.at) * clock.pace;
}

export function setClock(millis, pace = clock.pace) {
  clock.now = millis;
  clock.at = performance.now();
  clock.pace = pace;
}

/// Listens until it is told to stop, by what it gives back. `onView(view)` hears of views, `onState(state)` of `live`,
/// `gone`, `full`, `closed`, and of `barred` when a login is wanted.
export function listen(onView, onState) {
  let stopped = false;
  let source = null;
  let failures = 0;
  let silence = 0;
  let again = 0;
  let unseen = 0;

  function heard() {
    failures = 0;
    clearTimeout(silence);
    silence = setTimeout(failed, SILENCE);
  }

  function close() {
    clearTimeout(silence);
    clearTimeout(again);
    source?.close();
    source = null;
  }

  function open() {
    close();
    source = new EventSource("/api/events");
    source.addEventListener("view", (event) => {
      heard();
      const view = JSON.parse(event.data);
      if (!view) return;
      setClock(view.now, view.pace);
      onState("live");
      onView(view);
    });
    source.addEventListener("beat", (event) => {
      heard();
      setClock(Number(event.data));
      onState("live");
    });
    source.addEventListener("error", failed);
    clearTimeout(silence);
    silence = setTimeout(failed, SILENCE);
  }

  async function failed() {
    close();
    const pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    failures += 1;
    // The first end is a stream that is old, or a daemon that is started anew: said only when it lasts.
    if (failures > 1) onState(await why());
    if (source || stopped) return;
    again = setTimeout(open, pause);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) {
      unseen = setTimeout(() => { close(); onState("closed"); }, UNSEEN);
    } else if (!source && !stopped) {
      failures = 0;
      open();
    }
  });
  // A page that was left may be kept for the way back, its stream with it.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted && !source && !stopped) open(); });
  open();
  return () => {
    stopped = true;
    close();
  };
}

/// Whether the daemon is there at all, and lets this page in.
async function why() {
  try {
    const session = await whoAmI();
    return session.login && !session.user ? "barred" : "full";
  } catch {
    return "gone";
  }
}

/// Whether a login is wanted, and who is logged in.
export function whoAmI() {
  return ask("/api/session");
}

/// Why there is no answer, in the daemon's words. With `later` the same question may have one once the daemon is there again and has looked.
export class Unanswered extends Error {
  constructor(words, later = false) {
    super(words);
    this.later = later;
  }
}

/// Asks for one thing. Throws when there is no answer.
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    // Who asked no longer wants to know.
    if (options.signal?.aborted) throw error;
    throw new Unanswered("The daemon does not answer.", true);
  }
  let said;
  try {
    said = await answer.json();
  } catch {
    throw new Unanswered(`The daemon answered with status ${answer.status} and nothing to read.`, answer.status >= 500);
  }
  if (answer.status === 401 && path !== "/api/login") dispatchEvent(new Event("barred"));
  if (!answer.ok) throw new Unanswered(said.error ?? `The daemon answered with status ${answer.status}.`, answer.status === 503);
  return said;
}
