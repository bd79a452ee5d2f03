#!/bin/bash
# Makes what a release has, in target/release-files:
#
#   pve-autoscaler_VERSION_ARCH.deb   built twice, in folders of different names, and the same byte for byte
#   pve-autoscaler-VERSION.cdx.json   the bill of materials (CycloneDX)
#   apt/                              a repository: pool/ and dists/, made by dpkg-scanpackages and apt-ftparchive,
#                                     signed where a key is given, and read by apt before this ends
#   SHA256SUMS                        of all of it
#
#   packaging/build-release.sh [--key KEY] [--with FILE.deb]... [--profile deb|dev]
#
# KEY: a key of gpg's that can sign, by its fingerprint, or a file with a secret key. --with: a package of the same
# version that was built elsewhere, on arm64 for instance: nothing is cross-built here, since pages and completions are made
# by running the program. --profile dev is for trying this script.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh

# How long apt may take for a repository on this disk.
readonly apt_seconds=120
readonly out=target/release-files work=target/release-work
readonly component=main
# The suites, each with the version of its C library: a program asks for the one that it was built with, or an older one.
readonly suites=(bookworm:2.36 trixie:2.41)

fail() {
    echo "build-release: $*" >&2
    exit 1
}

key='' profile=deb others=()
while [ $# -gt 0 ]; do
    case "${1-} ${2+value}" in
        "--key value") key="$2" ;;
        "--with value") others+=("$(readlink -f "$2")") ;;
        "--profile value") profile="$2" ;;
        *) fail "usage: packaging/build-release.sh [--key KEY] [--with FILE.deb]... [--profile deb|dev]" ;;
    esac
    shift 2
done

version="$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)"
SOURCE_DATE_EPOCH="$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)"
export SOURCE_DATE_EPOCH

# What is built is a commit, not what lies about.
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; a release is made of a commit"

# built FOLDER: the packages of the present commit, built in this folder of $work.
built() {
    local folder="$work/$1"
    mkdir -p "$folder"
    git archive --format=tar HEAD | tar -xf - -C "$folder"
    echo "build-release: building in $folder" >&2
    env -u CARGO_TARGET_DIR -u CARGO_INCREMENTAL -u RUSTFLAGS "$folder/packaging/build-deb.sh" --profile "$profile" >&2
}

