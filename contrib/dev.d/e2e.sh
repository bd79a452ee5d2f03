# shellcheck shell=bash
# End to end: the real daemon and broker against real Kubernetes components. How it is prepared
# and run is in contrib/dev.d/e2e; a machine that cannot run it is a skip with a line.

# The status by which e2e_prepare, and so this part, says that this machine cannot run it: nobody shall take it for good.
readonly E2E_CANNOT=77

dev_e2e() {
    local status=0
    # Go from its own archive is not in every root's path.
    have go || PATH="$PATH:/usr/local/go/bin"
    # shellcheck source=/dev/null
    . contrib/dev.d/e2e
    e2e_prepare || status=$?
    if [ "$status" -eq "$E2E_CANNOT" ]; then
        skip "end to end, for the reason above"
        return "$E2E_CANNOT"
    fi
    [ "$status" -eq 0 ] || die "end to end: could not be prepared (status $status)"
    need_build
    part "binaries for end to end" shown build --locked
    part "end to end" cmd_e2e "$@"
}
