#!/usr/bin/env python3
"""The story of the product: pending pods become nodes, idle nodes go.

The real daemon and broker, the simulator as the PVE host under them, real
Kubernetes components, guests that really run the join they are told to.
Everything is looked at through the real API server and PVE's API.

Run in the arena: tests/e2e/arena tests/e2e/story.py COMPONENTS DIRECTORY BINARY
"""

import os
import sys

from harness import workloads
from harness.kube import is_ready
from harness.scene import APPS, Scene
from harness.until import NotYet, expect, holds, say, until
from harness.workloads import POOL_LABEL

CONFIG = """
version = 1

[kubernetes]
kubeconfig = "/etc/pve-autoscaler/kubeconfig"
name = "e2e"

[proxmox]
channel = "local"
vmids = "5000-5099"
poll = "5s"

[template.debian]
vmid = 9000

[instance_type.small]
cores = 2
memory = "2GiB"
disk = "10GiB"

[instance_type.big]
cores = 4
memory = "4GiB"
disk = "12GiB"

[pool.small]
template = "debian"
instance_types = ["small"]
max = 4
reserved = { cpu = "100m", memory = "128MiB" }
drain = { shutdown_timeout = "20s" }

[pool.big]
template = "debian"
instance_types = ["big"]
max = 2
taints = ["dedicated=big:NoSchedule"]
reserved = { cpu = "100m", memory = "128MiB" }
drain = { shutdown_timeout = "20s" }

[scale_up]
initial_backoff = "15s"

[scale_down]
unneeded_time = "10s"
delay_after_add = "10s"
delay_after_failure = "10s"
min_node_age = "10s"
"""

# What a person answers who has a template.
ANSWERS = """
[proxmox]
vmids = "5000-5099"

[template]
vmid = 9000

[pool]
name = "small"
max = 4
"""

DEDICATED = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]
EVERYWHERE = [{"operator": "Exists"}]
STARTUP_TAINT = "pve-autoscaler.io/uninitialized"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

# From a pod to a Ready node takes about 15 s when the machine is idle.
NODES_SECONDS = 150
# Noticing, waiting unneeded, draining, shutting down, destroying.
REMOVAL_SECONDS = 150
TOKEN_SECONDS = 60
# Long enough for a node that could go to have gone.
HELD_SECONDS = 30


