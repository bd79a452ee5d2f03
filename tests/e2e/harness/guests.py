"""Guests driven by hand, without a simulator around them."""

import os

from .processes import run

GUEST = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guest")
# The bridge that tests/e2e/arena makes.
BRIDGE = "arena0"

VERB_SECONDS = 60


def environment(components, directory):
    """What every call of the guest program needs from who runs the test."""
    return {
        "GUEST_COMPONENTS": components,
        "GUEST_BRIDGE": BRIDGE,
        "GUEST_FAULTS": os.path.join(directory, "faults"),
        "GUEST_LOGS": os.path.join(directory, "logs", "guests"),
    }


class Guest:
    """One guest, as the simulator would call for it."""

    def __init__(self, directory, components, vmid, name, uuid, cores, memory_mib):
        self.vmid, self.name, self.uuid = vmid, name, uuid
        self.cores, self.memory_mib = cores, memory_mib
        self.env = environment(components, directory)
        self.env.update(
            GUEST_VMID=str(vmid),
            GUEST_UUID=uuid,
            GUEST_NAME=name,
            GUEST_CORES=str(cores),
            GUEST_MEMORY_MIB=str(memory_mib),
            GUEST_DIR=os.path.join(directory, "vms", str(vmid)),
        )
        os.makedirs(self.env["GUEST_DIR"], exist_ok=True)

    def verb(self, verb, *arguments, stdin=None, check=True, seconds=VERB_SECONDS):
        """Calls the guest program."""
        return run(
            [GUEST, verb, str(self.vmid), *arguments], seconds, env=self.env, stdin=stdin, check=check
        )

    def exec(self, *argv, stdin=None, check=True, seconds=VERB_SECONDS):
        """Runs a command inside and returns what it did."""
        return self.verb("exec", "--", *argv, stdin=stdin, check=check, seconds=seconds)

    def memtotal_bytes(self):
        """What the guest's kernel says it has."""
        for line in self.exec("cat", "/proc/meminfo").stdout.splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no MemTotal")
