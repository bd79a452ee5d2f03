"""A daemon that dies and comes back while somebody is at something: it is said, nothing that was typed is lost, and it goes on by itself."""

import signal

from checks import expect, look_over

GONE = "The daemon does not answer"
# So long, in seconds, may it take until what a daemon that is back tells is shown.
PATIENCE = 90


def dies(world):
    world.daemon.end(signal.SIGKILL)


def is_back(browser):
    browser.wait("it comes back", "return document.getElementById('banner').hidden && document.getElementById('link').textContent === 'live'", seconds=PATIENCE)


def typed(browser, selector):
    return browser.run("return document.querySelector(arguments[0]).value", selector)


def in_a_search(browser, world):
    """Who searches sees that there is no answer, keeps the words, and has what they find once there is one."""
    browser.go("#/why")
    browser.shows("found.")
    browser.run("document.getElementById('search').focus()")
    browser.press(*"pod-000")
    browser.wait("it is found", "return document.querySelectorAll('.found section').length === 1 && document.querySelectorAll('.found a').length === 8")
    dies(world)
    browser.shows(GONE, "#banner", seconds=60)
    browser.press("1")
    browser.shows("It is searched again once it answers.", seconds=30)
    look_over(browser, "Why, without a daemon")
    world.start()
    is_back(browser)
    browser.shows("1 found.", seconds=PATIENCE)
    expect(typed(browser, "#search") == "pod-0001", f"what was typed is {typed(browser, '#search')!r}")
    expect(browser.run("return document.activeElement.id") == "search", "who typed is no longer at it")


def in_an_explanation(browser, world):
    """What is told stays while there is no answer, and is of the daemon that came back then."""
    world.pod("goes", "13")
    browser.go("#/pod/default/goes")
    browser.shows("What would have to change", seconds=60)
    dies(world)
    browser.shows(GONE, "#banner", seconds=60)
    browser.shows("New machines")
    look_over(browser, "Why a pod waits, without a daemon")
    world.gone("pods/goes")
    world.start()
    is_back(browser)
    browser.shows("no pod default/goes is seen", seconds=PATIENCE)
    expect("New machines" not in browser.text(), "what no longer holds is still told")


def in_times(browser, world):
    """What was read stays while there is no answer; the time and the name that were asked for are read once there is one."""
    browser.go("#/when")
    browser.click("6 hours")
    browser.shows(" of pools; ", ".line", seconds=30)
    dies(world)
    browser.shows(GONE, "#banner", seconds=60)
    browser.click("24 hours")
    browser.shows("What is below was read before. The record is read again once it answers.", ".line")
    browser.run("const it = document.getElementById('of'); it.value = 'node-000'; it.form.requestSubmit()")
    browser.shows("The record is read again once it answers.", ".line")
    expect(browser.run("return document.querySelector('.picture').checkVisibility()"), "the picture that was there is gone")
    look_over(browser, "When, without a daemon")
    world.start()
    is_back(browser)
    browser.shows("Of one node or machine alone.", ".line", seconds=PATIENCE)
    chosen = browser.run("return document.querySelector('.go [aria-pressed=true]').textContent")
    expect(chosen == "24 hours" and typed(browser, "#of") == "node-000", f"{chosen} of {typed(browser, '#of')!r} is shown")
    browser.run("const it = document.getElementById('of'); it.value = ''; it.form.requestSubmit()")


def in_a_supposition(browser, world):
    """What was typed stays, and is planned once the daemon is back."""
    browser.go("#/what-if")
    browser.click("Put an example in")
    browser.run("document.querySelector('.changes input').value = 'pool.general.max'; document.querySelectorAll('.changes input')[1].value = '1'")
    dies(world)
    browser.shows(GONE, "#banner", seconds=60)
    browser.click("Plan it")
    browser.shows("What you typed stays, and is planned once it answers.", ".line")
    look_over(browser, "What if, without a daemon")
    world.start()
    is_back(browser)
    browser.shows("of 10 pods would have a place", seconds=PATIENCE)
    expect("replicas: 10" in typed(browser, "#manifests") and typed(browser, ".changes input") == "pool.general.max", "what was typed is lost")


def of_every_view(browser, world):
    browser.go("#/")
    browser.shows("Pending pods")
    for part in [in_a_search, in_an_explanation, in_times, in_a_supposition]:
        part(browser, world)
    browser.look_at_logs()
    browser.complaints.clear()
