# shellcheck shell=bash
# The demo. In cargo's dev profile: it is what the tests build too, and the first build takes a
# third of the time that an optimised one takes.

dev_demo() {
    need_build
    say_space 5 "building the demo"
    first_build
    shown build --locked
    exec cargo run --quiet --locked -- demo "$@"
}
