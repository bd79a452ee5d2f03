"""The README's first commands, typed into a shell on a terminal, as someone does who has just cloned this repository.

    readme.py LIMIT CLONE COMMAND...        COMMAND is a shell on a bare machine, CLONE the clone's path there

Types what stands under "See it", looks at what is shown, and fails when a command does not come to its end within
LIMIT seconds, when the screen stays empty, or when the terminal is left broken.
"""

import pathlib
import re
import shlex
import sys

from typist import Failed, Terminal

PROMPT = "typed-here> "
# The story has begun and a machine was made: enough of a demo that has no end.
DEMO_WORKS = r"\+ .*in service"
# What a first build must have said, and cargo's own progress.
FIRST_BUILD = "the first build"
PROGRESS = re.compile(r"Building \[|Compiling [a-z0-9_-]+ v")
# Seconds for which apt's locks are held at first, and what is to be said meanwhile.
APT_HELD = 20
WAITS = "another program holds apt's locks"
# From the key that ends it to the prompt.
ENDING = 20


def commands(readme):
    """The commands under "See it"."""
    part = readme.split("\n## See it\n", 1)[1].split("\n## ", 1)[0]
    block = part.split("```sh\n", 1)[1].split("```", 1)[0]
    return [line.split("#", 1)[0].strip() for line in block.splitlines() if line.strip()]


class Shell:
    def __init__(self, command, limit, clone):
        self.limit = limit
        self.terminal = Terminal(command, echo=True)
        # Set in two parts, so that what is typed is not taken for the prompt.
        self.terminal.type(f"PS1='typed-''here> '; cd {shlex.quote(clone)}\n")
        self.prompt(60)
        self.sound = self.settings()

    def prompt(self, seconds):
        return self.terminal.expect(re.escape(PROMPT), seconds)

    def settings(self):
        self.terminal.type("stty -g </dev/tty\n")
        return re.search(r"^[0-9a-f]+(?::[0-9a-f]+)+$", self.prompt(60), re.MULTILINE).group()

    def status(self):
        self.terminal.type("echo status $?\n")
        return int(re.search(r"^status (\d+)$", self.prompt(60), re.MULTILINE).group(1))

    def run(self, command):
        """A command that ends by itself; returns what was shown."""
        self.terminal.type(command + "\n")
        said = self.prompt(self.limit)
        status = self.status()
        if status != 0:
            raise Failed(f"{command}: status {status}")
        return said

    def run_until(self, command, pattern):
        """A command that is ended with Ctrl-C once it has shown this."""
        self.terminal.type(command + "\n")
        said = self.terminal.expect(pattern, self.limit)
        self.terminal.type("\x03")
        return said + self.prompt(ENDING)

    def intact(self, command):
        """The terminal is as it was: echo, line ends, keys."""
        now = self.settings()
        if now != self.sound:
            raise Failed(f"{command} left the terminal as {now}; it was {self.sound}")


def main():
    limit, clone, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    root = pathlib.Path(__file__).resolve().parents[2]
    demo, test = commands((root / "README.md").read_text())
    shell = Shell(command, limit, clone)
    # As on a machine that updates itself after its start: apt is not free at once.
    shell.terminal.type(f"~/hold-apt {APT_HELD} &\n")
    shell.terminal.expect("apt is held", 60)
    said = shell.run_until(demo, DEMO_WORKS)
    if WAITS not in said:
        raise Failed(f"{demo} did not say that it waits for apt")
    if FIRST_BUILD not in said:
        raise Failed(f"{demo} did not say that it is {FIRST_BUILD}")
    if not PROGRESS.search(said):
        raise Failed(f"{demo} did not show cargo's progress")
    shell.intact(demo)
    said = shell.run(f"{demo} --once --speed 200")
    if FIRST_BUILD in said:
        raise Failed("the second build says that it is the first")
    shell.intact(demo)
    shell.run(test)
    shell.intact(test)
    shell.terminal.close()


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        print(f"\nreadme: {failed}", file=sys.stderr)
        sys.exit(1)
