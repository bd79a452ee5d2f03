"""What Chromium tells a screen reader of a view: its accessibility tree; and what is told while nobody does anything."""

import time

from checks import expect

# Roles of what a person uses or goes by: each has a name.
NAMED = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "DisclosureTriangle", "columnheader", "rowheader", "table", "image",
         "region", "navigation", "toolbar", "main", "heading", "search box"}
# Signs that are drawn and are no words.
DRAWN = "↕↑↓●◐▲✖○✓"
# Begins to note what is said in live regions; what stands there already is no news.
LISTEN = """
const said = window.said = [];
window.hearer?.disconnect();
const hearer = window.hearer = new MutationObserver((changes) => {
  for (const change of changes) {
    const of = change.target.nodeType === Node.ELEMENT_NODE ? change.target : change.target.parentElement;
    const live = of?.closest('[aria-live], [role=status], [role=alert]');
    if (live && live.textContent.trim()) said.push(live.textContent.trim().slice(0, 90));
  }
});
hearer.observe(document.body, { subtree: true, childList: true, characterData: true });
"""


def tree(browser):
    """The nodes that are told of, by their ids."""
    browser.devtools("Accessibility.enable", {})
    nodes = browser.devtools("Accessibility.getFullAXTree", {})["nodes"]
    return {node["nodeId"]: node for node in nodes}


def role(node):
    return node.get("role", {}).get("value", "")


def name(node):
    return node.get("name", {}).get("value", "").strip()


def below(nodes, node, kinds):
    """The nodes of these roles below one, without those of a table within."""
    found = []
    for child in node.get("childIds", []):
        if child not in nodes:
            continue
        it = nodes[child]
        if not it.get("ignored") and role(it) in kinds:
            found.append(it)
        elif role(it) != "table":
            found += below(nodes, it, kinds)
    return found


def of_view(browser, view):
    """Controls and pictures have names, tables have headers and as many cells in each row, and what can have the focus says what it is."""
    nodes = tree(browser)
    told = [node for node in nodes.values() if not node.get("ignored")]
    bad = [f"a {role(node)} has no name" for node in told if role(node) in NAMED and not name(node)]
    drawn = [f"the {role(node)} {name(node)!r} is read with its sign" for node in told
             if role(node) in ("button", "columnheader", "link", "heading") and any(sign in name(node) for sign in DRAWN)
             and name(node) not in ("✕",)]
    for node in told:
        properties = {it["name"]: it["value"].get("value") for it in node.get("properties", [])}
        if properties.get("focusable") and role(node) in ("generic", "none", "StaticText", ""):
            bad.append(f"what has the focus says not what it is: {name(node)[:40]!r}")
    for table in [node for node in told if role(node) == "table"]:
        rows = below(nodes, table, {"row"})
        heads = below(nodes, rows[0], {"columnheader"}) if rows else []
        if not heads:
            bad.append(f"the table {name(table)!r} has no headers")
        for row in rows[1:]:
            cells = below(nodes, row, {"cell", "rowheader", "gridcell"})
            # A row that opens below another is one cell over all.
            if len(cells) not in (len(heads), 1):
                bad.append(f"the table {name(table)!r} has a row of {len(cells)} cells below {len(heads)} headers")
    pictures = browser.run("return [...document.querySelectorAll('svg, img:not([alt=\"\"])')].filter((it) => it.checkVisibility()).length")
    images = [node for node in told if role(node) in ("image", "img")]
    if len(images) != pictures:
        bad.append(f"{pictures} pictures are {len(images)} to a screen reader: {[name(it)[:40] for it in images]}")
    expect(not bad and not drawn, f"{view}, as a screen reader has it: {(bad + drawn)[:6]}")
    return told


def listen(browser):
    browser.run(LISTEN)


def heard(browser):
    """What was said since the page is listened to."""
    return browser.run("return window.said")


def is_told(browser, words, seconds=20):
    """Waits until it was said."""
    try:
        browser.wait(f"{words!r} is told", "return window.said.some((it) => it.includes(arguments[0]))", words, seconds=seconds)
    except SystemExit as error:
        raise SystemExit(f"{error}; this was told: {heard(browser)[-6:]}") from None


def no_chatter(browser, view, seconds=8):
    """While nobody does anything and nothing breaks, nothing is told, however often the page changes."""
    browser.run("""window.views = 0; const parse = window.parsed_views = window.parsed_views ?? JSON.parse;
        JSON.parse = (text, ...more) => { const view = parse(text, ...more); if (view?.status?.machines) window.views += 1; return view; }""")
    listen(browser)
    end = time.monotonic() + 60
    time.sleep(seconds)
    while browser.run("return window.views") < 2 and time.monotonic() < end:
        time.sleep(0.5)
    browser.run("JSON.parse = window.parsed_views")
    said = heard(browser)
    expect(not said, f"{view}: a screen reader hears {said[:5]} of nothing that was done")
