# shellcheck shell=bash
# The package's road on two hosts of PVE's own code (tests/pve-world); a machine that cannot boot them is a skip with a line.

dev_pve-world() {
    local status=0
    tests/pve-world/road.sh "$@" || status=$?
    [ "$status" -ne 77 ] || skip "the world of PVE's own code, for the reason above"
    return "$status"
}
