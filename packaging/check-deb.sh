#!/bin/bash
# Checks the built package as Debian would: lintian of this machine's release, without a tag of
# weight E or W.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

debs=(target/package/*.deb)
[ -f "${debs[0]}" ] || {
    echo "check-deb: no package in target/package; packaging/build-deb.sh makes it" >&2
    exit 1
}
lintian --version
lintian --display-experimental --pedantic --fail-on error,warning --allow-root "${debs[@]}"
