"""Short stories on a page that is open: each looks whether one thing is as it should be. Used on the page as it is, and on
the page with a bug in it."""

import re
import time

from browser import SECONDS
from checks import expect, look_over

EVIL = "<img src=x onerror=document.title='broken'><b>bold</b>"

# All marks, pressed one after the other, with what they show; and what the record says of the same time.
PRESS = """
const clock = (at) => new Date(at).toLocaleString(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' });
const scene = document.querySelector('.scene').getBoundingClientRect();
const shown = [...document.querySelectorAll('.decisions button')].map((mark) => {
  mark.click();
  const box = mark.getBoundingClientRect();
  return {
    label: mark.getAttribute('aria-label'), place: box.left + box.width / 2 - scene.left, width: scene.width,
    deeds: [...document.querySelectorAll('.chosen li')].map((it) => [it.textContent, it.querySelector('a')?.getAttribute('href') ?? null]),
  };
});
return fetch('/api/when?hours=6').then((answer) => answer.json()).then((told) => ({
  shown, from: told.from, now: told.now, there: told.there,
  deeds: told.deeds.map((deed) => ({ at: Date.parse(deed.at), clock: clock(deed.at), machine: deed.machine ?? null, why: deed.why ?? deed.failure ?? '' })),
}));
"""

# Rows of pending pods that lack one of the sentences that `explain` gives.
REASONLESS = """
return (async () => {
  // Those behind others have reasons of their own.
  const press = (expanded) => document.querySelectorAll(`[aria-labelledby=pending] tbody button[aria-expanded=${expanded}]`).forEach((it) => it.click());
  press(false);
  const rows = [...document.querySelectorAll('[aria-labelledby=pending] tbody tr')].map((row) => [row.querySelector('a').textContent, row.innerText]);
  press(true);
  const missing = rows.length === 0 ? ['no row'] : [];
  for (const [pod, text] of rows) {
    const told = await (await fetch(`/api/explain/pod/${pod}`)).json();
    for (const words of told.sentence ?? []) if (!text.includes(words)) missing.push(`${pod} lacks: ${words}`);
  }
  return missing;
})();
"""

