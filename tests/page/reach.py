"""By the keyboard alone, on every view: all that a mouse reaches is reached, in the order in which it stands, what has the focus is seen, nobody
is held anywhere, and who does something is still there while the page changes by itself."""

import itertools

import heard
import stories
from browser import until
from checks import expect
from world import Installation, ready

# What has the focus: who it is, whether a ring shows it, whether something lies over it, and where it stands.
FOCUS = """
const it = document.activeElement;
if (!it || it === document.body) return null;
const style = getComputedStyle(it), box = it.getBoundingClientRect();
const [x, y] = [Math.min(innerWidth - 1, Math.max(0, box.left + box.width / 2)), box.top + Math.min(box.height / 2, 12)];
const over = document.elementFromPoint(x, y);
window.marks = window.marks ?? new Map();
if (!window.marks.has(it)) window.marks.set(it, window.marks.size);
return {
  mark: window.marks.get(it), tag: it.tagName, name: (it.getAttribute('aria-label') ?? it.textContent ?? '').trim().slice(0, 60) || it.id || it.type || '',
  text: it.textContent.trim().slice(0, 60), id: it.id, href: it.getAttribute('href'), value: it.value ?? null,
  ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
  seen: box.top >= -1 && box.bottom <= innerHeight + box.height && (over === it || it.contains(over) || over?.contains(it)) && !(over?.closest('.top') && !it.closest('.top')),
  top: box.top + scrollY, bottom: box.bottom + scrollY, left: box.left, main: Boolean(it.closest('main')),
};
"""
# All that can be reached: links, buttons, fields and what opens, one of a row of marks.
REACHABLE = """
return [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((it) => it.checkVisibility() && it.getAttribute('tabindex') !== '-1')
  .map((it) => (it.getAttribute('aria-label') ?? it.textContent ?? '').trim().slice(0, 60) || it.id || it.type || '');
"""
# Names of pods are new each time.
ROUNDS = itertools.count()


def focus(browser):
    return browser.run(FOCUS)


def tab_to(browser, what, wanted, most=150):
    """Goes on by the tab key until that has the focus: a name that it begins with, or a test of it."""
    is_it = wanted if callable(wanted) else lambda it: it["name"].startswith(wanted) or it["text"].startswith(wanted)
    seen = []
    for _ in range(most):
        browser.press("tab")
        it = focus(browser)
        if it and is_it(it):
            expect(it["ring"], f"no ring shows that {what} has the focus: {it}")
            return it
        seen.append(it and it["name"])
    raise SystemExit(f"page: {what} cannot be reached by the tab key: {seen}")


def stays(browser, what, is_it):
    it = focus(browser)
    expect(it is not None and is_it(it), f"the focus is not {what}: {it}")


def from_the_start(browser, address, words):
    """Opens a view as if by its address, with the focus nowhere."""
    browser.run("location.hash = arguments[0]; location.reload()", address)
    browser.shows(words, seconds=60)
    browser.shows("live", "#link", seconds=60)


def walk(browser, view):
    """The tab key goes once through all of a view and out of it; what has the focus is seen, and stands below or beside what had it before."""
    wanted = browser.run(REACHABLE)
    found, last, marks = [], None, set()
    for _ in range(len(wanted) + 12):
        browser.press("tab")
        it = focus(browser)
        if it is None or it["mark"] in marks:
            break
        marks.add(it["mark"])
        expect(it["ring"], f"{view}: no ring shows where the focus is: {it}")
        expect(it["seen"], f"{view}: something lies over what has the focus: {it}")
        if last and last["main"] and it["main"]:
            expect(it["bottom"] > last["top"] or it["left"] > last["left"], f"{view}: from {last['name']!r} the tab key goes back up to {it['name']!r}")
        found.append(it["name"])
        last = it
    else:
        raise SystemExit(f"page: {view}: the tab key does not come out again: {found[-6:]}")
    missing = [name for name in wanted if name not in found]
    expect(not missing and len(found) == len(wanted), f"{view}: {len(found)} of {len(wanted)} are reached, without {missing[:6]}; {found}")


