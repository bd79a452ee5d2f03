#!/bin/bash
# Tries the built package where it will live: installs it in booted Debian 12 and 13, looks, edits,
# freezes, upgrades, removes and purges it, and prints one line for each thing that must hold.
# Exit 0 when all held, 1 when one did not. Where such a root cannot be booted (not root, no
# namespaces, no Debian mirror) it says so and, if nothing else failed, exits 77: that says nothing about the package.
#
#   packaging/try-deb.sh [--roots] [--part PART] [SUITE...]        bookworm and trixie when none is named
#
# --roots: makes the roots that are not there yet, and tries nothing: minutes that CI has beside its other parts.
# --part: tries one part alone. `package` is the package from its installation to its purge; `road` is a new user's road from nothing to
# a node that is Ready, by the commands of README and docs/setup.md (try-deb.d/road.sh).
#
# The roots are systemd-nspawn containers with a network of their own, so that nothing of the
# machine is touched. They are kept as archives under the user's cache directory.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh
# shellcheck source=/dev/null
. contrib/dev.d/cgroups.sh

readonly cache="${XDG_CACHE_HOME:-$HOME/.cache}/pve-autoscaler/roots"
readonly in_root="packaging/try-deb.d/in-root.sh"
# What the roots have beyond the essential packages: an init, a message bus for systemctl, what the
# package depends on (dpkg fetches nothing), lintian of the release (with it comes what the road's Perl needs: IO::Socket::SSL), and
# what a PVE host is made of.
readonly packages=systemd,systemd-sysv,dbus,init-system-helpers,perl-base,procps,lintian,openssl,curl
# Roots are made anew when they are older than this, so that a release's updates are in them.
readonly root_days=30
# How long a root may take to be made, to boot, and to be tried.
readonly make_seconds=600 boot_seconds=120 try_seconds=720

roots_alone=no parts=(package road)
while [ $# -gt 0 ]; do
    case "$1 ${2-}" in
        "--roots "*) roots_alone=yes ;;
        "--part package" | "--part road") parts=("$2") && shift ;;
        -*) echo "usage: packaging/try-deb.sh [--roots] [--part package|road] [SUITE...]" >&2 && exit 2 ;;
        *) break ;;
    esac
    shift
done
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)

cannot() {
    echo "try-deb: skipped: $*" >&2
    exit 77
}

