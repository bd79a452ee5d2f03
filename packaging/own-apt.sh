# shellcheck shell=bash
# apt with lists, cache and status of its own, so that nothing of the machine's changes and no lock of its is taken. The
# machine's sources, keys, proxies and certificates stay in force where the caller does not replace Dir::Etc.
# needs.sh, with `limited`, is read before.

# How long one command may take.
readonly own_apt_seconds=300

# make_apt_world WORLD: an empty place for apt_in.
make_apt_world() {
    rm -rf "$1"
    mkdir -p "$1"/{etc/preferences.d,etc/apt.conf.d,state/lists/partial,cache/archives/partial}
    touch "$1/status"
}

# apt_in WORLD ARCH ARGUMENT...: as on a machine of this architecture with nothing installed.
apt_in() {
    local world="$1" arch="$2"
    shift 2
    limited "$own_apt_seconds" apt-get -o Dir::State::status="$world/status" -q -y -o Dir::State="$world/state" \
        -o Dir::Cache="$world/cache" -o APT::Sandbox::User=root \
        -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" "$@"
}