def told_and_walked(browser, view):
    """What holds for a view that is open and stands still, on a desk and on a phone."""
    heard.of_view(browser, view)
    browser.size(360, 740, phone=True)
    heard.of_view(browser, f"{view}, on a phone")
    browser.size(1280, 900)


def rows_are_kept(browser, world):
    """Rows come and go above what has the focus: it stays there. It goes itself: what stands in its place has the focus, and what it did is not
    done to another."""
    before, first, second, third, last = [f"{name}-{next(ROUNDS)}" for name in ["q", "r7", "r8", "r9", "s1"]]
    for name, cpu in [(first, "7"), (second, "8"), (third, "9"), (last, "12")]:
        world.pod(name, cpu)
    from_the_start(browser, "#/", f"default/{last}")
    in_table = "[aria-labelledby=pending]"
    without = lambda *names: browser.wait(f"{names} are gone", f"""const said = document.querySelector('{in_table}').innerText;
        return arguments[0].every((name) => !said.includes(name))""", names, seconds=90)
    browser.run(f"[...document.querySelectorAll('{in_table} thead button')].find((it) => it.textContent === 'Pod').click()")
    tab_to(browser, "a pod", f"default/{third}")
    world.gone(f"pods/{first}")
    world.gone(f"pods/{second}")
    without(first, second)
    stays(browser, "on the pod any more, after rows above it went", lambda it: it["text"] == f"default/{third}")
    world.pod(before, "11")
    browser.shows(f"default/{before}", in_table, seconds=90)
    stays(browser, "on the pod any more, after a row came above it", lambda it: it["text"] == f"default/{third}")
    world.gone(f"pods/{third}")
    without(third)
    stays(browser, "near the pod that went", lambda it: it["href"] == f"#/pod/default/{last}")
    world.gone(f"pods/{last}")
    without(last)
    stays(browser, "in the table of pending pods", lambda it: it["href"] == f"#/pod/default/{before}")
    world.gone(f"pods/{before}")
    without(before)
    stays(browser, "near the pods that are left", lambda it: (it["href"] or "").startswith("#/pod/default/") or it["text"] == "Pending pods")


def crowd_is_opened(browser):
    """What opens those behind a pod closes them again, under the same finger."""
    from_the_start(browser, "#/", "Pending pods")
    tab_to(browser, "the pods of whom the same is said", lambda it: it["text"].startswith("and ") and it["text"].endswith(" more"))
    browser.press("enter")
    browser.shows("Show one for all", "[aria-labelledby=pending]")
    stays(browser, "on what closes them again", lambda it: it["text"] == "Show one for all")
    browser.press("space")
    browser.shows(" more", "[aria-labelledby=pending] tbody")
    stays(browser, "on what opens them again", lambda it: it["text"].startswith("and "))


def why_by_keys(browser):
    """Search, choose a pod, sort a column, move on."""
    from_the_start(browser, "#/why", "found.")
    walk(browser, "Why")
    told_and_walked(browser, "Why")
    heard.listen(browser)
    tab_to(browser, "the search", lambda it: it["id"] == "search")
    browser.press(*"pod-0")
    heard.is_told(browser, "found.")
    stays(browser, "in the search while it finds", lambda it: it["id"] == "search" and it["value"] == "pod-0")
    tab_to(browser, "a pod that was found", "default/pod-0004")
    browser.press("enter")
    browser.shows("default/pod-0004", "h1")
    browser.shows("What would have to change")
    stays(browser, "on the view that was opened", lambda it: it["tag"] == "MAIN")
    heard.listen(browser)
    tab_to(browser, "the order by free CPU", "Free CPU")
    browser.press("enter")
    heard.is_told(browser, "Sorted by Free CPU, descending.")
    browser.press("space")
    heard.is_told(browser, "Sorted by Free CPU, ascending.")
    stays(browser, "on the column that was sorted", lambda it: it["text"] == "Free CPU")
    told_and_walked(browser, "Why a pod waits")
    heard.no_chatter(browser, "Why a pod waits")
    stays(browser, "on the column while the explanation is told anew", lambda it: it["text"] == "Free CPU")
    tab_to(browser, "a node", "node-00")
    browser.press("enter")
    browser.shows("none of ours: it is never removed")
    told_and_walked(browser, "Why a node stays")
    # Back to the search, which is as it was.
    browser.run("history.go(-2)")
    browser.shows("found.")
    expect(browser.run("return document.getElementById('search').value") == "pod-0", "what was searched for is lost on the way back")


