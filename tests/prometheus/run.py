#!/usr/bin/env python3
"""A real Prometheus scrapes the daemon of the demo, evaluates the alert rules and answers every question of the dashboard.

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


def look(port):
    """What Prometheus finds wrong."""
    wrong = []
    for title, expression in panels():
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
        elif rule.get("state") == "firing":
            wrong.append(f"rule {rule['name']} fires on a demo in which all goes well")
    targets = ask(port, "targets")["data"]["activeTargets"]
    wrong += [f"target {target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]
    return wrong, len(list(panels())), len(rules)


def main():
    program, prometheus = sys.argv[1:]
    page, own = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = {
            "global": {"scrape_interval": f"{SCRAPED_EVERY}s", "evaluation_interval": f"{SCRAPED_EVERY}s"},
            "rule_files": [str(HERE / "contrib/prometheus/pve-autoscaler.rules.yaml")],
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
    print(f"prometheus: {questions} questions of the dashboard are answered, {rules} rules evaluated")


main()
