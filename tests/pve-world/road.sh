#!/bin/bash
# Goes the road of a user in the world of up.sh, without a person: the package on pve1, setup by a file of answers, templates on both
# hosts, a node for pods that wait, an evacuation, the removal of what is not needed, a stop in the middle of a machine's start, the
# package's removal and purge. Prints a line for each thing that must hold, with its seconds.
# Exit 0 when all held, 1 when one did not, 77 when it cannot be tried on this machine, for the reason that is said.
#
#   tests/pve-world/road.sh [--keep] [PACKAGE.deb]        the newest package in target/package when none is named
#
# The hosts begin anew (up.sh --fresh). They are ended afterwards; with --keep they stay up.
# PVE_RELEASE=8: of PVE 8, not 9. PVE_SOURCES, PVE_GIT: where PVE's code comes from (make-root.sh).
set -euo pipefail
readonly called_in="$PWD"
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

# Seconds for setup with a template on each of two hosts; for a machine from the pod to the Ready node; for an evacuation, in which one
# machine is made and one removed; for the removal of a node that is not needed. They are many, since the hosts share few processors.
readonly setup_seconds=600 machine_seconds=240 evacuation_seconds=360 removal_seconds=240
readonly daemon=pve-autoscaler.service broker=pve-autoscaler-broker.service
# VMIDs of machines and of templates, as setup chooses them.
readonly machines_range='9[0-9][0-9][0-9]' templates_range='89[0-9][0-9]'
missed=0

# hold TEXT COMMAND...: TEXT must hold, that is, COMMAND succeed.
hold() {
    local text="$1" said began=$SECONDS
    shift
    if said="$("$@" 2>&1)"; then
        printf 'ok   %4d s  %s\n' "$((SECONDS - began))" "$text"
    else
        printf 'MISS %4d s  %s\n' "$((SECONDS - began))" "$text"
        printf '%s\n' "$said" | tail -n 20 | sed 's/^/     | /'
        missed=$((missed + 1))
        return 1
    fi
}
# must TEXT COMMAND...: as hold; without it the rest says nothing.
must() { hold "$@" || give_up "$1"; }
give_up() {
    echo "pve-world: the rest was not tried, since this did not hold: $1"
    exit 1
}
# soon SECONDS COMMAND...: waits until COMMAND succeeds; says what it said last.
soon() {
    local end=$((SECONDS + $1)) said
    shift
    until said="$("$@" 2>&1)"; do
        [ "$SECONDS" -lt "$end" ] || { printf '%s\n' "$said" && return 1; }
        sleep 1
    done
}
# always SECONDS COMMAND...: COMMAND succeeds all the time.
always() {
    local end=$((SECONDS + $1))
    shift
    while [ "$SECONDS" -lt "$end" ]; do
        "$@" || return 1
        sleep 2
    done
}
no() { ! "$@"; }

# On pve1, where the product is; and the API server's objects, by jq.
on() { inside pve1 "$@"; }
# says PATTERN COMMAND...: COMMAND succeeds on pve1, and a line of what it says matches.
says() {
    local pattern="$1" said status=0
    shift
    said="$(on "$@" 2>&1)" || status=$?
    printf '%s\n' "$said"
    [ "$status" -eq 0 ] && grep -Eq -- "$pattern" <<<"$said"
}
kube() { inside cp1 /opt/inside/kube "$@"; }
objects() { inside cp1 bash -o pipefail -c '/opt/inside/kube GET "$1" | jq -r "$2"' objects "$1" "$2"; }

# machines: "HOST VMID" of each VM in the machines' range, as PVE's own files have them.
machines() { on sh -c "cd /etc/pve/nodes && ls -d */qemu-server/$machines_range.conf 2>/dev/null" | sed 's|/qemu-server/| |; s|\.conf$||' || true; }
count_machines() { machines | grep -c . || true; }
machine_on() { machines | sed -n "s/^$1 //p"; }
has_machines() { [ "$(count_machines)" = "$1" ] || { machines && false; }; }
# What PVE has of a machine beside its configuration.
no_disk_left() {
    local host left
    for host in pve1 pve2; do
        left="$(inside "$host" sh -c "ls -d /var/lib/vms/images/$machines_range /mnt/nas/images/$machines_range /etc/pve/firewall/$machines_range.fw /run/qemu-server/$machines_range.pid 2>/dev/null")" || true
        [ -z "$left" ] || { echo "$host: $left" && return 1; }
    done
}
templates_on_both() {
    local host
    for host in pve1 pve2; do
        on sh -c "grep -qx 'template: 1' /etc/pve/nodes/$host/qemu-server/$templates_range.conf" || { echo "none on $host" && return 1; }
    done
    says pve1 pve-autoscaler template list && says pve2 pve-autoscaler template list
}
is_linked_clone() { machines | { read -r host vmid && says "^scsi0: .*/base-$templates_range-disk-" cat "/etc/pve/nodes/$host/qemu-server/$vmid.conf"; }; }

