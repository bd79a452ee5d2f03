# shellcheck shell=bash
# What the machine must have, and how it comes there: Debian's packages by apt-get (as root or
# through sudo), the toolchain of rust-toolchain.toml through rustup. Nothing else is installed.

# How long the package manager may take; a mirror that hangs must not hang us.
readonly APT_TIMEOUT=900
# How long somebody else's apt or dpkg is waited for: a fresh machine updates itself as it starts.
readonly LOCK_TIMEOUT=600
# How long rustup may take to bring the pinned toolchain.
readonly RUSTUP_TIMEOUT=600
# How long cargo may take to build cargo-deny, and the version of it.
readonly DENY_TIMEOUT=1500 DENY_VERSION=0.20.2

have() { command -v "$1" >/dev/null 2>&1; }

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]
}

# limited SECONDS COMMAND...: ends the command after this time. It stays in the terminal's foreground, where
# Ctrl-C reaches it and where it may set the terminal, and has no input that it could wait for: plain
# `timeout` makes a process group in the background, and there a program that touches the terminal is
# stopped without a word (SIGTTOU), as apt is.
limited() {
    timeout --foreground --kill-after=10 "$@" </dev/null
}

as_root_limited() {
    if [ "$(id -u)" -eq 0 ]; then
        limited "$@"
    else
        # sudo asks on the terminal itself, whatever its input is.
        sudo timeout --foreground --kill-after=10 "$@" </dev/null
    fi
}

# apt_get ARGUMENT...: apt-get without questions or output; waits while another program holds its locks.
apt_get() {
    local said status until=$((SECONDS + LOCK_TIMEOUT)) told=no
    while true; do
        status=0
        # Nothing of it asks or shows: no terminal of its own either.
        said="$(as_root_limited "$APT_TIMEOUT" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y \
            -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=10 "$@" 2>&1 >/dev/null)" || status=$?
        [ "$status" -ne 0 ] || return 0
        if ! printf '%s' "$said" | grep -qE 'Could not get lock|Unable to (acquire|lock)'; then
            printf '%s\n' "$said" >&2
            return "$status"
        elif [ "$SECONDS" -ge "$until" ]; then
            printf '%s\n' "$said" >&2
            say "another program has held apt's locks for $LOCK_TIMEOUT s"
            return "$status"
        elif [ "$told" = no ]; then
            say "another program holds apt's locks; waiting for it, $LOCK_TIMEOUT s at most"
            told=yes
        fi
        sleep 3
    done
}

# need_packages WHY PACKAGE...: installs those that are missing.
need_packages() {
    local why="$1" package missing=()
    shift
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] || get_packages "$why" "${missing[@]}" ||
        die "apt-get could not install ${missing[*]} ($why)"
}

# get_packages WHY PACKAGE...: installs them; fails where that cannot be done.
get_packages() {
    local why="$1"
    shift
    have apt-get || die "needs $* ($why); this is not Debian: install them by hand"
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        die "needs root or sudo for: apt-get install $* ($why)"
    fi
    say "installing $* ($why)"
    # The lists of a fresh machine are empty or old: look first, install then.
    apt_get update || say "apt-get update failed; trying with the lists at hand"
    apt_get install --no-install-recommends "$@"
}

# What every build needs: Rust, which we do not bring ourselves, a linker and libsystemd.
need_build() {
    need_cargo
    need_packages "a linker and libsystemd's headers" gcc libc6-dev pkg-config libsystemd-dev
    need_rust
}

# say_space GB WHAT: says so where WHAT, which takes about so many GB, may find no room: a disk that becomes full ends a build after
# minutes, with a word of the linker's. What an earlier build left in the folder counts: it is used again, or replaced. It stops
# nothing, since how cargo is told to build (CARGO_PROFILE_DEV_DEBUG, CARGO_INCREMENTAL) makes it half as much.
say_space() {
    local wanted="$1" what="$2" folder="${CARGO_TARGET_DIR:-target}" place free used=0
    place="$folder"
    while [ ! -d "$place" ]; do place="$(dirname "$place")"; done
    free="$(df --output=avail --block-size=1M "$place" | tail -n 1)"
    [ "$free" -lt $((wanted * 1024)) ] || return 0
    [ ! -d "$folder" ] || used="$(du -sm "$folder" | cut -f1)"
    [ $((free + used)) -lt $((wanted * 1024)) ] || return 0
    say "$what takes about $wanted GB below $(readlink -m "$folder"), where $((free / 1024)) GB are free: if it fails for" \
        "want of room, make some, or set CARGO_TARGET_DIR to a folder on another disk"
}

