#!/usr/bin/env python3
"""The product in trouble: what goes wrong in a cluster's life, with the real components.

An agent that never answers, a node smaller than was thought, an API server that
accepts and never answers, VMs and nodes removed by hand, a second daemon, a
broken configuration file.

Run in the arena: tests/e2e/arena tests/e2e/trouble.py COMPONENTS DIRECTORY BINARY
"""

import os
import signal
import sys

from harness import service, workloads
from harness.kube import is_ready
from harness.processes import run
from harness.product import BINARY, CONFIG as CONFIG_FILE
from harness.scene import Scene
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
vm_name = "debian-13-k8s"

[instance_type.small]
cores = 2
memory = "2GiB"

[pool.steady]
template = "debian"
instance_types = ["small"]
min = 1
max = 4
reserved = { cpu = "100m", memory = "128MiB" }
drain = { shutdown_timeout = "20s" }

# Its nodes are smaller than it says: the cluster's kubelets reserve 100m.
[pool.narrow]
template = "debian"
instance_types = ["small"]
max = 3
drain = { shutdown_timeout = "20s" }

[pool.mute]
template = "debian"
instance_types = ["small"]
max = 3

[scale_up]
initial_backoff = "5m"

[scale_down]
unneeded_time = "10s"
delay_after_add = "10s"
delay_after_failure = "5s"
min_node_age = "10s"
quarantine = "15s"

