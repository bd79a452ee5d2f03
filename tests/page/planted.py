"""Bugs planted in the page's files, one at a time: a story of the tests must find each. A test that cannot fail is none."""

import functools
import hashlib
import os
import subprocess

import lost
import reach
import starts
import stories
from between import Between
from browser import until
from checks import expect, look_over


class Bug:
    """What is planted where, and the story that finds it."""

    def __init__(self, name, file, changes, story):
        self.name, self.file, self.changes, self.story = name, file, changes, story

    def spoil(self, text):
        for old, new in self.changes:
            expect(text.count(old) >= 1, f"the bug {self.name!r} finds no place in {self.file}: {old!r}")
            text = text.replace(old, new, 1)
        return text


class Crooked(Between):
    """The page of somebody else, with a bug in it."""

    def __init__(self, url):
        self.bug = None
        super().__init__(url, self.spoil)

    def plant(self, bug):
        self.bug = bug

    def spoil(self, path, answer):
        bug = self.bug
        return bug.spoil(answer.read().decode()).encode() if bug and path == bug.file else None


@functools.cache
def on_demo(story):
    """A story that needs no more than the page."""
    return lambda browser, world: story(browser)


def readable(browser, _):
    browser.go("#/")
    browser.shows("Pending pods")
    look_over(browser, "Now, with a bug")


def quiet_origin(browser, world):
    browser.shows("Pending pods")
    browser.look_at_logs()
    expect(not browser.complaints, f"the console says: {browser.complaints[:3]}")


def comes_back(browser, world):
    stories.comes_back(browser, world, world.daemon.end)


