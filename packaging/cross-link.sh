#!/bin/bash
# The linker of a build for arm64 (packaging/cross.sh). libsystemd's own libraries are looked for beside it, where cargo
# does not say them: they are not linked, but their symbols are asked for.
set -euo pipefail
root="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../target/cross/arm64/root"
exec aarch64-linux-gnu-gcc -Wl,-rpath-link="$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" "$@"
