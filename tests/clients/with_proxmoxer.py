"""A machine's life on the simulated PVE, told through PyPI's proxmoxer.

What a client written for the true PVE API does must work against the simulator,
and what PVE refuses must be refused the same way.
"""

import sys
import time

from proxmoxer import ProxmoxAPI, ResourceException
from proxmoxer.core import AuthenticationError
from proxmoxer.tools import Tasks

# The simulator's tasks take under two seconds each.
TASK_SECONDS = 30
AGENT_SECONDS = 60
PASSWORD = "simulated"
TOKEN = ("scaler@pve", "sim", "00000000-0000-4000-8000-000000000001")


def expect(condition, what):
    """An assertion with words."""
    if not condition:
        raise SystemExit(f"proxmoxer: {what}")


def refused(status, text, call, *arguments, **parameters):
    """Checks that a call is refused with PVE's status code and words."""
    try:
        answer = call(*arguments, **parameters)
    except ResourceException as error:
        said = f"{error.status_message} {error.content} {error.errors}"
        expect(error.status_code == status, f"{call}: {error.status_code} ({said}), wanted {status}")
        expect(text in said, f"{call}: said {said!r}, wanted {text!r}")
        return
    raise SystemExit(f"proxmoxer: {call} was not refused but answered {answer!r}")


def task(api, upid, wanted="OK"):
    """Waits for a task and checks how it ended."""
    status = Tasks.blocking_status(api, upid, timeout=TASK_SECONDS, polling_interval=0.1)
    expect(status is not None, f"{upid} did not end within {TASK_SECONDS} s")
    expect(wanted in status["exitstatus"], f"{upid}: {status['exitstatus']}, wanted {wanted}")
    decoded = Tasks.decode_upid(upid)
    expect(status["type"] == decoded["type"] and status["user"] == decoded["user"], f"{upid}: {status}")
    return status


def answers(vm):
    """Waits for the guest agent."""
    end = time.monotonic() + AGENT_SECONDS
    while True:
        try:
            vm.agent.ping.post()
            return
        except ResourceException as error:
            expect(error.status_code == 500 and "guest agent" in error.content, f"ping: {error}")
            expect(time.monotonic() < end, f"the agent did not answer within {AGENT_SECONDS} s")
            time.sleep(0.2)


def run_in(vm, command, **more):
    """Runs a command in the guest; returns what exec-status says at the end."""
    pid = vm.agent.exec.post(command=command, **more)["pid"]
    end = time.monotonic() + AGENT_SECONDS
    while True:
        status = vm.agent("exec-status").get(pid=pid)
        if int(status["exited"]):
            return pid, status
        expect(time.monotonic() < end, f"{command} did not end within {AGENT_SECONDS} s")
        time.sleep(0.1)


def look_around(api):
    """Reads that every tool begins with."""
    expect(api.version.get()["release"].startswith("9."), f"version: {api.version.get()}")
    nodes = {node["node"]: node for node in api.nodes.get()}
    expect(all(node["status"] == "online" for node in nodes.values()), f"nodes: {nodes}")
    for name in nodes:
        status = api.nodes(name).status.get()
        expect(int(status["memory"]["total"]) > 0 and int(status["cpuinfo"]["cpus"]) > 0, f"{name}: {status}")
        expect(api.nodes(name).storage.get(), f"{name} has no storage")
    quorum = [entry for entry in api.cluster.status.get() if entry["type"] == "cluster"]
    expect(int(quorum[0]["quorate"]) == 1, f"cluster status: {quorum}")
    templates = [vm for vm in api.cluster.resources.get(type="vm") if int(vm.get("template", 0))]
    expect(templates, "no template in the resources")
    return sorted(templates, key=lambda vm: vm["vmid"])[0]


def refusals(api, template):
    """What PVE refuses, and how."""
    source = api.nodes(template["node"]).qemu(template["vmid"])
    refused(400, "vmid", api.cluster.nextid.get, vmid=template["vmid"])
    refused(400, "newid", source.clone.post, newid=7)
    refused(400, "nosuch", source.clone.post, newid=5000, nosuch=1)
    refused(500, "does not exist", api.nodes(template["node"]).qemu(4711).config.get)
    refused(501, "not implemented", api.nodes(template["node"]).nosuch.get)
    refused(500, "not running", source.agent.ping.post)


def life(api, template):
    """Clone, configure, start, speak to the guest, stop, destroy."""
    node = template["node"]
    vmid = int(api.cluster.nextid.get())
    task(api, api.nodes(node).qemu(template["vmid"]).clone.post(newid=vmid, name="a-clone", description="one\ntwo"))
    vm = api.nodes(node).qemu(vmid)
    config = vm.config.get()
    expect(config["name"] == "a-clone" and config["description"].rstrip("\n") == "one\ntwo", f"config: {config}")
    expect("template" not in config and "lock" not in config, f"config: {config}")
    refused(500, "config file already exists", api.nodes(node).qemu(template["vmid"]).clone.post, newid=vmid)

    refused(500, "checksum mismatch", vm.config.put, cores=2, digest="0" * 40)
    refused(400, "nosuch", vm.config.put, nosuch=1)
    vm.config.put(cores=3, memory=3072, tags="b;a", protection=0, digest=config["digest"])
    config = vm.config.get()
    expect(int(config["cores"]) == 3 and int(config["memory"]) == 3072 and config["tags"] == "a;b", f"config: {config}")
    task(api, vm.resize.put(disk="scsi0", size="12G"))
    expect("size=12G" in vm.config.get()["scsi0"], f"after the resize: {vm.config.get()['scsi0']}")
    task(api, vm.resize.put(disk="scsi0", size="1G"), wanted="shrinking disks is not supported")

    task(api, vm.status.start.post())
    task(api, vm.status.start.post(), wanted="already running")
    expect(vm.status.current.get()["status"] == "running", "started, not running")
    answers(vm)
    pid, said = run_in(vm, ["/bin/sh", "-c", "# pve-autoscaler guest script: probe\ncat >/dev/null"], **{"input-data": "x"})
    expect("exitcode" in said or "signal" in said, f"exec-status: {said}")
    refused(500, "does not exist", vm.agent("exec-status").get, pid=pid)
    refused(500, "is running - destroy failed", vm.delete)

    task(api, vm.status.shutdown.post(timeout=30, forceStop=1))
    expect(vm.status.current.get()["status"] == "stopped", "shut down, not stopped")
    task(api, vm.delete(purge=1))
    expect(vmid not in [entry["vmid"] for entry in api.cluster.resources.get(type="vm")], "destroyed, still there")
    refused(500, "does not exist", vm.config.get)


def main(address):
    """All of it, with a ticket and, where a token may, with a token."""
    for wrong in ({"user": "root@pam", "password": "wrong"},):
        try:
            ProxmoxAPI(address, verify_ssl=False, timeout=20, **wrong)
            raise SystemExit("proxmoxer: a wrong password logged in")
        except AuthenticationError:
            pass
    ticket = ProxmoxAPI(address, user="root@pam", password=PASSWORD, verify_ssl=False, timeout=20)
    user, name, secret = TOKEN
    token = ProxmoxAPI(address, user=user, token_name=name, token_value=secret, verify_ssl=False, timeout=20)
    bad = ProxmoxAPI(address, user=user, token_name=name, token_value=secret[:-1] + "f", verify_ssl=False, timeout=20)
    refused(401, "", bad.version.get)
    for api in (ticket, token):
        template = look_around(api)
        refusals(api, template)
        life(api, template)
    print("proxmoxer: good")


if __name__ == "__main__":
    main(sys.argv[1])
