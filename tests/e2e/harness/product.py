"""The product in the arena: simulator in PVE's place, broker, daemon, configuration."""

import base64
import datetime
import grp
import json
import os
import pwd
import shutil
import stat
import urllib.error
import urllib.request

from . import guests, service
from .kube import Kube, Status
from .processes import run
from .pve import Pve
from .until import NotYet, expect, until

PVE_ROOT = os.path.join(os.path.dirname(guests.GUEST), "pve-root")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(guests.GUEST)))
# Where pveproxy would listen, and the name of the host that the arena is.
PVE_ADDRESS = "127.0.0.1:8006"
HOST = "pve1"
# root@pam's password in the simulator's default world.
PASSWORD = "simulated"
BINARY = "/usr/bin/pve-autoscaler"
# The program that the broker's unit runs; in the package it lies in /usr/libexec.
BROKER = "/usr/bin/pve-autoscaler-broker"
# What `pve-autoscaler sim` runs; it looks for it in its own folder first.
SIMULATOR = "/usr/bin/pve-autoscaler-simulator"
CONFIG = "/etc/pve-autoscaler.toml"
KUBECONFIG = "/etc/pve-autoscaler/kubeconfig"
WEB = "http://127.0.0.1:9808"

ANSWER_SECONDS = 20
COMMAND_SECONDS = 30
SETUP_SECONDS = 60


