# shellcheck shell=bash
# Format, lints, tests, and the parts that need more than Rust.

dev_lint() {
    [ $# -eq 0 ] || die "lint takes no argument"
    need_build
    part_lint
}

part_lint() {
    if cargo fmt --version >/dev/null 2>&1; then
        part "format" cargo fmt --all --check
    else
        skip "format: this toolchain has no rustfmt"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        first_build
        part "lints" shown clippy --locked --all-targets -- -D warnings
    else
        skip "lints: this toolchain has no clippy"
    fi
    if have shellcheck; then
        part "shell scripts" shell_scripts
    else
        skip "shell scripts: no shellcheck"
    fi
    part_dependencies
    # A change of the page needs no new pictures, a release does.
    if have python3; then
        python3 tests/page/pictures.py >&2 || say "README's pictures of the page are old; this is no failure, and a release wants new ones"
    fi
}

# Licences, sources and what we do not want among the dependencies; and what is known against them,
# where the database can be had or was had before.
part_dependencies() {
    local deny databases="${CARGO_HOME:-$HOME/.cargo}/advisory-dbs"
    if ! deny="$(find_deny)"; then
        skip "dependencies: cargo-deny could not be built"
        return 0
    fi
    part "dependencies" "$deny" --locked --all-features check bans licenses sources
    # A minute for it to come.
    if limited 60 "$deny" fetch db >/dev/null 2>&1 ||
        [ -n "$(find "$databases" -maxdepth 2 -name .git 2>/dev/null)" ]; then
        part "advisories" "$deny" --offline --locked --all-features check advisories
    else
        skip "advisories: their database could not be fetched and is not in $databases"
    fi
}

shell_scripts() {
    # shellcheck disable=SC2046 # none of our paths has a blank
    shellcheck --severity=warning -x --shell=bash \
        contrib/dev contrib/dev.d/*.sh .ci/run $(git ls-files 'packaging/*.sh' 'tests/*.sh')
}

dev_test() {
    local e2e=yes status=0
    while [ $# -gt 0 ]; do
        case "$1" in
            --no-e2e) e2e=no ;;
            *) die "test knows --no-e2e alone; a single test runs with: cargo test NAME" ;;
        esac
        shift
    done
    need_build
    say_space 14 "building the tests"
    test_tools
    part_lint
    promtool_at_hand || skip "promtool check metrics: Debian's package prometheus cannot be had here"
    dashboard_check_at_hand || skip "the dashboard by Grafana's schema: no Go, or Grafana's SDK for it cannot be had here"
    otlp_receiver_at_hand || skip "traces to an OpenTelemetry Collector's own receiver: no Go, or its modules cannot be had here"
    slack_check_at_hand || skip "notices to Slack's library: no Go, or its module cannot be had here"
    ntfy_at_hand || skip "notices to ntfy's own server: there is no program ntfy here, and NTFY names none"
    # Generated worlds are the same in every run here, so that a failure is of the change and not of the day;
    # `cargo test` by hand throws anew each time, and PROPTEST_CASES=5000 looks harder.
    # Built apart, so that what takes long is seen to be the compiler's or the tests'.
    part "building the unit tests" shown test "${unit_tests[@]}" --no-run
    part "building the tests" shown test "${other_tests[@]}" --no-run
    part "tests" run_tests
    part_mutants
    part_clients
    part_prometheus
    part_completion
    part_page
    if [ "$e2e" = no ]; then
        skip "end to end: --no-e2e"
    else
        # What cannot run here is skipped, and the rest was run.
        dev_e2e || status=$?
        [ "$status" -eq "$E2E_CANNOT" ] || return "$status"
    fi
}

# Unit tests of the main package need no optimiser, whatever the profile says of the rest: it would take four times what the
# compiler takes, a quarter of an hour on a slow machine, to save them some seconds.
unit_tests=(--locked --lib --config 'profile.dev.package.pve-autoscaler.opt-level=0')
other_tests=(--locked --test '*')

run_tests() {
    local status=0
    export INSTA_UPDATE=no PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}"
    # Many tests wait for a part of their time: three at once for two cores. Those of the commands wait for nine tenths of it.
    local some="${RUST_TEST_THREADS:-$((($(nproc) * 3 + 1) / 2))}" many="${RUST_TEST_THREADS:-$(($(nproc) * 3))}"
    RUST_TEST_THREADS="$some" cargo test "${unit_tests[@]}" --quiet --no-fail-fast || status=$?
    RUST_TEST_THREADS="$some" cargo test --locked --test '[!c]*' --test 'c[!l]*' --quiet --no-fail-fast || status=$?
    RUST_TEST_THREADS="$many" cargo test --locked --test cli --quiet --no-fail-fast || status=$?
    return "$status"
}

# What the tests use beside Rust. Without it they go on, and say what they leave out.
test_tools() {
    local missing=()
    have shellcheck || missing+=(shellcheck)
    python3 -m venv --help >/dev/null 2>&1 && python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    have zsh || missing+=(zsh)
    have fish || missing+=(fish)
    have chromium || missing+=(chromium)
    have chromedriver || missing+=(chromium-driver)
    have ip || missing+=(iproute2)
    [ ${#missing[@]} -eq 0 ] || (get_packages "for tests of scripts, clients, completion, the page and the wire" "${missing[@]}") ||
        skip "${missing[*]} could not be installed"
}

# Completion, typed into the shells there are.
part_completion() {
    local made=target/completion shell shells=(bash)
    if ! have python3; then
        skip "completion: no python3"
        return 0
    fi
    for shell in zsh fish; do
        if have "$shell"; then shells+=("$shell"); else skip "completion in $shell: no $shell"; fi
    done
    shown build --locked
    "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler" generate "$made"
    part "completion" limited 600 python3 tests/terminal/completion.py \
        "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler" "$made/completions" "${shells[@]}"
}

# The page in a real browser.
part_page() {
    if ! have python3; then
        skip "the page in a browser: no python3"
        return 0
    elif ! have chromium || ! have chromedriver; then
        skip "the page in a browser: no chromium and chromedriver (Debian's packages chromium and chromium-driver)"
        return 0
    fi
    shown build --locked
    # Planted bugs judge these tests, not the page. They take most of the time, and CI has ninety minutes for all.
    local lot=()
    [ -z "${CI:-}" ] || lot=(--one-of 10)
    part "the page in a browser" limited 1800 python3 tests/page/run.py \
        "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler" "${lot[@]}"
}

# A real Prometheus on the demo: it scrapes, evaluates the rules and answers the dashboard's questions.
part_prometheus() {
    local server=target/promtool/usr/bin/prometheus
    ! have prometheus || server=prometheus
    if ! have python3 || ! have "$server"; then
        skip "Prometheus on the demo: no python3, or Debian's package prometheus cannot be had here"
        return 0
    fi
    shown build --locked
    part "Prometheus on the demo" limited 300 python3 tests/prometheus/run.py "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler" "$server"
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
                limited 300 apt-get -q download prometheus >/dev/null 2>&1 &&
                dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb
        ) || return 1
    fi
    export PROMTOOL="$PWD/$folder/usr/bin/promtool"
}

# A program that reads dashboards by the types that Grafana's SDK for Go makes of Grafana's schema.
dashboard_check_at_hand() {
    built_by_go tests/grafana . grafana/check && export GRAFANA_CHECK="$PWD/target/grafana/check"
}

# The receiver for traces that is in every OpenTelemetry Collector, in Jaeger and in Tempo.
otlp_receiver_at_hand() {
    built_by_go tests/receivers ./otlp receivers/otlp && export OTLP_RECEIVER="$PWD/target/receivers/otlp"
}

# A program that reads incoming webhooks by the types of Slack's library for Go.
slack_check_at_hand() {
    built_by_go tests/receivers ./slack receivers/slack && export SLACK_CHECK="$PWD/target/receivers/slack"
}

# ntfy's server, where this machine has it: Debian has no package of it, and no registry its module.
ntfy_at_hand() {
    [ -z "${NTFY:-}" ] || return 0
    NTFY="$(command -v ntfy)" || return 1
    # Another program of this name, which has no server, is in Debian.
    "$NTFY" serve --help >/dev/null 2>&1 || return 1
    export NTFY
}

# built_by_go FOLDER PACKAGE PATH: the program of a package in a folder with go.mod is there, below target.
built_by_go() {
    local made="$PWD/target/$3"
    # Go from its own archive is not in every root's path.
    have go || PATH="$PATH:/usr/local/go/bin"
    have go || return 1
    (cd "$1" && limited 900 go build -buildvcs=false -o "$made" "$2" >/dev/null 2>&1)
}

# Whether the mutation tool's verdicts are right.
part_mutants() {
    if ! have python3; then
        skip "the mutation tool: no python3"
        return 0
    fi
    part "the mutation tool" limited 600 python3 tests/mutants/check.py
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
    shown build --locked
    part "Python clients" limited 600 "$venv/bin/python" tests/clients/run.py "${CARGO_TARGET_DIR:-target}/debug/pve-autoscaler"
}

clients_venv() {
    local venv="$1"
    if cmp -s tests/clients/requirements.txt "$venv/installed.txt"; then
        return 0
    fi
    mkdir -p "$venv"
    python3 -m venv --clear "$venv" &&
        limited 300 "$venv/bin/pip" install --quiet --no-input -r tests/clients/requirements.txt &&
        cp tests/clients/requirements.txt "$venv/installed.txt"
}
