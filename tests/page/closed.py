"""The page where a login is wanted: over TLS, in and out again."""

import signal

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
        when_it_was(browser, world)
        again(browser, world)
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
    browser.run("document.getElementById('reason').value = 'storage <b>move</b>'")
    browser.click("Pause", "button")
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
    browser.shows("machine made", ".line")
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


def opens(browser, world):
    browser.open(world.url)
    return "Log in" in browser.text("main")


def again(browser, world):
    """A daemon that begins anew knows no session: it asks, and the page goes on where it was."""
    world.daemon.end(signal.SIGKILL)
    world.start()
    browser.shows("Log in", "h1", seconds=60)
    log_in(browser, PASSWORD)
    browser.shows("found.", seconds=60)
    expect(browser.run("return location.hash") == "#/why", "it forgot where it was")
