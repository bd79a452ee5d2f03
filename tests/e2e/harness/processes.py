"""The processes a story starts: with a log each, ended by their own id."""

import os
import signal
import subprocess
import time

from .until import Failed, say

# How long a process may take to end after SIGTERM before it is killed.
STOP_SECONDS = 10


class Processes:
    """Starts, watches and stops processes; logs go into one directory."""

    def __init__(self, logs):
        self.logs = logs
        self.running = {}
        os.makedirs(logs, exist_ok=True)

    def start(self, name, argv, env=None, before=None):
        """Starts `argv`; its output is appended to NAME.log."""
        if name in self.running:
            raise Failed(f"{name} is running already")
        whole = dict(os.environ)
        whole.update(env or {})
        with open(self.log(name), "ab") as log:
            process = subprocess.Popen(
                argv,
                env=whole,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=before,
                # A listening socket handed on by `before` must stay open.
                close_fds=before is None,
            )
        self.running[name] = process
        return process

    def log(self, name):
        """The path of a process's log."""
        return os.path.join(self.logs, f"{name}.log")

    def read_log(self, name):
        """What a process has said so far."""
        with open(self.log(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def check(self):
        """Fails when a process that should be running has ended."""
        for name, process in self.running.items():
            code = process.poll()
            if code is not None:
                tail = "\n".join(self.read_log(name).splitlines()[-15:])
                raise Failed(f"{name} ended with {code}; {self.log(name)} ends with:\n{tail}")

    def send(self, name, number):
        """Sends a signal to a process."""
        self.running[name].send_signal(number)

    def stop(self, name, number=signal.SIGTERM):
        """Ends a process and returns its exit code."""
        process = self.running.pop(name)
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
            say(f"{name} had to be killed")
            return None

    def stop_all(self):
        """Ends everything, the last started first. Nothing here has anything to
        lose, and an API server takes its time to say goodbye to its watchers."""
        for name in reversed(list(self.running)):
            self.stop(name, signal.SIGKILL)


def run(argv, seconds, env=None, stdin=None, check=True):
    """Runs `argv` to its end. Its output is in the failure when it fails."""
    whole = dict(os.environ)
    whole.update(env or {})
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            env=whole,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{argv} did not end within {seconds} s: {late.stderr}") from late
    if check and done.returncode != 0:
        raise Failed(
            f"{' '.join(argv)}: exit {done.returncode} after {time.monotonic() - began:.1f} s\n"
            f"{done.stdout}{done.stderr}"
        )
    return done
