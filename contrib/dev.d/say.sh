# shellcheck shell=bash
# Saying what happens: one line for each part, with its time.

# Says something about the run itself, apart from what the tools print.
say() { printf '== %s\n' "$*" >&2; }

# Says that a part did not run and why. A skip is never a failure.
skip() { printf '== skip: %s\n' "$*" >&2; }

die() {
    printf 'contrib/dev: %s\n' "$*" >&2
    exit 1
}

# Runs a part under a name and says how long it took. Ends the script when the part fails. A part that ends with 77 was skipped,
# and has said why.
part() {
    local name="$1" began=$SECONDS status=0
    shift
    say "$name"
    "$@" || status=$?
    if [ "$status" -eq 77 ]; then
        skip "$name, for the reason above"
        return 0
    fi
    if [ "$status" -ne 0 ]; then
        say "$name: FAILED with status $status after $((SECONDS - began)) s"
        exit "$status"
    fi
    say "$name: ok, $((SECONDS - began)) s"
}
