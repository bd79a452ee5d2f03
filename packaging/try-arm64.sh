#!/bin/bash
# Runs the programs of the package for arm64, under qemu where this machine is of another architecture, and prints one
# line for each thing that must hold: versions, a configuration that is read, pages and completions that are those in
# the package (which another machine's program made), and decisions of the brain. Exit 0 when all held, 1 when one did
# not. A machine that has no qemu for arm64 and gets none says so and exits 0.
#
#   packaging/try-arm64.sh [FILE.deb]      the one in target/package when none is named
#
# Nothing is installed: qemu is downloaded and unpacked below target/, and no binfmt is asked for.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh
# shellcheck source=packaging/cross.sh
. packaging/cross.sh

# How long one command may take: under qemu all takes ten times as long.
readonly command_seconds=300
readonly unpacked=target/cross/qemu work=target/cross/try

cannot() {
    echo "try-arm64: skipped: $*" >&2
    exit 0
}

# find_qemu: prints the emulator: the machine's, or one that was unpacked before.
find_qemu() {
    local one
    for one in "$(command -v qemu-aarch64-static)" "$unpacked"/usr/bin/qemu-aarch64-static "$unpacked"/usr/bin/qemu-aarch64; do
        if [ -n "$one" ] && "$one" --version >/dev/null 2>&1; then
            readlink -f "$one"
            return 0
        fi
    done
    return 1
}

# get_qemu: downloads and unpacks the emulator. Since Debian 13 it is in qemu-user, and static there.
get_qemu() {
    local world="$PWD/target/cross/qemu-apt" arch package
    arch="$(dpkg --print-architecture)"
    make_apt_world "$world"
    echo "try-arm64: fetching qemu" >&2
    apt_in "$world" "$arch" update >"$world/log" 2>&1 || true
    for package in qemu-user-static qemu-user; do
        (cd "$world" && apt_in "$world" "$arch" download "$package" >>log 2>&1) || continue
        dpkg-deb --extract "$world/${package}"_*.deb "$unpacked" || continue
        ! find_qemu >/dev/null || break
    done
    rm -rf "$world"
}

run() { limited "$command_seconds" "${runner[@]}" "$@"; }

result=0
# held WHAT COMMAND...: one line; the command's output only where it failed.
held() {
    local what="$1"
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "try-arm64: ok: $what"
    else
        tail -n 20 "$work/log" >&2
        echo "try-arm64: FAILED: $what"
        result=1
    fi
}

# says TEXT PROGRAM ARGUMENT...: the program prints this line.
says() {
    local text="$1" said
    shift
    said="$(run "$@")" || return 1
    [ "$said" = "$text" ] || { echo "it says: $said" && return 1; }
}

# made_alike: what `generate` makes is what the package has.
made_alike() {
    local made="$work/made" tree="$work/tree" share="$work/tree/usr/share" page count=0
    run "$tree/usr/bin/pve-autoscaler" generate "$made" || return 1
    for page in "$made"/man/*; do
        gzip -dc "$share/man/man${page##*.}/${page##*/}.gz" | cmp - "$page" || return 1
        count=$((count + 1))
    done
    [ "$count" -gt 10 ] || { echo "$count pages" && return 1; }
    for page in "$made"/*.schema.json; do cmp "$page" "$share/pve-autoscaler/${page##*/}" || return 1; done
    cmp "$made/completions/pve-autoscaler.bash" "$share/bash-completion/completions/pve-autoscaler" &&
        cmp "$made/configuration.md" "$share/doc/pve-autoscaler/docs/configuration.md"
}

deb="${1-}"
[ -n "$deb" ] || deb="$(find target/package -maxdepth 1 -name 'pve-autoscaler_*_arm64.deb' 2>/dev/null | sort | tail -n 1)"
[ -f "$deb" ] || {
    echo "try-arm64: no package for arm64 in target/package; packaging/build-deb.sh --arch arm64 makes it" >&2
    exit 1
}
runner=()
if [ "$(dpkg --print-architecture)" != arm64 ]; then
    make_cross_root || cannot "no libraries for arm64"
    find_qemu >/dev/null || get_qemu
    qemu="$(find_qemu)" || cannot "no qemu-aarch64-static on this machine, and apt gets none"
    runner=("$qemu" -L "$cross/root")
fi
rm -rf "$work"
mkdir -p "$work"
dpkg-deb --extract "$deb" "$work/tree"
version="$(dpkg-deb --field "$deb" Version)"
libexec="$work/tree/usr/libexec/pve-autoscaler"
held "pve-autoscaler --version" says "pve-autoscaler $version" "$work/tree/usr/bin/pve-autoscaler" --version
held "daemon --version" says "pve-autoscaler-daemon $version" "$libexec/daemon" --version
held "broker --version" says "pve-autoscaler-broker $version" "$libexec/broker" --version
held "check of the packaged example" run "$work/tree/usr/bin/pve-autoscaler" check \
    --config "$work/tree/usr/share/doc/pve-autoscaler/examples/pve-autoscaler.toml"
held "pages, completions and schemas are those in the package" made_alike
held "decisions: tests/conformance/01-packing.yaml" run "$libexec/simulator" conformance tests/conformance/01-packing.yaml
exit "$result"