# nodes: "NAME READY" of each node of the pool.
nodes() {
    objects /api/v1/nodes '.items[] | select(.metadata.name | startswith("workers-"))
        | "\(.metadata.name) \([.status.conditions[]? | select(.type == "Ready") | .status] | first)"'
}
nodes_are() {
    local seen
    seen="$(nodes)"
    [ "$seen" = "" ] && [ "$1" = 0 ] && return 0
    [ "$(printf '%s\n' "$seen" | grep -c ' True$')" = "$1" ] && [ "$(printf '%s\n' "$seen" | grep -c .)" = "$1" ] || { printf '%s\n' "$seen" && false; }
}
pods_wait() { [ -n "$(objects /api/v1/namespaces/default/pods '.items[] | select(.spec.nodeName == null) | .metadata.name')" ]; }
pods_run() {
    local seen
    seen="$(objects /api/v1/namespaces/default/pods '.items[] | "\(.metadata.name) \(.spec.nodeName) \(.status.phase)"')"
    [ "$(printf '%s\n' "$seen" | grep -c ' Running$')" = 3 ] && printf '%s\n' "$seen" | grep -q ' workers-' || { printf '%s\n' "$seen" && false; }
}
no_pods() { [ -z "$(objects /api/v1/namespaces/default/pods '.items[].metadata.name')" ]; }
no_tokens() {
    local seen
    seen="$(objects /api/v1/namespaces/kube-system/secrets '.items[] | select(.type == "bootstrap.kubernetes.io/token") | .metadata.name')"
    [ -z "$seen" ] || { echo "$seen" && false; }
}
no_leases() {
    local seen
    seen="$(objects /apis/coordination.k8s.io/v1/leases '.items[] | select(.metadata.name | contains("workers-")) | "\(.metadata.namespace)/\(.metadata.name)"')"
    [ -z "$seen" ] || { echo "$seen" && false; }
}
# Three pods of which the small worker that the cluster has can hold one; one machine holds the other two.
deploy() {
    kube POST /apis/apps/v1/namespaces/default/deployments '{
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "try-it", "labels": {"app": "try-it"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "try-it"}}, "template": {
            "metadata": {"labels": {"app": "try-it"}}, "spec": {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}}}'
}
undeploy() { kube DELETE /apis/apps/v1/namespaces/default/deployments/try-it '{"propagationPolicy": "Background"}'; }

