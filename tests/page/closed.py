"""The page where a login is wanted: over TLS, in and out again."""

import signal
import time

import reach
from browser import until
from checks import expect, look_over
from world import PASSWORD, Installation

FORM = "[...document.querySelectorAll('.login input')]"


def log_in(browser, password):
    browser.shows("Log in", "h1")
    browser.run(f"const [user, secret] = {FORM}; user.value = 'ann'; secret.value = arguments[0]", password)
    browser.click("Log in", "button")


def complain_of(browser, statuses):
    """The console notes what was refused, and nothing else."""
    browser.look_at_logs()
    other = [said for said in browser.complaints if not any(f"{status}" in said for status in statuses)]
    expect(not other, f"the console says: {other[:5]}")
    browser.complaints.clear()
    browser.requests.clear()


def of_closed_page(browser, binary, pictures=None):
    world = Installation(binary, nodes=2, pods=21, closed=True)
    try:
        until("a page", lambda: opens(browser, world), 60)
        browser.shows("Log in", "h1")
        look_over(browser, "Log in")
        if pictures:
            browser.size(900, 420)
            browser.shot(f"{pictures}/login-light.png")
        browser.size(360, 740, phone=True)
        look_over(browser, "Log in, on a phone", phone=True)
        browser.size(1280, 900)
        for words in ["node-000", "pod-0000", "general"]:
            expect(words not in browser.text("body"), f"{words} is shown to strangers")
        expect(browser.run("return document.activeElement.id") == "user", "the form has the focus")
        log_in(browser, "not the password")
        browser.shows("Name or password is wrong")
        # By the keyboard alone.
        browser.run(f"const [user, secret] = {FORM}; user.value = 'ann'; secret.value = ''; secret.focus()")
        browser.press(*PASSWORD, "enter")
        browser.shows("Pending pods")
        browser.shows("live", "#link", seconds=60)
        browser.shows("ann", "#who")
        browser.shows("node-000", "main", seconds=60)
        expect(browser.run("return document.cookie") == "", "scripts see the session's cookie")
        look_over(browser, "Now, logged in")
        # A link that somebody sent leads to where it says, and the session is still there.
        browser.go("#/why")
        browser.run("location.reload()")
        browser.shows("found.")
        browser.shows("ann", "#who")
        complain_of(browser, [401])
        what_one_may_do(browser, world)
        a_wait_is_ended(browser, world)
        when_it_was(browser, world)
        again(browser, world)
        nothing_is_left(browser, world)
        browser.click("Log out")
        browser.shows("Log in", "h1")
        expect("node-000" not in browser.text("body"), "what was seen stays")
        browser.run("location.reload()")
        browser.shows("Log in", "h1")
        complain_of(browser, [401, "ERR_"])
    finally:
        browser.open("about:blank")
        world.end()


def what_one_may_do(browser, world):
    """Pause with a reason, resume, retry a pool: who is logged in, and nobody else."""
    browser.go("#/")
    browser.shows("Pending pods")
    # By the keyboard alone: what takes the place of what was pressed has the focus.
    reach.tab_to(browser, "the reason", lambda it: it["id"] == "reason")
    browser.press(*"storage <b>move</b>", "enter")
    browser.shows("storage <b>move</b> (by ann)", "[aria-labelledby=care]")
    browser.wait("what resumes has the focus", "return document.activeElement.textContent === 'Resume'")
    browser.press("space")
    browser.wait("the reason has it again", "return document.activeElement.id === 'reason'")
    browser.press(*"storage <b>move</b>", "tab", "space")
    browser.shows("storage <b>move</b> (by ann)", "[aria-labelledby=care]")
    browser.wait("resume takes its place", "return [...document.querySelectorAll('.acts button')].find((it) => it.checkVisibility())?.textContent === 'Resume'")
    look_over(browser, "Now, paused")
    browser.size(360, 740, phone=True)
    look_over(browser, "Now, paused, on a phone", phone=True)
    browser.size(1280, 900)
    browser.click("Resume", "button")
    browser.wait("the pause is over", "return !document.querySelector('[aria-labelledby=care]').innerText.includes('by ann')")
    browser.click("Retry", "[aria-labelledby=pools] button")
    browser.shows("Nothing was waited for.", "[aria-labelledby=pools]")
    evacuate(browser, "Evacuate pve2", "End the evacuation of pve2")
    browser.shows("It has no machine.", "[aria-labelledby=hosts]")
    browser.shows("evacuated since", "[aria-labelledby=hosts]")
    look_over(browser, "Now, with a host that is evacuated")
    evacuate(browser, "End the evacuation of pve2", "Evacuate pve2")
    browser.wait("the note is gone", "return !document.querySelector('[aria-labelledby=hosts]').innerText.includes('evacuated')")
    browser.go("#/why")
    browser.shows("found.")