# From now on the views that come say these things of one machine with a node, and the opposite of the others: no daemon
# has both at once. What the daemon itself says is looked at by the tests of the server.
TELL = """
const parse = window.parsed = window.parsed ?? JSON.parse;
JSON.parse = (text, ...more) => {
  const view = parse(text, ...more);
  if (!view?.status?.machines) return view;
  const names = view.nodes.map((node) => node.machine).filter(Boolean);
  for (const name of names) Object.assign(view.status.machines[name], { drifted: [] });
  if (names[0]) Object.assign(view.status.machines[names[0]], { drifted: ['instance_type', 'labels', 'cloud_init'], cpus: '2-5,8' });
  if (names[0]) view.numa[names[0]] = [0, 1];
  return view;
};
"""
# From now on the views that come have two machines on their way up, of which one alone has a decision that is known: those of the demo are up
# before they are looked at.
TELL_HOSTS = """
const parse = window.parsed = window.parsed ?? JSON.parse;
JSON.parse = (text, ...more) => {
  const view = parse(text, ...more);
  const [some] = Object.values(view?.status?.machines ?? {});
  if (!some) return view;
  const at = new Date(view.now).toISOString();
  const comes = { ...some, node: null, busy: 'up', step: ['clone', at], failure: null, ails: null };
  Object.assign(view.status.machines, { 'told-why': comes, 'told-nothing': comes });
  view.made = { 'told-why': { at, why: 'pack: 3 guests, 48Gi of memory free', choice: { host: 'pve9' } } };
  return view;
};
"""
# From now on the views that come have a storage that is full and one that is well, a card that somebody has, and a network: the demo has no
# two of these at once.
TELL_STORES = """
const parse = window.parsed = window.parsed ?? JSON.parse;
JSON.parse = (text, ...more) => {
  const view = parse(text, ...more);
  if (!view?.status?.machines) return view;
  const gib = 2 ** 30;
  const pools = { told: { machines: 2, promised: 40 * gib, min_free: 50 * gib } };
  const storage = (name, notes, details) => ({
    storage: name, shared: false, hosts: ['pve8'], total: 500 * gib, free: 300 * gib, promised: 40 * gib, coming: 0, most: 500 * gib, left: 210 * gib,
    pools, notes, notes_details: details,
  });
  view.status.storages = { told: {
    'pve8/full': storage('told-full', ['no room for a machine of the pool told'], [{ code: 'no_room', pools: ['told'], asks: 20 * gib }]),
    'pve8/well': storage('told-well', ['shares its space with told-full'], [{ code: 'shares_space', with: ['told-full'] }]),
  } };
  view.status.devices = { told: { 'told-gpu': { pve8: { has: 2, free: 1, machines: { 'told-machine': 1 } } }, 'told-nic': {} } };
  view.status.own_cpus = { told: { 'told-pinned': {
    0: { cpus: '0-7', reserved: '0-1', free: '6-7', free_memory: 12 * gib, machines: { 'told-machine': '2-4' }, guests: { 300: '5' } },
  } } };
  view.status.networks = { 'told-net': { v4: { ranges: '192.0.2.50-192.0.2.99', size: 50, free: 3 } } };
  return view;
};
"""
# What stands in the rows of these tables, by the first cell.
STORES = """
const rows = [...document.querySelectorAll('[aria-labelledby=storages] tbody tr, [aria-labelledby=pci-devices] tbody tr, [aria-labelledby=cpus-of-their-own] tbody tr, [aria-labelledby=addresses] tbody tr')];
return Object.fromEntries(rows.map((row) => [row.querySelector('th').innerText, row.innerText]));
"""
# What is said of one as if it were several, and the other way round: in what can be read, and in what a reader of screens says instead.
MISCOUNTED = r"""
const things = '(?:node|pod|machine|guest|host|pool|decision)';
const wrong = [`(?<![\\d.,:-])1\\s+${things}s\\b`, `(?<![\\d.,:-])(?:0|[2-9]|\\d\\d+) ${things}\\b(?![-/.])`, '(?<![\\d.,:-])1 have\\b', '\\b(\\d+) to \\1\\b'];
const said = [document.querySelector('main').innerText, ...[...document.querySelectorAll('main [aria-label]')].map((it) => it.getAttribute('aria-label'))];
return said.flatMap((text) => text.match(new RegExp(wrong.join('|'), 'g')) ?? []);
"""
# By how many pixels the lines of the picture end before the present, which is 12 pixels before the picture's end.
SHORT_BY = """
const picture = document.querySelector('.picture');
const end = picture.getBoundingClientRect().right - 12;
return [...picture.querySelectorAll('path.line')].map((line) => Math.round(end - line.getBoundingClientRect().right));
"""
# What stands in the cards of machines under way, by their names.
CARDS = """
const cards = [...document.querySelectorAll('.work > li')];
return Object.fromEntries(cards.map((card) => [card.querySelector('h3').innerText, card.innerText]));
"""
UNTELL = "JSON.parse = window.parsed ?? JSON.parse"
# From now on the explanations of nodes that come have a machine on its way in the node's place: the demo gives up no node.
TELL_REPLACEMENT = """
const asked = window.asked = window.asked ?? window.fetch;
window.fetch = async (path, options) => {
  const answer = await asked(path, options);
  if (!answer.ok || !String(path).startsWith('/api/explain/node/')) return answer;
  const told = await answer.json();
  told.story.replacement = {
    name: 'told-next', pool: 'general', instance_type: 'told-type', region: 'home', host: 'pve9', vmid: 9199, standing: 'on its way up',
    step: ['join', new Date(Date.now() - 90e3).toISOString()],
  };
  return new Response(JSON.stringify(told), { status: answer.status });
};
"""
UNTELL_REPLACEMENT = "window.fetch = window.asked ?? window.fetch"
# From now on what is told of a time has a hold and a part without a record, and the record begins three hours before it; what is asked for is kept.
TELL_WHEN = """
const asked = window.asked = window.asked ?? window.fetch;
window.questions = [];
window.fetch = async (path, options) => {
  const answer = await asked(path, options);
  if (!answer.ok || !String(path).startsWith('/api/when')) return answer;
  window.questions.push(String(path));
  const told = await answer.json();
  told.began = told.from - 3 * 3600e3;
  const at = (share) => new Date(told.from + share * (told.to - told.from)).toISOString();
  told.idle = [
    { idle: 'on_hold', from: at(0.2), until: at(0.4), scope: 'everything', why: 'paused: storage move' },
    { idle: 'unrecorded', from: at(0.6), until: at(0.8), why: 'the daemon was stopped' },
  ];
  return new Response(JSON.stringify(told), { status: answer.status });
};
"""
# The bands behind the picture: which, from where to where as shares of the time, and what is said of each.
BANDS = """
const width = document.querySelector('.picture').getBoundingClientRect().width - 56;
return [...document.querySelectorAll('.picture .band')].map((band) => [
  band.getAttribute('class'), ...[+band.getAttribute('x') - 44, +band.getAttribute('x') - 44 + +band.getAttribute('width')].map((x) => Math.round(x / width * 10)),
  band.querySelector('title').textContent,
]);
"""
# What is said of the machine in a node's place, and where its name leads.
REPLACEMENT = """
const row = [...document.querySelectorAll('article .facts > div')].find((it) => it.querySelector('dt').textContent === 'In its place');
return row ? [row.querySelector('dd').textContent, row.querySelector('dd a')?.getAttribute('href')] : null;
"""
# What stands in the rows of nodes that are machines of pools: state, host, and whether a reader of screens hears both.
ROWS = """
const rows = [...document.querySelectorAll('[aria-labelledby=nodes] tbody tr')].filter((row) => row.querySelector('[data-name=State]'));
const of = (row, name) => row.querySelector(`[data-name="${name}"]`).innerText;
return rows.filter((row) => of(row, 'Pool') !== 'none of ours').map((row) => [of(row, 'State'), of(row, 'Host')]);
"""