apt_quiet() { on env DEBIAN_FRONTEND=noninteractive apt "$@"; }
active() { [ "$(on systemctl is-active "$1")" = active ]; }
ready() { on curl -sf http://127.0.0.1:9808/readyz; }
nothing_runs() { [ -z "$(on sh -c 'grep -lsx -e pve-autoscaler -e broker -e daemon /proc/[0-9]*/comm')" ]; }
# clones: how often the broker asked PVE for a clone since a second of the clock.
clones_since() { on journalctl --no-pager --quiet --unit="$broker" --since="@$1" --output=verbose | grep -c 'CALL=clone$' || true; }
no_refusal() { on journalctl --no-pager --unit="$broker" | no grep -F 'refused-by-broker'; }
no_error_logged() {
    local said
    said="$(on journalctl --no-pager --quiet --priority=err --unit="$daemon" --unit="$broker")"
    [ -z "$said" ] || { echo "$said" && return 1; }
}

package() {
    local version
    version="$(dpkg-deb --field "$deb" Version)"
    must "the package's checksum is right" on sh -c 'cd /srv/pve-autoscaler && sha256sum --check --ignore-missing SHA256SUMS'
    must "apt installs the package ($version) on a PVE host" apt_quiet -y install "/srv/pve-autoscaler/$(basename "$deb")"
    must "the daemon runs" soon 30 active "$daemon"
    hold "it says that it is not configured" soon 20 says "not configured" systemctl status --no-pager --lines=0 "$daemon" || true
    hold "PVE has its own version" says "^pve-manager/" pveversion || true
}

set_up() {
    must "the administrator's kubeconfig comes by scp" on scp -q -o StrictHostKeyChecking=accept-new root@cp1:/etc/kubernetes/admin.conf /root/admin.conf
    # Debian has no local-zfs here, and both hosts have a storage of their own: a template on each.
    on tee /root/answers.toml >/dev/null <<-'TOML'
	[kubernetes]
	kubeconfig = "/root/admin.conf"

	[template]
	build = true
	storage = "local-vms"

	[pool]
	max = 3
	instance_types = ["2x4GiB"]
	TOML
    hold "setup shows what it would do" says '^changed: would be$' pve-autoscaler setup --answers answers.toml --dry-run || true
    hold "and changed nothing of the package's" on dpkg --verify pve-autoscaler || true
    must "setup with a template on each host" limited_on "$setup_seconds" pve-autoscaler setup --answers answers.toml --yes
    hold "both hosts have the template" templates_on_both || true
    hold "the same answers again change nothing" says '^changed: no$' pve-autoscaler setup --answers answers.toml --yes || true
    on rm -f /root/admin.conf
    # Both hosts' storages are one disk of this machine, which may be small; and the waits before a removal are minutes as they are shipped.
    on sed -i 's/^disk = "32GiB"/disk = "8GiB"/' /etc/pve-autoscaler.toml
    on tee -a /etc/pve-autoscaler.toml >/dev/null <<-'TOML'

	[scale_down]
	unneeded_time = "20s"
	min_node_age = "0s"
	delay_after_add = "0s"
	delay_after_failure = "0s"
	TOML
    must "smaller disks and shorter waits are right, and taken" take_file
    must "the daemon reaches Kubernetes and, through the broker, PVE" soon 60 ready
}
take_file() { on sh -c 'pve-autoscaler check && systemctl reload pve-autoscaler'; }
limited_on() {
    local seconds="$1"
    shift
    on timeout --foreground "$seconds" "$@"
}

look() {
    hold "doctor finds no failure" on pve-autoscaler doctor || true
    hold "status answers" says '^  workers +0 +3 +0 ' pve-autoscaler status || true
    hold "plan answers" on pve-autoscaler plan || true
}

node() {
    local pod name
    must "a Deployment is made" deploy
    must "a pod waits, for no node has room" soon 20 pods_wait
    pod="$(objects /api/v1/namespaces/default/pods '[.items[] | select(.spec.nodeName == null) | .metadata.name] | first')"
    hold "explain tells what the pod waits for" soon 30 says 'workers-' pve-autoscaler explain pod "default/$pod" || true
    must "its machine is made and the Node Ready" soon "$machine_seconds" nodes_are 1
    hold "it is one machine, and PVE's linked clone of the host's template" is_linked_clone || true
    hold "there is no other" has_machines 1 || true
    hold "the pods run" soon 60 pods_run || true
    name="$(nodes | sed 's/ .*//')"
    hold "status shows it" soon 30 says "$name .* done" pve-autoscaler status || true
    hold "explain tells of the node" soon 30 says "$name" pve-autoscaler explain node "$name" || true
    hold "history tells of it" soon 30 says "$name" pve-autoscaler history || true
    hold "no token of a join is left" soon 60 no_tokens || true
}

evacuation() {
    local from to=pve2
    from="$(machines | sed 's/ .*//')"
    [ "$from" = pve1 ] || to=pve1
    must "$from is evacuated" on pve-autoscaler evacuate "$from"
    must "the machine is made on $to, and $from has none" soon "$evacuation_seconds" moved "$from" "$to"
    hold "the pods run there" soon 60 pods_run || true
    hold "history tells of the evacuation" says "evacuate" pve-autoscaler history || true
    hold "the evacuation ends" on pve-autoscaler evacuate --end "$from" || true
}
moved() { [ -z "$(machine_on "$1")" ] && [ -n "$(machine_on "$2")" ] && nodes_are 1 || { machines && nodes && false; }; }

removal() {
    must "the Deployment is deleted" undeploy
    must "the unneeded node goes with its machine" soon "$removal_seconds" gone
    nothing_of_machines
}
gone() { has_machines 0 && nodes_are 0; }
nothing_of_machines() {
    hold "no disk, firewall or process of a machine is left on either host" soon 30 no_disk_left || true
    hold "no token is left" soon 60 no_tokens || true
    hold "no lease of a machine is left" soon 60 no_leases || true
}

stop_in_the_middle() {
    local began
    must "no pod is left" soon 60 no_pods
    began="$(on date +%s)"
    must "the Deployment is made again" deploy
    must "a machine begins" soon "$machine_seconds" begins
    must "the service is stopped in the middle of it" on systemctl stop "$daemon"
    hold "its Node was not there yet" nodes_are 0 || true
    must "the service is started" on systemctl start "$daemon"
    must "the Node is Ready" soon "$machine_seconds" nodes_are 1
    hold "the pods run" soon 60 pods_run || true
    hold "no second machine is made" always 20 has_machines 1 || true
    hold "PVE was asked for one clone alone" test "$(clones_since "$began")" = 1 || true
}
begins() { [ "$(count_machines)" -ge 1 ]; }

# It is removed while it has a machine, then installed again; purged when it has none.
remove_and_purge() {
    local said
    said="$(apt_quiet -y remove pve-autoscaler 2>&1)" || true
    hold "apt's removal names the machine that stays" grep -E "workers-[a-z0-9-]+ \(VM $machines_range on pve" <<<"$said" || true
    hold "nothing of it runs" soon 20 nothing_runs || true
    hold "the machine stays" has_machines 1 || true
    must "apt installs it again" apt_quiet -y install "/srv/pve-autoscaler/$(basename "$deb")"
    must "it goes on with the machine" soon 90 says 'workers-.* done' pve-autoscaler status
    must "the Deployment is deleted" undeploy
    must "the machine goes" soon "$removal_seconds" gone
    nothing_of_machines
    hold "the broker refused nothing" no_refusal || true
    hold "daemon and broker logged no error" no_error_logged || true
    must "apt purges it" apt_quiet -y purge pve-autoscaler
    hold "nothing of it runs any more" soon 20 nothing_runs || true
    hold "no file of it is left but what a template was built from" no_file_left || true
    hold "the templates stay" on sh -c "ls /etc/pve/nodes/*/qemu-server/$templates_range.conf" || true
    hold "PVE's own services run" on systemctl is-active pvedaemon pveproxy pvestatd pve-cluster || true
}
no_file_left() {
    local left
    left="$(on find / -xdev '(' -path /proc -o -path /srv -o -path /root -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
        -o -path /var/lib/vz/import -o -path /var/lib/systemd ')' -prune -o -name '*pve-autoscaler*' -print)"
    [ -z "$left" ] || { echo "$left" && return 1; }
}

