"""What systemd does for the product's two services, as far as a story needs it.

The listening socket of the broker, readiness and status messages, the user, the
empty set of capabilities. The units themselves are tried in booted systems by
the package's own test.
"""

import grp
import os
import pwd
import signal
import socket
import threading

from .processes import run
from .until import until

USER = "pve-autoscaler"
SOCKET = "/run/pve-autoscaler/pve.sock"
READY_SECONDS = 30
# As in the unit of the daemon: a loop that hangs is noticed by its silence.
WATCHDOG_MICROSECONDS = 60_000_000


class Notify:
    """The socket that a service tells its state to."""

    def __init__(self, path):
        self.path = path
        self.ready = False
        self.status = ""
        self.watchdogs = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        os.chmod(path, 0o666)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            for line in self.socket.recv(65536).decode(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key == "READY":
                    self.ready = value == "1"
                elif key == "STATUS":
                    self.status = value
                elif key == "WATCHDOG":
                    self.watchdogs += 1


def make_user():
    """The system user and the directories that the package brings."""
    run(["useradd", "--system", "--user-group", "--home-dir", "/var/lib/pve-autoscaler", "--shell", "/usr/sbin/nologin", USER], 10)
    group = grp.getgrnam(USER).gr_gid
    user = pwd.getpwnam(USER).pw_uid
    for path, mode, owner in (
        ("/run/pve-autoscaler", 0o1770, 0),
        ("/etc/pve-autoscaler", 0o750, 0),
        ("/var/lib/pve-autoscaler", 0o700, user),
    ):
        os.makedirs(path, exist_ok=True)
        os.chown(path, owner, group)
        os.chmod(path, mode)
    os.makedirs("/var/lib/pve-autoscaler-broker", mode=0o700, exist_ok=True)


class Service:
    """One of the two services: start, ready, stop, kill."""

    def __init__(self, processes, name, argv, user=None):
        self.processes, self.name, self.user = processes, name, user
        # Neither service has any capability; the broker is root in name only.
        drop = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        if user:
            drop += [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        self.argv = drop + argv
        self.notify = None
        self.starts = 0
        self.listener = None

    def listen(self, path):
        """The socket unit: made once, kept over restarts."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(128)
        os.chown(path, 0, grp.getgrnam(USER).gr_gid)
        os.chmod(path, 0o660)

    def start(self):
        """Starts it and waits until it says that it is ready."""
        self.starts += 1
        self.notify = Notify(f"/run/notify-{self.name}-{self.starts}")
        env = {"NOTIFY_SOCKET": self.notify.path, "WATCHDOG_USEC": str(WATCHDOG_MICROSECONDS)}
        argv, before = self.argv, None
        if self.listener:
            # The process must know its own id: a shell writes it down and becomes the service.
            argv = ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=pve.sock exec "$@"', "sh", *argv]
            number = self.listener.fileno()

            def before():
                os.dup2(number, 3)
                os.set_inheritable(3, True)

        self.processes.start(self.name, argv, env=env, before=before)
        until(READY_SECONDS, f"{self.name} is ready", self._ready)

    def _ready(self):
        self.processes.check()
        return self.notify.ready

    def stop(self):
        """As systemctl stop."""
        return self.processes.stop(self.name)

    def kill(self):
        """As a power cut."""
        return self.processes.stop(self.name, signal.SIGKILL)

    def log(self):
        """All it has said."""
        return self.processes.read_log(self.name)