def machines_told(browser, sign):
    """The rows of machines once the page was told of them; the first shows `sign`. There are two at least: of one alone nothing could be
    said of the others."""
    browser.go("#/")
    browser.shows("Pending pods")
    browser.run(TELL)
    rows = f"const told = (() => {{ {ROWS} }})();"
    browser.wait(f"{sign!r} among the nodes", f"{rows} return told.length > 1 && told.flat().some((text) => text.includes({sign!r}))", seconds=90)
    look_over(browser, "Now, with a machine that drifted")
    return browser.run(ROWS)


def drift_is_shown(browser):
    """A node whose machine differs from the file says by what, it alone, and is found by it."""
    try:
        rows = machines_told(browser, "drifted: instance type, labels and cloud-init")
        drifted = [state for state, _ in rows if "drifted" in state]
        expect(len(drifted) == 1, f"{len(drifted)} of {len(rows)} nodes have drifted, and not one: {rows[:4]}")
        filtered(browser, "drifted")
        browser.shows("1–1 of 1", "[aria-labelledby=nodes] .where")
    finally:
        filtered(browser, "")
        browser.run(UNTELL)


def pins_are_shown(browser):
    """A machine with CPUs of its own says which, and of which NUMA nodes; it alone."""
    try:
        rows = machines_told(browser, "CPUs 2-5,8 for itself, NUMA nodes 0 and 1")
        pinned = [host for _, host in rows if "CPUs" in host]
        expect(len(pinned) == 1, f"{len(pinned)} of {len(rows)} machines have CPUs of their own, and not one: {rows[:4]}")
    finally:
        browser.run(UNTELL)


def hosts_are_told(browser):
    """A machine on its way up says why it came to its host, and none says why another one did."""
    words = "Made on pve9: pack: 3 guests, 48Gi of memory free"
    browser.go("#/")
    browser.shows("Pending pods")
    try:
        browser.run(TELL_HOSTS)
        browser.shows("told-nothing", ".work", seconds=60)
        look_over(browser, "Now, with a machine whose host was chosen")
        cards = browser.run(CARDS)
        told = [name for name, text in cards.items() if "Made on" in text]
        expect(told == ["told-why"] and words in cards["told-why"], f"{told} say why they came to their hosts: {cards}")
        browser.size(360, 740, phone=True)
        look_over(browser, "Now, with a machine whose host was chosen, on a phone", phone=True)
        browser.size(1280, 900)
    finally:
        browser.run(UNTELL)


