"""Completion as people use it: words typed into real shells, with the Tab key.

    completion.py PROGRAM DIRECTORY SHELL...       DIRECTORY is where `PROGRAM generate` wrote

Names come from a daemon's control socket, which this script answers, and from a configuration file. Fails when a shell does not make of what is typed what stands in EXPECTED.
"""

import json
import os
import pathlib
import re
import shlex
import socketserver
import sys
import tempfile
import threading

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
    ("explain pod --socket ./daemon sho", ["explain", "pod", "--socket", "./daemon", "shop/web-1"]),
    ("explain pod --socket ./daemon lon", ["explain", "pod", "--socket", "./daemon", "lonely-0"]),
    ("explain node --socket=./daemon pve-", ["explain", "node", "--socket=./daemon", "pve-k8s-1"]),
    ("explain node --socket=./dae", ["explain", "node", "--socket=./daemon"]),
    ("retry --socket ./daemon wor", ["retry", "--socket", "./daemon", "workers"]),
    ("history --machine", ["history", "--machine"]),
    ("history --socket ./daemon --machine wor", ["history", "--socket", "./daemon", "--machine", "workers-x7k2p"]),
    ("evacuate --socket ./daemon pve", ["evacuate", "--socket", "./daemon", "pve2"]),
    ("--config ./file.toml template build deb", ["--config", "./file.toml", "template", "build", "debian"]),
    # Where no daemon answers nothing is offered, and the line stays as it was.
    ("explain node --socket ./none pve-", ["explain", "node", "--socket", "./none", "pve-"]),
]
# What the daemon has.
NAMES = {
    "pods": ["default/lonely-0", "shop/web-1"],
    "nodes": ["pve-k8s-1", "pve; reboot"],
    "pools": ["workers"],
    "machines": ["workers-x7k2p"],
    "hosts": ["pve2"],
}
FILE = '[template.debian]\nregion = "home"\n'

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


def stub(directory, program):
    """In the program's place: prints its arguments, unless a shell's script asks what to offer."""
    stub = directory / NAME
    stub.write_text(
        '#!/bin/sh\n'
        f'[ -z "$PVE_AUTOSCALER_COMPLETE" ] || exec {shlex.quote(str(program))} "$@"\n'
        'printf "got:"\nprintf " <%s>" "$@"\necho " end"\n'
    )
    stub.chmod(0o755)


class Daemon(socketserver.StreamRequestHandler):
    """Answers what is asked for names, as the daemon does on its control socket."""

    def handle(self):
        asked = json.loads(self.rfile.readline())
        assert asked["command"] == "names", asked
        known = NAMES.get(asked["kind"], [])
        self.wfile.write(json.dumps({"ok": [name for name in known if name.startswith(asked["prefix"])]}).encode())


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
    program, files = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    wrong = []
    for shell in sys.argv[3:]:
        command, told = shells(files)[shell]
        with tempfile.TemporaryDirectory() as home:
            home = pathlib.Path(home)
            stub(home, program)
            (home / "view.json").touch()
            (home / "file.toml").write_text(FILE)
            with socketserver.ThreadingUnixStreamServer(str(home / "daemon"), Daemon) as daemon:
                threading.Thread(target=daemon.serve_forever, daemon=True).start()
                mistakes = complete(shell, command, told, home)
                daemon.shutdown()
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
