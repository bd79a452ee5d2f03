#!/bin/bash
# Ends the world that up.sh booted. Its state stays for the next up.sh; --fresh throws that away.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

# How long a host may take to power off. What is thrown away need not do so in order.
off_seconds=60
[ "${1-}" != --fresh ] || off_seconds=0

# nspawn_of HOST: the process that holds the container, while it lives.
nspawn_of() {
    local nspawn
    nspawn="$(cat "$state/$1/pid" 2>/dev/null)" && kill -0 "$nspawn" 2>/dev/null && printf '%s\n' "$nspawn"
}

# ask HOST: SIGTERM makes nspawn power the container off.
ask() {
    local nspawn
    nspawn="$(nspawn_of "$1")" && kill -TERM "$nspawn"
}

# end HOST: what does not heed it in time is ended, and with its init all that runs in it.
end() {
    local host="$1" nspawn init
    if nspawn="$(nspawn_of "$host")"; then
        init="$(leader "$host")" || init=
        # shellcheck disable=SC2086 # there may be no init
        { [ "$off_seconds" -gt 0 ] && limited "$off_seconds" tail --pid="$nspawn" -f /dev/null; } || kill -KILL $init "$nspawn" 2>/dev/null || true
        limited 20 tail --pid="$nspawn" -f /dev/null || true
    fi
    remove_cgroup "pve-world-$host"
    rm -f "$state/$host/pid"
    ! mountpoint -q "$state/$host/root" || umount -l "$state/$host/root"
}

need_root
for host in pve1 pve2 cp1; do
    [ "$off_seconds" -eq 0 ] || ask "$host" || true
done
for host in pve1 pve2 cp1; do end "$host"; done
ip netns delete "$net" 2>/dev/null || true
if [ "${1-}" = --fresh ]; then
    for host in "${hosts[@]}"; do
        ! mountpoint -q "$state/$host/root" || die "$state/$host/root is still mounted"
    done
    # PVE lets nobody change the disks of templates.
    for images in "$state/nas" "$state"/pve?/upper/var/lib/vms; do
        [ ! -d "$images" ] || chattr -R -i "$images"
    done
    rm -rf --one-file-system "$state"
fi
