"""What a guest must not touch: the machine's own files, processes, mounts, network."""

import os

# Where a Kubernetes node, kubeadm or a join script writes when it is not fenced.
WATCHED = (
    "/boot",
    "/etc",
    "/opt",
    "/root/.kube",
    "/run",
    "/usr",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/lib/pve-autoscaler",
)
# Kernel switches a kubelet likes to turn.
SWITCHES = (
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
)


def files():
    """Every path under the watched directories, with what changes when it is written."""
    found = {}
    for top in WATCHED:
        for directory, _, names in os.walk(top):
            for path in [directory] + [os.path.join(directory, name) for name in names]:
                try:
                    state = os.lstat(path)
                except FileNotFoundError:
                    continue
                found[path] = (state.st_mode, state.st_uid, state.st_size, state.st_mtime_ns)
    for path in SWITCHES:
        with open(path, encoding="ascii") as file:
            found[path] = file.read()
    return found


def mounts():
    """The mounts of this namespace."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return sorted(line.split(" ", 1)[1] for line in file)


def processes():
    """The commands of all processes of the arena by id, but for ourselves and our parents."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def links():
    """The network interfaces of this namespace."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        return sorted(line.split(":")[0].strip() for line in file if ":" in line)


def difference(before, after):
    """What changed between two results of `files`, readable."""
    changed = [f"new: {path}" for path in after.keys() - before.keys()]
    changed += [f"gone: {path}" for path in before.keys() - after.keys()]
    changed += [f"changed: {path}" for path in before.keys() & after.keys() if before[path] != after[path]]
    return sorted(changed)
