"""One of each: a node with a pod, a pod that waits, and later a machine. Every view, light and dark, on a desk and on a phone."""

import stories
from browser import until
from checks import expect, look_over
from quiet import quiet
from world import Installation, ready

# What the large numbers at the top of Now say, with the words below each.
TILES = """
const tiles = [...document.querySelectorAll('.tiles > div')].map((it) => [...it.children].map((part) => part.textContent));
return Object.fromEntries(tiles.map(([name, number, below]) => [name, `${number}: ${below}`]));
"""
WAITS = {
    "Nodes of pools": "0: 1 in the cluster", "Coming": "0: machines on their way up", "Leaving": "0: machines on their way down",
    "Pending pods": "1: 0 have a place or one on its way", "Without prospect": "1: on hold, or no pool can run it",
}
COMES = WAITS | {"Coming": "1: machine on its way up", "Pending pods": "2: 1 has a place or one on its way"}


def world_of_one(binary):
    """A node with a pod on it, and a pod that no pool can run."""
    world = Installation(binary, nodes=1, pods=2, waiting=1)
    until("a daemon that has seen it", lambda: ready(world), 60)
    return world


def of_single_node(browser, binary):
    world = world_of_one(binary)
    try:
        browser.size(1280, 900)
        browser.open(world.url)
        browser.shows("live", "#link", seconds=60)
        now(browser)
        why(browser)
        when(browser)
        what_if(browser)
        stories.keyboard(browser)
        stories.themes(browser)
        a_machine_comes(browser, world)
        stories.strangers_words(browser, world)
        quiet(browser, world.url.rstrip("/"))
        browser.open("about:blank")
    finally:
        world.end()


def seen(browser, view, words):
    """The view says these words, what it says of one is not said of several, and it holds to what every view does."""
    browser.shows(words)
    stories.one_is_not_several(browser, view)
    look_over(browser, view)
    browser.size(360, 740, phone=True)
    look_over(browser, f"{view}, on a phone", phone=True)
    browser.size(1280, 900)


def rows_of(browser, section):
    return browser.run("return [...document.querySelectorAll(`[aria-labelledby=${arguments[0]}] tbody tr`)].map((row) => row.innerText)", section)


def tiles_say(browser, wanted):
    def look():
        browser.tiles = browser.run(TILES)
        return browser.tiles == wanted
    try:
        until("the sums", look)
    except SystemExit:
        expect(False, f"the sums are {browser.tiles} and not {wanted}")


def now(browser):
    browser.shows("default/pod-0001", "[aria-labelledby=pending]", seconds=60)
    seen(browser, "Now, one node", "node-000")
    browser.shows("0 nodes of ours, 1 pod pending", ".line")
    tiles_say(browser, WAITS)
    nodes = rows_of(browser, "nodes")
    expect(len(nodes) == 1 and "none of ours" in nodes[0] and "1 of 110" in nodes[0], f"the one node: {nodes}")
    stories.one_row_stands_alone(browser)
    stories.times_go_on(browser)
    browser.click("Show pods")
    browser.shows("default/pod-0000", "[aria-labelledby=nodes] .under")
    look_over(browser, "Now, the pod of the one node")
    browser.click("Hide pods")


def why(browser):
    browser.go("#/why")
    seen(browser, "Why, one node", "3 found.")
    browser.run("const it = document.getElementById('search'); it.value = 'node-0'; it.dispatchEvent(new Event('input'))")
    seen(browser, "Why, the one node is found", "1 found.")
    links = browser.run("return [...document.querySelectorAll('.found a')].map((it) => it.getAttribute('href'))")
    expect(links == ["#/node/node-000"], f"found: {links}")
    browser.run("document.querySelector('.found a').click()")
    browser.shows("none of ours: it is never removed")
    seen(browser, "Why the one node stays", "blocks: NotReplicated")
    browser.go("#/pod/default/pod-0000")
    seen(browser, "Why, a pod on the one node", "It is on the node node-000.")
    browser.go("#/pod/default/pod-0001")
    seen(browser, "Why the one pod waits", "What would have to change")
    there = browser.run("""const found = [...document.querySelectorAll('article section')].find((it) => it.innerText.startsWith('Nodes there are'));
        return [...found.querySelectorAll('tbody tr')].map((it) => it.innerText)""")
    expect(len(there) == 1 and "node-000" in there[0], f"nodes there are: {there}")


def when(browser):
    browser.go("#/when")
    seen(browser, "When, one node", "At most 1 pod pending, 0 nodes of pools; 0 machines made, 0 removed, 0 failed.")
    browser.shows("The record began ", ".line")
    browser.shows(" ago, and this is all of it.", ".line")
    named = browser.run("return document.querySelectorAll('.picture .tick.time').length")
    expect(named > 0, "no time is named below a record that has just begun")
    browser.click("24 hours")
    browser.shows("Nothing was recorded before ", ".line")
    browser.run("location.reload()")
    browser.shows("The record began ", ".line")
    marks = browser.run("return document.querySelectorAll('.decisions button').length")
    expect(marks == 1, f"the record begins, and nothing was decided: {marks} marks")
    stories.lines_reach_now(browser)


def what_if(browser):
    browser.go("#/what-if")
    seen(browser, "What if, empty", "Nothing is carried out")
    browser.click("Put an example in")
    browser.run("""const it = document.getElementById('manifests');
                   it.value = it.value.replace('replicas: 10', 'replicas: 1')
                     .replace('    spec:\\n', '    spec:\\n      nodeSelector: {pve-autoscaler.io/pool: general}\\n')""")
    browser.click("Plan it")
    seen(browser, "What if, one pod", "1 of 1 pod would have a place, 1 machine would be made.")
    for section, words in [("if-pods", "default/web-0"), ("if-more", "1 pod fits nowhere else: default/web-0")]:
        rows = rows_of(browser, section)
        expect(len(rows) == 1 and words in rows[0], f"{section}: {rows}")


def a_machine_comes(browser, world):
    """The one machine on its way: Now, Why and When tell of it, and of no other."""
    world.pod("wants-one", "1")
    browser.go("#/")
    browser.wait("its card", "return document.querySelectorAll('.work > li').length === 1", seconds=60)
    seen(browser, "Now, one machine under way", "waits for machine general-")
    browser.shows("0 nodes of ours, 2 pods pending, 1 coming", ".line")
    tiles_say(browser, COMES)
    machine = browser.text(".work h3")
    browser.run("document.querySelector('.work h3 a').click()")
    seen(browser, "Why, one machine", "Pending pods that are expected here")
    browser.shows("on its way up, for 1 pending pod", ".told")
    browser.shows(machine, "h1")
    browser.go("#/when")
    seen(browser, "When, one machine", "At most 2 pods pending, 0 nodes of pools; 1 machine made, 0 removed, 0 failed.")
    browser.run("[...document.querySelectorAll('.decisions .good')].at(-1).click()")
    browser.shows(f"make {machine} on pve", ".chosen")
    look_over(browser, "When, with the one decision")
    browser.go("#/")
    browser.shows("Pending pods")