def explanation_is_kept(browser):
    """A link in an explanation keeps the focus while it is told anew: its times are others each time."""
    browser.go("#/node/node-000")
    browser.shows("none of ours", seconds=30)
    try:
        browser.run(stories.TELL_REPLACEMENT)
        browser.wait("the machine in its place", stories.REPLACEMENT, seconds=60)
        tab_to(browser, "the machine in its place", "told-next")
        browser.run("""window.asks = 0; const asked = window.fetch; window.fetch = (...all) => { window.asks += 1; return asked(...all); }""")
        browser.wait("it is told anew twice", "return window.asks > 1", seconds=90)
        browser.wait("it is shown", stories.REPLACEMENT)
        stays(browser, "on the machine in its place any more", lambda it: it["text"] == "told-next")
    finally:
        browser.run(stories.UNTELL_REPLACEMENT)


def when_by_keys(browser):
    """The window, the time before and after, of one thing alone, a mark, back."""
    from_the_start(browser, "#/when", " of pools; ")
    walk(browser, "When")
    told_and_walked(browser, "When")
    heard.listen(browser)
    tab_to(browser, "a window", "1 hour")
    browser.press("enter")
    heard.is_told(browser, " of pools; ")
    stays(browser, "on the window that was chosen", lambda it: it["text"] == "1 hour")
    try:
        browser.run(stories.TELL_WHEN)
        tab_to(browser, "reading again", "Read again")
        browser.press("enter")
        browser.wait("a time before", "return [...document.querySelectorAll('.go button')].some((it) => it.textContent === 'Earlier' && !it.hasAttribute('aria-disabled'))", seconds=30)
        browser.press("shift+tab", "shift+tab")
        stays(browser, "on Earlier", lambda it: it["text"] == "Earlier")
        browser.press("enter")
        browser.shows("Nothing was recorded in this time.", ".line", seconds=30)
        stays(browser, "on Earlier after it was pressed", lambda it: it["text"] == "Earlier")
        browser.press("tab", "space")
        browser.shows(" of pools; ", ".line", seconds=30)
        # There is nothing later, and who pressed it is still there.
        stays(browser, "on Later, which may not be pressed any more", lambda it: it["text"] == "Later")
    finally:
        browser.run(stories.UNTELL_REPLACEMENT)
    tab_to(browser, "of whom", lambda it: it["id"] == "of")
    browser.press(*"node-000", "enter")
    browser.shows("Of one node or machine alone.", ".line", seconds=30)
    stays(browser, "in the field that was sent", lambda it: it["id"] == "of")
    browser.press(*["shift+left"] * 8, *"x", "enter")
    browser.run("document.getElementById('of').value = ''")
    browser.press("enter")
    browser.wait("all are told of", "return document.querySelectorAll('.decisions button').length > 0", seconds=30)
    it = tab_to(browser, "the marks", lambda it: browser.run("return document.activeElement.closest('.decisions') !== null"))
    browser.press("home", "enter")
    browser.shows("", ".chosen")
    browser.wait("it is read", "return document.querySelector('.chosen li') !== null")
    stays(browser, "on the mark that was pressed", lambda now: now["tag"] == it["tag"])
    browser.press("right", "left", "end")
    stays(browser, "on a mark after the arrow keys", lambda now: browser.run("return document.activeElement.closest('.decisions') !== null"))
    heard.no_chatter(browser, "When")
    # To another view and back: the time and the decision are as they were.
    browser.press("enter")
    said = browser.text(".chosen")
    browser.go("#/why")
    browser.shows("found.")
    browser.run("history.back()")
    browser.shows(" of pools; ", ".line", seconds=30)
    expect(browser.run("return document.querySelector('.go [aria-pressed=true]').textContent") == "1 hour", "the window is lost on the way back")
    browser.wait("the decision is open again", "return document.querySelector('.chosen').innerText.trim() === arguments[0].trim()", said)


