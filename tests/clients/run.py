"""Runs other people's clients against the listening simulators, and a validator of JSON schemas on what commands print.

    python tests/clients/run.py target/debug/pve-autoscaler

The interpreter is one that has the packages of requirements.txt.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Two nodes for the workload, and a memory short enough to be outrun.
WORLD = {
    "cluster": {"history": 500},
    "nodes": [{"name": name, "labels": "", "taints": []} for name in ("one", "two")],
}
UP_SECONDS = 30
CLIENT_SECONDS = 240
STOP_SECONDS = 10


def free_address():
    """An address of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def listens(address):
    """Whether somebody accepts connections there."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    except OSError:
        return False


def against(simulator, ready, client):
    """Starts a simulator, waits until it is ready, runs a client, ends the simulator."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(simulator, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + UP_SECONDS
            while not ready():
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(f"{' '.join(simulator)} did not come up:\n{log.read().decode()}")
                time.sleep(0.1)
            done = subprocess.run([sys.executable, *client], timeout=CLIENT_SECONDS, check=False)
            if done.returncode != 0:
                log.seek(0)
                print(log.read().decode()[-4000:], file=sys.stderr)
                raise SystemExit(f"{client[0]} failed with {done.returncode}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def main(binary):
    """Both simulators and the demo, one after the other."""
    pve = free_address()
    against(
        [binary, "sim", "pve", "--listen", pve],
        lambda: listens(pve),
        [os.path.join(HERE, "with_proxmoxer.py"), pve],
    )
    with tempfile.TemporaryDirectory() as scratch:
        kube, kubeconfig, spec = free_address(), os.path.join(scratch, "kubeconfig"), os.path.join(scratch, "spec")
        with open(spec, "w", encoding="utf-8") as file:
            json.dump(WORLD, file)
        against(
            [binary, "sim", "kube", "--listen", kube, "--kubeconfig", kubeconfig, "--spec", spec],
            lambda: listens(kube) and os.path.exists(kubeconfig),
            [os.path.join(HERE, "with_kubernetes.py"), kubeconfig],
        )
    with tempfile.TemporaryDirectory() as scratch:
        socket_of_demo = os.path.join(scratch, "control.sock")
        against(
            [binary, "demo", "--socket", socket_of_demo, "--page", free_address(), "--speed", "20"],
            lambda: os.path.exists(socket_of_demo),
            [os.path.join(HERE, "with_jsonschema.py"), binary, socket_of_demo],
        )


if __name__ == "__main__":
    main(sys.argv[1])
