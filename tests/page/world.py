"""The programs that serve the page: the demo, and the daemon between two simulators."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from urllib.request import Request, urlopen

from between import Between, of_folder
from browser import free_port, until

SECRET = "00000000-0000-4000-8000-000000000001"
ADMIN = "sim-admin-token"
PASSWORD = "correct horse battery"
# Where the page's files are taken from; None: from the program, where they are.
FILES = None
# Pods that no node and no pool takes, unless the test says another number.
WAITING = 20


def served(url, certificate=None):
    """Where the browser finds the page that is at `url`, and what stands between the two."""
    if FILES is None:
        return url, None
    between = Between(url, of_folder(FILES), certificate)
    return between.url, between


class Program:
    """A program and what it says, ended with the test."""

    def __init__(self, *arguments, log=None):
        self.said = []
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=log or subprocess.STDOUT, text=True,
                                        env={**os.environ, "NOTIFY_SOCKET": ""})
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.said.append(line.rstrip())

    def words(self, pattern, seconds=60):
        """What a line of it says, by a regular expression with one group."""
        def look():
            if self.process.poll() is not None:
                raise SystemExit(f"page: {self.process.args} ended: {self.said[-20:]}")
            found = (re.search(pattern, line) for line in self.said)
            return next((match.group(1) for match in found if match), None)
        return until(f"{pattern} of {self.process.args[:3]}", look, seconds)

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Demo(Program):
    """The demo, which serves the page of a simulated cluster."""

    def __init__(self, binary, speed, users=None):
        login = ["--users", users] if users else []
        super().__init__(binary, "demo", "--speed", str(speed), "--page", "127.0.0.1:0", *login)
        self.binary = binary
        # It is the program itself.
        self.daemon = None
        self.url, self.between = served(self.words(r"The page: (http://\S+)"))
        self.socket = self.words(r" status --socket (\S+)")

    def end(self, how=signal.SIGTERM):
        super().end(how)
        if self.between:
            self.between.end()

    def command(self, *arguments):
        subprocess.run([self.binary, *arguments, "--socket", self.socket], check=True, stdout=subprocess.DEVNULL, timeout=60)


class Installation:
    """The daemon as it is installed, between simulators with so many nodes and pods, of which so many wait."""

    def __init__(self, binary, nodes, pods, waiting=WAITING, closed=False):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory(prefix="page-test-")
        self.path = lambda name: os.path.join(self.folder.name, name)
        self.pve = Program(binary, "sim", "pve", "--listen", "127.0.0.1:0")
        kube = f"127.0.0.1:{free_port()}"
        self.kube = Program(binary, "sim", "kube", "--plain", "--listen", kube, "--kubeconfig", self.path("kubeconfig"))
        endpoint = self.endpoint = self.pve.words(r"(https?://\S+)")
        fingerprint = self.pve.words(r"((?:[0-9A-F]{2}:){31}[0-9A-F]{2})")
        until("the kubeconfig", lambda: os.path.exists(self.path("kubeconfig")))
        self.address = kube
        self.port = free_port()
        fill(kube, nodes, pods, waiting)
        with open(self.path("secret"), "w", encoding="utf-8") as file:
            file.write(SECRET)
        with open(self.path("config.toml"), "w", encoding="utf-8") as file:
            file.write(f"""version = 1
