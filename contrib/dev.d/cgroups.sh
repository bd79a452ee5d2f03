# shellcheck shell=bash
# Control groups for booted containers. systemd-nspawn with --keep-unit puts what it boots into the group PATH/payload, PATH being its
# own group. Two containers of one script would share it, and with it the group of each service that both run: the systemd of one then
# removes a group in which that of the other is about to start the service, which fails (219/CGROUP, "Failed to spawn executor").

# cgroup_of NAME: the directory that stands for a group of this name below this script's own; fails where there are no groups of version 2.
cgroup_of() {
    local mounted own
    mounted="$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)" || return 1
    own="$(sed -n 's/^0:://p' "/proc/$$/cgroup")"
    [ -n "$mounted" ] && [ -n "$own" ] || return 1
    printf '%s/%s\n' "${mounted%/}${own%/}" "$1"
}

# enter_cgroup NAME: puts the calling (sub)shell, and with it what it executes, into a group of its own. Where that cannot be had it fails,
# and the caller stays where it was.
enter_cgroup() {
    local group
    group="$(cgroup_of "$1")" || return 1
    mkdir -p "$group" 2>/dev/null && { echo "$BASHPID" >"$group/cgroup.procs"; } 2>/dev/null
}

# remove_cgroup NAME: removes the group and those below it, once nothing runs in them.
remove_cgroup() {
    local group
    group="$(cgroup_of "$1")" || return 0
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
}
