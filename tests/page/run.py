"""The page in a real browser.

    python3 tests/page/run.py target/debug/pve-autoscaler [--pictures FOLDER] [--only closed|acts|demo|reach|single|large|planted] [--files src/web/page] [--one-of N]

Needs chromium and chromedriver. With --pictures the parts alone run that take pictures for the README, which are written there. With --files the page's files are those of that folder
and not those in the program, which need not be built for each change of them. With --one-of N, each Nth of the planted bugs is planted; another commit has others.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from browser import Browser, until  # noqa: E402
from checks import expect, look_over  # noqa: E402
import lost  # noqa: E402
import pictures as shots  # noqa: E402
import reach  # noqa: E402
import starts  # noqa: E402
import stories  # noqa: E402
from acts import of_acts  # noqa: E402
from closed import of_closed_page  # noqa: E402
from large import of_large_cluster  # noqa: E402
import planted  # noqa: E402
from planted import OF_DEMO, OF_INSTALLATION, OF_REACH, OF_SINGLE, find, find_places  # noqa: E402
from quiet import quiet  # noqa: E402
from single import of_single_node, world_of_one  # noqa: E402
import world as worlds  # noqa: E402
from world import Demo, Installation, ready  # noqa: E402

def of_small_cluster(browser, demo, pictures):
    """One node, then some: every view, both themes, three widths, what a person does."""
    browser.size(1280, 900)
    browser.open(demo.url)
    browser.shows("Pending pods")
    browser.shows("live", "#link", seconds=60)
    look_over(browser, "Now, at the start")
    # Machines come; the page shows each step, and by which time.
    browser.wait("a machine under way", "return document.querySelector('.work li .steps [aria-current]') !== null", seconds=60)
    browser.wait("a time that is measured", "return document.querySelector('.work .time').innerText.includes('usually')", seconds=90)
    look_over(browser, "Now, machines under way")
    browser.size(360, 740, phone=True)
    look_over(browser, "Now, on a phone", phone=True)
    browser.size(1280, 900)
    what_people_do(browser, pictures)
    stories.reasons_are_there(browser)
    stories.times_go_on(browser)
    stories.drift_is_shown(browser)
    stories.pins_are_shown(browser)
    stories.hosts_are_told(browser)
    stories.stores_are_told(browser)
    stories.replacement_is_told(browser)
    kept(browser)
    why(browser, pictures)
    stories.keyboard(browser)
    stories.themes(browser)
    what_if(browser, pictures)
    stories.legends(browser)
    stories.marks_lead_to_their_decisions(browser)
    when(browser)
    stories.strangers_words(browser, demo)
    quiet(browser, demo.url.rstrip("/"))


def when(browser):
    """The picture of the last hours, with one of its decisions open."""
    stories.decision_stays_open(browser)
    look_over(browser, "When, with a decision")
    stories.idle_times_are_drawn(browser)
    look_over(browser, "When, with times in which nothing was done")
    stories.times_before_are_shown(browser)
    starts.starts_are_drawn(browser)
    starts.last_name_is_whole(browser)
    browser.go("#/")
    browser.shows("Pending pods")


def what_people_do(browser, pictures):
    """The demo's buttons act on its world, and the page shows what comes of it."""
    browser.click("Add a workload")
    browser.shows("Deployment yours-1: 6 × 1 CPU")
    browser.click("Add a pod that is too large")
    browser.shows("Deployment yours-2: 1 × 64 CPU")
    browser.shows("no pool can run it", "[aria-labelledby=pending]")
    browser.wait("it comes first", "return document.querySelector('[aria-labelledby=pending] tbody th').innerText.startsWith('default/yours-2')")
    if pictures:
        shots.of_now(browser, pictures)
    browser.wait("nodes of pools", "return document.querySelector('[aria-labelledby=nodes] tbody tr a') !== null", seconds=60)
    browser.click("Kill the host pve2")
    browser.shows("offline", ".hosts")
    browser.click("Give it power again")
    browser.wait("all hosts are online", "return !document.querySelector('.hosts').innerText.includes('offline')")
    browser.click("Break the template")
    browser.shows("The template is locked")
    browser.click("Mend the template")
    browser.shows("The template is unlocked")