# Both builds made the same packages.
reproducible() {
    local one="$work/one/target/package" two="$work/the-other-one/target/package" deb same=yes
    for deb in "$one"/*.deb; do
        cmp "$deb" "$two/$(basename "$deb")" >&2 || {
            same=no
            differs "$deb" "$two/$(basename "$deb")"
        }
    done
    [ "$same" = yes ] || fail "two builds of the same commit differ"
}

# differs A B: which files of two packages differ.
differs() {
    rm -rf "$work/a" "$work/b"
    dpkg-deb --raw-extract "$1" "$work/a"
    dpkg-deb --raw-extract "$2" "$work/b"
    diff -rq "$work/a" "$work/b" >&2 || true
}

field() { dpkg-deb --field "$1" "$2"; }

collect() {
    local deb
    cp "$work"/one/target/package/*.deb "$out/"
    for deb in "${others[@]}"; do
        [ "$(field "$deb" Version)" = "$version" ] || fail "$deb is of version $(field "$deb" Version), not $version"
        [ ! -e "$out/$(basename "$deb")" ] || fail "$(basename "$deb") is there already; --with is for other architectures"
        cp "$deb" "$out/"
    done
    chmod 0644 "$out"/*.deb
}

materials() {
    local file="$out/pve-autoscaler-$version.cdx.json"
    packaging/sbom.py "$version" >"$file"
    packaging/sbom.py "$version" --check "$file"
}

# libc_of DEB: the version of the C library that it asks for; nothing where it asks for none.
libc_of() { field "$1" Depends | tr ',' '\n' | sed -n 's/^ *libc6 (>= \([^)]*\)).*/\1/p'; }

# fits DEB LIBC: whether it installs where the C library is this.
fits() {
    local wanted
    wanted="$(libc_of "$1")"
    [ -z "$wanted" ] || dpkg --compare-versions "$wanted" le "$2"
}

# packages_of LIBC ARCH: paragraphs of the packages in the pool that install there, from within the repository.
packages_of() {
    local deb
    for deb in pool/"$component"/p/pve-autoscaler/*_"$2".deb; do
        if [ -f "$deb" ] && fits "$deb" "$1"; then
            # Of a single file it writes the whole path.
            dpkg-scanpackages --multiversion "$deb" 2>/dev/null | sed "s|^Filename: $PWD/|Filename: |"
        fi
    done
}

# suite NAME LIBC: dists/NAME, from within the repository.
suite() {
    local name="$1" libc="$2" arch index archs=()
    for arch in $(printf '%s\n' pool/"$component"/p/pve-autoscaler/*.deb | sed 's/.*_\(.*\)\.deb$/\1/' | sort -u); do
        index="dists/$name/$component/binary-$arch"
        mkdir -p "$index"
        packages_of "$libc" "$arch" >"$index/Packages"
        if [ ! -s "$index/Packages" ]; then
            echo "build-release: no package for $name on $arch: built where the C library is newer" >&2
            rm -r "$index"
            continue
        fi
        gzip -9n --keep "$index/Packages"
        xz -9 --keep "$index/Packages"
        archs+=("$arch")
    done
    [ ${#archs[@]} -gt 0 ] || {
        rm -rf "dists/$name"
        return 0
    }
    # Written elsewhere first: it would list itself.
    apt-ftparchive -o APT::FTPArchive::Release::Origin=pve-autoscaler -o APT::FTPArchive::Release::Label=pve-autoscaler \
        -o "APT::FTPArchive::Release::Suite=$name" -o "APT::FTPArchive::Release::Codename=$name" \
        -o "APT::FTPArchive::Release::Architectures=${archs[*]}" -o "APT::FTPArchive::Release::Components=$component" \
        -o "APT::FTPArchive::Release::Description=Node autoscaler for Kubernetes on Proxmox VE" \
        -o APT::FTPArchive::MD5=false -o APT::FTPArchive::SHA1=false \
        release "dists/$name" >Release.new
    # The date is that of the version, so that the same commit makes the same file.
    sed -i "s/^Date: .*/Date: $(LC_ALL=C date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S UTC')/" Release.new
    mv Release.new "dists/$name/Release"
}

# sign SUITE: InRelease and Release.gpg, from within the repository.
sign() {
    local file="dists/$1"
    gpg --batch --yes --quiet --local-user "$signer" --digest-algo SHA512 --clearsign --output "$file/InRelease" "$file/Release"
    gpg --batch --yes --quiet --local-user "$signer" --digest-algo SHA512 --armor --detach-sign --output "$file/Release.gpg" "$file/Release"
}

# The key that signs, and its public part beside the repository.
take_key() {
    signer="$key"
    if [ -f "$key" ]; then
        GNUPGHOME="$(mktemp -d)"
        export GNUPGHOME
        trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
        gpg --batch --quiet --import "$key"
        signer="$(gpg --batch --with-colons --list-secret-keys | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' | head -n 1)"
    fi
    [ -n "$signer" ] || fail "$key has no secret key"
    gpg --batch --armor --export "$signer" >"$out/apt/pve-autoscaler.asc"
    [ -s "$out/apt/pve-autoscaler.asc" ] || fail "gpg knows no key $signer"
}

repository() {
    local entry
    mkdir -p "$out/apt/pool/$component/p/pve-autoscaler"
    cp "$out"/*.deb "$out/apt/pool/$component/p/pve-autoscaler/"
    [ -z "$key" ] || take_key
    for entry in "${suites[@]}"; do
        (cd "$out/apt" && suite "${entry%:*}" "${entry#*:}")
        [ ! -d "$out/apt/dists/${entry%:*}" ] || [ -z "$key" ] || (cd "$out/apt" && sign "${entry%:*}")
    done
}

# apt_in WORLD ARGUMENT...: apt with lists, cache and sources of its own; it takes no lock of the machine's.
apt_in() {
    local world="$1"
    shift
    limited "$apt_seconds" apt-get -o Dir::State::status="$world/status" -q -o Dir::Etc="$world/etc" -o Dir::State="$world/state" \
        -o Dir::Cache="$world/cache" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any "$@"
}

# apt itself reads each suite and fetches the package.
apt_reads() {
    local name="$1" world="$PWD/$work/apt-$1" trust='trusted=yes'
    rm -rf "$world"
    mkdir -p "$world"/{etc/preferences.d,etc/apt.conf.d,state/lists/partial,cache/archives/partial,fetched}
    touch "$world/status"
    [ -z "$key" ] || trust="signed-by=$PWD/$out/apt/pve-autoscaler.asc"
    echo "deb [$trust] file:$PWD/$out/apt $name $component" >"$world/etc/sources.list"
    (cd "$world/fetched" && apt_in "$world" update && apt_in "$world" download pve-autoscaler) >"$world/log" 2>&1 || {
        cat "$world/log" >&2
        fail "apt cannot read the suite $name of $out/apt"
    }
    cmp "$world"/fetched/*.deb "$out/pve-autoscaler_${version}_$(dpkg --print-architecture).deb" ||
        fail "apt fetched another package from $name"
    echo "build-release: apt reads $name$([ -n "$key" ] && echo ', signed' || echo ', unsigned')" >&2
}

rm -rf "$out" "$work"
mkdir -p "$out" "$work"
built one
built the-other-one
reproducible
collect
materials
repository
for entry in "${suites[@]}"; do
    if [ -f "$out/apt/dists/${entry%:*}/$component/binary-$(dpkg --print-architecture)/Packages" ]; then
        apt_reads "${entry%:*}"
    fi
done
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS)
(cd "$out" && sha256sum --quiet --check SHA256SUMS)
(cd "$out" && find . -type f -printf '%10s  %P\n' | LC_ALL=C sort -k2) >&2
case "$(dpkg --print-architecture) ${others[*]}" in
    amd64*_arm64.deb* | arm64*) ;;
    *) echo "build-release: not for arm64: run it on such a machine, and give its package to --with" >&2 ;;
esac