[kubernetes]
kubeconfig = "{self.path('kubeconfig')}"
[proxmox]
channel = "token"
endpoints = ["{endpoint}"]
token_id = "scaler@pve!sim"
token_secret_file = "{self.path('secret')}"
fingerprint = "{fingerprint}"
vmids = "9100-9120"
[template.debian]
vm_name = "debian-13-k8s"
[instance_type.small]
cores = 2
memory = "4GiB"
disk = "20GiB"
[pool.general]
template = "debian"
instance_types = ["small"]
max = 2
[web]
listen = "127.0.0.1:{self.port}"
{self.close() if closed else ""}
""")
        self.url, self.between = served(f"{'https' if closed else 'http'}://127.0.0.1:{self.port}/",
                                        (self.path("tls.pem"), self.path("tls.key")))
        self.daemon = None
        self.start()

    def close(self):
        """A certificate, and one person who may log in: the keys for the configuration."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "30", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", self.path("tls.key"), "-out", self.path("tls.pem")], check=True, stderr=subprocess.DEVNULL)
        os.chmod(self.path("tls.key"), 0o600)
        self.password("ann", PASSWORD)
        return f"""tls_certificate = "{self.path('tls.pem')}"
tls_key = "{self.path('tls.key')}"
users_file = "{self.path('users')}"
"""

    def pod(self, name, cpu):
        """A pod that waits for a node."""
        way = http.client.HTTPConnection(self.address, timeout=60)
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeSelector": {"pve-autoscaler.io/pool": "general"}, "containers": [container]}}
        way.request("POST", "/api/v1/namespaces/default/pods", json.dumps(body),
                    {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"})
        answer = way.getresponse()
        if answer.status >= 300:
            raise SystemExit(f"page: the pod {name}: {answer.status} {answer.read()[:300]}")

    def administer(self, act):
        """What an administrator of the simulated PVE does, as `POST /sim/act` takes it."""
        request = Request(f"{self.endpoint}/sim/act", json.dumps(act).encode(), {"content-type": "application/json"}, method="POST")
        # The simulator's certificate is signed by nobody.
        with urlopen(request, timeout=60, context=ssl._create_unverified_context()) as answer:
            answer.read()

    def gone(self, path):
        """Deletes something of the namespace `default`, such as `pods/NAME`."""
        way = http.client.HTTPConnection(self.address, timeout=60)
        way.request("DELETE", f"/api/v1/namespaces/default/{path}?gracePeriodSeconds=0", headers={"authorization": f"Bearer {ADMIN}"})
        answer = way.getresponse()
        if answer.status >= 300:
            raise SystemExit(f"page: {path} cannot be deleted: {answer.status} {answer.read()[:300]}")

    def password(self, name, password):
        set_password(self.binary, self.path("users"), name, password)

    def start(self):
        self.daemon = Program(self.binary, "--config", self.path("config.toml"), "run",
                              "--state-directory", self.path("state"), "--control-socket", self.path("control.sock"))

    def command(self, *arguments):
        """A command to the daemon; it may still be on its way up."""
        typed = [self.binary, *arguments, "--socket", self.path("control.sock")]
        until(f"{arguments} is done", lambda: subprocess.run(typed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                                             check=False, timeout=60).returncode == 0)

    def end(self):
        for program in [self.daemon, self.kube, self.pve]:
            program.end()
        if self.between:
            self.between.end()
        self.folder.cleanup()


def set_password(binary, users, name, password):
    """Lets somebody log in who knows the password."""
    subprocess.run([binary, "web-password", name, "--file", users], input=password, text=True, check=True,
                   stdout=subprocess.DEVNULL, timeout=60)


def fill(address, nodes, pods, waiting):
    """Nodes that are Ready, pods on them, and some that wait: the last ones, for the simulated scheduler tries them again with every
    change."""
    local = threading.local()

    def send(method, path, body, kind="application/json"):
        if not hasattr(local, "way"):
            local.way = http.client.HTTPConnection(address, timeout=60)
        local.way.request(method, path, json.dumps(body),
                          {"authorization": f"Bearer {ADMIN}", "content-type": kind})
        answer = local.way.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"page: {method} {path}: {answer.status} {said[:300]}")

    def node(number):
        name = f"node-{number:03}"
        send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        size = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x",
                 "lastTransitionTime": now, "lastHeartbeatTime": now}
        send("PATCH", f"/api/v1/nodes/{name}/status",
             {"status": {"capacity": size, "allocatable": size, "conditions": [ready]}}, "application/merge-patch+json")

    def pod(number):
        waits = number >= pods - waiting
        place = {} if waits else {"nodeName": f"node-{number % nodes:03}"}
        cpu = "64" if waits else "250m"
        send("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"pod-{number:04}", "namespace": "default", "labels": {"app": "many"}},
            "spec": {**place, "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}]},
        })

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(node, range(nodes)))
        list(pool.map(pod, range(pods)))


def ready(world):
    """Whether the daemon has seen the cluster."""
    with urlopen(f"{world.url}metrics", timeout=5) as answer:
        return b'cluster_autoscaler_nodes_count{state="' in answer.read()