def stores_are_told(browser):
    """Storages say to whom they are promised, and are marked where something keeps machines off them and nowhere else; devices and CPUs say who has
    them, networks how many addresses are free."""
    browser.go("#/")
    browser.shows("Pending pods")
    try:
        browser.run(TELL_STORES)
        browser.shows("told-full", "[aria-labelledby=storages]", seconds=60)
        look_over(browser, "Now, with storages, devices and networks")
        rows = browser.run(STORES)
        wanted = {
            "told-full": ["▲", "no room for a machine of the pool told", "300 GiB of 500 GiB", "told: 2 machines, 40 GiB, leaves 50 GiB free", "210 GiB"],
            "told-well": ["shares its space with told-full"], "told-gpu": ["1 of 2", "told-machine"],
            "told-nic": ["PVE shows no host with a device of it"], "told-pinned": ["0-7", "6-7", "12 GiB", "told-machine (2-4)", "VM 300, not ours (5)"],
            "told-net": ["3 of 50", "192.0.2.50-192.0.2.99"],
        }
        for name, words in wanted.items():
            for part in words:
                expect(part in rows.get(name, ""), f"{part!r} is not in the row of {name}: {rows}")
        expect("▲" not in rows["told-well"], f"nothing keeps machines off it, and it is marked: {rows['told-well']}")
        browser.size(360, 740, phone=True)
        look_over(browser, "Now, with storages, devices and networks, on a phone", phone=True)
        browser.size(1280, 900)
    finally:
        browser.run(UNTELL)


def replacement_is_told(browser):
    """A node that is to go says which machine comes in its place, how far that is, and leads to it."""
    browser.go("#/why")
    browser.shows("found.")
    name = browser.wait("a node", "return document.querySelector('.found a[href^=\"#/node/\"]')?.textContent ?? null")
    try:
        browser.run(TELL_REPLACEMENT)
        browser.go(f"#/node/{name}")
        words, leads = browser.wait("the machine in its place", REPLACEMENT)
        wanted = "told-next · told-type · VMID 9199 on pve9 · on its way up, join, "
        expect(words.startswith(wanted) and leads == "#/machine/told-next", f"what is said of the machine in the place of {name}: {words!r}, {leads!r}")
        look_over(browser, "Why a node that is to go is still there")
    finally:
        browser.run(UNTELL_REPLACEMENT)
    browser.go("#/")
    browser.shows("Pending pods")


def filtered(browser, words):
    browser.run(f"""const it = document.querySelector('[aria-labelledby=nodes] input');
                    it.value = {words!r}; it.dispatchEvent(new Event('input'))""")


def strangers_words(browser, world):
    """Words of strangers stay words, with all signs in them."""
    browser.go("#/")
    browser.shows("Pending pods")
    world.command("pause", EVIL)
    browser.shows(EVIL, "[aria-labelledby=care]", seconds=10)
    expect(browser.run("return document.querySelector('main img, main b b')") is None, "a stranger's words became markup")
    world.command("resume")
    browser.wait("the pause is over", "return !document.querySelector('main').innerText.includes('bold')")


def comes_back(browser, world, kill):
    """The daemon is killed and started again: what is shown then is new."""
    browser.go("#/")
    browser.shows("live", "#link", seconds=60)
    kill()
    browser.shows("The daemon does not answer", "#banner", seconds=20)
    world.start()
    browser.wait("it comes back", "return document.getElementById('banner').hidden && document.getElementById('link').textContent === 'live'", seconds=30)
    world.command("pause", "after the return")
    browser.shows("after the return", "[aria-labelledby=care]", seconds=10)
    world.command("resume")


def decision_stays_open(browser):
    """Who reads a decision keeps it before the eyes while the record is read again."""
    browser.go("#/when")
    browser.click("6 hours")
    browser.wait("marks", "return document.querySelectorAll('.decisions button').length > 1", seconds=60)
    # The answer for six hours may come after this press.
    browser.wait("a mark with a machine that was made", """
        return [...document.querySelectorAll('.decisions button')].reverse().some((mark) => {
          mark.click();
          return document.querySelector('.chosen').innerText.includes(' on pve');
        })""")
    opened = browser.text(".chosen li")
    expect(opened, "the decision closed before the record was read again")
    browser.click("Read again")
    browser.shows(" of pools; ", ".line")
    browser.shows(opened, ".chosen", seconds=5)
    pressed = browser.run("return document.querySelectorAll('.decisions [aria-pressed=true]').length")
    expect(pressed == 1, f"{pressed} marks are pressed after the record was read again")


