#!/usr/bin/env python3
"""The pieces of the end-to-end test, proved without the product.

A real control plane comes up; guests are started by hand, joined by the real
kubeadm with a bootstrap token, become Ready nodes that are what their VM is;
the real scheduler's pods run there; a node goes again. One guest's join fails
with kubeadm's own words. And the fence holds: the machine's files, mounts,
processes and links are afterwards what they were before.

Run in the arena: tests/e2e/arena tests/e2e/pieces.py COMPONENTS DIRECTORY
"""

import base64
import datetime
import hashlib
import json
import os
import sys

from harness import fence, workloads
from harness.controlplane import SYSTEM_RESERVED, ControlPlane, SERVER
from harness.guests import Guest
from harness.kube import Status, is_ready
from harness.processes import Processes, run
from harness.until import Failed, expect, say, until

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/controller/guest")

BOOT_SECONDS = 30
JOIN_SECONDS = 60
READY_SECONDS = 60
RUNNING_SECONDS = 60
GONE_SECONDS = 60

STARTUP_TAINT = {"key": "example.test/starting", "value": "", "effect": "NoSchedule"}
# The kubelet's default hard eviction threshold for memory.
EVICTION_BYTES = 100 << 20
RESERVED_BYTES = int(SYSTEM_RESERVED["memory"].removesuffix("Mi")) << 20


def ca_hash(plane):
    """kubeadm's discovery hash: SHA-256 of the CA's public key."""
    pem = run(["openssl", "x509", "-in", f"{plane.pki}/ca.crt", "-noout", "-pubkey"], 10).stdout
    body = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    return "sha256:" + hashlib.sha256(base64.b64decode(body)).hexdigest()


def make_token(kube, token_id, token_secret):
    """A bootstrap token for one join, and cluster-info signed with it."""
    expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=15)
    kube.create(
        "/api/v1/namespaces/kube-system/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{token_id}"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": token_id,
                "token-secret": token_secret,
                "expiration": expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
            },
        },
    )
    return f"{token_id}.{token_secret}"


def join_configuration(plane, token, pool):
    """What the product puts into a guest."""
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": token,
                "apiServerEndpoint": SERVER.removeprefix("https://"),
                "caCertHashes": [ca_hash(plane)],
            }
        },
        "nodeRegistration": {
            "kubeletExtraArgs": [{"name": "node-labels", "value": f"example.test/pool={pool}"}],
            "taints": [STARTUP_TAINT],
        },
    }


def script(guest, verb, stdin=None):
    """Runs one of the product's guest scripts as its daemon does; returns what it says."""
    with open(os.path.join(SCRIPTS, f"{verb}.sh"), encoding="utf-8") as file:
        text = file.read()
    said = guest.exec("/bin/sh", "-c", text, "pve-autoscaler", stdin=stdin).stdout
    head, _, log = said.partition("---\n")
    values = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    return values, log


def join(plane, guest, token_id):
    """Joins a booted guest with the product's own scripts; returns kubeadm's exit code and log."""
    token = make_token(plane.kube, token_id, "0123456789abcdef")
    configuration = json.dumps(join_configuration(plane, token, "pieces"))
    path = "/run/pve-autoscaler/files/join.json"
    encoded = [base64.b64encode(text.encode()).decode() for text in (configuration, f"kubeadm join --config {path}\n")]
    payload = f"file 0600 {path} {encoded[0]}\nrun {encoded[1]}\n"
    until(BOOT_SECONDS, "the guest has booted", lambda: script(guest, "probe")[0]["cloud_init"] == "done")
    values, _ = script(guest, "probe")
    expect(values["system"] == "running", f"probe: {values}")
    expect(values["kubeadm"] == plane.version(), f"probe: {values}")
    values, _ = script(guest, "join", stdin=payload)
    expect(values["state"] == "started", f"join: {values}")
    again, _ = script(guest, "join", stdin=payload)
    expect(again["state"] != "started", f"a second join was started: {again}")

    def ended():
        values, log = script(guest, "state")
        return (int(values["exit"]), log) if values["state"] == "exited" else None

    return until(JOIN_SECONDS, "kubeadm join ends", ended)


def check_identity(kube, guest):
    """The node is the VM: identity, size, labels, taints."""
    node = kube.get(f"/api/v1/nodes/{guest.name}")
    info, status = node["status"]["nodeInfo"], node["status"]
    expect(info["systemUUID"] == guest.uuid, f"systemUUID {info['systemUUID']}, the VM has {guest.uuid}")
    expect(status["capacity"]["cpu"] == str(guest.cores), f"cpu {status['capacity']['cpu']}")
    memory = guest.memtotal_bytes()
    expect(memory < guest.memory_mib << 20, "the guest's kernel keeps nothing for itself")
    expect(quantity(status["capacity"]["memory"]) == memory, f"memory {status['capacity']['memory']}, not {memory}")
    allocatable = quantity(status["allocatable"]["memory"])
    expect(
        allocatable == memory - RESERVED_BYTES - EVICTION_BYTES,
        f"allocatable memory {allocatable} of {memory}",
    )
    expect(node["metadata"]["labels"].get("example.test/pool") == "pieces", "the label did not come with the join")
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    expect(STARTUP_TAINT["key"] in taints, f"the startup taint did not come with the join: {taints}")


