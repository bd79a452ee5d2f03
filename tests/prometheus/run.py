#!/usr/bin/env python3
"""A real Prometheus scrapes the daemon of the demo, evaluates the alert rules and answers every question of the dashboard, and those that
dashboard and alerts of kubernetes-autoscaling-mixin ask. Then the demo's world has faults, and the alerts that are for them fire.

usage: run.py PVE-AUTOSCALER PROMETHEUS
"""

import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parents[2]
JOB = "pve-autoscaler"
# Prometheus asks this often, in seconds, and a rate needs four of its samples.
SCRAPED_EVERY = 1
RATE = "10s"
# The demo's first nodes are there by then, in seconds.
PATIENCE = 90
# Each rule is there twice: as it is shipped, and under a name with this before it and with two seconds in the place of its `for`.
HASTY = "Hasty"
# What is done to the demo's world, as its page's buttons do it, and the alerts of which one must fire each time.
FAULTS = [
    (("add-giant",), ("PveAutoscalerPodsWithoutPool",)),
    (("break-template", "add-workload"), ("PveAutoscalerTemplateFault", "PveAutoscalerPoolBacksOff")),
]
# What kubernetes-autoscaling-mixin asks of cluster-autoscaler's metrics: how it adds them up, the series, and for `increase` over how long.
MIXIN = [
    ("sum({})", "nodes_count"),
    ("sum({})", "max_nodes_count"),
    ("sum({})", "node_groups_count"),
    ("sum({})", 'nodes_count{state="ready"}'),
    ("sum({})", "cluster_safe_to_autoscale"),
    ("sum({})", "unschedulable_pods_count"),
    ("time() - max({})", 'last_activity{activity="scaleDown"}'),
    ("time() - max({})", 'last_activity{activity="scaleUp"}'),
    ("sum by (type) (increase({}[10s]))", "unschedulable_pods_count"),
    ("sum by (eviction_result) (increase({}[10s]))", "evicted_pods_total"),
    ("sum by (state) ({})", "nodes_count"),
    ("sum({})", "unneeded_nodes_count"),
    ("sum(increase({}[10s]))", "scaled_up_nodes_total"),
    ("sum(increase({}[10s]))", "scaled_down_nodes_total"),
    ("min by (node_group) ({})", "node_group_min_count"),
    ("avg by (node_group) ({})", "node_group_target_count"),
    ("max by (node_group) ({})", "node_group_max_count"),
    ("min by (node_group) ({})", "node_group_healthiness"),
    ("max by (node_group) ({})", "node_group_backoff_status"),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def until(what, is_so, patience=PATIENCE):
    """Waits until something is so; ends the test when it does not become so."""
    end = time.monotonic() + patience
    while True:
        try:
            found = is_so()
            if found:
                return found
        except (urllib.error.URLError, ConnectionError):
            pass
        if time.monotonic() > end:
            sys.exit(f"prometheus: after {patience} s still not: {what}")
        time.sleep(0.5)


def panels():
    """Titles and questions of the dashboard."""
    dashboard = json.loads((HERE / "contrib/grafana/pve-autoscaler.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def others():
    """What the mixin asks: of each series, and by its alerts."""
    for form, series in MIXIN:
        yield "the mixin", form.format(f"cluster_autoscaler_{series}")
    # Its alerts are comparisons; what they compare must be there, and the nodes must not be more than there may be.
    yield "the mixin's alert", "sum(cluster_autoscaler_nodes_count) / sum(cluster_autoscaler_max_nodes_count) <= 1"
    yield "the mixin's alert", "sum(cluster_autoscaler_unschedulable_pods_count) >= 0"


def hasty(rules):
    """The rules once more, of which each fires two seconds after it is so."""
    rules = re.sub(r"\balert: ", f"alert: {HASTY}", rules)
    return re.sub(r"\bfor: \w+", "for: 2s", rules)


def firing(port):
    """The hasty rules that fire, by the names of the shipped ones."""
    alerts = ask(port, "alerts")["data"]["alerts"]
    names = (alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing")
    return {name.removeprefix(HASTY) for name in names if name.startswith(HASTY)}


def act(page, deed):
    """Presses a button of the demo's page."""
    body = json.dumps({"do": deed}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{page}/demo/act", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def break_it(page, port):
    """Each fault makes an alert fire that is for it, and that did not fire before."""
    for deeds, alerts in FAULTS:
        before = firing(port)
        known = set(alerts) & before
        if known:
            sys.exit(f"prometheus: {known} fired before {deeds}")
        for deed in deeds:
            act(page, deed)
        fired = until(f"one of {alerts} fires after {deeds}", lambda: firing(port) & set(alerts))
        yield from fired


def look(port):
    """What Prometheus finds wrong."""
    wrong = []
    for title, expression in (*panels(), *others()):
        asked = expression.replace("$job", JOB).replace("$__rate_interval", RATE)
        if "$" in asked:
            wrong.append(f"panel {title!r}: an unknown variable in {expression}")
            continue
        answer = ask(port, "query", query=asked)
        # What counts failures has nothing to show when there is none.
        quiet = asked.endswith("> 0")
        if answer["status"] != "success":
            wrong.append(f"panel {title!r}: {answer['error']}: {expression}")
        elif not answer["data"]["result"] and not quiet:
            wrong.append(f"panel {title!r} is empty: {expression}")
        # A name that no series has would be quiet for ever.
        for name in set(re.findall(r"\b(?:pve|cluster)_autoscaler_[a-z_]+", asked)):
            if not ask(port, "query", query=name)["data"]["result"] and not quiet:
                wrong.append(f"panel {title!r}: there is no {name}")
    groups = ask(port, "rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    if not rules:
        wrong.append("Prometheus has no rules")
    for rule in rules:
        if rule["health"] != "ok":
            wrong.append(f"rule {rule['name']}: {rule['health']}: {rule.get('lastError')}")
        elif rule.get("state") == "firing" and not rule["name"].startswith(HASTY):
            wrong.append(f"rule {rule['name']} fires on a demo in which all goes well")
    targets = ask(port, "targets")["data"]["activeTargets"]
    wrong += [f"target {target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]
    return wrong, len(list(panels())), len(rules) // 2


def main():
    program, prometheus = sys.argv[1:]
    page, own = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shipped = HERE / "contrib/prometheus/pve-autoscaler.rules.yaml"
        (folder / "hasty.rules.yaml").write_text(hasty(shipped.read_text()))
        config = {
            "global": {"scrape_interval": f"{SCRAPED_EVERY}s", "evaluation_interval": f"{SCRAPED_EVERY}s"},
            "rule_files": [str(shipped), str(folder / "hasty.rules.yaml")],
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        logs = [open(folder / name, "w") for name in ("demo.log", "prometheus.log")]
        commands = (
            [program, "demo", "--page", f"127.0.0.1:{page}", "--speed", "20"],
            [
                prometheus,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
        )
        running = []
        try:
            for command, log in zip(commands, logs):
                running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            up = f'up{{job="{JOB}"}} == 1'
            until("the daemon is scraped", lambda: ask(own, "query", query=up)["data"]["result"])
            made = "sum(cluster_autoscaler_scaled_up_nodes_total) > 0"
            until("a machine is made", lambda: ask(own, "query", query=made)["data"]["result"])
            phases = 'sum(rate(pve_autoscaler_phase_duration_seconds_count{outcome="done"}[6h])) > 0'
            until("a step of a machine is done", lambda: ask(own, "query", query=phases)["data"]["result"])
            evaluated = lambda: all(
                rule["health"] != "unknown" for group in ask(own, "rules")["data"]["groups"] for rule in group["rules"]
            )
            until("all rules are evaluated", evaluated)
            wrong, questions, rules = look(own)
            fired = [] if wrong else list(break_it(page, own))
        except SystemExit:
            for name in ("demo.log", "prometheus.log"):
                print(f"== {name}\n{(folder / name).read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(timeout=30)
    if wrong:
        sys.exit("prometheus: " + "\nprometheus: ".join(wrong))
    print(
        f"prometheus: {questions} questions of the dashboard and {len(list(others()))} of the mixin's are answered, {rules} rules evaluated, "
        f"and these fire when they should: {', '.join(fired)}"
    )


main()
