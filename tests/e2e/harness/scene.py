"""What every story of the product begins and ends with."""

import contextlib
import os

from . import workloads
from .controlplane import ControlPlane
from .processes import Processes
from .product import Product
from .until import NotYet, expect, say

APPS = "/apis/apps/v1/namespaces/default"
# How much of the daemon's log is shown when a story fails.
LOG_LINES = 60


class Scene:
    """A control plane, a simulated PVE, broker and daemon; and how a story moves in it."""

    def __init__(self, components, directory, binary):
        self.processes = Processes(os.path.join(directory, "logs"))
        self.plane = ControlPlane(components, os.path.join(directory, "control-plane"), self.processes)
        self.product = Product(binary, directory, components, self.plane, self.processes)
        self.kube, self.pve, self.foreign = None, None, None

    @contextlib.contextmanager
    def told(self):
        """Around a story: when it fails, what can be seen then is said; all processes end in any case."""
        try:
            yield
        except Exception:
            try:
                self.say_what_is_seen()
            except Exception as error:  # pylint: disable=broad-except
                say(f"what is there cannot be seen: {error}")
            raise
        finally:
            self.processes.stop_all()

    def say_what_is_seen(self):
        """Nodes, pods that do not run, machines, and the end of the daemon's log."""
        for name, node in self.kube.nodes().items():
            ready = [c["status"] for c in node["status"].get("conditions", []) if c["type"] == "Ready"]
            taints = [taint["key"] for taint in node["spec"].get("taints", [])]
            say(f"node {name}: Ready {ready}, taints {taints}, allocatable {node['status'].get('allocatable')}")
        for pod in self.kube.pods():
            status = pod["status"]
            if status["phase"] == "Running":
                say(f"pod {pod['metadata']['name']}: runs on {pod['spec'].get('nodeName')}")
                continue
            why = [c.get("message", "") for c in status.get("conditions", []) if c["type"] == "PodScheduled"]
            nominated = status.get("nominatedNodeName")
            say(f"pod {pod['metadata']['name']}: {status['phase']} on {pod['spec'].get('nodeName')}, nominated {nominated}, {why}")
        for vmid, machine in self.pve.machines().items():
            say(f"machine {vmid}: {machine['name']} on {machine['host']}")
        say("the daemon's log ends with:\n" + "\n".join(self.product.daemon.log().splitlines()[-LOG_LINES:]))

    def set(self, config, faults, answers=None):
        """Everything up, the daemon ready; `faults` as in guest.d/init. With answers, `setup` is the way there."""
        self.plane.start()
        self.kube = self.plane.kube
        for token in self.kube.bootstrap_tokens():
            self.kube.delete(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token}")
        self.product.install()
        self.pve = self.product.pve
        self.foreign = self.foreign_machines()
        if answers is None:
            self.product.credentials()
        else:
            self.product.set_up(answers)
            say("setup made credentials and a configuration, and has nothing to do again")
        self.product.configure(config)
        self.product.fail_guests(faults)
        self.product.start()
        say("daemon and broker are up")

    def end(self):
        """The services end well, nothing of ours is left, and what was not ours is as it was."""
        expect(not self.pve.machines(), f"machines are left: {self.pve.machines()}")
        expect(not self.kube.bootstrap_tokens(), f"bootstrap tokens are left: {self.kube.bootstrap_tokens()}")
        expect(self.foreign_machines() == self.foreign, "a VM that is not ours was changed")
        expect(self.product.daemon.stop() == 0, "the daemon did not end well")
        expect(self.product.broker.stop() == 0, "the broker did not end well")

    def foreign_machines(self):
        """Name and digest of every VM that is not ours."""
        ours = self.pve.machines()
        found = {}
        for vm in self.pve.get("/cluster/resources", type="vm"):
            if vm["vmid"] not in ours and vm["type"] == "qemu":
                config = self.pve.get(f"/nodes/{vm['node']}/qemu/{vm['vmid']}/config")
                found[vm["vmid"]] = (config["name"], config["digest"], vm["status"])
        return found

    def deploy(self, name, replicas, spec):
        """Makes a Deployment."""
        self.kube.create(f"{APPS}/deployments", workloads.deployment(name, replicas, spec))

    def remove(self, *names):
        """Deletes Deployments."""
        for name in names:
            self.kube.delete(f"{APPS}/deployments/{name}")

    def running(self, **replicas):
        """Whether each app's pods run, all of them."""
        self.processes.check()
        for app, count in replicas.items():
            pods = [pod for pod in self.kube.pods(app=app) if "deletionTimestamp" not in pod["metadata"]]
            phases = [pod["status"]["phase"] for pod in pods]
            if phases != ["Running"] * count:
                raise NotYet(f"{app}: {phases}")
        return True

    def machines(self, pool):
        """The names of a pool's machines, by what PVE shows."""
        return sorted(m["name"] for m in self.pve.machines().values() if m["mark"]["pool"] == pool)

    def nodes(self, pool):
        """The names of a pool's nodes."""
        return sorted(
            name
            for name, node in self.kube.nodes().items()
            if node["metadata"]["labels"].get(workloads.POOL_LABEL) == pool
        )
