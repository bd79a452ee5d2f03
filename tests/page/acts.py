"""Acts of somebody who is logged in, on a cluster in which something comes of them: the demo, with a login."""

import os
import tempfile
import time

import reach
from checks import expect, look_over
from closed import log_in
from world import PASSWORD, Demo, set_password

# How many machines each host has, by the cards of hosts.
MACHINES = """
const cards = [...document.querySelectorAll('.hosts > li')];
const of = (card) => [...card.querySelectorAll('.facts > div')].find((it) => it.firstElementChild.textContent === 'Machines').lastElementChild.textContent;
return Object.fromEntries(cards.map((card) => [card.querySelector('h3').textContent, Number(of(card))]));
"""
CARD = "[...document.querySelectorAll('.hosts > li')].find((it) => it.querySelector('h3').textContent === arguments[0])"
# Nodes of pools and whether they are Ready, by their hosts.
NODES = """
return [...document.querySelectorAll('[aria-labelledby=nodes] tbody tr')].map((row) => [row.querySelector('[data-name=Host]').innerText.split('\\n')[0], row.querySelector('th').innerText]);
"""


def of_acts(browser, binary):
    with tempfile.TemporaryDirectory(prefix="page-test-") as folder:
        users = os.path.join(folder, "users")
        set_password(binary, users, "ann", PASSWORD)
        demo = Demo(binary, 20, users)
        try:
            browser.size(1280, 900)
            browser.open(demo.url)
            log_in(browser, PASSWORD)
            browser.shows("live", "#link", seconds=60)
            browser.shows("ann", "#who")
            a_host_is_emptied(browser, demo)
            browser.open("about:blank")
        finally:
            demo.end()
    browser.look_at_logs()
    browser.requests.clear()
    browser.complaints.clear()


def a_host_is_emptied(browser, demo):
    """Evacuate on a host with machines says which go and when, the page shows how they go, and none comes there; its end lets them come again."""
    browser.click("Add a workload")
    host = browser.wait("a host with nodes", f"""
        const machines = (() => {{ {MACHINES} }})();
        const nodes = (() => {{ {NODES} }})().map(([host]) => host);
        const under_way = document.querySelectorAll('.work > li').length;
        return under_way === 0 ? Object.keys(machines).find((host) => machines[host] > 0 && nodes.filter((it) => it === host).length === machines[host]) ?? null : null""", seconds=180)
    theirs = [node for place, node in browser.run(NODES) if place == host]
    # By the keyboard: what undoes it is where the finger is.
    reach.tab_to(browser, f"evacuating {host}", f"Evacuate {host}", 400)
    browser.press("enter")
    said = browser.wait("what goes", f"const said = {CARD}.querySelector('.acts .why').textContent; return said.startsWith('It has ') ? said : null", host, seconds=60)
    expect(all(node in said for node in theirs), f"{theirs} are on {host}, and it says {said!r}")
    browser.wait("what undoes it", f"return {CARD}.querySelector('.acts button').textContent === 'End the evacuation'", host, seconds=60)
    expect(browser.run("return document.activeElement.getAttribute('aria-label')") == f"End the evacuation of {host}", "the focus went away with the button's words")
    browser.shows("evacuated since", ".hosts", seconds=60)
    look_over(browser, "Now, with a host that is evacuated of machines")
    browser.wait("its machines are gone", f"const machines = (() => {{ {MACHINES} }})(); return machines[arguments[0]] === 0", host, seconds=400)
    left = [node for place, node in browser.run(NODES) if place == host]
    expect(not left, f"{left} are still on {host}")
    expect(browser.run(f"return {CARD}.querySelector('.acts .why').textContent", host) == said, "what was said of it is lost while the page changes")
    browser.go("#/when")
    browser.shows("evacuate", "[aria-labelledby=decisions]", seconds=60)
    browser.shows("ann asked", "[aria-labelledby=decisions]")
    browser.go("#/")
    browser.shows("Pending pods")
    reach.tab_to(browser, "its end", f"End the evacuation of {host}", 400)
    browser.press("space")
    browser.wait("the button is the other one again", f"return {CARD}.querySelector('.acts button').textContent === 'Evacuate'", host, seconds=60)
    browser.shows("It may have machines again.", ".hosts")
    browser.wait("the note is gone", f"return !{CARD}.innerText.includes('evacuated')", host, seconds=60)