def quantity(text):
    """A memory quantity in bytes."""
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)


def good_guest(plane, guest, token_id):
    """One guest's life, by hand."""
    kube = plane.kube
    guest.verb("start")
    guest.verb("ping")
    code, log = join(plane, guest, token_id)
    expect(code == 0, f"kubeadm join: {code}\n{log}")
    say(f"{guest.name} joined")

    def ready():
        node = kube.get(f"/api/v1/nodes/{guest.name}")
        return node and is_ready(node)

    until(READY_SECONDS, f"{guest.name} is Ready", ready)
    say(f"{guest.name} is Ready")
    check_identity(kube, guest)


def pods_run(kube, guests):
    """Pods wait for the startup taint to go, then run on the nodes."""
    kube.create("/apis/apps/v1/namespaces/default/deployments", workloads.deployment("web", 4, workloads.pod_spec("100m", "64Mi")))
    kube.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", workloads.budget("web", "web", 4))
    for guest in guests:
        kube.merge(f"/api/v1/nodes/{guest.name}", {"spec": {"taints": []}})

    def running():
        pods = kube.pods(app="web")
        return len(pods) == 4 and all(pod["status"]["phase"] == "Running" for pod in pods)

    until(RUNNING_SECONDS, "four pods run", running)
    say("pods run, bound by the real scheduler")
    pod = kube.pods(app="web")[0]["metadata"]["name"]
    try:
        kube.evict("default", pod)
        raise Failed("an eviction passed the disruption budget")
    except Status as status:
        expect(status.code == 429, f"eviction: {status}")
    kube.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
    kube.evict("default", pod)
    kube.delete("/apis/apps/v1/namespaces/default/deployments/web")
    until(GONE_SECONDS, "the pods are gone", lambda: not kube.pods(app="web"))
    say("a budget held a pod, then the pods went")


def failing_guest(plane, directory, components):
    """A join that fails says why in kubeadm's own words."""
    guest = Guest(directory, components, 9003, "broken-1", "6d6f2b1c-3333-4222-8333-444455556666", 2, 2048)
    with open(guest.env["GUEST_FAULTS"], "w", encoding="utf-8") as file:
        file.write("broken-* dirty-template\n")
    guest.verb("start")
    code, log = join(plane, guest, "cccccc")
    expect(code != 0, "a dirty template joined")
    expect("ca.crt already exists" in log, f"kubeadm said: {log}")
    expect(plane.kube.get("/api/v1/nodes/broken-1") is None, "a failed join left a node")
    guest.verb("stop")
    say("a dirty template does not join, and kubeadm says why")


def tell(components, directory):
    """The whole story."""
    processes = Processes(os.path.join(directory, "logs"))
    try:
        plane = ControlPlane(components, os.path.join(directory, "control-plane"), processes)
        plane.start()
        before = fence.files(), fence.mounts(), fence.links(), set(fence.processes())
        sizes = ((9001, "pieces-a", 2, 2048), (9002, "pieces-b", 4, 4096))
        guests = [
            Guest(directory, components, vmid, name, f"6d6f2b1c-{vmid}-4222-8333-444455556666", cores, memory)
            for vmid, name, cores, memory in sizes
        ]
        for guest, token_id in zip(guests, ("aaaaaa", "bbbbbb")):
            good_guest(plane, guest, token_id)
        pods_run(plane.kube, guests)
        failing_guest(plane, directory, components)
        plane.kube.delete(f"/api/v1/nodes/{guests[0].name}")
        guests[0].verb("shutdown")
        guests[1].verb("stop")
        guests[1].verb("stop")
        check_fence(before)
    finally:
        processes.stop_all()


def check_fence(before):
    """Nothing of the guests is left, and they changed nothing."""
    files, mounts, links, processes = before
    changed = fence.difference(files, fence.files())
    expect(not changed, "a guest changed the machine's files:\n" + "\n".join(changed[:20]))
    expect(fence.mounts() == mounts, "a guest left a mount")
    expect(fence.links() == links, f"a guest left a link: {fence.links()}")
    left = {pid: command for pid, command in fence.processes().items() if pid not in processes}
    expect(not left, f"a guest left processes: {left}")
    say("the fence held")


if __name__ == "__main__":
    tell(*map(os.path.abspath, sys.argv[1:3]))
    say("pieces: good")
