#!/usr/bin/env python3
"""The real kube-scheduler's opinion on random small worlds, against ours.

Starts etcd, kube-apiserver and kube-scheduler; tests/scheduler makes the worlds, is the
scheduler's extender, and compares. Options: --seed N (the first), --worlds N (how many).

Run in the arena: tests/e2e/arena tests/e2e/scheduler.py COMPONENTS DIRECTORY BINARY [OPTION...]
"""

import argparse
import os

from harness.controlplane import ControlPlane
from harness.processes import Processes
from harness.until import Failed, say

EXTENDER = "127.0.0.1:10300"
# A world takes well under a second; three hundred are the rule.
WORLD_SECONDS = 3
START_SECONDS = 60
WORLDS = 300

# What would add to objects, or do with them what controllers do: the worlds are complete.
ADMISSION_OFF = ["ServiceAccount", "TaintNodesByCondition", "StorageObjectInUseProtection"]

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    # All nodes are looked at, in clusters of any size.
    "percentageOfNodesToScore": 100,
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            # Preemption would remove pods of the world.
            "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
        }
    ],
    "extenders": [
        {
            "urlPrefix": f"http://{EXTENDER}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "httpTimeout": "20s",
        }
    ],
}


def main():
    """The control plane up, then the comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("components")
    parser.add_argument("directory")
    parser.add_argument("program", help="the test program of tests/scheduler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    given = parser.parse_args()
    directory = os.path.abspath(given.directory)
    processes = Processes(os.path.join(directory, "logs"))
    plane = ControlPlane(os.path.abspath(given.components), os.path.join(directory, "control-plane"), processes)
    try:
        plane.start_scheduler_alone(ADMISSION_OFF, CONFIGURATION)
        compare(plane, processes, given)
    finally:
        processes.stop_all()


def compare(plane, processes, given):
    """Runs the program to its end; what it says is for the reader."""
    name = "comparison"
    process = processes.start(
        name,
        [os.path.abspath(given.program), "--nocapture", "--test-threads=1"],
        env={
            "SCHEDULER_TEST_KUBECONFIG": plane.kubeconfig("super-admin"),
            "SCHEDULER_TEST_EXTENDER": EXTENDER,
            "SCHEDULER_TEST_SEED": str(given.seed),
            "SCHEDULER_TEST_WORLDS": str(given.worlds),
            "RUST_BACKTRACE": "0",
        },
    )
    code = process.wait(START_SECONDS + WORLD_SECONDS * given.worlds)
    print(processes.read_log(name), flush=True)
    del processes.running[name]
    if code != 0:
        raise Failed(f"the comparison ended with {code}")


if __name__ == "__main__":
    main()
    say("scheduler: good")