# shellcheck disable=SC2317 # reached by the trap
end() {
    local status=$?
    if [ "$keep" = no ]; then "$here/down.sh" || true; fi
    exit "$status"
}

keep=no
[ "${1-}" != --keep ] || { keep=yes && shift; }
deb="${1-}"
# As it is seen from where this was called.
[[ -z "$deb" || "$deb" = /* ]] || deb="$called_in/$deb"
[ -n "$deb" ] || deb="$(find target/package -maxdepth 1 -name "pve-autoscaler_*_$(dpkg --print-architecture).deb" 2>/dev/null | sort | tail -n 1)"
[ -f "$deb" ] || { echo "pve-world: there is no ${deb:-package in target/package}; packaging/build-deb.sh makes one" >&2 && exit 1; }
deb="$(readlink -f "$deb")"
# In one function, so that bash has read all of it before it begins: somebody may edit this file meanwhile.
road() {
    began=$SECONDS
    trap end EXIT
    "$here/up.sh" --fresh "$deb"
    echo "ok   $(printf '%4d' $((SECONDS - began))) s  two PVE hosts and a control plane are up"
    package
    set_up
    look
    node
    evacuation
    removal
    stop_in_the_middle
    remove_and_purge
    if [ "$missed" -gt 0 ]; then
        echo "pve-world: FAILED: $missed did not hold, after $((SECONDS - began)) s"
        exit 1
    fi
    echo "pve-world: all held, after $((SECONDS - began)) s"
}
road
exit 0
