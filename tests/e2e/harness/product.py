"""The product in the arena: simulator in PVE's place, broker, daemon, configuration."""

import json
import os
import shutil
import urllib.error
import urllib.request

from . import guests, service
from .processes import run
from .pve import Pve
from .until import NotYet, until

PVE_ROOT = os.path.join(os.path.dirname(guests.GUEST), "pve-root")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(guests.GUEST)))
# Where pveproxy would listen, and the name of the host that the arena is.
PVE_ADDRESS = "127.0.0.1:8006"
HOST = "pve1"
# root@pam's password in the simulator's default world.
PASSWORD = "simulated"
BINARY = "/usr/bin/pve-autoscaler"
CONFIG = "/etc/pve-autoscaler.toml"
KUBECONFIG = "/etc/pve-autoscaler/kubeconfig"
WEB = "http://127.0.0.1:9808"

ANSWER_SECONDS = 20
COMMAND_SECONDS = 30


class Product:
    """Everything of ours that runs, and how it is asked."""

    def __init__(self, built, directory, components, plane, processes):
        self.built, self.directory = built, directory
        self.components, self.plane, self.processes = components, plane, processes
        self.faults = os.path.join(directory, "faults")
        self.pve = None
        self.broker = service.Service(processes, "broker", [BINARY, "broker"])
        self.daemon = service.Service(processes, "daemon", [BINARY, "run"], user=service.USER)

    def install(self):
        """A host as it is after the package was installed and the simulator serves its API."""
        root = os.path.join(self.directory, "pve-root")
        run([os.path.join(PVE_ROOT, "mount"), root, HOST, PVE_ADDRESS, PASSWORD], COMMAND_SECONDS)
        service.make_user()
        shutil.copy(self.built, BINARY)
        self.start_simulator()
        self.pve = Pve(PVE_ADDRESS, "/etc/pve/pve-root-ca.pem", PASSWORD)
        until(ANSWER_SECONDS, "the simulator answers", self._simulator_answers)

    def start_simulator(self):
        """`sim pve`, with the host's certificate and real guests."""
        vms = os.path.join(self.directory, "vms")
        os.makedirs(vms, exist_ok=True)
        argv = [BINARY, "sim", "pve", "--listen", PVE_ADDRESS]
        argv += ["--tls-cert", "/etc/pve/local/pve-ssl.pem", "--tls-key", "/etc/pve/local/pve-ssl.key"]
        argv += ["--guest-program", guests.GUEST, "--guest-dir", vms]
        self.processes.start("sim-pve", argv, env=guests.environment(self.components, self.directory))

    def _simulator_answers(self):
        self.processes.check()
        try:
            return self.pve.get("/version")
        except OSError as error:
            raise NotYet(error) from error

    def credentials(self):
        """The manifest of the package, and the kubeconfig that the command makes of it."""
        if not os.path.exists(os.path.join(REPOSITORY, "contrib/kubernetes")):
            shutil.copy(self.plane.kubeconfig("super-admin"), KUBECONFIG)
            shutil.chown(KUBECONFIG, "root", service.USER)
            os.chmod(KUBECONFIG, 0o640)
            return
        self.plane.kube.apply(os.path.join(REPOSITORY, "contrib/kubernetes/rbac.yaml"))
        admin = self.plane.kubeconfig("super-admin")
        argv = [BINARY, "kubeconfig", "--kubeconfig", admin, "--output", KUBECONFIG]
        run(argv, COMMAND_SECONDS)
        shutil.chown(KUBECONFIG, "root", service.USER)
        os.chmod(KUBECONFIG, 0o640)

    def configure(self, text):
        """Writes the configuration and lets the product's own check read it."""
        with open(CONFIG, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(CONFIG, 0o644)
        run([BINARY, "check"], COMMAND_SECONDS)

    def start(self):
        """The broker behind its socket, then the daemon."""
        self.broker.listen(service.SOCKET)
        self.broker.start()
        self.daemon.start()
        until(ANSWER_SECONDS, "/readyz", self.is_ready)

    def is_ready(self):
        """Whether the daemon says that it can work."""
        try:
            return self.web("/readyz")
        except urllib.error.HTTPError as error:
            raise NotYet(f"{error.code} {error.read().decode(errors='replace')}") from error
        except OSError as error:
            raise NotYet(error) from error

    def web(self, path):
        """What the daemon's web server says."""
        with urllib.request.urlopen(WEB + path, timeout=ANSWER_SECONDS) as answer:
            return answer.read().decode()

    def ask(self, *arguments):
        """One of the product's commands, as JSON."""
        return json.loads(run([BINARY, *arguments, "-o", "json"], COMMAND_SECONDS).stdout)

    def fail_guests(self, lines):
        """Which guests shall fail from now on, and how (guest.d/init)."""
        with open(self.faults, "w", encoding="utf-8") as file:
            file.write(lines)
