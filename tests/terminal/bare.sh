#!/bin/bash
# Runs the README's first commands as a new user would: in a bare Debian 13 with git and rustup,
# in a fresh clone of HEAD, typed into a shell on a terminal (readme.py).
#
#   tests/terminal/bare.sh [--built] [LIMIT]         LIMIT: how many seconds a command may take
#
# --built: what the commands build stays in this checkout's target/debug, where cargo finds it fresh afterwards: the
# clone has this checkout's path in the root, which is of this machine's Debian and not of Debian 13. For CI, which would build
# all of it once more for its later parts.
#
# Exit 0 when all held, 1 when it did not, 77 with a line that says why when this machine cannot
# make or enter such a root. The machine's toolchain and what cargo has downloaded are lent to the
# root, so that only Debian's packages are fetched; its ways to the registries (proxies, a
# certificate authority of its own, settings of apt, cargo and pip) are handed on as they are.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh

built=no
if [ "${1-}" = --built ]; then
    built=yes
    shift
fi
# Programs run in the suite that they are built in and in later ones: what stays is built in this machine's own.
suite=trixie own="$(. /etc/os-release && echo "${ID:-}/${VERSION_CODENAME:-}")"
if [ "$built" = yes ] && [ "${own%%/*}" = debian ]; then
    suite="${own#*/}"
elif [ "$built" = yes ]; then
    built=no
    say "this is no Debian: what is built in the root does not stay"
fi
readonly suite limit="${1:-3600}"
readonly cache="${XDG_CACHE_HOME:-$HOME/.cache}/pve-autoscaler/roots"
# What "a fresh Debian with git" has beyond the essential packages.
readonly packages=git,ca-certificates
# Roots are made anew when they are older than this; how long that may take.
readonly root_days=30 make_seconds=600
# In the root.
readonly home=/root
cargo="${CARGO_HOME:-$HOME/.cargo}"
rustup="${RUSTUP_HOME:-$HOME/.rustup}"

cannot() {
    echo "bare root: skipped: $*" >&2
    exit 77
}

need_tools() {
    [ "$(id -u)" -eq 0 ] || cannot "not root (containers need it)"
    unshare --mount --pid --uts --ipc --fork true 2>/dev/null || cannot "this machine allows no namespaces"
    command -v python3 >/dev/null || cannot "no python3"
    [ -x "$cargo/bin/rustup" ] && [ -d "$rustup/toolchains" ] || cannot "no rustup in $cargo and $rustup to lend"
    (need_packages "a bare Debian in a container" systemd-container mmdebstrap) ||
        cannot "systemd-nspawn and mmdebstrap could not be installed"
}

# Prints the archive of the root; makes it when there is none or it is old.
root_archive() {
    local archive="$cache/$suite-bare-${packages//,/-}.tar"
    mkdir -p "$cache"
    if [ -z "$(find "$archive" -mtime "-$root_days" 2>/dev/null)" ]; then
        echo "bare root: making one of $suite" >&2
        if limited "$make_seconds" mmdebstrap --quiet --variant=minbase --include="$packages" \
            "$suite" "$archive.new.tar" >"$work/make.log" 2>&1; then
            mv "$archive.new.tar" "$archive"
        elif [ ! -f "$archive" ]; then
            tail -n 5 "$work/make.log" >&2
            return 1
        fi
    fi
    printf '%s\n' "$archive"
}

# The machine's ways to the registries, whatever they are.
lend_ways() {
    local file
    apt-config dump 2>/dev/null | grep -E '^Acquire::[a-z]+::(Proxy|Verify-Peer|CaInfo)' \
        >"$root/etc/apt/apt.conf.d/90lent" || true
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do
        [ ! -f "$file" ] || install -D -m 0644 "$file" "$root$file"
    done
    for file in "$cargo"/config.toml "$cargo"/config; do
        [ ! -f "$file" ] || install -D -m 0600 "$file" "$root$home/.cargo/${file##*/}"
    done
    cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
    chroot "$root" update-ca-certificates >/dev/null 2>&1
    # How cargo builds is handed on as well: CI keeps nothing for a next build, and reads no debugger.
    # That it is CI, too: there a test fails that elsewhere may say what it lacks.
    # Variables that say where certificates are name Debian's place for them, or nothing of the root.
    env -0 | grep -zE '^(CI|[a-zA-Z]+_proxy|[A-Z]+_PROXY|CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE|PROFILE)_[A-Z_]+|CARGO_INCREMENTAL|RUSTUP_(DIST|UPDATE)_[A-Z]+|PIP_[A-Z_]+)=' |
        sed -z 's/^/--setenv=/' >"$work/ways"
}

# The toolchain and cargo's downloads. What cargo downloads or unpacks stays in the root.
lend_toolchain() {
    mkdir -p "$root$home/.rustup" "$root$home/.cargo/bin" "$root$home/.cargo/registry"
    [ ! -d "$cargo/registry/index" ] || cp -a "$cargo/registry/index" "$root$home/.cargo/registry/"
    [ ! -d "$cargo/registry/cache" ] || cp -a "$cargo/registry/cache" "$root$home/.cargo/registry/"
    # shellcheck disable=SC2016 # for the shell in there
    echo 'export PATH="$HOME/.cargo/bin:$PATH"' >>"$root$home/.bashrc"
}

work="$(mktemp -d "${TMPDIR:-/var/tmp}/pve-autoscaler-bare.XXXXXX")"
root="$work/root"
# Nobody waits for it: some 200,000 files, minutes on a slow disk.
trap 'setsid --fork rm -rf --one-file-system "$work"' EXIT
need_tools
archive="$(root_archive)" || cannot "no root of $suite could be made (no Debian mirror?)"
mkdir "$root"
tar -xf "$archive" -C "$root" --numeric-owner
# As every installer writes it, and mmdebstrap does not.
[ -s "$root/etc/hosts" ] || printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$root/etc/hosts"
lend_ways
lend_toolchain
clone="$home/pve-autoscaler"
[ "$built" = no ] || clone="$PWD"
mkdir -p "$root$(dirname "$clone")"
git clone --quiet --no-hardlinks . "$root$clone"
install -m 0755 tests/terminal/hold-apt "$root$home/hold-apt"
readarray -d '' -t ways <"$work/ways"
# What contrib/dev builds once for itself (cargo-deny) is kept for the next time, for this suite.
mkdir -p "$cache/$suite-built"
binds=(--bind="$cache/$suite-built:$home/.cache/pve-autoscaler" --bind-ro="$rustup:$home/.rustup" --bind-ro="$cargo/bin:$home/.cargo/bin")
# Reference material that some tests read lies beside the checkout.
[ ! -d ../shared ] || binds+=(--bind-ro="$(readlink -f ../shared):$(dirname "$clone")/shared")
if [ "$built" = yes ]; then
    mkdir -p target/debug "$root$clone/target/debug"
    binds+=(--bind="$PWD/target/debug:$clone/target/debug")
fi

enter=(systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --resolv-conf=copy-host
    --link-journal=no --machine="bare-$$" --as-pid2 --chdir="$home" "${binds[@]}" "${ways[@]}")

# Apart from the real run, so that a machine without containers is told from a command that fails.
"${enter[@]}" --pipe true </dev/null >"$work/enter.log" 2>&1 ||
    cannot "systemd-nspawn does not work on this machine: $(tail -n 1 "$work/enter.log")"
python3 tests/terminal/readme.py "$limit" "$clone" "${enter[@]}" --console=interactive bash -i
