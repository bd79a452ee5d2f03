"""What commands print for programs is what the shipped schemas say, by a validator that others wrote.

    python tests/clients/with_jsonschema.py PVE-AUTOSCALER SOCKET

The socket is that of a demo that runs.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from jsonschema import Draft202012Validator

HERE = pathlib.Path(__file__).resolve().parents[2]
# In seconds: until the demo has made a machine, and for one command.
PATIENCE, COMMAND = 120, 60
# Words that a schema is broken by, each where it stands in a good document: a validator that takes them looks at nothing.
BROKEN = {
    "status": ("schema_version", "one"),
    "plan": ("plan", {}),
    "report": ("pools", []),
    "explain-pod": ("pod", 7),
    "explain-node": ("node", 7),
    "history": ("deeds", {}),
    "doctor": ("verdict", "splendid"),
}

# A view with a pod that needs a machine, and a pool that makes some: the demo's daemon has carried a plan out before somebody asks for it.
VIEW = {
    "version": 1,
    "taken": "2026-11-21T12:00:00Z",
    "cluster_id": "uid/default",
    "leader": True,
    "sources": {
        name: {"complete": True, "as_of": "2026-11-21T12:00:00Z"}
        for name in ("kube/pods", "kube/nodes", "pve/default")
    },
    "cluster": {
        "pods": {
            "shop/db-0": {
                "uid": "1",
                "created": "2026-11-21T11:59:00Z",
                "unschedulable_since": "2026-11-21T11:59:00Z",
                "shape": {"requests": {"cpu_milli": 5000, "memory": 1048576, "pods": 1}},
            }
        },
        "nodes": {
            "cp-1": {
                "uid": "2",
                "created": "2026-11-01T00:00:00Z",
                "ready": {"status": "True"},
                "allocatable": {"cpu_milli": 2000, "memory": 4294967296, "pods": 110},
                "capacity": {},
            }
        },
    },
    "regions": {
        "default": {
            "quorate": True,
            "hosts": {"pve1": {"online": True, "cpus": 32, "memory": 137438953472}},
            "templates": {"debian": [{"vmid": 8000, "host": "pve1", "shared": False, "disk": 21474836480}]},
        }
    },
    "machines": {},
}
POOL = """
version = 1
[proxmox]
vmids = "9000-9999"
[template.debian]
vmid = 8000
[instance_type.big]
cores = 8
memory = "16GiB"
[pool.workers]
template = "debian"
instance_types = ["big"]
max = 5
"""


def validator(name):
    schema = json.loads((HERE / f"contrib/pve-autoscaler-{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def hold(name, document):
    """The document is as its schema says, a broken one is not, and one with a field more is."""
    schema = validator(name)
    wrong = [f"{error.json_path}: {error.message[:300]}" for error in schema.iter_errors(document)]
    if wrong:
        sys.exit(f"jsonschema: {name}: " + "\n".join(wrong[:10]))
    key, value = BROKEN[name]
    if key not in document:
        sys.exit(f"jsonschema: {name}: the document has no {key}")
    if schema.is_valid({**document, key: value}):
        sys.exit(f"jsonschema: {name}: a document whose {key} is {value!r} passes")
    if not schema.is_valid({**document, "of_a_newer_version": 1}):
        sys.exit(f"jsonschema: {name}: a field that is not known yet is refused")


def with_actions(ask):
    """A plan that has an action; a document whose action is of no kind that there is does not pass."""
    with tempfile.TemporaryDirectory() as scratch:
        view, config = pathlib.Path(scratch, "view.json"), pathlib.Path(scratch, "config.toml")
        view.write_text(json.dumps(VIEW))
        config.write_text(POOL)
        plan = ask("plan", "--snapshot", str(view), "--config", str(config))
    if not plan["plan"]:
        sys.exit("jsonschema: the plan for a pod that needs a machine has no action")
    hold("plan", plan)
    odd = {**plan["plan"][0], "kind": "splendid"}
    if validator("plan").is_valid({**plan, "plan": [odd]}):
        sys.exit("jsonschema: plan: an action of the kind 'splendid' passes")


def main(program, socket):
    def ask(*words):
        """What a command prints; nothing where it has nothing to say."""
        done = subprocess.run(
            [program, *words, "--output", "json"], capture_output=True, text=True, timeout=COMMAND, check=False
        )
        return json.loads(done.stdout) if done.stdout else None

    def of_demo(*words):
        return ask(*words, "--socket", socket)

    end = time.monotonic() + PATIENCE
    asked = 0
    seen = set()
    # In several states of the cluster: before, while and after machines are made.
    while not {"nodes", "pending"} <= seen:
        if time.monotonic() > end:
            sys.exit(f"jsonschema: after {PATIENCE} s the demo had shown no more than {seen}")
        time.sleep(1)
        status, plan = of_demo("status"), of_demo("plan")
        # Before the first decision there is no plan.
        if status is None or plan is None:
            continue
        hold("status", status)
        hold("plan", plan)
        hold("report", plan["report"])
        asked += 3
        for kind, names, schema in (("pod", "pods", "explain-pod"), ("node", "nodes", "explain-node")):
            for name in list(plan["report"][names])[:3]:
                story = of_demo("explain", kind, name)
                # The demo goes on: one may have gone since the plan.
                if story is not None:
                    hold(schema, story)
                    seen.add("pending" if kind == "pod" else "nodes")
                    asked += 1
    with_actions(ask)
    history = of_demo("history")
    hold("history", history)
    # On this machine much is missing: the findings say what.
    config = HERE / "contrib/pve-autoscaler.toml"
    hold("doctor", ask("doctor", "--config", str(config), "--user", "root"))
    print(f"jsonschema: {asked + 3} documents are as their schemas say, with {len(history['deeds'])} deeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
