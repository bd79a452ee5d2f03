#!/bin/bash
# Makes a release of the package that is built already (target/package), signed with a key of the moment, and looks at it
# as a person does who was given it. Builds nothing: that two builds are the same is shown by `contrib/dev release`.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

fail() {
    echo "try-release: $*" >&2
    exit 1
}

shopt -s nullglob
debs=(target/package/pve-autoscaler_*_"$(dpkg --print-architecture)".deb)
[ ${#debs[@]} -eq 1 ] || fail "there is not one package in target/package: contrib/dev deb builds it"

home="$(mktemp -d)"
trap 'GNUPGHOME="$home" gpgconf --kill all; rm -rf "$home"' EXIT
GNUPGHOME="$home" gpg --batch --quiet --passphrase '' --quick-generate-key 'try-release' ed25519 sign 1y
GNUPGHOME="$home" gpg --batch --quiet --export-secret-keys >"$home/key"

packaging/build-release.sh --no-build --with "${debs[0]}" --key "$home/key"

out=target/release-files
(cd "$out" && sha256sum --quiet --check SHA256SUMS) || fail "SHA256SUMS do not agree"
for file in "$(basename "${debs[0]}")" apt/pve-autoscaler.asc; do
    [ -s "$out/$file" ] || fail "$out has no $file"
done
releases=("$out"/apt/dists/*/InRelease)
[ ${#releases[@]} -ge 1 ] || fail "no suite is signed"
# A byte of the package that changes is seen: else the sums say nothing.
cp -r "$out" "$home/changed"
printf x >>"$home/changed/$(basename "${debs[0]}")"
! (cd "$home/changed" && sha256sum --status --check SHA256SUMS) 2>/dev/null || fail "a changed package passes SHA256SUMS"
! packaging/build-release.sh --no-build 2>/dev/null || fail "a release without a package is made"
echo "try-release: a signed release of $(basename "${debs[0]}") for ${#releases[@]} suites"