need_tools() {
    local missing=()
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
    command -v dpkg-deb >/dev/null || missing+=(dpkg)
    [ ${#missing[@]} -eq 0 ] || (get_packages "to boot Debian in containers" "${missing[@]}") ||
        cannot "apt-get could not install ${missing[*]}"
}

# Prints the archive of a suite's root; makes it when there is none or it is old.
root_archive() {
    local suite="$1" archive
    archive="$cache/$suite-$(printf '%s' "$packages" | sha256sum | cut -c1-8).tar"
    mkdir -p "$cache"
    # Another run may be making it: what it made is taken then.
    exec 8>"$archive.lock"
    flock -w "$make_seconds" 8 || true
    if [ -z "$(find "$archive" -mtime "-$root_days" 2>/dev/null)" ]; then
        echo "try-deb: making a root of $suite" >&2
        if limited "$make_seconds" mmdebstrap --quiet --variant=minbase --include="$packages" \
            "$suite" "$archive.new.tar" >"$work/$suite.make.log" 2>&1; then
            mv "$archive.new.tar" "$archive"
        elif [ ! -f "$archive" ]; then
            tail -n 5 "$work/$suite.make.log" >&2
            return 1
        fi
    fi
    exec 8>&-
    printf '%s\n' "$archive"
}

# The same package with a higher version and a changed configuration file: what an upgrade brings.
next_version() {
    local deb="$1" next="$2" tree="$work/next"
    dpkg-deb --raw-extract "$deb" "$tree"
    sed -i 's/^\(Version: .*\)$/\1+upgrade1/' "$tree/DEBIAN/control"
    echo "# changed by the next version" >>"$tree/etc/pve-autoscaler.toml"
    (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z |
        xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -z0 --build "$tree" "$next" >/dev/null
}

# Boots a suite's root and runs the checks in it.
try() {
    local suite="$1" leader nspawn timer status=0
    local root="$work/$suite"
    mkdir "$root"
    tar -xf "$archives/$suite" -C "$root" --numeric-owner
    mkdir "$root/root/try"
    cp "$deb" "$root/root/try/this.deb"
    [ ! -e "$work/next.deb" ] || cp "$work/next.deb" "$root/root/try/next.deb"
    install -m 0755 "$in_root" "$root/root/try/in-root.sh"
    cp -r tests/e2e/pve-root/perl5 "$root/root/try/"
    install -m 0755 packaging/try-deb.d/mint "$root/root/try/"
    cp -r packaging/try-deb.d/road.sh packaging/try-deb.d/road README.md docs/setup.md "$root/root/try/"
    echo "$suite" >"$root/etc/hostname"
    # The system's own timers (apt, dpkg, logrotate) write what would look like a leftover, and apt's hold dpkg's lock.
    for timer in "$root"/usr/lib/systemd/system/*.timer "$root"/lib/systemd/system/*.timer; do
        [ ! -e "$timer" ] || ln -sf /dev/null "$root/etc/systemd/system/$(basename "$timer")"
    done
    (
        enter_cgroup "try-$suite-$$" || [ "$at_once" = no ] || exit 77
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec systemd-nspawn --quiet --directory="$root" --boot "${lent[@]}" \
            --register=no --keep-unit --private-network --link-journal=no --machine="try-$suite-$$"
    ) </dev/null >"$work/$suite.console" 2>&1 &
    nspawn=$!
    echo "$nspawn" >"$work/$suite.nspawn"
    if ! leader="$(booted "$nspawn")"; then
        tail -n 5 "$work/$suite.console" >&2
        kill -TERM "$nspawn" 2>/dev/null || true
        return 77
    fi
    # nspawn gives its devices the modes of this machine's, which somebody may have changed; no service is tried with those.
    nsenter --target "$leader" --all -- chmod 0666 /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty
    limited "$try_seconds" nsenter --target "$leader" --all -- \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root \
        /root/try/in-root.sh "${parts[@]}" 2>&1 | sed -u "s/^/$suite: /" || status=$?
    # SIGTERM makes nspawn power the container off; what does not heed it in time is ended.
    kill -TERM "$nspawn" 2>/dev/null || true
    limited 30 tail --pid="$nspawn" -f /dev/null || kill -KILL "$nspawn" "$leader" 2>/dev/null || true
    remove_cgroup "try-$suite-$$"
    return "$status"
}

# Waits until the container's init has finished starting; prints its process id.
booted() {
    local nspawn="$1" leader state end=$((SECONDS + boot_seconds))
    while [ "$SECONDS" -lt "$end" ] && kill -0 "$nspawn" 2>/dev/null; do
        leader=
        # The kernel's list has no newline at its end, which read takes for a failure.
        read -r leader _ 2>/dev/null <"/proc/$nspawn/task/$nspawn/children" || true
        if [ -n "$leader" ]; then
            # "degraded" is no success to systemctl, but to us: a container lacks this and that.
            state="$(nsenter --target "$leader" --all -- systemctl is-system-running 2>/dev/null)" || true
            case "$state" in
                running | degraded)
                    printf '%s\n' "$leader"
                    return 0
                    ;;
            esac
        fi
        sleep 0.3
    done
    return 1
}

# shellcheck disable=SC2317 # reached by the trap
clean() {
    local file
    for file in "$work"/*.nspawn; do
        [ ! -f "$file" ] || kill -KILL "$(cat "$file")" 2>/dev/null || true
    done
    rm -rf "$work"
}

find_deb() {
    deb="$(find target/package -maxdepth 1 -name "pve-autoscaler_*_$(dpkg --print-architecture).deb" 2>/dev/null | sort | tail -n 1)" || true
    [ -n "$deb" ] || {
        echo "try-deb: no package in target/package; packaging/build-deb.sh makes it" >&2
        exit 1
    }
}

[ "$roots_alone" = yes ] || find_deb
[ "$(id -u)" -eq 0 ] || cannot "not root (containers need it)"
unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null || cannot "this machine allows no namespaces"
need_tools

work="$(mktemp -d "${TMPDIR:-/var/tmp}/pve-autoscaler-try.XXXXXX")"
archives="$work/archives"
mkdir "$archives"
trap clean EXIT
for suite in "${suites[@]}"; do
    archive="$(root_archive "$suite")" || cannot "no root of $suite could be made (no Debian mirror?)"
    ln -s "$archive" "$archives/$suite"
done
[ "$roots_alone" = no ] || exit 0
# A release of this very package is what a new user has been given.
lent=()
released="target/release-files/$(basename "$deb")"
if cmp --silent "$deb" "$released"; then
    lent=(--bind-ro="$(readlink -f "$(dirname "$released")"):/srv/pve-autoscaler")
fi
[ "${parts[0]}" != package ] || next_version "$deb" "$work/next.deb"

# Without groups of their own for the containers, one after the other.
at_once=yes
(enter_cgroup "try-$$") || at_once=no
remove_cgroup "try-$$"
tries=()
for suite in "${suites[@]}"; do
    try "$suite" &
    tries+=("$!")
    [ "$at_once" = yes ] || tail --pid="$!" -f /dev/null
done
result=0
for i in "${!suites[@]}"; do
    status=0
    wait "${tries[$i]}" || status=$?
    case "$status" in
        0) echo "try-deb: ${suites[$i]}: all held" ;;
        77)
            echo "try-deb: skipped: ${suites[$i]} did not boot in a container on this machine"
            [ "$result" -ne 0 ] || result=77
            ;;
        *)
            echo "try-deb: ${suites[$i]}: FAILED (status $status)"
            result=1
            ;;
    esac
done
exit "$result"
