#!/usr/bin/python3
"""Types a line in a host's terminal of 80 columns, waits for the prompt, and prints what stands there and how long it took.

    tests/pve-world/type.py HOST LINE [SECONDS [UNTIL]]

UNTIL: a regular expression that is waited for in place of the prompt. A LINE that begins with `--answer ` types what follows it without
clearing the screen, `--key C-c` presses a key (tmux's names), `--wait` types nothing. All of it is written down in state/transcript in
the world's folder. Needs tmux; `tmux -L pve-world attach -t HOST` shows the terminal, `tmux -L pve-world kill-server` ends them."""
import os, pathlib, re, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
TRANSCRIPT = CACHE / "pve-autoscaler" / "pve-world" / "state" / "transcript"
PROMPT = r"root@\w+:\S*# ?"
RC = r"""[ -r /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion
[ -e /etc/kubernetes/admin.conf ] && export KUBECONFIG=/etc/kubernetes/admin.conf
PS1='root@\h:\w# '
"""


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", "pve-world", *arguments], capture_output=True, text=True, check=False)


def open_terminal(host):
    if tmux("has-session", "-t", host).returncode == 0:
        return
    enter = [str(HERE / "in.sh"), host]
    subprocess.run([*enter, "tee", "/etc/bash.terminal"], input=RC, text=True, stdout=subprocess.DEVNULL, check=True)
    # Without script(1) the shell would have the terminal of this machine, which its programs do not know there.
    tmux("new-session", "-d", "-s", host, "-x", "80", "-y", "50", " ".join([*enter, "script -qfc 'bash --rcfile /etc/bash.terminal -i' /dev/null"]))
    tmux("set-option", "-t", host, "history-limit", "100000")
    time.sleep(2)


def shown(host):
    return tmux("capture-pane", "-p", "-S", "-", "-t", host).stdout.rstrip()


def send(host, line):
    if line == "--wait":
        return
    if line.startswith("--key "):
        tmux("send-keys", "-t", host, *line.split()[1:])
        return
    if line.startswith("--answer "):
        line = line.removeprefix("--answer ")
    else:
        tmux("send-keys", "-t", host, "C-l")
        time.sleep(0.2)
        tmux("clear-history", "-t", host)
    tmux("send-keys", "-t", host, "-l", line)
    tmux("send-keys", "-t", host, "Enter")


def main(host, line, seconds="60", until=None):
    open_terminal(host)
    began, before = time.time(), shown(host)
    send(host, line)
    while True:
        time.sleep(0.3)
        text = shown(host)
        at_prompt = re.fullmatch(PROMPT, text.split("\n")[-1]) and (text != before or line == "--wait")
        if until and re.search(until, text, re.M) or at_prompt and (not until or time.time() - began > 3 and line != "--wait"):
            break
        if time.time() - began > float(seconds):
            print(f"[not ended after {seconds} s]")
            break
    took = time.time() - began
    with open(TRANSCRIPT, "a", encoding="utf-8") as file:
        file.write(f"##### {time.strftime('%H:%M:%S')} {host} {took:.1f}s: {line}\n{text}\n")
    print(f"{text}\n[{took:.1f} s]")


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
