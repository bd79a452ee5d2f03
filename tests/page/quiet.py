"""What a page may not do, whatever is shown: ask somebody else, or complain."""

from urllib.parse import urlsplit

from checks import expect


def quiet(browser, origin):
    """Nobody else was asked, and the console said nothing that was not provoked."""
    browser.look_at_logs()
    # Chromium's own first tab asks Chromium itself.
    inner = ("data", "chrome", "chrome-untrusted", "about")
    elsewhere = [url for url in browser.requests if urlsplit(url).scheme not in inner and not url.startswith(origin)]
    expect(not elsewhere, f"requests went elsewhere: {elsewhere[:5]}")
    expect(not browser.complaints, f"the console says: {browser.complaints[:5]}")
    browser.requests.clear()