def kept(browser):
    """Failed machines that a pool keeps are named, with the time until which."""
    browser.run("""window.made = null;
        const pool = { name: 'general', max: 3, min: 0, ready: 1, coming: 0, leaving: 0, unready: 0 };
        const until = new Date(Date.now() + 3600e3).toISOString();
        import(new URL('now.js', document.querySelector('script[type=module]').src)).then(({ poolTable }) => {
          const table = poolTable();
          table.update([{ ...pool, kept: { 'pve-general-x1': until } }, { ...pool, name: 'other' }]);
          window.made = [...table.element.querySelectorAll('tbody tr')].map((row) => [row.innerHTML, row.textContent]);
        });""")
    browser.wait("the table is made", "return window.made !== null")
    rows = browser.run("return window.made")
    expect('href="#/machine/pve-general-x1"' in rows[0][0] and "pve-general-x1 until" in rows[0][1], f"kept: {rows[0]}")
    expect("pve-general" not in rows[1][1], f"kept: {rows[1]}")


def why(browser, pictures):
    """From a name to its explanation, and back."""
    browser.wait("the pod's link", "const a = document.querySelector('[aria-labelledby=pending] a[href^=\"#/pod/default/yours-2\"]'); a?.click(); return Boolean(a)")
    browser.shows("What would have to change")
    browser.shows("New machines")
    browser.shows("asks 64")
    look_over(browser, "Why a pod waits")
    if pictures:
        browser.shot(f"{pictures}/why-light.png")
    head = "[...document.querySelectorAll('article thead button')].find((it) => it.textContent === 'Free CPU')"
    browser.run(f"{head}.click()")
    order = browser.run(f"return {head}.closest('th').getAttribute('aria-sort')")
    expect(order == "descending", f"numbers sort from the largest: {order}")
    values = browser.run(f"const t = {head}.closest('table'); const n = [...t.querySelectorAll('thead th')].indexOf({head}.closest('th')); return [...t.querySelectorAll('tbody tr')].map((r) => Number(r.children[n].innerText))")
    expect(values == sorted(values, reverse=True) and len(set(values)) > 1, f"not sorted: {values}")
    browser.size(360, 740, phone=True)
    look_over(browser, "Why a pod waits, on a phone", phone=True)
    browser.size(1280, 900)
    browser.go("#/why")
    browser.shows("found.")
    look_over(browser, "Why")
    browser.run("const it = document.getElementById('search'); it.value = 'no such thing'; it.dispatchEvent(new Event('input'))")
    browser.shows("Nothing has such a name.")
    browser.run("const it = document.getElementById('search'); it.value = 'general'; it.dispatchEvent(new Event('input'))")
    browser.wait("a node is found", "return document.querySelector('.found a[href^=\"#/node/\"]') !== null")
    browser.run("document.querySelector('.found a[href^=\"#/node/\"]').click()")
    browser.shows("If it were removed now")
    # As `explain` says it, out of the record.
    browser.shows(" ago on pve", "article .facts")
    browser.shows(" of memory free", "article .facts")
    look_over(browser, "Why a node stays")
    for address, words in [("#/pod/default/%3Cscript%3E", "no pod default/<script> is seen"), ("#/node/", "names no node"),
                           ("#/nowhere", "There is nothing at this address"), ("#/pod/%", "There is nothing at this address")]:
        browser.go(address)
        browser.shows(words)
    browser.look_at_logs()
    # A name that nobody has is a 404, which the console notes.
    expect(all("404" in said for said in browser.complaints), f"the console says: {browser.complaints}")
    browser.complaints.clear()
    browser.go("#/")
    browser.shows("Pending pods")


def what_if(browser, pictures):
    """A plan that is not carried out, and mistakes that are named."""
    browser.go("#/what-if")
    browser.click("Plan it")
    browser.shows("Nothing is supposed")
    browser.run("document.getElementById('manifests').value = 'kind: Service'")
    browser.click("Plan it")
    browser.shows("No pod comes of: Service")
    browser.click("Put an example in")
    browser.click("Plan it")
    browser.shows("of 10 pods would have a place")
    browser.shows("default/web-9")
    look_over(browser, "What if")
    if pictures:
        browser.shot(f"{pictures}/what-if-light.png")
    browser.run("""const [key, value] = document.querySelectorAll('.changes input');
                   key.value = 'pool.general.max'; value.value = '"x"'""")
    browser.click("Plan it")
    browser.shows("pool.general.max")
    browser.shows("expected a whole number")
    # Four CPUs each: whatever room the demo's nodes have at this moment, it is not for all ten.
    browser.run("""document.querySelectorAll('.changes input')[1].value = '0';
                   const it = document.getElementById('manifests'); it.value = it.value.replace('cpu: "1"', 'cpu: "4"')""")
    browser.click("Plan it")
    browser.shows("no machine more would be made")
    placed = re.search(r"([0-9]+) of 10 pods would have a place", browser.text("main"))
    expect(placed and int(placed.group(1)) < 10, f"a pool of no machines places {placed and placed.group(0)}")
    browser.size(360, 740, phone=True)
    look_over(browser, "What if, on a phone", phone=True)
    browser.size(1280, 900)
    browser.look_at_logs()
    # A supposition that cannot be is a 422, which the console notes.
    expect(all("422" in said for said in browser.complaints), f"the console says: {browser.complaints}")
    browser.complaints.clear()
    browser.go("#/")
    browser.shows("Pending pods")


