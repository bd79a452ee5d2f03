# shellcheck shell=bash
# Format, lints, tests, and the parts that need more than Rust.

dev_lint() {
    [ $# -eq 0 ] || die "lint takes no argument"
    need_build
    part_lint
}

part_lint() {
    if cargo fmt --version >/dev/null 2>&1; then
        part "format" cargo fmt --check
    else
        skip "format: this toolchain has no rustfmt"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        part "lints" cargo clippy --quiet --locked --all-targets -- -D warnings
    else
        skip "lints: this toolchain has no clippy"
    fi
    if have shellcheck; then
        part "shell scripts" shell_scripts
    else
        skip "shell scripts: no shellcheck"
    fi
    if have cargo-deny; then
        part "dependencies" cargo deny --offline --all-features check bans licenses sources
    else
        skip "dependencies: no cargo-deny (cargo install cargo-deny; four minutes)"
    fi
}

shell_scripts() {
    # shellcheck disable=SC2046 # none of our paths has a blank
    shellcheck --severity=warning -x --shell=bash \
        contrib/dev contrib/dev.d/*.sh .ci/run $(git ls-files 'packaging/*.sh')
}

dev_test() {
    local e2e=yes
    while [ $# -gt 0 ]; do
        case "$1" in
            --no-e2e) e2e=no ;;
            *) die "test knows --no-e2e alone; a single test runs with: cargo test NAME" ;;
        esac
        shift
    done
    need_build
    part_lint
    promtool_at_hand || skip "promtool check metrics: Debian's package prometheus cannot be had here"
    # Generated worlds are the same in every run here, so that a failure is of the change and not of the day;
    # `cargo test` by hand throws anew each time, and PROPTEST_CASES=5000 looks harder.
    part "tests" env INSTA_UPDATE=no PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}" \
        cargo test --locked --no-fail-fast
    part_clients
    if [ "$e2e" = no ]; then
        skip "end to end: --no-e2e"
    else
        dev_e2e
    fi
}

# promtool from Debian's package prometheus, which is unpacked and not installed: it would start a server.
promtool_at_hand() {
    local folder=target/promtool
    ! have promtool || return 0
    if [ ! -x "$folder/usr/bin/promtool" ]; then
        have apt-get && have dpkg-deb || return 1
        mkdir -p "$folder"
        (
            cd "$folder" &&
                timeout 300 apt-get -q download prometheus </dev/null >/dev/null 2>&1 &&
                dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb
        ) || return 1
    fi
    export PROMTOOL="$PWD/$folder/usr/bin/promtool"
}

# Other people's clients against the listening simulators: what the fakes say must satisfy those
# who know the real thing.
part_clients() {
    local venv=target/clients/venv
    if [ ! -f tests/clients/requirements.txt ]; then
        return 0
    elif ! have python3; then
        skip "Python clients: no python3"
        return 0
    elif ! clients_venv "$venv"; then
        skip "Python clients: their packages could not be installed (no venv module, or no registry)"
        return 0
    fi
    cargo build --quiet --locked
    part "Python clients" timeout 600 "$venv/bin/python" tests/clients/run.py "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler"
}

clients_venv() {
    local venv="$1"
    if cmp -s tests/clients/requirements.txt "$venv/installed.txt"; then
        return 0
    fi
    mkdir -p "$venv"
    python3 -m venv --clear "$venv" &&
        timeout 300 "$venv/bin/pip" install --quiet -r tests/clients/requirements.txt &&
        cp tests/clients/requirements.txt "$venv/installed.txt"
}