class Story(Scene):
    """The steps, in their order."""

    def tell(self):
        """All of it."""
        with self.told():
            self.set(CONFIG, faults="big-* dirty-template\n", answers=ANSWERS)
            self.workload_arrives()
            self.join_fails_and_is_cleaned_up()
            self.nodes_are_what_they_should_be()
            self.budget_holds_a_node()
            self.everything_goes()

    def workload_arrives(self):
        """Pods for two small nodes and a big one."""
        daemons = workloads.pod_spec("50m", "32Mi", tolerations=EVERYWHERE)
        self.kube.create(f"{APPS}/daemonsets", workloads.daemon_set("everywhere", daemons))
        web = workloads.pod_spec("850m", "256Mi", node_selector={POOL_LABEL: "small"})
        self.deploy("web", 4, web)
        heavy = workloads.pod_spec("3", "2Gi", node_selector={POOL_LABEL: "big"}, tolerations=DEDICATED)
        self.deploy("heavy", 1, heavy)
        until(NODES_SECONDS, "three machines are being made", lambda: len(self.pve.machines()) >= 3)
        say("three machines are being made; the daemon dies of a power cut")
        self.product.daemon.kill()
        self.product.daemon.start()

    def join_fails_and_is_cleaned_up(self):
        """The first big machine's join fails: kubeadm's words are told, the VM goes, the next one comes."""
        words = "ca.crt already exists"
        until(NODES_SECONDS, "kubeadm's words in an Event", lambda: any(words in event[2] for event in self.kube.events()))
        expect(words in self.product.daemon.log(), "kubeadm's words are not in the daemon's log")
        broken = [vmid for vmid, machine in self.pve.machines().items() if machine["mark"]["pool"] == "big"]
        self.product.fail_guests("")
        until(REMOVAL_SECONDS, "the broken machine is gone", lambda: not set(broken) & self.pve.vmids())
        say("a join failed, was told, and was cleaned up")
        until(NODES_SECONDS, "all pods run", lambda: self.running(web=4, heavy=1))
        say("all pods run")

    def nodes_are_what_they_should_be(self):
        """As many nodes as were needed, each the machine it stands for."""
        machines = {machine["name"]: (vmid, machine) for vmid, machine in self.pve.machines().items()}
        nodes = self.kube.nodes()
        expect(set(nodes) == set(machines), f"nodes {sorted(nodes)}, machines {sorted(machines)}")
        pools = sorted(machine["mark"]["pool"] for _, machine in machines.values())
        expect(pools == ["big", "small", "small"], f"pools of the machines: {pools}")
        until(TOKEN_SECONDS, "the bootstrap tokens are gone", lambda: not self.kube.bootstrap_tokens())
        for name, node in self.kube.nodes().items():
            vmid, machine = machines[name]
            self.check_node(node, vmid, machine)
        requests = self.kube.items("/apis/certificates.k8s.io/v1/certificatesigningrequests")
        users = [request["spec"]["username"] for request in requests]
        bootstrapped = [user for user in users if user.startswith("system:bootstrap:")]
        expect(len(bootstrapped) >= 3, f"certificates were asked for by {users}")
        reasons = {reason for reason, _, _ in self.kube.events()}
        expect("TriggeredScaleUp" in reasons, f"events: {reasons}")
        status = self.kube.get("/api/v1/namespaces/kube-system/configmaps/pve-autoscaler-status")
        expect(status and "status" in status["data"], "no status ConfigMap")
        expect("cluster_autoscaler_" in self.product.web("/metrics"), "no metrics")
        expect("pods are nominated for the node" in self.product.daemon.log(), "nobody was nominated")
        say("nodes are their machines, tokens are gone")

    def check_node(self, node, vmid, machine):
        """One node: identity, labels, taints, size."""
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        expect(is_ready(node), f"{name} is not Ready")
        uuid = node["status"]["nodeInfo"]["systemUUID"]
        expect(uuid == machine["uuid"], f"{name}: systemUUID {uuid}, the VM has {machine['uuid']}")
        pool = machine["mark"]["pool"]
        wanted = {
            POOL_LABEL: pool,
            "node.kubernetes.io/instance-type": pool,
            "topology.kubernetes.io/zone": machine["host"],
            "topology.kubernetes.io/region": "default",
        }
        got = {key: labels.get(key) for key in wanted}
        expect(got == wanted, f"{name}: labels {got}, wanted {wanted}")
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        expect(STARTUP_TAINT not in taints, f"{name} still has its startup taint")
        expect(("dedicated" in taints) == (pool == "big"), f"{name}: taints {taints}")
        expect(node["status"]["capacity"]["cpu"] == str(machine["config"]["cores"]), f"{name}: cpu")
        annotation = node["metadata"]["annotations"].get("pve-autoscaler.io/machine")
        expect(annotation == f"default/{vmid}/{machine['uuid']}", f"{name}: annotation {annotation}")
        expect(5000 <= vmid <= 5099, f"{name}: VMID {vmid}")
        config = machine["config"]
        passed_on = {key: config.get(key) for key in ("onboot", "protection", "ciupgrade")}
        expect(all(str(value) in ("None", "0") for key, value in passed_on.items() if key != "ciupgrade"), f"{passed_on}")
        expect(str(passed_on["ciupgrade"]) == "0", f"{name}: ciupgrade {passed_on['ciupgrade']}")

    def budget_holds_a_node(self):
        """The workload ends; a pod under a budget keeps its node until the budget goes."""
        kept = workloads.pod_spec("100m", "64Mi", tolerations=DEDICATED, prefers={POOL_LABEL: "small"})
        self.kube.create(BUDGETS, workloads.budget("kept", "kept", 1))
        self.deploy("kept", 1, kept)
        node = until(NODES_SECONDS, "the kept pod runs", self.kept_runs_on)
        expect(node.startswith("small-"), f"the kept pod runs on {node}")
        self.remove("web")
        until(REMOVAL_SECONDS, "the empty small node is gone", lambda: len(self.pve.machines()) == 2)
        say("the empty node went")
        holds(HELD_SECONDS, "the budget holds its node", lambda: node in self.kube.nodes())
        expect(self.kept_runs_on() == node, "the kept pod moved")
        say("the budget held its node")
        self.kube.delete(f"{BUDGETS}/kept")
        until(REMOVAL_SECONDS, f"{node} is gone", lambda: node not in self.kube.nodes())
        until(REMOVAL_SECONDS, "its VM is gone", lambda: len(self.pve.machines()) == 1)
        moved = until(NODES_SECONDS, "the kept pod runs again", self.kept_runs_on)
        expect(moved.startswith("big-"), f"the kept pod moved to {moved}")
        say("without the budget its node was drained and went")

    def kept_runs_on(self):
        """The node of the kept pod, once it runs."""
        pods = [pod for pod in self.kube.pods(app="kept") if "deletionTimestamp" not in pod["metadata"]]
        if len(pods) == 1 and pods[0]["status"]["phase"] == "Running":
            return pods[0]["spec"]["nodeName"]
        raise NotYet([(pod["metadata"]["name"], pod["status"]["phase"]) for pod in pods])

    def everything_goes(self):
        """No pods, no nodes, no machines, no tokens; what was not ours is as it was."""
        self.remove("heavy", "kept")
        until(REMOVAL_SECONDS, "all nodes are gone", lambda: not self.kube.nodes())
        until(REMOVAL_SECONDS, "all machines are gone", lambda: not self.pve.machines())
        reasons = {reason for reason, _, _ in self.kube.events()}
        expect("ScaleDown" in reasons, f"events: {reasons}")
        self.end()
        say("everything went, and nothing else was touched")


if __name__ == "__main__":
    Story(*map(os.path.abspath, sys.argv[1:4])).tell()
    say("story: good")
