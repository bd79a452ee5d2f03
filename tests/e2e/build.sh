#!/bin/bash
# Builds the real Kubernetes components of the end-to-end test from their
# published Go modules, once per version, and prints the directory they lie in.
#
#   tests/e2e/build.sh           build what is missing, print the directory
#   tests/e2e/build.sh --print   print the directory, build nothing
#
# PVE_AUTOSCALER_KUBERNETES=1.35.4 asks for that version in the place of the one in
# components/go.mod: the same programs, built from that version's own list of modules.
#
# The directory's name is the Kubernetes version and a hash of everything that
# goes into the build, so a second run with nothing changed builds nothing.
# Exit 77: Go (or its needed version) is not here; the caller skips the test.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
module=$here/components
components=(kube-apiserver kube-controller-manager kube-scheduler kubeadm)
# A cold build takes 5 to 15 minutes on two cores, with the downloads.
deadline_seconds=2400

say() { printf 'e2e build: %s\n' "$*" >&2; }

own=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes v\([0-9.]*\)$/\1/p' "$module/go.mod")
version=${PVE_AUTOSCALER_KUBERNETES:-$own}
[[ $version =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)$ ]] || {
	say "\"$version\" is no version of Kubernetes: PVE_AUTOSCALER_KUBERNETES, or k8s.io/kubernetes in $module/go.mod"
	exit 1
}
major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]} patch=${BASH_REMATCH[3]}

inputs=(hollow-node/*.go "$here/build.sh")
[[ $version == "$own" ]] && inputs=(go.mod go.sum "${inputs[@]}")
# shellcheck disable=SC2068  # the pattern among them is spread in the module's folder
hash=$(cd "$module" && sha256sum ${inputs[@]} | sed "s|$here/||" | sha256sum | cut -c1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pve-autoscaler/e2e
out=$cache/v$version-$hash

if [[ ${1:-} == --print ]]; then
	printf '%s\n' "$out"
	exit 0
fi

mkdir -p "$cache"
# Two runs at once must not build twice.
exec 9>"$cache/lock"
flock -w "$deadline_seconds" 9 || {
	say "another build holds $cache/lock for more than $deadline_seconds s"
	exit 1
}
if [[ -e $out/complete ]]; then
	printf '%s\n' "$out"
	exit 0
fi

command -v go >/dev/null || {
	say 'Go is not installed; the Kubernetes components cannot be built'
	exit 77
}
needed=$(sed -n 's/^go //p' "$module/go.mod")
go_flags=-mod=readonly
if ! (cd "$module" && go version >/dev/null 2>&1); then
	say "Go $needed or newer is needed, $(cd / && go version) is here"
	exit 77
fi

# kubeadm compares the versions of the components with each other.
link='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	link+=" -X $package.gitVersion=v$version -X $package.gitMajor=$major"
	link+=" -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done

work=$(mktemp -d "$cache/building.XXXXXX") other=
trap 'rm -rf "$work" ${other:+"$other"}' EXIT

# A module like ours, of another version of Kubernetes: it requires what that version's own go.mod does. Its parts,
# which have no version there (they are folders beside it), are modules of the version 0.MINOR.PATCH.
if [[ $version != "$own" ]]; then
	other=$(mktemp -d "$cache/module.XXXXXX")
	printf 'module pve-autoscaler/e2e\n\ngo %s\n' "$needed" >"$other/go.mod"
	source=$(cd "$other" && timeout --foreground "$deadline_seconds" go mod download -json "k8s.io/kubernetes@v$version" |
		sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[[ -n $source ]] || {
		say "the Go module proxy has no k8s.io/kubernetes v$version"
		exit 1
	}
	{
		sed -n '/^require (/,/^)/p' "$source/go.mod"
		printf 'require k8s.io/kubernetes v%s\n' "$version"
		sed -n 's/^\t\(k8s\.io\/[a-z-]*\) v0\.0\.0\( .*\)\?$/\1/p' "$source/go.mod" |
			sed "s|.*|replace & => & v0.$minor.$patch|"
	} >>"$other/go.mod"
	cat "$source/go.sum" >"$other/go.sum"
	cp -r "$module/hollow-node" "$other/"
	module=$other
	# Sums of those parts are not in that version's go.sum.
	go_flags=-mod=mod
fi

build() {
	(cd "$module" && CGO_ENABLED=0 GOFLAGS=$go_flags timeout --foreground "$deadline_seconds" \
		nice -n 10 go build -p 2 -trimpath -buildvcs=false -ldflags "$link" -o "$work/" "$@")
}
# One after the other: the big links would need the memory at the same time.
for component in "${components[@]}"; do
	say "$component v$version"
	build "k8s.io/kubernetes/cmd/$component" >&2
done
say 'hollow-node'
build ./hollow-node >&2

touch "$work/complete"
rm -rf "$out"
mv "$work" "$out"
trap - EXIT
say "built into $out"
printf '%s\n' "$out"