def of_demo(browser, binary, pictures):
    demo = Demo(binary, 30)
    try:
        if pictures:
            shots.same_as_tree(demo.url)
        of_small_cluster(browser, demo, pictures)
        browser.open("about:blank")
    finally:
        demo.end()
    if pictures:
        demo = Demo(binary, 100)
        try:
            shots.of_when(browser, demo, pictures)
        finally:
            demo.end()
    # What the page still asked of the demo before the browser left it is no request to somebody else.
    browser.look_at_logs()
    browser.requests.clear()
    browser.complaints.clear()


def of_planted_bugs(browser, binary):
    """Bugs in the page's own files: the stories find each. And README's pictures that are old."""
    shots.finds_what_changed()
    find_places(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/web/page"))
    browser.size(1280, 900)
    demo = Demo(binary, 30)
    try:
        # A pod that waits for ever beside those that wait for a moment.
        browser.open(demo.url)
        browser.shows("live", "#link", seconds=60)
        browser.click("Add a workload")
        browser.click("Add a pod that is too large")
        browser.shows("no pool can run it", "[aria-labelledby=pending]")
        find(browser, demo, OF_DEMO)
    finally:
        demo.end()
    world = Installation(binary, nodes=2, pods=21)
    try:
        until("a daemon that has seen it", lambda: ready(world), 60)
        # The others ask for 64; as words, 8 is more.
        world.pod("asks-for-8", "8")
        find(browser, world, OF_INSTALLATION)
    finally:
        world.end()
    world = world_of_one(binary)
    try:
        find(browser, world, OF_SINGLE)
    finally:
        world.end()
    world = reach.world_of_some(binary)
    try:
        find(browser, world, OF_REACH)
    finally:
        world.end()


def of_hands_and_ears(browser, binary):
    """Every view by the keyboard and as a screen reader has it, and a daemon that dies while somebody is at it."""
    browser.size(1280, 900)
    world = reach.world_of_some(binary)
    try:
        browser.open(world.url)
        browser.shows("live", "#link", seconds=60)
        reach.of_every_view(browser, world)
        lost.of_every_view(browser, world)
        browser.open("about:blank")
    finally:
        world.end()
    browser.look_at_logs()
    browser.requests.clear()
    browser.complaints.clear()


def main(binary, pictures, only):
    parts = {
        "closed": (lambda browser: of_closed_page(browser, binary, pictures), "a login, over TLS"),
        "acts": (lambda browser: of_acts(browser, binary), "what comes of acts behind the login"),
        "demo": (lambda browser: of_demo(browser, binary, pictures), "views, themes, widths, keyboard"),
        "reach": (lambda browser: of_hands_and_ears(browser, binary), "every view by the keyboard and to a screen reader; a daemon that dies meanwhile"),
        "single": (lambda browser: of_single_node(browser, binary), "one node, one pod, one machine: views, themes, widths, keyboard"),
        "large": (lambda browser: of_large_cluster(browser, binary), "500 nodes, a daemon that dies"),
        "planted": (lambda browser: of_planted_bugs(browser, binary), "planted bugs"),
    }
    expect(only is None or only in parts, f"no part {only!r}; there are {', '.join(parts)}")
    # Two parts have all the pictures.
    wanted = [only] if only else ["closed", "demo"] if pictures else list(parts)
    browser = Browser()
    try:
        for name in wanted:
            part, words = parts[name]
            part(browser)
            print(f"    {words}: well", flush=True)
        if pictures and not only:
            shots.note(pictures)
    finally:
        browser.close()


def said(option):
    """What stands behind an option, or None."""
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else None


def folder(option):
    """A folder that an option names, from the root, or None."""
    return said(option) and os.path.abspath(said(option))


if __name__ == "__main__":
    worlds.FILES = folder("--files")
    planted.ONE_OF = int(said("--one-of") or 1)
    main(os.path.abspath(sys.argv[1]), folder("--pictures"), said("--only"))