def marks_lead_to_their_decisions(browser):
    """Each mark of the picture stands where its decisions were taken, and leads to these and no others."""
    browser.go("#/when")
    browser.click("6 hours")
    browser.shows(" of pools; ", ".line")
    for _ in range(30):
        if browser.run("return document.querySelectorAll('.decisions button').length > 1"):
            break
        # While the record is read the demo's clock stands still: it is not asked often.
        time.sleep(3)
        browser.click("Read again")
    browser.wait("several marks", "return document.querySelectorAll('.decisions button').length > 1")
    found = browser.run(PRESS)
    row = links = 0
    for mark in found["shown"]:
        expect(mark["deeds"], f"the mark {mark['label']!r} leads to nothing")
        first = found["deeds"][row]
        # As chart.js draws it: 44 pixels before the picture, 12 behind; the clock went on since.
        place = 44 + (first["at"] - found["from"]) / (found["now"] - found["from"]) * (mark["width"] - 56)
        expect(abs(mark["place"] - place) < 40, f"{mark['label']!r} is at {mark['place']:.0f} and not at {place:.0f}")
        expect(mark["label"].startswith(first["clock"]), f"{mark['label']!r} is not of {first['clock']}")
        for text, href in mark["deeds"]:
            deed = found["deeds"][row]
            leads = f"#/machine/{deed['machine']}" if deed["machine"] else None
            # One that was gone when the page read leads nowhere; what is there was asked a moment later.
            links += href is not None
            # Who asked is told first.
            why = re.sub(r"(^| \()by [^()]*\)?$", "", deed["why"])
            expect(text.startswith(deed["clock"]) and why in text and href in (None, leads),
                   f"the mark {mark['label']!r} leads to {text!r} ({href}) and not to {deed}")
            row += 1
    expect(links > 0 or not found["there"], f"no mark leads to a machine, and these are there: {found['there']}")
    browser.go("#/")
    browser.shows("Pending pods")


def idle_times_are_drawn(browser):
    """Where something was on hold and where nothing is recorded, a band stands behind the picture and says why."""
    browser.go("#/when")
    browser.click("6 hours")
    browser.shows(" of pools; ", ".line", seconds=30)
    browser.run(TELL_WHEN)
    browser.click("Read again")
    browser.wait("the bands", "return document.querySelectorAll('.picture .band').length === 2", seconds=30)
    bands = browser.run(BANDS)
    expect(bands == [["band on_hold", 2, 4, "on hold: everything: paused: storage move"],
                     ["band unrecorded", 6, 8, "nothing is recorded: the daemon was stopped"]], f"the bands are {bands}")
    browser.run(UNTELL_REPLACEMENT)


def times_before_are_shown(browser):
    """The time before the one that is shown, and back, by buttons and by the keys that turn pages; and the decisions of one thing."""
    browser.go("#/when")
    browser.click("1 hour")
    browser.shows(" of pools; ", ".line", seconds=30)
    browser.run(TELL_WHEN)
    browser.click("Read again")
    browser.wait("a time before", "return [...document.querySelectorAll('.go button')].some((it) => it.textContent === 'Earlier' && !it.hasAttribute('aria-disabled'))", seconds=30)
    shown = browser.run("return fetch('/api/when?hours=1').then((answer) => answer.json()).then(({ from }) => from)")
    browser.click("Earlier")
    browser.shows("Nothing was recorded in this time.", ".line", seconds=30)
    asked = browser.run("return window.questions.at(-1)")
    until = int(asked.rpartition("until=")[2] or 0)
    expect("hours=1" in asked and abs(until - shown) < 600_000, f"{asked} is not the hour before {shown}")
    browser.run("document.querySelector('.go button').focus()")
    browser.press("page down")
    browser.shows(" of pools; ", ".line", seconds=30)
    expect("until=" not in browser.run("return window.questions.at(-1)"), "the time after the one before does not go on to now")
    browser.press("page up")
    browser.shows("Nothing was recorded in this time.", ".line", seconds=30)
    browser.press("page down")
    browser.shows(" of pools; ", ".line", seconds=30)
    browser.run("const it = document.getElementById('of'); it.value = 'nobody'; it.form.requestSubmit()")
    browser.shows("Of one node or machine alone.", ".line", seconds=30)
    expect("of=nobody" in browser.run("return window.questions.at(-1)"), "the name is not asked for")
    browser.shows("Nothing was decided in this time.")
    browser.run(UNTELL_REPLACEMENT)
    browser.go("#/")
    browser.shows("Pending pods")


