# shellcheck shell=bash
# The Debian package.

dev_deb() {
    local try=no
    case "${1:-}" in
        '') ;;
        --try) try=yes ;;
        *) die "deb knows --try alone" ;;
    esac
    need_build
    need_space 5 "building the package"
    need_packages "to build and check the package" build-essential debhelper dpkg-dev lintian
    part "package" packaging/build-deb.sh
    part "lintian" packaging/check-deb.sh
    [ "$try" = no ] || part "install in Debian 12 and 13" packaging/try-deb.sh
}