def evacuate(browser, does, then):
    """Presses the button of a host, which is another one then."""
    button = "[...document.querySelectorAll('[aria-labelledby=hosts] button')].find((it) => it.getAttribute('aria-label') === '%s')"
    browser.wait(does, f"return Boolean({button % does})")
    browser.run(f"{button % does}.click()")
    browser.wait(then, f"return Boolean({button % then})", seconds=30)


def when_it_was(browser, world):
    """The last days from the record: each decision on the line, by mouse and by keyboard, and in a table."""
    world.pod("wants-one", "1")
    browser.go("#/")
    browser.wait("it is decided", "return document.querySelector('.work li, [aria-labelledby=plan] tbody tr') !== null", seconds=60)
    browser.go("#/when")
    # The machine is a link once it is there.
    browser.wait("a decision is in the record, and its machine is there", """
        const read = [...document.querySelectorAll('button')].find((it) => it.textContent === 'Read again');
        if (document.querySelector('[aria-labelledby=decisions]')?.innerText.includes('make on') &&
            document.querySelector('[aria-labelledby=decisions] a[href^="#/machine/general-"]')) return true;
        read?.click(); return false""", seconds=60)
    browser.click("6 hours")
    browser.wait("six hours are chosen", "return document.querySelector('.go [aria-pressed=true]').textContent === '6 hours'")
    browser.shows(" made, ", ".line")
    marks = browser.wait("marks", "return document.querySelectorAll('.decisions button').length")
    stops = browser.run("return document.querySelectorAll('.decisions button[tabindex=\"0\"]').length")
    expect(stops == 1, f"{marks} marks are {stops} stops of the tab key")
    look_over(browser, "When")
    # By the keyboard: to the first mark, which is opened, and back to the last.
    browser.run("document.querySelector('.decisions button[tabindex=\"0\"]').focus()")
    browser.press("home", "enter")
    browser.wait("it is pressed", "return document.querySelector('.decisions button').getAttribute('aria-pressed') === 'true'")
    browser.press("end", "enter")
    browser.shows("make general-", ".chosen")
    href = browser.run("return document.querySelector('.chosen a').getAttribute('href')")
    expect(href.startswith("#/machine/general-"), f"a decision leads to its machine: {href}")
    drawn = browser.run("return [...document.querySelectorAll('.picture path.line')].map((it) => it.getAttribute('d').length)")
    expect(len(drawn) == 3 and min(drawn) > 5, f"three lines are drawn: {drawn}")
    browser.size(360, 740, phone=True)
    browser.wait("it is drawn anew", "return document.querySelector('.picture').clientWidth < 360")
    look_over(browser, "When, on a phone", phone=True)
    browser.size(1280, 900)
    browser.go("#/why")
    browser.shows("found.")


