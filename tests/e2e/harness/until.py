"""Waiting with a deadline. Nothing in the stories sleeps for luck."""

import time


class Failed(Exception):
    """A story's expectation was not met; the text says which."""


def say(text):
    """One line of the story's log, with the seconds since the program began."""
    print(f"[{time.monotonic() - _began:7.1f}] {text}", flush=True)


_began = time.monotonic()


def until(seconds, what, look, every=0.2):
    """Calls `look` until it returns something true, and returns that.

    `look` may raise `NotYet` to say what it saw. After `seconds` the last
    thing seen is in the failure.
    """
    end = time.monotonic() + seconds
    seen = "nothing"
    while True:
        try:
            found = look()
            if found:
                return found
        except NotYet as reason:
            seen = str(reason)
        if time.monotonic() >= end:
            raise Failed(f"not within {seconds} s: {what}; last seen: {seen}")
        time.sleep(every)


class NotYet(Exception):
    """Raised by what `until` calls: what was seen instead."""


def holds(seconds, what, look, every=0.5):
    """Checks that `look` stays true for `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not look():
            raise Failed(f"did not hold for {seconds} s: {what}")
        time.sleep(every)


def expect(condition, what):
    """An assertion that Python's -O does not remove."""
    if not condition:
        raise Failed(what)
