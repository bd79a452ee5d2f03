# shellcheck shell=bash
# shellcheck disable=SC2034 # what is unused here is used by who sources it
# What the world's scripts share: where it lies, what it is called, and how a command gets into one of its hosts. They source it from
# the repository's root.
# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh
# shellcheck source=/dev/null
. contrib/dev.d/cgroups.sh

readonly here=tests/pve-world
readonly world="${XDG_CACHE_HOME:-$HOME/.cache}/pve-autoscaler/pve-world"
# What changes while it runs: overlays of the roots, the shared storage, certificates. --fresh throws it away.
readonly state="$world/state"
# The network namespace that all of it is in, and its addresses: the gateway, cp1, Debian's mirror, the hosts.
readonly net=pve-world
readonly gateway=10.231.0.1
readonly hosts=(cp1 pve1 pve2)

# What cannot be tried on this machine is no failure of the product.
cannot() {
    echo "pve-world: skipped: $*" >&2
    exit 77
}

# leader HOST: the process id of its init, seen from this machine; fails where the host is not up.
leader() {
    local nspawn first=
    nspawn="$(cat "$state/$1/pid" 2>/dev/null)" && kill -0 "$nspawn" 2>/dev/null || return 1
    # The kernel's list has no newline at its end, which read takes for a failure.
    read -r first _ 2>/dev/null <"/proc/$nspawn/task/$nspawn/children" || true
    [ -n "$first" ] && [ "$(cat "/proc/$first/comm")" = systemd ] && printf '%s\n' "$first"
}

# inside HOST COMMAND...: runs it there, as root in /root.
inside() {
    local pid
    pid="$(leader "$1")" || { echo "pve-world: $1 is not up; $here/up.sh boots it" >&2 && return 1; }
    shift
    nsenter --target "$pid" --all -- /usr/bin/env -i --chdir=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LANG=C.UTF-8 HOME=/root TERM="${TERM:-xterm}" "$@"
}

need_root() {
    [ "$(id -u)" -eq 0 ] || cannot "not root (containers need it)"
    unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null || cannot "this machine allows no namespaces"
}