[lifecycle]
agent = "20s"
"""

# The daemon's next word.
ANSWER_SECONDS = 15
NODES_SECONDS = 120
REMOVAL_SECONDS = 120
# Longer than the product's patience with a call, and than its Lease.
HANG_SECONDS = 45
# A lease is taken over after 15 s of silence; a bound for everything that follows.
TAKEOVER_SECONDS = 90
# Long enough for something wrong to begin: the batch window and a clone.
WATCH_SECONDS = 20


class Trouble(Scene):
    """The troubles, in their order."""

    mark = 0

    def tell(self):
        """All of it."""
        with self.told():
            self.set(CONFIG, faults="mute-* no-agent\nsteady-* degraded\n")
            self.minimum_comes_up()
            self.agent_stays_mute_and_node_is_too_narrow()
            self.api_server_hangs()
            self.hands_remove_things()
            self.pause_and_second_daemon()
            self.configuration_breaks_and_mends()
            self.end()
            say("it came through")

    def pods_for(self, pool, cpu, memory="64Mi"):
        """A pod's spec that only a node of one pool can run."""
        return workloads.pod_spec(cpu, memory, node_selector={POOL_LABEL: pool})

    def minimum_comes_up(self):
        """The pool's one node comes without a pod; a degraded cloud-init is no failure."""
        until(NODES_SECONDS, "the minimum is Ready", lambda: self.ready_nodes("steady", 1))
        say("the minimum came up, with a degraded cloud-init")

    def ready_nodes(self, pool, count):
        """The pool's nodes, when they are so many and all Ready and in use. One that may go soon is in use, too."""
        self.processes.check()

        def is_held(taint):
            return taint["key"].startswith("pve-autoscaler.io/") and taint["effect"] != "PreferNoSchedule"

        nodes = {name: self.kube.nodes().get(name) for name in self.nodes(pool)}
        good = [
            name
            for name, node in nodes.items()
            if node and is_ready(node) and not any(map(is_held, node["spec"].get("taints", [])))
        ]
        if len(good) == count == len(nodes) == len(self.machines(pool)):
            return good
        raise NotYet(f"nodes {sorted(nodes)}, good {good}, machines {self.machines(pool)}")

    def agent_stays_mute_and_node_is_too_narrow(self):
        """A machine whose agent is silent is removed and not tried again at once; a pod that its node came
        up too small for gets that one node, and not another."""
        self.deploy("mute", 1, self.pods_for("mute", "100m"))
        self.deploy("narrow", 1, self.pods_for("narrow", "1950m"))
        mute = until(NODES_SECONDS, "a mute machine is made", lambda: self.machines("mute"))
        narrow = until(NODES_SECONDS, "a narrow machine is made", lambda: self.machines("narrow"))
        until(NODES_SECONDS, "the narrow node is Ready", lambda: self.ready_nodes("narrow", 1))
        say("the narrow node came, too small for its pod")
        until(REMOVAL_SECONDS, "the mute machine is gone", lambda: not self.machines("mute"))
        seen = set(narrow + mute)

        def no_other():
            seen.update(self.machines("narrow") + self.machines("mute"))
            return seen == set(narrow + mute)

        until(REMOVAL_SECONDS, "the narrow node is gone", lambda: no_other() and not self.nodes("narrow"))
        holds(WATCH_SECONDS, "no second node for the pod", no_other)
        pending = [pod["status"]["phase"] for pod in self.kube.pods(app="narrow") + self.kube.pods(app="mute")]
        expect(pending == ["Pending", "Pending"], f"pods: {pending}")
        reasons = {(reason, name) for reason, name, _ in self.kube.events()}
        narrow_pod = self.kube.pods(app="narrow")[0]["metadata"]["name"]
        expect(("NotTriggerScaleUp", narrow_pod) in reasons, f"no NotTriggerScaleUp for {narrow_pod}")
        self.remove("mute", "narrow")
        say("a mute machine was given up; no second node came for a pod that the first was too small for")

    def api_server_hangs(self):
        """While a machine is being made the API server accepts and never answers."""
        self.deploy("more", 2, self.pods_for("steady", "1"))
        until(NODES_SECONDS, "the second machine is made", lambda: len(self.machines("steady")) == 2)
        machines = self.machines("steady")
        self.processes.send("kube-apiserver", signal.SIGSTOP)
        try:
            fed = self.product.daemon.notify.watchdogs
            holds(HANG_SECONDS, "the daemon lives and does nothing new", lambda: self.product.web("/livez") and self.machines("steady") == machines, every=2)
            expect(self.product.daemon.notify.watchdogs > fed, "the watchdog was not fed")
        finally:
            self.processes.send("kube-apiserver", signal.SIGCONT)
        until(NODES_SECONDS, "all pods run", lambda: self.running(more=2))
        expect(self.machines("steady") == machines, "a machine was doubled")
        say("an API server hung for a while, and nothing froze or doubled")

    def hands_remove_things(self):
        """Somebody destroys the VM of a node, and deletes the node of a VM."""
        first, second = until(NODES_SECONDS, "two nodes", lambda: self.ready_nodes("steady", 2))
        vmid = next(vmid for vmid, machine in self.pve.machines().items() if machine["name"] == first)
        self.pve.destroy(vmid)
        self.kube.delete(f"/api/v1/nodes/{second}")
        until(REMOVAL_SECONDS, "the node without a VM is gone", lambda: first not in self.kube.nodes())
        until(REMOVAL_SECONDS, "the VM without a node is gone", lambda: second not in self.machines("steady"))
        until(NODES_SECONDS, "all pods run again", lambda: self.running(more=2))
        say("a node without a VM and a VM without a node were swept, and others came")
        self.remove("more")
        until(REMOVAL_SECONDS, "the minimum is left", lambda: self.ready_nodes("steady", 1))

    def pause_and_second_daemon(self):
        """A pause holds, and so does another daemon's lease; when the first dies the second goes on."""
        run([BINARY, "pause", "the end-to-end test"], 30)
        self.deploy("later", 2, self.pods_for("steady", "1"))
        holds(WATCH_SECONDS, "the pause", lambda: len(self.machines("steady")) == 1)
        second = self.second_daemon()
        run([BINARY, "resume"], 30)
        until(NODES_SECONDS, "all pods run", lambda: self.running(later=2))
        expect(len(self.machines("steady")) == 2, f"machines: {self.machines('steady')}")
        self.product.daemon.kill()
        self.remove("later")
        until(TAKEOVER_SECONDS + REMOVAL_SECONDS, "the second daemon removes", lambda: self.ready_nodes("steady", 1))
        expect(second.stop() == 0, "the second daemon did not end well")
        # Where the log of the next start begins.
        self.mark = len(self.product.daemon.log())
        self.product.daemon.start()
        say("a pause held; the second of two daemons waited, and took over")

    def second_daemon(self):
        """The same package on another host: own state, own sockets."""
        config = "/etc/pve-autoscaler-second.toml"
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG + '[web]\nlisten = "127.0.0.1:9809"\n')
        os.chmod(config, 0o644)
        state = "/var/lib/pve-autoscaler-second"
        run(["install", "-d", "-o", service.USER, "-m", "0700", state], 10)
        argv = [BINARY, "--config", config, "run", "--state-directory", state]
        argv += ["--control-socket", "/run/pve-autoscaler/second.sock"]
        second = service.Service(self.processes, "second", argv, user=service.USER)
        second.start()
        return second

    def configuration_breaks_and_mends(self):
        """A bad file is said and not taken; a good one is taken at once, and the minimum may go."""
        until(TAKEOVER_SECONDS, "the daemon leads", lambda: self.elections() == 1)
        self.reload(CONFIG.replace("min = 1", "minimum = 0"))
        until(ANSWER_SECONDS, "the daemon says what is wrong", lambda: "minimum" in self.product.daemon.log())
        holds(WATCH_SECONDS, "the old configuration is kept", lambda: len(self.machines("steady")) == 1)
        expect(self.elections() == 1, "a bad file made the daemon begin again")
        self.reload(CONFIG.replace("min = 1", "min = 0"))
        until(ANSWER_SECONDS, "the daemon leads again: it gave the lease back to itself", lambda: self.elections() == 2)
        until(REMOVAL_SECONDS, "the last node is gone", lambda: not self.kube.nodes() and not self.pve.machines())
        say("a broken file was refused, a good one taken")

    def elections(self):
        """How often the daemon that runs now has come to lead."""
        return self.product.daemon.log()[self.mark :].count("ours=true")

    def reload(self, text):
        """As systemctl reload, of both services."""
        with open(CONFIG_FILE, "w", encoding="utf-8") as file:
            file.write(text)
        self.processes.send("broker", signal.SIGHUP)
        self.processes.send("daemon", signal.SIGHUP)


if __name__ == "__main__":
    Trouble(*map(os.path.abspath, sys.argv[1:4])).tell()
    say("trouble: good")
