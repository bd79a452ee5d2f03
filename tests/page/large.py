"""A cluster of 500 nodes and 5,000 pods: every view stays quick and readable, and a daemon that dies comes back."""

import signal
import time

import stories
from browser import until
from checks import expect, look_over
from quiet import quiet
from world import Installation, ready

# What a page of 500 nodes and 5,000 pods may take, on a slow machine that builds beside it.
MOST_ELEMENTS = 6_000
MOST_SECONDS = 10


def of_large_cluster(browser, binary):
    """500 nodes and 5,000 pods; a daemon that dies and comes back; strangers' words."""
    began = time.monotonic()
    world = Installation(binary, nodes=500, pods=5_000)
    print(f"    a cluster of 500 nodes in {time.monotonic() - began:.0f} s", flush=True)
    try:
        until("a daemon that has seen it", lambda: ready(world), 120)
        began = time.monotonic()
        browser.open(world.url)
        browser.wait("nodes", "return document.querySelectorAll('[aria-labelledby=nodes] tbody tr').length > 0", seconds=30)
        took = time.monotonic() - began
        elements = count_elements(browser)
        heap = browser.run("return performance.memory ? performance.memory.usedJSHeapSize : 0")
        size = browser.run("return performance.getEntriesByType('navigation')[0].transferSize")
        print(f"    shown after {took:.1f} s, {elements} elements, heap {heap / 1e6:.0f} MB, page {size} B", flush=True)
        expect(took < MOST_SECONDS, f"it took {took:.1f} s")
        expect(elements < MOST_ELEMENTS, f"{elements} elements")
        browser.shows("of 500", "[aria-labelledby=nodes] .where")
        browser.shows("20", ".tiles")
        browser.size(360, 740, phone=True)
        look_over(browser, "Now, 500 nodes, on a phone", phone=True)
        browser.size(1280, 900)
        look_over(browser, "Now, 500 nodes")
        stories.crowds_are_told_once(browser)
        stories.strangers_words(browser, world)
        filter_nodes(browser, "node-499")
        browser.shows("1–1 of 1", "[aria-labelledby=nodes] .where")
        answers(browser, world)
        quiet(browser, world.url.rstrip("/"))
        dies(browser, world)
    finally:
        world.end()


def count_elements(browser):
    return browser.run("return document.querySelectorAll('*').length")


def machine_comes(browser, world):
    """A pod asks for a machine, which never becomes a node here: its guest has no agent. Gives its name."""
    world.pod("wants-one", "1")
    browser.go("#/")
    browser.wait("its card", "return document.querySelectorAll('.work > li').length === 1", seconds=60)
    return browser.text(".work h3")


def answers(browser, world):
    """Why, When and What if: each is there in time, no longer than a page may be, and readable on a desk and on a phone."""
    pod = "Why a pod waits, 500 nodes"
    told(browser, pod, lambda: browser.go("#/pod/default/pod-4990"), "What would have to change")
    browser.shows("of 500", "article")
    told(browser, "Why a node stays, 500 nodes", lambda: browser.go("#/node/node-250"), "If it were removed now")
    machine = machine_comes(browser, world)
    told(browser, "Why a machine comes, 500 nodes", lambda: browser.go(f"#/machine/{machine}"), "Pending pods that are expected here")
    browser.shows("on its way up, for 1 pending pod", ".told")
    browser.shows("general · small · VMID 91", ".told")
    expect("If it were removed now" not in browser.text("main"), "a machine without a node has no pods that could lose their place")
    browser.go("#/why")
    told(browser, "Why, 5,000 pods", lambda: search(browser, "pod-4"), "There are more")
    search(browser, "node-499")
    browser.wait("the node alone is found", "return document.querySelectorAll('.found a').length === 1")
    told(browser, "When, 500 nodes", lambda: browser.go("#/when"), "of pools; ")
    browser.go("#/what-if")
    browser.click("Put an example in")
    told(browser, "What if, 500 nodes", lambda: browser.click("Plan it"), "of 10 pods would have a place")
    browser.go("#/")
    browser.shows("Pending pods")
    filter_nodes(browser, "node-499")


def search(browser, words):
    browser.run(f"const it = document.getElementById('search'); it.value = {words!r}; it.dispatchEvent(new Event('input'))")


def filter_nodes(browser, words):
    browser.run(f"""const it = document.querySelector('[aria-labelledby=nodes] input');
                    it.value = {words!r}; it.dispatchEvent(new Event('input'))""")


def told(browser, view, ask, words):
    """`ask` leads to `words`: in time, and the view holds to what every view does."""
    began = time.monotonic()
    ask()
    browser.shows(words, "main", seconds=30)
    took = time.monotonic() - began
    elements = count_elements(browser)
    print(f"    {view}: {took:.1f} s, {elements} elements", flush=True)
    expect(took < MOST_SECONDS, f"{view}: it took {took:.1f} s")
    expect(elements < MOST_ELEMENTS, f"{view}: {elements} elements")
    look_over(browser, view)
    browser.size(360, 740, phone=True)
    look_over(browser, f"{view}, on a phone", phone=True)
    browser.size(1280, 900)


def dies(browser, world):
    """The daemon is killed: the page says so, keeps what it showed, and comes back by itself."""
    world.daemon.end(signal.SIGKILL)
    browser.shows("The daemon does not answer", "#banner", seconds=20)
    browser.shows("no answer", "#link")
    browser.shows("node-499", "main")
    said = browser.text("#word")
    expect("does not answer" in said, f"a screen reader hears {said!r}")
    world.start()
    browser.wait("it comes back", "return document.getElementById('banner').hidden && document.getElementById('link').textContent === 'live'", seconds=60)
    expect(browser.run("return document.querySelector('[aria-labelledby=nodes] input').value") == "node-499", "what was typed is lost")
    browser.shows("1–1 of 1", "[aria-labelledby=nodes] .where", seconds=120)
    # What comes after the return is new, and not what was kept.
    world.command("pause", "after the return")
    browser.shows("after the return", "[aria-labelledby=care]")
    began = time.monotonic()
    world.daemon.end(signal.SIGTERM)
    took = time.monotonic() - began
    expect(took < 12, f"the daemon took {took:.1f} s to stop while a page was open")
    print(f"    it stops in {took:.1f} s with a page open", flush=True)
    browser.look_at_logs()
    provoked = [said for said in browser.complaints if "ERR_CONNECTION_REFUSED" not in said and "ERR_INCOMPLETE" not in said
                and "ERR_EMPTY_RESPONSE" not in said and "ERR_CONNECTION_RESET" not in said]
    expect(not provoked, f"the console says: {provoked}")
    browser.complaints.clear()