def reasons_are_there(browser):
    """Every pending pod has the sentences that `explain` gives. Both change with every turn, so they are compared until they agree."""
    browser.go("#/")
    browser.shows("no pool can run it", "[aria-labelledby=pending]", seconds=SECONDS)
    for _ in range(12):
        missing = browser.run(REASONLESS)
        if not missing:
            return
        time.sleep(0.5)
    expect(False, f"not every pending pod has its reason: {missing[:2]}")


def crowds_are_told_once(browser):
    """Of twenty pods the same is said: it is said once, until somebody opens them, and closed again."""
    browser.go("#/")
    rows = "return document.querySelectorAll('[aria-labelledby=pending] tbody tr').length"
    browser.shows("more", "[aria-labelledby=pending] tbody button")
    closed = browser.run(rows)
    expect(closed < 5, f"{closed} rows of pods that wait alike")
    browser.run("document.querySelector('[aria-labelledby=pending] tbody button').click()")
    browser.wait("they are opened", f"{rows} > 15")
    browser.run("document.querySelector('[aria-labelledby=pending] tbody button').click()")
    browser.wait("they are closed", f"{rows} === {closed}")


def numbers_sort(browser):
    """A column of numbers is sorted as numbers, from the largest. The pod asks-for-8 is there, and some ask for more."""
    browser.go("#/")
    browser.shows("asks-for-8", "[aria-labelledby=pending]")
    # Until they are decided on, the same is said of all of them, in one row.
    browser.wait("not all are alike", "return document.querySelectorAll('[aria-labelledby=pending] tbody tr').length > 1", seconds=60)
    browser.run("[...document.querySelectorAll('[aria-labelledby=pending] thead button')].find((it) => it.textContent === 'CPU').click()")
    cells = browser.run("""const rows = [...document.querySelectorAll('[aria-labelledby=pending] tbody tr')];
        return rows.map((row) => Number(row.querySelector('[data-name=CPU]').innerText))""")
    expect(len(set(cells)) > 1 and cells == sorted(cells, reverse=True), f"not sorted: {cells}")


def nothing_is_claimed(browser):
    """Before the first view came the page does not say that there are no pods, machines and nodes."""
    browser.devtools("Network.enable", {})
    browser.devtools("Network.setBlockedURLs", {"urls": ["*/api/events"]})
    try:
        browser.run("location.hash = '#/'; location.reload()")
        browser.shows("Nothing was heard from the daemon yet", seconds=5)
        said = browser.text()
        expect("No pod" not in said and "No machine" not in said, f"without a view it says {said[:200]!r}")
    finally:
        browser.devtools("Network.setBlockedURLs", {"urls": []})
    browser.shows("Pending pods", seconds=30)
    browser.look_at_logs()
    browser.complaints.clear()


def times_go_on(browser):
    """How long a pod waits goes on by itself."""
    browser.go("#/")
    look = "return document.querySelector('[aria-labelledby=pending] tbody time').textContent"
    browser.wait("a pod that waits", "return document.querySelector('[aria-labelledby=pending] tbody time') !== null")
    before = browser.run(look)
    time.sleep(2.5)
    expect(browser.run(look) != before, f"a pod waits {before} for ever")


def legends(browser):
    """Every sign, bar and mark that is shown stands in the legend beside it."""
    browser.go("#/")
    browser.shows("Pending pods")
    browser.run("document.querySelector('.legends').open = true")
    missing = browser.run("""
        const tones = ['good', 'busy', 'warn', 'bad', 'idle'];
        const missing = tones.filter((tone) => !document.querySelector(`.legends .mark.${tone}`)).map((tone) => `mark ${tone}`);
        for (const tone of ['warn', 'bad']) if (!document.querySelector(`.legends .share.${tone}`)) missing.push(`bar ${tone}`);
        for (const it of ['past', 'current']) if (!document.querySelector(`.legends .steps .${it}`)) missing.push(`step ${it}`);
        return missing""")
    expect(not missing, f"the legend of Now lacks {missing}")
    browser.run("document.querySelector('.legends').open = false")
    browser.go("#/when")
    browser.wait("the picture", "return document.querySelector('.picture') !== null", seconds=30)
    missing = browser.run("""
        const known = new Set([...document.querySelectorAll('.legend .deed')].map((it) => it.textContent));
        const used = [...document.querySelectorAll('.decisions .deed')].map((it) => it.textContent);
        const lines = ['pending', 'there', 'wanted'].filter((it) => !document.querySelector(`.legend .sample.${it}`));
        return [...used, '▲', '▼', '✖', '●', '○'].filter((it) => !known.has(it)).concat(lines)""")
    expect(not missing, f"the legend of When lacks {missing}")
    browser.go("#/")
    browser.shows("Pending pods")


