#!/bin/bash
# Runs a command in a host of the world, as root in /root. Without a command, a shell.
#
#   tests/pve-world/in.sh pve1|pve2|cp1 [COMMAND...]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

[ $# -gt 0 ] || { echo "usage: $here/in.sh HOST [COMMAND...]" >&2 && exit 2; }
[ $# -gt 1 ] || set -- "$1" bash -i
inside "$@"
