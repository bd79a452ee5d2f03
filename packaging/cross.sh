# shellcheck shell=bash
# What a build for arm64 on another machine needs: Debian's cross compiler, Rust's standard library for arm64, and
# libsystemd of that architecture. The last is unpacked below target/, not installed: the machine stays of one
# architecture. Read from the repository's root, after needs.sh.

# shellcheck source=packaging/own-apt.sh
. packaging/own-apt.sh

readonly cross_target=aarch64-unknown-linux-gnu cross_gnu=aarch64-linux-gnu
# What build-deb.sh and try-arm64.sh read: packages/NAME as dpkg-deb unpacks them, with what dpkg-shlibdeps reads of
# them, and root/ with the files of all of them, for the linker, pkg-config and qemu.
readonly cross=target/cross/arm64
# Made anew when it is older than this, so that Debian's updates are in it.
readonly cross_days=30

# why_not_cross: says what is missing for arm64, nothing where all is there. That of libsystemd says make_cross_root.
why_not_cross() {
    if ! have "$cross_gnu-gcc"; then
        echo "no $cross_gnu-gcc (Debian's package gcc-aarch64-linux-gnu)"
    elif ! echo 'int main(void) { return 0; }' | "$cross_gnu-gcc" -include stdio.h -x c -o /dev/null - 2>/dev/null; then
        echo "$cross_gnu-gcc links no program (Debian's package libc6-dev-arm64-cross)"
    elif ! [ -d "$(rustc --print target-libdir --target "$cross_target" 2>/dev/null)" ]; then
        echo "no standard library of Rust for arm64 (rustup target add $cross_target)"
    fi
}

# make_cross_root: libsystemd for arm64 and what it links to, below target/cross/arm64, where they are not there yet.
make_cross_root() {
    local world="$PWD/$cross/apt" deb
    [ -z "$(find "$cross/complete" -mtime "-$cross_days" 2>/dev/null)" ] || return 0
    rm -rf "$cross"
    make_apt_world "$world"
    echo "cross: fetching libsystemd for arm64" >&2
    # A source without arm64 is no failure: what counts is whether the package comes.
    apt_in "$world" arm64 update >"$cross/apt.log" 2>&1 || true
    apt_in "$world" arm64 --download-only --no-install-recommends install libsystemd-dev >>"$cross/apt.log" 2>&1 || {
        grep -E '^[EW]:' "$cross/apt.log" | tail -n 3 >&2
        echo "cross: apt gets no libsystemd-dev for arm64 with this machine's sources" >&2
        return 1
    }
    mkdir -p "$cross/root" "$cross/packages"
    for deb in "$world"/cache/archives/*.deb; do
        dpkg-deb --raw-extract "$deb" "$cross/packages/$(dpkg-deb --field "$deb" Package)" || return 1
        dpkg-deb --extract "$deb" "$cross/root" || return 1
    done
    # Packages of Debian 13 have nothing in /lib, where programs look for the dynamic linker.
    [ -e "$cross/root/lib" ] || ln -s usr/lib "$cross/root/lib" || return 1
    rm -rf "$world"
    touch "$cross/complete"
}

# use_cross: has cargo, run after it, compile and link for arm64. It exports; call it in a shell of its own.
use_cross() {
    local name=${cross_target//-/_}
    # It adds the libraries' folder, so that rustc has the same flags as for this machine.
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$PWD/packaging/cross-link.sh"
    export "CC_$name=$cross_gnu-gcc" "AR_$name=$cross_gnu-ar"
    export "PKG_CONFIG_ALLOW_CROSS_$name=1" "PKG_CONFIG_SYSROOT_DIR_$name=$PWD/$cross/root"
    export "PKG_CONFIG_LIBDIR_$name=$PWD/$cross/root/usr/lib/$cross_gnu/pkgconfig"
}

# cross_packs_relocations: whether the linker can write relative relocations packed; that of Debian 12
# ignores it for arm64.
cross_packs_relocations() {
    echo 'int main(void) { return 0; }' |
        "$cross_gnu-gcc" -x c -pie -Wl,--fatal-warnings -Wl,-z,pack-relative-relocs -o /dev/null - 2>/dev/null
}

# cross_shlibs: options with which dpkg-shlibdeps reads the unpacked packages, whose libraries no dpkg knows.
cross_shlibs() {
    local package
    for package in "$PWD/$cross"/packages/*; do
        [ ! -f "$package/DEBIAN/symbols" ] || printf -- '-S%s ' "$package"
    done
}
