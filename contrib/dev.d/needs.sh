# shellcheck shell=bash
# What the machine must have, and how it comes there: Debian's packages by apt-get (as root or
# through sudo), the toolchain of rust-toolchain.toml through rustup. Nothing else is installed.

# How long the package manager may take; a mirror that hangs must not hang us.
readonly APT_TIMEOUT=900
# How long rustup may take to bring the pinned toolchain.
readonly RUSTUP_TIMEOUT=600

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        return 1
    fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]
}

# need_packages WHY PACKAGE...: installs those that are missing.
need_packages() {
    local why="$1" package missing=()
    shift
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    have apt-get || die "needs ${missing[*]} ($why); this is not Debian: install them by hand"
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        die "needs root or sudo for: apt-get install ${missing[*]} ($why)"
    fi
    say "installing ${missing[*]} ($why)"
    # The lists of a fresh machine are empty or old: look first, install then.
    as_root timeout "$APT_TIMEOUT" apt-get -q -y update >/dev/null ||
        say "apt-get update failed; trying with the lists at hand"
    as_root timeout "$APT_TIMEOUT" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y install --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install ${missing[*]} ($why)"
}

# What every build needs: Rust, which we do not bring ourselves, a linker and libsystemd.
need_build() {
    need_cargo
    need_packages "a linker and libsystemd's headers" gcc libc6-dev pkg-config libsystemd-dev
    need_rust
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
    if timeout "$RUSTUP_TIMEOUT" env RUST_BACKTRACE=0 rustup toolchain install "$pinned" \
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