# Of the simulated cluster of the demo.
OF_DEMO = [
    Bug("strangers' words are taken for markup", "/page/dom.js",
        [("element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));",
          "for (const child of children.flat(Infinity)) { if (typeof child === 'string') element.insertAdjacentHTML('beforeend', child); else if (child) element.append(child); }")],
        stories.strangers_words),
    Bug("a mark leads to the next one's decisions", "/page/when.js",
        [("const { rows } = this.marks[index];", "const { rows } = this.marks[(index + 1) % this.marks.length];")],
        on_demo(stories.marks_lead_to_their_decisions)),
    Bug("marks stand in the wrong place", "/page/chart.js",
        [("return LEFT + ((at - from)", "return LEFT + 0.9 * ((at - from)")], on_demo(stories.marks_lead_to_their_decisions)),
    Bug("a decision leads to another machine", "/page/when.js",
        [("return [before, this.machine(row.machine), after];", 'return [before, linkTo("machine", this.rows[0].machine ?? "x"), after];')],
        on_demo(stories.marks_lead_to_their_decisions)),
    Bug("a decision closes when the record is read again", "/page/when.js",
        [("if (open < 0) this.close();", "this.close();"), ("    else this.pick(open, this.open);\n", "")],
        on_demo(stories.decision_stays_open)),
    Bug("a hold ends where it begins", "/page/when.js", [("to: millis(one.until) ??", "to: millis(one.from) ??")], on_demo(stories.idle_times_are_drawn)),
    Bug("bands do not say why", "/page/chart.js", [('svg("title", {}, band.title)', 'svg("title", {}, band.name)')], on_demo(stories.idle_times_are_drawn)),
    Bug("the time before is the one after", "/page/when.js", [("const to = (way < 0 ?", "const to = (way > 0 ?")], on_demo(stories.times_before_are_shown)),
    Bug("a name is not asked for", "/page/when.js", [("of=${encodeURIComponent(this.asked)}", "")], on_demo(stories.times_before_are_shown)),
    Bug("a pending pod has no reason", "/page/now.js",
        [('row.words[1] ? h("p", { class: "why" }, row.words[1]) : null', "null")], on_demo(stories.reasons_are_there)),
    Bug("times stand still", "/page/main.js", [("setInterval(tick, 1000);", ""), ("tell(view.line);\n  tick();", "tell(view.line);")],
        on_demo(stories.times_go_on)),
    Bug("grey that cannot be read", "/page/look.css", [("--soft: #55606c;", "--soft: #a9b2bb;")], readable),
    Bug("a table without its name", "/page/table.js", [('h("caption", { class: "hidden" }, caption)', 'h("caption", { class: "hidden" })')], readable),
    Bug("a style from elsewhere", "/", [("</head>", '<link rel="stylesheet" href="https://fonts.example/x.css"></head>')], quiet_origin),
    Bug("a legend that lacks a sign", "/page/legend.js", [('[mark("bad", "")', '[mark("good", "")')], on_demo(stories.legends)),
    Bug("a node's drift is told without its parts", "/page/format.js",
        [("  const words = {", "  return 'drifted';\n  const words = {")], on_demo(stories.drift_is_shown)),
    Bug("every node has drifted", "/page/now.js", [("machine.drifted?.length ? drift", "machine.drifted ? drift")], on_demo(stories.drift_is_shown)),
    Bug("a machine's CPUs have no NUMA nodes", "/page/now.js",
        [("view.numa[name]", "view.numa[name + '-other']")], on_demo(stories.pins_are_shown)),
    Bug("a machine says why another one came to its host", "/page/now.js",
        [("view.made?.[machine.name]", "Object.values(view.made)[0]")], on_demo(stories.hosts_are_told)),
    Bug("a storage that is well is marked", "/page/stores.js",
        [('note.code !== "shares_space"', "true")], on_demo(stories.stores_are_told)),
    Bug("a storage does not say to whom it is promised", "/page/stores.js",
        [("make: () => pools(row).map", "make: () => [].map")], on_demo(stories.stores_are_told)),
    Bug("nothing is said of the machine in a node's place", "/page/why.js",
        [('story.replacement ? ["In its place"', 'null ? ["In its place"')], on_demo(stories.replacement_is_told)),
    Bug("the machine in a node's place does not say how far it is", "/page/why.js",
        [("if (machine.step) parts.push(", "if (false) parts.push(")], on_demo(stories.replacement_is_told)),
    Bug("a legend that lacks a mark", "/page/legend.js", [('[sign("idle", "▼")', '[sign("idle", "▽")')], on_demo(stories.legends)),
    Bug("a step is drawn as another one", "/page/starts.js", [("phase-${phase.step}", "phase-clone")], on_demo(starts.starts_are_drawn)),
    Bug("steps are not as high as they took", "/page/starts.js", [("const tall = high(phase.took);", "const tall = high(row.total / row.phases.length);")],
        on_demo(starts.starts_are_drawn)),
    Bug("machines that came together lie on one another", "/page/starts.js", [("index ? places[index - 1] + room : from", "from"), ("end = places[index];", "")],
        on_demo(starts.starts_are_drawn)),
    Bug("the last name of a time is cut off", "/page/chart.js", [("x + half > width - 4 ?", "x > width + 400 ?")], on_demo(starts.last_name_is_whole)),
    Bug("empty tables before the first view", "/page/main.js", [("unread() ? h(", "false ? h(")], on_demo(stories.nothing_is_claimed)),
]
# Of a daemon that can be ended.
OF_INSTALLATION = [
    Bug("pending pods have one another's reasons", "/page/now.js",
        [("pending.sentences[pod.says]", "pending.sentences[0]")], on_demo(stories.reasons_are_there)),
    Bug("what is said of many is said of each", "/page/now.js",
        [("const ALIKE = 3;", "const ALIKE = 300;")], on_demo(stories.crowds_are_told_once)),
    Bug("numbers are sorted as words", "/page/table.js",
        [("const [one, other] = [of(a), of(b)];", "const [one, other] = [String(of(a)), String(of(b))];")], on_demo(stories.numbers_sort)),
    Bug("after a break the old view stays", "/page/live.js",
        [("      onView(view);", "      if (!window.broken) onView(view);"), ("    failures += 1;", "    failures += 1;\n    window.broken = true;")],
        comes_back),
    Bug("after a break it is never live again", "/page/live.js",
        [("again = setTimeout(open, pause);", "")], comes_back),
]
# Of a world with one of each: one node, one pod that waits.
OF_SINGLE = [
    Bug("one is called several", "/page/format.js", [('number === 1 ? "" : "s"', '"s"')], on_demo(stories.one_is_counted_as_one)),
    Bug("a row stands for no other, and says so", "/page/now.js",
        [("if (all.length - 1 <= ALIKE) return [row];", "if (all.length > 1 && all.length - 1 <= ALIKE) return [row];")],
        on_demo(stories.one_row_stands_alone)),
    Bug("the picture ends with the last change", "/page/when.js", [("picture(untilNow(this.told),", "picture(this.told.points,")],
        on_demo(stories.lines_reach_now)),
]
# Of a world in which pods come and go under somebody's fingers.
OF_REACH = [
    Bug("what stays is moved when a row above it goes", "/page/dom.js",
        [("  keepFocus(parent, () => {\n    const stays", "  const gone = [...parent.children].filter((it) => !elements.includes(it));\n  for (const it of elements) parent.append(it);\n"
          "  for (const it of gone) it.remove();\n  if (parent.isConnected) return;\n  keepFocus(parent, () => {\n    const stays")], reach.rows_are_kept),
    Bug("who has the focus loses it with the row", "/page/keep.js", [("  if (next) next.focus(", "  if (false) next.focus("), ("  else toHeading(home);", "")],
        reach.rows_are_kept),
    Bug("what opens the pods behind one is another button then", "/page/dom.js",
        [("  keepFocus(element, () => element.replaceChildren(...[make()].flat(Infinity).filter(Boolean)));",
          "  element.replaceChildren(...[make()].flat(Infinity).filter(Boolean));")], on_demo(reach.crowd_is_opened)),
    Bug("an explanation is made anew each time", "/page/keep.js",
        [("  keepFocus(element, () => morph(element, fresh));", "  element.replaceChildren(...fresh.childNodes);")], on_demo(reach.explanation_is_kept)),
    Bug("a button that may not be pressed lets go of the focus", "/page/keep.js",
        [('  else button.setAttribute("aria-disabled", "true");', '  else button.setAttribute("aria-disabled", "true");\n  button.disabled = !may;')],
        on_demo(reach.when_by_keys)),
    Bug("no ring shows where the focus is", "/page/look.css", [(":focus-visible { outline: 2px solid", ":focus-visible { outline: 0px solid")], on_demo(reach.now_is_walked)),
    Bug("the order of the tab key is another one", "/page/table.js", [('type: "search", placeholder: "Filter"', 'type: "search", placeholder: "Filter", tabindex: "3"'),
        ('const button = h("button", { type: "button", on:', 'const button = h("button", { type: "button", tabindex: index % 2 ? "2" : "1", on:')], on_demo(reach.now_is_walked)),
    Bug("a phone's rows have no empty cells", "/page/look.css", [(".table tbody td:empty { position: absolute;", ".table tbody td:empty { display: none;")],
        on_demo(reach.now_is_read)),
    Bug("a header is read with its arrow", "/page/look.css", [('content: " ↕" / "";', 'content: " ↕";')], on_demo(reach.now_is_read)),
    Bug("every view is told", "/page/main.js", [("if (before && faults(view) > faults(before)) tell(view.line);", "announce(`${view.line} ${view.now}`);")],
        on_demo(reach.now_is_read)),
    Bug("nobody hears how a table is sorted", "/page/table.js", [("    announce(`Sorted by", "    void (`Sorted by")], on_demo(reach.sorting_is_told)),
    Bug("a search that had no answer stays without one", "/page/why.js", [("(this.unanswered || this.foundNone) && view", "false && view")], lost.in_a_search),
    Bug("what was read is gone with the daemon", "/page/when.js", [("this.content.hidden = !kept;", "this.content.hidden = true;")], lost.in_times),
    Bug("a supposition is not planned after the return", "/page/whatif.js", [("if (this.again && view.status.at) this.suppose();", "")], lost.in_a_supposition),
    Bug("what no longer holds is told on", "/page/why.js", [("    this.body.hidden = true;\n", "")], lost.in_an_explanation),
]


