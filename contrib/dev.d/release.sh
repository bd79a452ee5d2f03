# shellcheck shell=bash
# What a release has, in target/release-files: the packages, a bill of materials, checksums, and a repository for apt.

dev_release() {
    local arguments=("$@")
    while [ $# -gt 0 ]; do
        case "$1" in
            --key | --with | --profile) [ $# -ge 2 ] || die "release $1 wants a value"; shift ;;
            *) die "release knows --key KEY, --with FILE.deb and --profile PROFILE; not $1" ;;
        esac
        shift
    done
    need_build
    say_space 16 "building the packages twice"
    need_packages "to build a release" build-essential debhelper dpkg-dev apt-utils gpg gpg-agent python3 xz-utils
    python3 tests/page/pictures.py || die "a release has README's pictures of the page that is in it"
    # Who brings a package for arm64, or is such a machine, needs no cross compiler; where it is not to be had the
    # script says what is missing.
    case "$(dpkg --print-architecture) ${arguments[*]}" in
        arm64* | *_arm64.deb*) ;;
        *) get_cross || true ;;
    esac
    part "release" packaging/build-release.sh "${arguments[@]}"
}
