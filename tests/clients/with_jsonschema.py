"""What commands print for programs is what the shipped schemas say, by a validator that others wrote.

    python tests/clients/with_jsonschema.py PVE-AUTOSCALER SOCKET

The socket is that of a demo that runs.
"""

import json
import pathlib
import subprocess
import sys
import time

from jsonschema import Draft202012Validator

HERE = pathlib.Path(__file__).resolve().parents[2]
# In seconds: until the demo has made a machine, and for one command.
PATIENCE, COMMAND = 120, 60
# Words that a schema is broken by, each where it stands in a good document: a validator that takes them looks at nothing.
BROKEN = {
    "status": ("schema_version", "one"),
    "report": ("pools", []),
    "explain-pod": ("pod", 7),
    "explain-node": ("node", 7),
    "history": ("deeds", {}),
    "doctor": ("verdict", "splendid"),
}


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
        hold("report", plan["report"])
        asked += 2
        for kind, names, schema in (("pod", "pods", "explain-pod"), ("node", "nodes", "explain-node")):
            for name in list(plan["report"][names])[:3]:
                story = of_demo("explain", kind, name)
                # The demo goes on: one may have gone since the plan.
                if story is not None:
                    hold(schema, story)
                    seen.add("pending" if kind == "pod" else "nodes")
                    asked += 1
    history = of_demo("history")
    hold("history", history)
    # On this machine much is missing: the findings say what.
    config = HERE / "contrib/pve-autoscaler.toml"
    hold("doctor", ask("doctor", "--config", str(config), "--user", "root"))
    print(f"jsonschema: {asked + 2} documents are as their schemas say, with {len(history['deeds'])} deeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