# One of so many bugs is planted; which, the commit says, so that in time it is each of them.
ONE_OF = 1


def by_lot(bugs):
    """Those whose turn it is in this commit."""
    if ONE_OF == 1:
        return bugs
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True).stdout
    return [bug for bug in bugs if hashlib.sha256(commit + bug.name.encode()).digest()[0] % ONE_OF == 0]


def find_places(folder):
    """Every bug finds its place in the page's files, also those whose turn it is not."""
    for bug in OF_DEMO + OF_INSTALLATION + OF_SINGLE + OF_REACH:
        name = bug.file.strip("/").removeprefix("page/") or "index.html"
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            bug.spoil(file.read())


def find(browser, world, bugs):
    """Each story is well without its bug, and finds its bug."""
    bugs = by_lot(bugs)
    if not bugs:
        return
    crooked = Crooked(world.url)
    try:
        for bug in [None, *bugs]:
            crooked.plant(bug)
            browser.open("about:blank")
            browser.look_at_logs()
            browser.complaints.clear()
            browser.open(crooked.url)
            browser.shows("live", "#link", seconds=60)
            # The daemon is back in time where nothing is wrong; where something is, nobody waits for it that long.
            lost.PATIENCE = 90 if bug is None else 20
            if bug is None:
                for story in dict.fromkeys(bug.story for bug in bugs):
                    story(browser, world)
                continue
            try:
                bug.story(browser, world)
            except SystemExit as found:
                print(f"    {bug.name}: found ({str(found)[:90]})", flush=True)
            else:
                raise SystemExit(f"page: nobody finds the planted bug {bug.name!r}")
            tidy_up(world)
    finally:
        browser.open("about:blank")
        crooked.end()
        browser.look_at_logs()
        browser.complaints.clear()
        browser.requests.clear()


def tidy_up(world):
    """A story that found something ended in the middle."""
    if world.daemon and world.daemon.process.poll() is not None:
        world.start()
    until("a daemon that resumes", lambda: resumed(world), 30)


def resumed(world):
    world.command("resume")
    return True
