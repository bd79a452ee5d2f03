"""Completion as people use it: words typed into real shells, with the Tab key.

    completion.py DIRECTORY SHELL...       DIRECTORY is where `pve-autoscaler generate` wrote

Fails when a shell does not make of what is typed what stands in EXPECTED.
"""

import os
import pathlib
import re
import sys
import tempfile

from typist import Failed, Terminal

NAME = "pve-autoscaler"
# What is typed before Tab, and the arguments that the program then gets.
EXPECTED = [
    ("expl", ["explain"]),
    ("check --li", ["check", "--live"]),
    ("explain no", ["explain", "node"]),
    ("explain pod --snap", ["explain", "pod", "--snapshot"]),
    ("status --output js", ["status", "--output", "json"]),
    ("sim ku", ["sim", "kube"]),
    ("--config /etc/passwd res", ["--config", "/etc/passwd", "resume"]),
    ("plan --snapshot ./vie", ["plan", "--snapshot", "./view.json"]),
    ("check --config ./vie", ["check", "--config", "./view.json"]),
]
PROMPT = "typed-here> "
# A shell on a machine under load; and how long after a key nothing more comes.
PATIENCE = 60
QUIET = 0.7


def shells(files):
    """How each is started without anybody's settings, and what it is told then."""
    return {
        "bash": (["bash", "--norc", "-i"], [f"PS1='typed-''here> '; source {files}/{NAME}.bash"]),
        "zsh": (
            ["zsh", "-f", "-i"],
            [f"fpath=({files} $fpath); autoload -Uz compinit; compinit -u -D; PS1='typed-''here> '"],
        ),
        "fish": (
            ["fish", "--no-config", "-i"],
            [f"set -p fish_complete_path {files}; function fish_prompt; echo -n typed-; echo -n 'here> '; end"],
        ),
    }


def stub(directory):
    """In the program's place: prints its arguments."""
    program = directory / NAME
    program.write_text('#!/bin/sh\nprintf "got:"\nprintf " <%s>" "$@"\necho " end"\n')
    program.chmod(0o755)


def complete(shell, command, told, home):
    """Types all of it into one shell; returns what was wrong."""
    environment = {
        "HOME": str(home),
        "PATH": f"{home}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    wrong = []
    with Terminal(command, environment, directory=home) as terminal:
        terminal.settle(2)
        for line in told:
            terminal.type(line + "\r")
        terminal.expect(re.escape(PROMPT), PATIENCE)
        for typed, wanted in EXPECTED:
            terminal.settle(QUIET)
            terminal.type(f"{NAME} {typed}")
            terminal.settle(QUIET)
            terminal.type("\t")
            terminal.settle(QUIET)
            terminal.type("\r")
            said = terminal.expect(r"got:.* end$", PATIENCE)
            got = re.findall(r"<([^>]*)>", said.rsplit("got:", 1)[1])
            if got != wanted:
                wrong.append(f"{shell}: '{NAME} {typed}' and Tab gave {got}, not {wanted}")
    return wrong


def main():
    files = pathlib.Path(sys.argv[1]).resolve()
    wrong = []
    for shell in sys.argv[2:]:
        command, told = shells(files)[shell]
        with tempfile.TemporaryDirectory() as home:
            home = pathlib.Path(home)
            stub(home)
            (home / "view.json").touch()
            mistakes = complete(shell, command, told, home)
        print(f"{shell}: {len(EXPECTED) - len(mistakes)} of {len(EXPECTED)} completed")
        wrong += mistakes
    print("".join(f"{line}\n" for line in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print(f"completion: {failed}", file=sys.stderr)
        sys.exit(1)
