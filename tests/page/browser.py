"""A headless Chromium, driven by the WebDriver protocol over HTTP: nothing but Python's own library."""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SECONDS = 20
KEYS = {"tab": "\ue004", "enter": "\ue007", "space": " ", "escape": "\ue00c", "home": "\ue011", "end": "\ue010",
        "page up": "\ue00e", "page down": "\ue00f", "left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015"}
SHIFT = "\ue008"


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, look, seconds=SECONDS):
    """Waits with a deadline for something true, which it gives back."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            last = look()
        except (OSError, BrowserError) as error:
            last = None
            what_else = error
        else:
            what_else = None
            if last:
                return last
        time.sleep(0.1)
    raise SystemExit(f"page: not within {seconds} s: {what} ({last!r}, {what_else!r})")


class BrowserError(Exception):
    """What the driver refused."""


class Browser:
    """One window. Its profile is empty and goes with it."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver"), f"--port={port}", "--silent"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        until("chromedriver", lambda: self.call("GET", "/status")["ready"])
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", f"--user-data-dir={self.profile}", "--window-size=1280,900",
            # A page that was left lets go of its stream.
            "--disable-features=BackForwardCache", "--hide-scrollbars", "--force-color-profile=srgb",
        ]
        capabilities = {
            "browserName": "chrome",
            # The tests' certificates are signed by nobody.
            "acceptInsecureCerts": True,
            "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        except (OSError, BrowserError):
            # A driver that ends in order takes the browser with it, which may be on its way up.
            self.driver.terminate()
            raise
        self.session = f"/session/{session['sessionId']}"
        self.requests = []
        self.complaints = []

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=180) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise BrowserError(error.read().decode()[:600]) from error

    def close(self):
        try:
            self.call("DELETE", self.session)
        except (OSError, BrowserError):
            pass
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, url):
        self.call("POST", f"{self.session}/url", {"url": url})

    def go(self, fragment):
        """Another view of the page that is open."""
        self.run("location.hash = arguments[0]", fragment)

    def run(self, script, *arguments):
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, what, script, *arguments, seconds=SECONDS):
        return until(what, lambda: self.run(script, *arguments), seconds)

    def text(self, selector="main"):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def shows(self, words, selector="main", seconds=SECONDS):
        """Waits until it can be read there."""
        try:
            return self.wait(
                f"{words!r} in {selector}",
                "return (document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])",
                selector, words, seconds=seconds,
            )
        except SystemExit as error:
            raise SystemExit(f"{error}; it says: {self.text(selector)[:2000]!r}") from None

    def press(self, *keys):
        """Keys one after the other: a letter, a name of KEYS, or `shift+` and one of them."""
        actions = []
        for key in keys:
            shifted = key.startswith("shift+")
            value = KEYS.get(key.removeprefix("shift+"), key.removeprefix("shift+"))
            stroke = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
            actions += [{"type": "keyDown", "value": SHIFT}, *stroke, {"type": "keyUp", "value": SHIFT}] if shifted else stroke
        self.call("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, words, selector="button, a, summary"):
        """Presses what has these words on it."""
        self.wait(
            f"something to press: {words!r}",
            """const found = [...document.querySelectorAll(arguments[0])].find((it) => it.textContent.trim() === arguments[1]);
               found?.click(); return Boolean(found);""",
            selector, words,
        )

    def devtools(self, command, parameters):
        return self.call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})

    def theme(self, name):
        """What the system says: light or dark."""
        self.devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def shot(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        picture = base64.b64decode(self.call("GET", f"{self.session}/screenshot"))
        with open(path, "wb") as file:
            file.write(picture)

    def look_at_logs(self):
        """Gathers what the console said and where requests went."""
        for entry in self.call("POST", f"{self.session}/se/log", {"type": "browser"}):
            self.complaints.append(f"{entry['level']}: {entry['message']}")
        for entry in self.call("POST", f"{self.session}/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
