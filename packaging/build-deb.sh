#!/bin/bash
# Builds the Debian package into target/package/. The programs are built by cargo in profile "deb"
# (for size, linked as one module: some ten minutes on two cores); --profile dev is for trying the packaging itself.
#
#   packaging/build-deb.sh [--arch arm64] [--profile deb|release|dev]
#
# --arch arm64: cross-built, where packaging/cross.sh finds what that needs. Pages, completions and schemas are made by
# this machine's program of the same profile, which is built as well where it is not there.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

# shellcheck source=/dev/null
. contrib/dev.d/needs.sh
# shellcheck source=packaging/cross.sh
. packaging/cross.sh

fail() {
    echo "build-deb: $*" >&2
    exit 1
}

here="$(dpkg --print-architecture)"
profile=deb arch="$here"
while [ $# -gt 0 ]; do
    case "$1 ${2+value}" in
        "--arch value") arch="$2" ;;
        "--profile value") profile="$2" ;;
        *)
            echo "usage: packaging/build-deb.sh [--arch arm64] [--profile deb|release|dev]" >&2
            exit 2
            ;;
    esac
    shift 2
done
# What cargo is told, the folder it leaves that in, what reads the programs, and what dpkg-shlibdeps is told.
for_target=() below='' nm=nm shlibs=''
if [ "$arch" != "$here" ]; then
    [ "$arch" = arm64 ] || fail "built here are packages for $here and arm64, not for $arch"
    missing="$(why_not_cross)"
    [ -z "$missing" ] || fail "$missing"
    make_cross_root || exit 1
    for_target=(--target "$cross_target") below="/$cross_target" nm="$cross_gnu-nm"
    shlibs="$(cross_shlibs)"
fi

readonly out=target/package
target="${CARGO_TARGET_DIR:-target}"
# The simulator's program has a profile of its own in the package.
simulator_profile="$profile"
[ "$profile" != deb ] || simulator_profile="deb-simulator"

# folder_of PROFILE [BELOW]: where cargo leaves what it builds in this profile.
folder_of() {
    case "$1" in dev) echo "$target${2-}/debug" ;; *) echo "$target${2-}/$1" ;; esac
}
built="$(folder_of "$profile" "$below")"
simulator="$(folder_of "$simulator_profile" "$below")/pve-autoscaler-simulator"
# Of the same commit as what is packed, and it runs here.
runs="$(folder_of "$profile")/pve-autoscaler"

version="$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)"
changelog="$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)"
[ "$version" = "$changelog" ] || fail "Cargo.toml says version $version, packaging/debian/changelog $changelog"
SOURCE_DATE_EPOCH="$(dpkg-parsechangelog -l packaging/debian/changelog -S Timestamp)"
export SOURCE_DATE_EPOCH

# folds_functions: whether this machine's linker makes one of functions whose code is the same, as rust-lld does, which rustc
# brings for amd64. Rust writes the same generic function anew for every type.
folds_functions() {
    local probe links=0
    probe="$(mktemp -d)"
    echo 'fn main() {}' | rustc --crate-name probe -C "$fold" -o "$probe/probe" - 2>/dev/null || links=1
    rm -rf "$probe"
    return "$links"
}
readonly fold=link-arg=-Wl,--icf=all

# use_flags [packed] [folded]: how all is compiled; with relative relocations packed (glibc 2.36, Debian 12): a megabyte that would
# be read at every start; with functions folded, where the linker can: a thirtieth of the code.
use_flags() {
    [ "$profile" = deb ] || return 0
    # The paths of the machine that built it belong neither into the program nor into its
    # debug symbols, and would make every build differ.
    local cargo="${CARGO_HOME:-$HOME/.cargo}" link='' word
    for word in "$@"; do
        case "$word" in
            packed) link+=' -C link-arg=-Wl,-z,pack-relative-relocs' ;;
            folded) ! folds_functions || link+=" -C $fold" ;;
        esac
    done
    export RUSTFLAGS="$link --remap-path-prefix=$PWD=/usr/src/pve-autoscaler --remap-path-prefix=$cargo=/usr/share/cargo"
    export CFLAGS="-ffile-prefix-map=$cargo=/usr/share/cargo -ffile-prefix-map=$PWD=/usr/src/pve-autoscaler"
}

# What runs on a hypervisor is built without the simulator, and without what only that needs of the libraries
# (tokio's paused clock, a temporary directory). So these libraries and ours are compiled twice.
build() {
    cargo build --quiet --locked --profile "$simulator_profile" "${for_target[@]}" --bin pve-autoscaler-simulator
    cargo build --quiet --locked --profile "$profile" "${for_target[@]}" --no-default-features \
        --bin pve-autoscaler --bin pve-autoscaler-daemon --bin pve-autoscaler-broker
}

build_here() {
    use_flags packed folded
    build
}

# This machine's program with what makes it in build_here, so that it is not made again after that.
build_for_arm64() {
    (
        use_flags packed folded
        cargo build --quiet --locked --profile "$profile" --no-default-features --bin pve-autoscaler
    )
    if cross_packs_relocations; then use_flags packed; else use_flags; fi
    use_cross
    build
}

