#!/bin/bash
# Makes what a release has, in target/release-files:
#
#   pve-autoscaler_VERSION_ARCH.deb   built twice, in folders of different names, and the same byte for byte: for this
#                                     machine's architecture, and for arm64 where that can be cross-built (cross.sh)
#   pve-autoscaler-VERSION.cdx.json   the bill of materials (CycloneDX)
#   apt/                              a repository: pool/ and dists/, made by dpkg-scanpackages and apt-ftparchive,
#                                     signed where a key is given, and read by apt before this ends
#   SHA256SUMS                        of all of it
#
#   packaging/build-release.sh [--key KEY] [--with FILE.deb]... [--profile deb|dev] [--no-build]
#
# KEY: a key of gpg's that can sign, by its fingerprint, or a file with a secret key. --with: a package of the same
# version that was built elsewhere; one for arm64 is taken instead of building one. --profile dev is for trying this script,
# and so is --no-build: nothing is built, and the release has the packages of --with alone.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

# shellcheck source=/dev/null
. contrib/dev.d/say.sh
# shellcheck source=/dev/null
. contrib/dev.d/needs.sh
# shellcheck source=packaging/cross.sh
. packaging/cross.sh

readonly out=target/release-files work=target/release-work
readonly component=main
# The suites, each with the version of its C library: a program asks for the one that it was built with, or an older one.
readonly suites=(bookworm:2.36 trixie:2.41)

fail() {
    echo "build-release: $*" >&2
    exit 1
}

key='' profile=deb build=yes others=()
while [ $# -gt 0 ]; do
    if [ "$1" = --no-build ]; then
        build=no
        shift
        continue
    fi
    case "${1-} ${2+value}" in
        "--key value") key="$2" ;;
        "--with value") others+=("$(readlink -f "$2")") ;;
        "--profile value") profile="$2" ;;
        *) fail "usage: packaging/build-release.sh [--key KEY] [--with FILE.deb]... [--profile deb|dev] [--no-build]" ;;
    esac
    shift 2
done

[ "$build" = yes ] || [ ${#others[@]} -gt 0 ] || fail "--no-build wants a package (--with FILE.deb)"

version="$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)"
SOURCE_DATE_EPOCH="$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)"
export SOURCE_DATE_EPOCH

# What is built is a commit, not what lies about.
[ "$build" = no ] || [ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; a release is made of a commit"

here="$(dpkg --print-architecture)"
archs=("$here")

# arm64_too: whether a package for arm64 is cross-built; says why not where none would be there.
arm64_too() {
    local missing
    case "$here ${others[*]}" in arm64* | *_arm64.deb*) return 1 ;; esac
    missing="$(why_not_cross)"
    if [ -z "$missing" ]; then
        make_cross_root && return 0
        missing="no libsystemd of that architecture"
    fi
    echo "build-release: not for arm64: $missing; run it on such a machine, and give its package to --with" >&2
    return 1
}

# built FOLDER: the packages of the present commit, built in this folder of $work.
built() {
    local folder="$work/$1" arch
    mkdir -p "$folder"
    git archive --format=tar HEAD | tar -xf - -C "$folder"
    # Fetched once: Debian may have another version in half an hour.
    if [ ${#archs[@]} -gt 1 ]; then
        mkdir -p "$folder/${cross%/*}"
        cp -a "$cross" "$folder/$cross"
    fi
    for arch in "${archs[@]}"; do
        echo "build-release: building for $arch in $folder" >&2
        env -u CARGO_TARGET_DIR -u CARGO_INCREMENTAL -u RUSTFLAGS "$folder/packaging/build-deb.sh" \
            --arch "$arch" --profile "$profile" >&2
    done
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
    [ "$build" = no ] || cp "$work"/one/target/package/*.deb "$out/"
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

# apt_reads SUITE ARCH: apt itself, as on a machine of this architecture, reads the suite and fetches the package.
apt_reads() {
    local name="$1" arch="$2" world="$PWD/$work/apt-$1-$2" trust='trusted=yes' own
    own=(-o "Dir::Etc=$world/etc" -o APT::Update::Error-Mode=any)
    make_apt_world "$world"
    mkdir "$world/fetched"
    [ -z "$key" ] || trust="signed-by=$PWD/$out/apt/pve-autoscaler.asc"
    echo "deb [$trust] file:$PWD/$out/apt $name $component" >"$world/etc/sources.list"
    (cd "$world/fetched" && apt_in "$world" "$arch" "${own[@]}" update &&
        apt_in "$world" "$arch" "${own[@]}" download pve-autoscaler) >"$world/log" 2>&1 || {
        cat "$world/log" >&2
        fail "apt cannot read the suite $name of $out/apt for $arch"
    }
    cmp "$world"/fetched/*.deb "$out/pve-autoscaler_${version}_$arch.deb" || fail "apt fetched another package from $name for $arch"
    echo "build-release: apt reads $name for $arch$([ -n "$key" ] && echo ', signed' || echo ', unsigned')" >&2
}

rm -rf "$out" "$work"
mkdir -p "$out" "$work"
if [ "$build" = yes ]; then
    ! arm64_too || archs+=(arm64)
    built one
    built the-other-one
    reproducible
fi
collect
[ "${archs[*]}" = "$here" ] || packaging/try-arm64.sh "$out/pve-autoscaler_${version}_arm64.deb" >&2
materials
repository
for index in "$out/apt/dists"/*/"$component"/binary-*/Packages; do
    [ -f "$index" ] || continue
    suite="${index#"$out/apt/dists/"}" arch="${index%/Packages}"
    apt_reads "${suite%%/*}" "${arch##*/binary-}"
done
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS)
(cd "$out" && sha256sum --quiet --check SHA256SUMS)
(cd "$out" && find . -type f -printf '%10s  %P\n' | LC_ALL=C sort -k2) >&2
