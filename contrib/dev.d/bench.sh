# shellcheck shell=bash
# The numbers. Each file of benches/ is a program (harness = false) that prints a table, or with
# --json one object a line: workload, size, seconds, peak_bytes and more.

dev_bench() {
    local json=() names=() name
    while [ $# -gt 0 ]; do
        case "$1" in
            --json) json=(--json) ;;
            -*) die "bench knows --json and names of benches" ;;
            *) names+=("$1") ;;
        esac
        shift
    done
    if [ ${#names[@]} -eq 0 ]; then
        for name in benches/*.rs; do
            [ -f "$name" ] || die "there is no benches/*.rs"
            names+=("$(basename "$name" .rs)")
        done
    fi
    need_build
    for name in "${names[@]}"; do
        [ -f "benches/$name.rs" ] || die "no bench '$name'; there are: $(cd benches && echo *.rs)"
        say "bench $name"
        cargo bench --quiet --locked --bench "$name" -- "${json[@]}"
    done
}
