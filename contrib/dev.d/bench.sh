# shellcheck shell=bash
# The numbers. Each file of benches/ and each main.rs in a folder of it is a program (harness = false) that prints a table, or with
# --json one object a line: workload, size, seconds, peak_bytes and more.

dev_bench() {
    local json=() names=() missed=() name profile
    while [ $# -gt 0 ]; do
        case "$1" in
            --json) json=(--json) ;;
            -*) die "bench knows --json and names of benches" ;;
            *) names+=("$1") ;;
        esac
        shift
    done
    if [ ${#names[@]} -eq 0 ]; then
        for name in benches/*.rs benches/*/main.rs; do
            [ -f "$name" ] || continue
            name=${name#benches/}
            name=${name%/main.rs}
            names+=("${name%.rs}")
        done
    fi
    need_build
    for name in "${names[@]}"; do
        [ -f "benches/$name.rs" ] || [ -f "benches/$name/main.rs" ] || die "no bench '$name'; see benches/"
        say "bench $name"
        # What is resident depends on how it was built: as in the package.
        profile=()
        [ "$name" != idle ] || profile=(--profile deb)
        cargo bench --quiet --locked "${profile[@]}" --bench "$name" -- "${json[@]}" || missed+=("$name")
    done
    # The others are measured all the same.
    [ ${#missed[@]} -eq 0 ] || die "no success, or a target missed: ${missed[*]}"
}
