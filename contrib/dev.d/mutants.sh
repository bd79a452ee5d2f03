# shellcheck shell=bash
# Which mutants of some source files no unit test finds (tests/mutants/run.py says more).

dev_mutants() {
    need_build
    need_packages "to run mutants" python3
    python3 tests/mutants/run.py "$@"
}
