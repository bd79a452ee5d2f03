"""Types into a terminal and reads what it shows: a program on a pseudo-terminal of its own, as a person would have it."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

ROWS, COLUMNS = 40, 120
# A terminal's own language, which is of no interest when words are looked for: colours, positions, titles.
CONTROL = re.compile(rb"\x1bP[^\x1b]*\x1b\\\\|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]|\x1b[=>78cMDEH]|[\x00\x07\x0e\x0f]")

# The beginning of such a sequence, or of a line's end, at the end of what has come.
HALF = re.compile(rb"(?:\r|\x1b(?:P[^\x1b]*\x1b?|\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[()])?)$")
# What is waited for may have come in parts: characters that are looked at again.
OVERLAP = 1000


class Failed(Exception):
    """What was waited for did not come."""


class Terminal:
    """A program and its terminal. `echo` shows on our standard output what it shows."""

    def __init__(self, command, environment=None, directory=None, echo=False):
        self.echo = echo
        self.text = ""
        self.read_to = 0
        self.held = b""
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.process, self.file = pty.fork()
        if self.process == 0:
            try:
                if directory:
                    os.chdir(directory)
                os.execvpe(command[0], command, dict(os.environ if environment is None else environment))
            except OSError as error:
                print(f"{command[0]}: {error}", file=sys.stderr)
            os._exit(127)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def type(self, keys):
        os.write(self.file, keys.encode())

    def settle(self, seconds):
        """Reads on until nothing new has come for this long; returns what came since the last look."""
        while self._read(seconds):
            pass
        return self._taken(len(self.text))

    def expect(self, pattern, seconds):
        """Waits until what came since the last look matches; returns it up to the match's end."""
        end = time.monotonic() + seconds
        wanted = re.compile(pattern, re.MULTILINE)
        looked = 0
        while True:
            found = wanted.search(self.text, max(self.read_to, looked - OVERLAP))
            if found:
                return self._taken(found.end())
            looked = len(self.text)
            left = end - time.monotonic()
            if left <= 0:
                raise Failed(f"{pattern!r} did not come within {seconds} s; the last lines:\n{self._tail()}")
            if self._read(min(left, 5)) is None:
                raise Failed(f"the terminal closed before {pattern!r} came; the last lines:\n{self._tail()}")

    def close(self):
        """Hangs up, as closing the window does, and ends what does not heed it."""
        os.close(self.file)
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self.process, number)
            except ProcessLookupError:
                return
            for _ in range(100):
                if os.waitpid(self.process, os.WNOHANG)[0]:
                    return
                time.sleep(0.05)

    def _read(self, seconds):
        """True when something came, False when not, None at the end."""
        if not select.select([self.file], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self.file, 65536)
        except OSError:
            part = b""
        if not part:
            return None
        self._answer(part)
        if self.echo:
            sys.stdout.buffer.write(part.replace(b"\r\n", b"\n"))
            sys.stdout.buffer.flush()
        self._plain(part)
        return True

    def _plain(self, part):
        """Adds it to the text, without what a terminal takes for itself; half a sequence waits for its rest. What overwrites a line is one more line."""
        self.held += part
        half = HALF.search(self.held)
        whole = self.held[: half.start()] if half else self.held
        self.held = self.held[len(whole) :]
        self.text += self.decoder.decode(CONTROL.sub(b"", whole)).replace("\r\n", "\n").replace("\r", "\n")

    def _answer(self, part):
        """What a terminal says when it is asked what it is (fish waits for it) and where the cursor stands."""
        for question, answer in ((b"\x1b[c", b"\x1b[?62c"), (b"\x1b[0c", b"\x1b[?62c"), (b"\x1b[6n", b"\x1b[1;1R")):
            if question in part:
                os.write(self.file, answer)

    def _taken(self, end):
        text = self.text[self.read_to : end]
        self.read_to = end
        return text

    def _tail(self):
        return "\n".join(self.text[-8000:].splitlines()[-25:])