# has_simulator PROGRAM: whether functions of the simulator or of the runner of cases are in it.
has_simulator() {
    local symbols
    symbols="$("$nm" "$1")" || fail "$nm does not read $1"
    grep -qE 'pve_autoscaler(3sim|9simulator|11conformance)[0-9]' <<<"$symbols"
}

# has_text_language PROGRAM: whether functions of the language of the configuration's texts or of a reader of YAML are in it.
has_text_language() {
    local symbols
    symbols="$("$nm" "$1")" || fail "$nm does not read $1"
    grep -qE '(9minijinja|13granit_parser|12serde_saphyr)[0-9]' <<<"$symbols"
}

# The commands, the daemon and the broker have nothing of the simulator in them; that the look finds it shows its own program.
# So with the broker and the texts that it does not use.
apart() {
    local program
    has_text_language "$built/pve-autoscaler-daemon" ||
        fail "nm shows no function that fills in texts in $built/pve-autoscaler-daemon, where it must be;" \
            "how symbols are written has changed: mend has_text_language"
    ! has_text_language "$built/pve-autoscaler-broker" ||
        fail "nm shows functions that fill in texts in $built/pve-autoscaler-broker; root tries no texts" \
            "(src/config/rules/trials.rs)"
    has_simulator "$simulator" ||
        fail "nm shows no function of the simulator in $simulator, where it must be;" \
            "how symbols are written has changed: mend has_simulator"
    for program in pve-autoscaler pve-autoscaler-daemon pve-autoscaler-broker; do
        ! has_simulator "$built/$program" ||
            fail "nm shows functions of the simulator in $built/$program; it belongs into" \
                "pve-autoscaler-simulator alone (docs/decisions/simulator-apart.md)"
    done
}

# What is linked into the programs, with licences.
libraries() {
    cargo tree --quiet --locked "${for_target[@]}" --edges normal --prefix none --format '{p} {l}' |
        sed -e 's/ (\*)$//' -e 's/ (proc-macro)//' | grep -v '^pve-autoscaler[- ]' | LC_ALL=C sort -u
}

# Lays the package's tree out in $out/src, as debian/rules expects it.
stage() {
    local src="$out/src" tree="$out/src/stage"
    rm -rf "$src"
    mkdir -p "$tree/usr/bin" "$tree/etc" "$tree/doc" "$tree/usr/share/pve-autoscaler"
    cp -a packaging/debian "$src/debian"
    cp -a systemd "$src/systemd"
    install -m 0755 "$built/pve-autoscaler" "$tree/usr/bin/"
    install -D -m 0755 "$built/pve-autoscaler-daemon" "$tree/usr/libexec/pve-autoscaler/daemon"
    install -D -m 0755 "$built/pve-autoscaler-broker" "$tree/usr/libexec/pve-autoscaler/broker"
    install -D -m 0755 "$simulator" "$tree/usr/libexec/pve-autoscaler/simulator"
    # Short, so that an upgrade has no reason to ask about it; what changes with versions is the example.
    install -m 0644 packaging/pve-autoscaler.toml "$tree/etc/"
    install -D -m 0644 -t "$tree/doc/examples" contrib/pve-autoscaler.toml
    cp -a contrib/kubernetes contrib/prometheus contrib/grafana "$tree/usr/share/pve-autoscaler/"
    packaging/stage-pages.sh "$tree/doc" || fail "the pages cannot be laid out"
    libraries >"$tree/doc/libraries.txt"
    # Where it was built is nobody's business, and two builds would differ.
    ! grep -F "$PWD" "$tree/doc/libraries.txt" >&2 || fail "libraries.txt names the folder that it was built in"
    generated "$tree"
    chmod -R u=rwX,go=rX "$src"
}

# Man pages, completions, schema and reference manual, from the program's own description of its commands.
generated() {
    local tree="$1" made="$out/generated"
    rm -rf "$made"
    "$runs" generate "$made"
    install -D -m 0644 -t "$tree/usr/share/man/man1" "$made"/man/*.1
    install -D -m 0644 -t "$tree/usr/share/man/man5" "$made"/man/*.5
    install -D -m 0644 "$made/completions/pve-autoscaler.bash" \
        "$tree/usr/share/bash-completion/completions/pve-autoscaler"
    install -D -m 0644 "$made/completions/_pve-autoscaler" \
        "$tree/usr/share/zsh/vendor-completions/_pve-autoscaler"
    install -D -m 0644 "$made/completions/pve-autoscaler.fish" \
        "$tree/usr/share/fish/vendor_completions.d/pve-autoscaler.fish"
    install -m 0644 -t "$tree/usr/share/pve-autoscaler" "$made"/*.schema.json
    install -m 0644 "$made/configuration.md" "$tree/doc/docs/"
}

mkdir -p "$out"
rm -f "$out"/*_"$arch".{deb,buildinfo,changes}
if [ "$arch" = "$here" ]; then (build_here); else (build_for_arm64); fi
apart
stage
(cd "$out/src" && SHLIBS="$shlibs" dpkg-buildpackage --host-arch "$arch" --unsigned-source --unsigned-changes --build=binary \
    >../build.log 2>&1) || {
    cat "$out/build.log"
    fail "dpkg-buildpackage failed"
}
ls -l "$out"/*_"$arch".deb
