#!/bin/bash
# Ends the world that up.sh booted. Its state stays for the next up.sh; --fresh throws that away.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

# How long a host may take to power off.
readonly off_seconds=60

# end HOST: SIGTERM makes nspawn power the container off; what does not heed it in time is ended.
end() {
    local host="$1" nspawn init=
    nspawn="$(cat "$state/$host/pid" 2>/dev/null)" || nspawn=
    if [ -n "$nspawn" ] && kill -0 "$nspawn" 2>/dev/null; then
        init="$(leader "$host")" || init=
        kill -TERM "$nspawn"
        # shellcheck disable=SC2086 # there may be no init
        limited "$off_seconds" tail --pid="$nspawn" -f /dev/null || kill -KILL "$nspawn" $init 2>/dev/null || true
    fi
    rm -f "$state/$host/pid"
    ! mountpoint -q "$state/$host/root" || umount -l "$state/$host/root"
}

need_root
for host in pve1 pve2 cp1; do end "$host"; done
ip netns delete "$net" 2>/dev/null || true
if [ "${1-}" = --fresh ]; then
    for host in "${hosts[@]}"; do
        ! mountpoint -q "$state/$host/root" || die "$state/$host/root is still mounted"
    done
    rm -rf "$state"
fi