# What a build for arm64 needs beyond that: Debian's cross compiler and Rust's library. Fails where they are not to be had.
get_cross() {
    local package missing=() target=aarch64-unknown-linux-gnu
    for package in gcc-aarch64-linux-gnu libc6-dev-arm64-cross; do
        installed "$package" || missing+=("$package")
    done
    # In a shell of its own: it ends the script where there is neither root nor sudo.
    [ ${#missing[@]} -eq 0 ] || (get_packages "to build for arm64" "${missing[@]}") || return 1
    [ ! -d "$(rustc --print target-libdir --target "$target")" ] || return 0
    have rustup || return 1
    say "installing Rust's standard library for arm64 through rustup"
    limited "$RUSTUP_TIMEOUT" rustup target add "$target"
}

need_cargo() {
    if ! have cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    have cargo || die "no cargo: install rustup from https://rustup.rs, or Debian's package rustup"
}

# The pinned toolchain; the installed stable serves when it is the very same version. Where neither
# is there and rustup cannot bring it, a stable that is new enough serves, so that a machine without
# rustup's server can still build.
need_rust() {
    have rustup || return 0
    [ -z "${RUSTUP_TOOLCHAIN:-}" ] || return 0
    local pinned floor stable
    pinned="$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)"
    floor="$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)"
    if rustup toolchain list | grep -q "^$pinned\(-\| \|$\)"; then
        return 0
    fi
    stable="$(RUSTUP_AUTO_INSTALL=0 rustc +stable --version 2>/dev/null | cut -d' ' -f2)" || stable=
    if [ "$stable" = "$pinned" ]; then
        export RUSTUP_TOOLCHAIN=stable
        return 0
    fi
    say "installing Rust $pinned (rust-toolchain.toml asks for it) through rustup"
    if limited "$RUSTUP_TIMEOUT" env RUST_BACKTRACE=0 rustup toolchain install "$pinned" \
        --profile minimal --component rustfmt --component clippy --no-self-update; then
        return 0
    fi
    if [ -n "$stable" ] && printf '%s\n%s\n' "$floor" "$stable" | sort -V -C; then
        say "Rust $pinned is not to be had; using the installed stable, $stable"
        export RUSTUP_TOOLCHAIN=stable
        return 0
    fi
    die "Rust $pinned is not to be had and no installed stable is at least $floor"
}

# shown COMMAND ARGUMENT...: cargo with its progress where somebody looks at it; nothing but errors elsewhere, as in CI.
shown() {
    local command="$1"
    shift
    if [ -t 2 ]; then
        cargo "$command" "$@"
    else
        cargo "$command" --quiet "$@"
    fi
}

# Says when nothing has been built here yet, since it takes a while.
first_build() {
    [ ! -e "${CARGO_TARGET_DIR:-target}/debug/.fingerprint" ] || return 0
    say "the first build: some 250 libraries, 2 to 4 minutes on two cores; later ones take seconds"
}

# Prints which cargo-deny to run: the machine's, or one that cargo builds into the user's cache.
find_deny() {
    local place="${XDG_CACHE_HOME:-$HOME/.cache}/pve-autoscaler/cargo-deny-$DENY_VERSION"
    if have cargo-deny; then
        echo cargo-deny
        return 0
    fi
    if [ ! -x "$place/bin/cargo-deny" ]; then
        say "building cargo-deny $DENY_VERSION into $place, once: 2 to 3 minutes on two cores"
        # Built in little time rather than to be fast: it works for a second.
        limited "$DENY_TIMEOUT" env -u CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_LTO=off \
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
            cargo install --quiet --locked --root "$place" "cargo-deny@$DENY_VERSION" >&2 || return 1
    fi
    echo "$place/bin/cargo-deny"
}