def one_is_not_several(browser, view):
    """Words beside a number agree with it."""
    wrong = browser.run(MISCOUNTED)
    expect(not wrong, f"{view}: {wrong}")


def one_is_counted_as_one(browser):
    """Of one node and one pod, with all views that have sums."""
    browser.go("#/")
    browser.shows("1 pod pending", ".line")
    one_is_not_several(browser, "Now")
    browser.go("#/when")
    browser.shows(" of pools; ", ".line", seconds=30)
    one_is_not_several(browser, "When")


def one_row_stands_alone(browser):
    """Beside the one pod that waits there is nothing to open, and below a table of one row nothing to turn or to filter."""
    browser.go("#/")
    browser.shows("default/pod-0001", "[aria-labelledby=pending]")
    for section, buttons in [("pending", 0), ("nodes", 1)]:
        found = browser.run("""const part = document.querySelector(`[aria-labelledby=${arguments[0]}]`);
            const shown = (it) => it.checkVisibility();
            return { rows: part.querySelectorAll('tbody tr').length, buttons: [...part.querySelectorAll('tbody button')].filter(shown).length,
                     pagers: [...part.querySelectorAll('.pager')].filter(shown).length }""", section)
        expect(found == {"rows": 1, "buttons": buttons, "pagers": 0}, f"the one row of {section}: {found}")


def lines_reach_now(browser):
    """While nothing changes, the lines of When go on to the present, however long ago a change was recorded."""
    browser.go("#/when")
    for _ in range(40):
        browser.shows(" of pools; ", ".line", seconds=30)
        last = "return fetch('/api/when').then((answer) => answer.json()).then(({ points, now }) => now - (points.at(-1)?.at ?? now))"
        if browser.run(last) > 5_000:
            break
        time.sleep(1)
    browser.click("Read again")
    browser.shows(" of pools; ", ".line", seconds=30)
    short = browser.run(SHORT_BY)
    expect(len(short) == 3 and all(abs(by) <= 4 for by in short), f"the lines end {short} pixels before the present")


def keyboard(browser):
    """With the keyboard alone: to a table's order, into a row, and it stays there while the page changes."""
    browser.run("location.hash = '#/'; location.reload()")
    browser.shows("Pending pods")
    browser.shows("live", "#link", seconds=60)
    seen = []
    for _ in range(80):
        browser.press("tab")
        it = browser.run("""const it = document.activeElement; const style = getComputedStyle(it);
            return [it.textContent.trim().slice(0, 40), it.tagName, style.outlineStyle !== 'none' && style.outlineWidth !== '0px',
                    it.closest('section')?.querySelector('h2')?.textContent ?? '']""")
        expect(it[1] == "BODY" or it[2], f"no ring shows where the focus is: {it}")
        seen.append(it)
        if it[0] == "Show pods":
            break
    words = [it[0] for it in seen]
    for wanted in ["Skip to the content", "pve-autoscaler", "Now", "Why", "What if", "Theme: as the system", "Show pods"]:
        expect(wanted in words, f"{wanted!r} cannot be reached: {words}")
    browser.press("enter")
    browser.wait("the pods", "return document.activeElement.textContent === 'Hide pods' && document.querySelector('.under table') !== null")
    time.sleep(2.5)
    still = browser.run("return document.activeElement.textContent")
    expect(still == "Hide pods", f"the focus went away while the page changed: {still!r}")
    browser.press("space")
    browser.wait("they are hidden", "return document.querySelector('.under') === null")


def themes(browser):
    """The button goes through three, and what was chosen stays."""
    ground = lambda: browser.run("return getComputedStyle(document.body).backgroundColor")
    light = ground()
    browser.click("Theme: as the system")
    browser.click("Theme: light")
    dark = ground()
    expect(dark != light, "dark is as light")
    browser.run("location.reload()")
    browser.shows("Pending pods")
    expect(ground() == dark, "the theme was forgotten")
    browser.click("Theme: dark")
    browser.theme("dark")
    expect(ground() == dark, "the system says dark")
    browser.theme("light")