def a_wait_is_ended(browser, world):
    """A template whose machines do not start: the pool backs off, and the page says why. Once it is mended, Retry ends the wait, says which
    waits it ended, and a machine comes."""
    browser.go("#/")
    browser.shows("Pending pods")
    network = lambda bridge: {"configure": {"vmid": 9000, "key": "net0", "value": f"virtio=BC:24:11:00:00:01,bridge={bridge}"}}
    world.administer(network("vmbr9"))
    world.pod("wants-another", "1")
    browser.shows("until in", "[aria-labelledby=pools]", seconds=120)
    browser.shows("the start failed", "[aria-labelledby=pools]")
    browser.shows("it backs off after a failure", "[aria-labelledby=care]")
    browser.wait("nothing is under way", "return document.querySelector('.work li') === null", seconds=60)
    look_over(browser, "Now, with a pool that backs off")
    browser.size(360, 740, phone=True)
    look_over(browser, "Now, with a pool that backs off, on a phone", phone=True)
    browser.size(1280, 900)
    world.administer(network("vmbr0"))
    reach.tab_to(browser, "what ends the wait", "Retry general", 250)
    browser.press("enter")
    browser.shows("No longer waits: ", "[aria-labelledby=pools]")
    browser.wait("what pressed it has the focus", "return document.activeElement.getAttribute('aria-label') === 'Retry general'")
    browser.wait("no back-off is shown", "return !document.querySelector('[aria-labelledby=pools] [data-name=\"Back-off\"]').innerText.includes('until')", seconds=60)
    browser.wait("a machine comes", "return document.querySelector('.work li') !== null", seconds=60)
    browser.wait("the wait is over where it was told of", "return !document.querySelector('[aria-labelledby=care]').innerText.includes('backs off')", seconds=60)
    look_over(browser, "Now, after a wait was ended")
    world.gone("pods/wants-another")


def opens(browser, world):
    browser.open(world.url)
    return "Log in" in browser.text("main")


def again(browser, world):
    """A daemon that begins anew knows no session: it asks, and the page goes on where it was, with what was typed."""
    browser.go("#/what-if")
    browser.click("Put an example in")
    dies_and_comes_back(browser, world)
    browser.shows("Nothing is carried out", seconds=60)
    expect(browser.run("return location.hash") == "#/what-if", "it forgot where it was")
    expect("replicas: 10" in browser.run("return document.getElementById('manifests').value"), "what was typed is lost with the session")
    stays_on_main(browser)
    browser.go("#/why")
    browser.shows("found.")
    dies_and_comes_back(browser, world)
    browser.shows("found.", seconds=60)
    expect(browser.run("return location.hash") == "#/why", "it forgot where it was")


def dies_and_comes_back(browser, world):
    world.daemon.end(signal.SIGKILL)
    world.start()
    browser.shows("Log in", "h1", seconds=60)
    expect("replicas" not in browser.text("body"), "what was typed is shown to whoever comes")
    log_in(browser, PASSWORD)
    browser.shows("live", "#link", seconds=60)


def stays_on_main(browser):
    expect(browser.run("return document.activeElement.id") == "main", "who logs in is nowhere")


def nothing_is_left(browser, world):
    """What one typed is not there for the next one, after a log-out by the keyboard and another name."""
    world.password("bob", PASSWORD)
    browser.go("#/what-if")
    browser.shows("Nothing is carried out")
    for out, into in [("ann", "ann"), ("ann", "bob")]:
        browser.click("Put an example in")
        if out == into:
            reach.tab_to(browser, "logging out", "Log out")
            browser.press("enter")
            browser.shows("Log in", "h1")
            expect(browser.run("return document.activeElement.id") == "user", "the form has not the focus after logging out")
        else:
            # The session ends by itself: another password was set.
            world.password("ann", f"{PASSWORD} of today")
            until("the session is over", lambda: session_is_over(browser), 90)
            browser.shows("Log in", "h1", seconds=60)
        # The users' file is read anew within half a minute.
        until(f"{into} is let in", lambda: lets_in(browser, into), 90)
        browser.shows("Nothing is carried out", seconds=60)
        browser.shows(into, "#who")
        expect(browser.run("return document.getElementById('manifests').value") == "", f"{into} sees what {out} typed")


def session_is_over(browser):
    browser.run("fetch('/api/session')")
    return browser.run("return document.querySelector('h1').textContent") == "Log in" or browser.click("Plan it") or False


def lets_in(browser, name):
    if browser.run("return document.querySelector('h1').textContent") != "Log in":
        return True
    browser.run(f"const [user, secret] = {FORM}; user.value = arguments[0]; secret.value = arguments[1]", name, PASSWORD)
    browser.click("Log in", "button")
    time.sleep(3)
    return False