class Product:
    """Everything of ours that runs, and how it is asked."""

    def __init__(self, built, directory, components, plane, processes):
        self.built, self.directory = built, directory
        self.components, self.plane, self.processes = components, plane, processes
        self.faults = os.path.join(directory, "faults")
        self.pve = None
        self.broker = service.Service(processes, "broker", [BROKER])
        self.daemon = service.Service(processes, "daemon", [BINARY, "run"], user=service.USER)

    def install(self):
        """A host as it is after the package was installed and the simulator serves its API."""
        root = os.path.join(self.directory, "pve-root")
        run([os.path.join(PVE_ROOT, "mount"), root, HOST, PVE_ADDRESS, PASSWORD], COMMAND_SECONDS)
        service.make_user()
        shutil.copy(self.built, BINARY)
        shutil.copy(f"{self.built}-broker", BROKER)
        shutil.copy(f"{self.built}-simulator", SIMULATOR)
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
        """The daemon's kubeconfig, as the command makes it; the policy that holds it to tokens."""
        run([BINARY, "kubeconfig", "--kubeconfig", self.plane.kubeconfig("super-admin")], COMMAND_SECONDS)
        self.plane.kube.apply(os.path.join(REPOSITORY, "contrib/kubernetes/admission-policy.yaml"))
        self.look_at_credentials()

    def set_up(self, answers):
        """From nothing to a file, as `setup` makes it on a host of PVE: RBAC, policy, kubeconfig, configuration."""
        path = os.path.join(self.directory, "answers.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[kubernetes]\nkubeconfig = "{self.plane.kubeconfig("super-admin")}"\n{answers}')
        # There is no systemd in the arena; what it would be told is written down.
        told = os.path.join(self.directory, "systemctl.log")
        tools = os.path.join(self.directory, "tools")
        os.makedirs(tools, exist_ok=True)
        with open(os.path.join(tools, "systemctl"), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$*" >>"{told}"\n')
        os.chmod(os.path.join(tools, "systemctl"), 0o755)
        # As on a host that was booted by systemd and has the package.
        for folder in ("/run/systemd/system", "/etc/systemd/system"):
            os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(REPOSITORY, "systemd/pve-autoscaler.service"), "/etc/systemd/system")
        environment = {"PATH": f"{tools}:{os.environ['PATH']}"}

        def setup(*arguments):
            return run([BINARY, "setup", "--answers", path, *arguments], SETUP_SECONDS, env=environment).stdout

        shown = setup("--dry-run")
        expect(CONFIG in shown and "[pool.small]" in shown, f"a dry run shows {shown}")
        expect(not os.path.exists(CONFIG) and not os.path.exists(KUBECONFIG), "a dry run wrote files")
        expect(not os.path.exists(told), "a dry run told systemctl something")
        done = setup("--yes")
        with open(told, encoding="utf-8") as file:
            expect("enable --now" in file.read(), f"the service was not started: {done}")
        run([BINARY, "check"], COMMAND_SECONDS)
        self.look_at_credentials()
        # Nobody runs with the file yet: that alone is left to do.
        again = setup("--yes")
        expect("start the service now" in again and "write" not in again, f"the same answers before the start: {again}")
        self.start()
        again = setup("--yes")
        expect("Nothing is to be done" in again, f"the same answers again: {again}")
        expect(self.daemon.stop() == 0, "the daemon did not end well")
        expect(self.broker.stop() == 0, "the broker did not end well")

    def look_at_credentials(self):
        """Whose the kubeconfig is, and what it may do."""
        state = os.stat(KUBECONFIG)
        owner = pwd.getpwuid(state.st_uid).pw_name, grp.getgrgid(state.st_gid).gr_name
        expect(owner == ("root", service.USER), f"{KUBECONFIG} is of {owner}")
        expect(stat.S_IMODE(state.st_mode) == 0o640, f"{KUBECONFIG} has mode {state.st_mode:o}")
        until(ANSWER_SECONDS, "the admission policy holds", self._held_to_tokens)
        until(ANSWER_SECONDS, "tokens are short and for nodes", self._held_to_short_tokens)
        until(ANSWER_SECONDS, "only machines' Nodes can be changed", self._held_to_its_nodes)
        until(ANSWER_SECONDS, "pods can be nominated and nothing else", self._held_to_nominations)

    def _held_to_tokens(self):
        """Whether the daemon's credentials make and delete bootstrap tokens and no other Secret."""
        secrets = "/api/v1/namespaces/kube-system/secrets"
        admin, daemon = self.plane.kube, Kube(KUBECONFIG)
        for method, path in (("GET", secrets), ("GET", "/api/v1/configmaps"), ("DELETE", "/api/v1/namespaces/default/pods")):
            expect(refused(daemon, method, path), f"{method} {path} is allowed")
        plain = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap-token-plain"}, "type": "Opaque"}
        if not refused(daemon, "POST", secrets, plain):
            admin.delete(f"{secrets}/bootstrap-token-plain")
            raise NotYet("a Secret that is no token could be made")
        admin.create(secrets, plain)
        held = refused(daemon, "DELETE", f"{secrets}/bootstrap-token-plain")
        admin.delete(f"{secrets}/bootstrap-token-plain")
        return held

    def _held_to_short_tokens(self):
        """Whether the daemon's credentials make tokens as the daemon does, and no others."""
        secrets = "/api/v1/namespaces/kube-system/secrets"
        admin, daemon = self.plane.kube, Kube(KUBECONFIG)
        day = datetime.timedelta(days=1)
        group = "system:bootstrappers:kubeadm:default-node-token"
        bad = {
            "long": bootstrap_token("eeeee1", life=day),
            "endless": bootstrap_token("eeeee2", expiration=None),
            "of a group": bootstrap_token("eeeee3", **{"auth-extra-groups": group + ",system:bootstrappers:other"}),
            "of other use": bootstrap_token("eeeee4", **{"usage-other": "true"}),
        }
        for what, secret in bad.items():
            if not refused(daemon, "POST", secrets, secret):
                admin.delete(f"{secrets}/{secret['metadata']['name']}")
                raise NotYet(f"a token could be made that is {what}")
        good = bootstrap_token("eeeee5")
        daemon.create(secrets, good)
        daemon.delete(f"{secrets}/{good['metadata']['name']}")
        # Another's token stays: it has not our label.
        other = bootstrap_token("eeeee6")
        del other["metadata"]["labels"]
        admin.create(secrets, other)
        held = refused(daemon, "DELETE", f"{secrets}/{other['metadata']['name']}")
        admin.delete(f"{secrets}/{other['metadata']['name']}")
        return held

    def _held_to_its_nodes(self):
        """Whether the daemon's credentials change and delete Nodes of machines, and no others."""
        admin, daemon = self.plane.kube, Kube(KUBECONFIG)
        cordon = {"spec": {"unschedulable": True}}
        taint = {"spec": {"taints": [{"key": "example.test/other", "effect": "NoExecute"}]}}
        nodes = {
            "policy-others": {},
            "policy-machine": {"annotations": {"pve-autoscaler.io/machine": "default/9999/none"}},
        }
        for name, metadata in nodes.items():
            admin.delete(f"/api/v1/nodes/{name}")
            admin.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}})
        try:
            others, machine = (f"/api/v1/nodes/{name}" for name in nodes)
            annotation = {"metadata": nodes["policy-machine"]}
            for path, patch in ((others, cordon), (others, annotation), (machine, taint)):
                if not refused(daemon, "PATCH", path, patch, "application/merge-patch+json"):
                    raise NotYet(f"{path} took {patch}")
            if not refused(daemon, "DELETE", others):
                raise NotYet("somebody's Node could be deleted")
            daemon.merge(machine, cordon)
            daemon.call("DELETE", machine)
        finally:
            for name in nodes:
                admin.delete(f"/api/v1/nodes/{name}")
        return True

    def _held_to_nominations(self):
        """Whether the daemon's credentials nominate pods that wait, and change nothing else of any pod's status."""
        admin, daemon = self.plane.kube, Kube(KUBECONFIG)
        pods = "/api/v1/namespaces/default/pods"
        # Nobody schedules these: one waits behind a gate, one is bound to a node that is not there.
        specs = {"policy-waits": {"schedulingGates": [{"name": "example.test/gate"}]}, "policy-bound": {"nodeName": "policy-none"}}
        merge, field = "application/merge-patch+json", "/status/nominatedNodeName"
        try:
            for name, spec in specs.items():
                spec = {"containers": [{"name": "main", "image": "none"}], **spec}
                admin.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            waits, bound = (f"{pods}/{name}/status" for name in specs)
            nominate = {"status": {"nominatedNodeName": "policy-node"}}
            bad = (
                (waits, {"status": {"phase": "Running"}}),
                (waits, {"status": {"message": "changed", "nominatedNodeName": "policy-node"}}),
                (waits, {"status": {"conditions": None}}),
                (waits, {"metadata": {"labels": {"changed": "yes"}}}),
                (waits, {"metadata": {"annotations": {"changed": "yes"}}}),
                (bound, nominate),
            )
            for path, patch in bad:
                if not refused(daemon, "PATCH", path, patch, merge):
                    raise NotYet(f"{path} took {patch}")
            for what in (f"{pods}/policy-waits", f"{pods}/policy-bound"):
                expect(refused(daemon, "PATCH", what, {"metadata": {"labels": {"changed": "yes"}}}, merge), f"{what} took labels")
            # As the daemon does it.
            uid = admin.get(f"{pods}/policy-waits")["metadata"]["uid"]
            tests = [
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "test", "path": "/spec/nodeName", "value": None},
            ]
            add = tests + [{"op": "test", "path": field, "value": None}, {"op": "add", "path": field, "value": "policy-node"}]
            take = tests + [{"op": "test", "path": field, "value": "policy-node"}, {"op": "remove", "path": field}]
            daemon.call("PATCH", waits, add, "application/json-patch+json")
            try:
                daemon.call("PATCH", waits, add, "application/json-patch+json")
                expect(False, "a nomination was written over another")
            except Status as status:
                expect(status.code == 422, f"a failed test is {status.code}")
            other = {"status": {"nominatedNodeName": "policy-other"}}
            expect(refused(daemon, "PATCH", waits, other, merge), "the policy lets a nomination be replaced")
            answer = daemon.call("PATCH", waits, take, "application/json-patch+json")
            expect("nominatedNodeName" not in answer["status"], "the nomination was not taken back")
        finally:
            for name in specs:
                if admin.get(f"{pods}/{name}"):
                    admin.call("DELETE", f"{pods}/{name}", gracePeriodSeconds=0)
        return True

    def configure(self, text):
        """Writes the configuration and lets the product's own check read it."""
        with open(CONFIG, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(CONFIG, 0o644)
        run([BINARY, "check"], COMMAND_SECONDS)

    def start(self):
        """The broker behind its socket, then the daemon."""
        if self.broker.listener is None:
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


def bootstrap_token(token_id, life=datetime.timedelta(minutes=15), **data):
    """A Secret as the daemon makes it, with these data in the place of its own; `None` takes one away."""
    end = datetime.datetime.now(datetime.timezone.utc) + life
    whole = {
        "token-id": token_id,
        "token-secret": "0123456789abcdef",
        "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        **data,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"bootstrap-token-{token_id}",
            "labels": {"app.kubernetes.io/managed-by": "pve-autoscaler"},
        },
        "type": "bootstrap.kubernetes.io/token",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in whole.items() if value is not None},
    }


def refused(kube, method, path, body=None, content_type="application/json"):
    """Whether the API server forbids a request."""
    try:
        kube.call(method, path, body, content_type)
    except Status as status:
        expect(status.code in (403, 422), f"{method} {path}: {status}")
        return True
    return False
