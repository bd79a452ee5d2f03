# shellcheck shell=bash
# The Debian package.

dev_deb() {
    local try=no arch profile=deb
    arch="$(dpkg --print-architecture)"
    while [ $# -gt 0 ]; do
        case "$1 ${2-}" in
            "--try "*) try=yes ;;
            # Programs that may have no debug symbols, of which lintian would warn.
            "--quick "*) profile=dev && export DEB_BUILD_OPTIONS=noautodbgsym COMPRESSION=-z0 ;;
            "--arch arm64" | "--arch $arch") arch="$2" && shift ;;
            *) die "deb knows --try, --quick and --arch arm64" ;;
        esac
        shift
    done
    if [ "$arch" != "$(dpkg --print-architecture)" ]; then
        deb_for_arm64 "$try"
        return
    fi
    need_build
    say_space 5 "building the package"
    need_packages "to build and check the package" build-essential debhelper dpkg-dev lintian
    # Quick: the same package of programs that are large, for trying it.
    part "package" packaging/build-deb.sh --profile "$profile"
    part "lintian" packaging/check-deb.sh
    need_packages "to make a release of it" apt-utils gpg gpg-agent python3 xz-utils
    part "a release of it" packaging/try-release.sh
    [ "$try" = no ] || part "install in Debian 12 and 13" packaging/try-deb.sh
}

# deb_for_arm64 TRY: cross-built, and its programs run under qemu.
deb_for_arm64() {
    [ "$1" = no ] || die "deb --try boots systems of this machine's architecture; what is built for arm64 runs under qemu"
    need_build
    say_space 8 "building the package for arm64"
    need_packages "to build and check the package" build-essential debhelper dpkg-dev lintian
    get_cross || die "the package for arm64 cannot be built here"
    part "package for arm64" packaging/build-deb.sh --arch arm64
    part "lintian" packaging/check-deb.sh
    part "its programs under qemu" packaging/try-arm64.sh
}