def what_if_by_keys(browser):
    """Paste, change a number, plan, read what comes of it."""
    from_the_start(browser, "#/what-if", "Nothing is carried out")
    walk(browser, "What if, empty")
    tab_to(browser, "an example", "Put an example in")
    browser.press("enter")
    stays(browser, "in the text that was put in", lambda it: it["id"] == "manifests" and "Deployment" in it["value"])
    # Out of a text the tab key leads on; it is no sign in it.
    tab_to(browser, "a key", lambda it: it["tag"] == "INPUT")
    browser.press(*"pool.general.max", "escape", "tab", *"0")
    tab_to(browser, "one more key", "Change one more key")
    browser.press("enter")
    stays(browser, "in the key that was added", lambda it: it["tag"] == "INPUT" and it["value"] == "")
    tab_to(browser, "taking it back", "Take this change back")
    browser.press("enter")
    stays(browser, "at the change that is left", lambda it: it["tag"] == "INPUT" and it["value"] == "pool.general.max")
    heard.listen(browser)
    tab_to(browser, "the plan", "Plan it")
    browser.press("enter")
    heard.is_told(browser, "of 10 pods would have a place", seconds=60)
    stays(browser, "on the button that was pressed", lambda it: it["text"] == "Plan it")
    told_and_walked(browser, "What if")
    tab_to(browser, "the order of what comes of it", "What would become of it")
    browser.press("enter")
    heard.is_told(browser, "Sorted by What would become of it, ascending.")
    heard.no_chatter(browser, "What if")


def now_by_keys(browser):
    """All of Now is reached; views and the theme are chosen; folded parts are opened."""
    now_is_walked(browser)
    now_is_read(browser)
    tab_to(browser, "the theme", "Theme: as the system")
    browser.press("enter")
    stays(browser, "on the theme that was chosen", lambda it: it["text"] == "Theme: light")
    browser.press("space", "enter")
    stays(browser, "on the theme", lambda it: it["text"] == "Theme: as the system")
    tab_to(browser, "the legend", "Signs, colours and bars")
    browser.press("enter")
    browser.wait("it is open", "return document.querySelector('.legends').open")
    browser.press("space")
    browser.wait("it is closed", "return !document.querySelector('.legends').open")
    tab_to(browser, "the pods of a node", "Show pods of node-000")
    browser.press("enter")
    browser.wait("the pods", "return document.querySelector('.under table') !== null")
    heard.of_view(browser, "Now, the pods of a node")
    from_the_start(browser, "#/", "Pending pods")
    browser.press("tab")
    stays(browser, "on what skips the bar", lambda it: it["text"] == "Skip to the content")
    browser.press("enter", "tab")
    stays(browser, "in the content", lambda it: it["main"])
    tab_to(browser, "a view", lambda it: it["href"] == "#/why")
    browser.press("enter")
    browser.shows("found.")
    stays(browser, "on the view that was chosen", lambda it: it["tag"] == "MAIN")


def now_is_walked(browser):
    """The part of Now that needs no change of the world."""
    from_the_start(browser, "#/", "Pending pods")
    walk(browser, "Now")


def now_is_read(browser):
    """What a screen reader has of Now, on a desk and on a phone, and that it hears nothing while nobody does anything."""
    from_the_start(browser, "#/", "Pending pods")
    told_and_walked(browser, "Now")
    heard.no_chatter(browser, "Now", 6)


def sorting_is_told(browser):
    """Who sorts hears how."""
    from_the_start(browser, "#/", "Pending pods")
    heard.listen(browser)
    tab_to(browser, "an order", "CPU")
    browser.press("enter")
    heard.is_told(browser, "Sorted by CPU, descending.", seconds=5)


def world_of_some(binary):
    """Two nodes, pods on them, six pods that wait alike."""
    world = Installation(binary, nodes=2, pods=8, waiting=6)
    until("a daemon that has seen it", lambda: ready(world), 60)
    return world


def of_every_view(browser, world):
    now_by_keys(browser)
    crowd_is_opened(browser)
    why_by_keys(browser)
    explanation_is_kept(browser)
    when_by_keys(browser)
    what_if_by_keys(browser)
    rows_are_kept(browser, world)
    browser.look_at_logs()
    expect(not browser.complaints, f"the console says: {browser.complaints[:5]}")
