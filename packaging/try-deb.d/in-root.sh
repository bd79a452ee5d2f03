#!/bin/bash
# The checks of packaging/try-deb.sh, run inside a booted root: one line each, exit 1 on a miss.
#
#   in-root.sh PART...       package, road
set -uo pipefail
# shellcheck source=packaging/try-deb.d/road.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/road.sh"

readonly this=/root/try/this.deb next=/root/try/next.deb
readonly config=/etc/pve-autoscaler.toml
readonly example=/usr/share/doc/pve-autoscaler/examples/pve-autoscaler.toml
readonly daemon=pve-autoscaler.service socket=pve-autoscaler-broker.socket broker=pve-autoscaler-broker.service
readonly mail=pve-autoscaler-mail.socket pinning=pve-autoscaler-pinning.service
# What systemd-analyze may find at most, in tenths.
readonly daemon_exposure=15 broker_exposure=30
missed=0
misses=()

# hold TEXT COMMAND...: TEXT must hold, that is, COMMAND succeed.
hold() {
    local text="$1" said
    shift
    if said="$("$@" 2>&1)"; then
        echo "ok   $text"
    else
        echo "MISS $text"
        printf '%s\n' "$said" | tail -n 15 | sed 's/^/     | /'
        # What systemctl leaves to journalctl.
        [[ "$said" != *journalctl* ]] || journalctl -q -n 40 -o cat -u 'pve-autoscaler*' | sed 's/^/     | /'
        missed=$((missed + 1))
        misses+=("$text: $(printf '%s' "$said" | tail -n 3 | tr '\n' '|')")
    fi
}

# soon SECONDS COMMAND...: waits until COMMAND succeeds.
soon() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.5
    done
}

active() { [ "$(systemctl is-active "$1")" = active ]; }
inactive() { ! active "$1"; }
main_pid() { systemctl show --property=MainPID --value "$daemon"; }
restarts() { systemctl show --property=NRestarts --value "$daemon"; }
# At least so often; what systemd did is shown when it falls short.
restarted() {
    [ "$(restarts)" -ge "$1" ] || {
        journalctl --no-pager --unit="$daemon" _PID=1 | tail -n 12
        echo "restarted $(restarts) times"
        false
    }
}
status_says() { systemctl status --no-pager --lines=0 "$daemon" | tee /dev/stderr | grep -qi -- "$1"; }
log_says() { journalctl --no-pager --unit="$daemon" | tee /dev/stderr | grep -qi -- "$1"; }
# owned PATH OWNER:GROUP MODE
owned() { [ "$(stat -c '%U:%G %a' "$1")" = "$2 $3" ] || { stat -c '%n %U:%G %a' "$1" && false; }; }
absent() { [ ! -e "$1" ]; }
# Right after a kill systemd may still call the service active, with no process.
changed_pid() {
    local now
    now="$(main_pid)"
    active "$daemon" && [ "$now" -gt 1 ] && [ "$now" != "$1" ]
}
quiet_dpkg() { DEBIAN_FRONTEND=noninteractive dpkg --force-confdef --force-confold "$@"; }

# Every file of the root that a package could have made; what the system itself writes as it runs
# is left out.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root/try \
        -o -path /run/systemd -o -path /run/udev -o -path /var/log -o -path /var/tmp \) -prune \
        -o -print | sort
}

exposure_at_most() {
    local figure
    figure="$(systemd-analyze security "$1" --no-pager | sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p')"
    echo "systemd-analyze security $1: $figure"
    [ -n "$figure" ] && [ "$(printf '%s' "$figure" | tr -d .)" -le "$2" ]
}

# Talks to the broker as a user: prints the answer's status line and body.
# shellcheck disable=SC2016 # the dollars are Perl's
ask_broker() {
    timeout --foreground 20 setpriv --reuid="$1" --regid="$1" --init-groups perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Peer => "/run/pve-autoscaler/pve.sock") or die "connect: $!\n";
        print $s "GET /broker/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        print while <$s>;'
}
broker_answers() { ask_broker pve-autoscaler | tee /dev/stderr | grep -q '"version"'; }
broker_refuses() { ! ask_broker "$1"; }

no_capabilities() {
    local pid
    pid="$(systemctl show --property=MainPID --value "$1")"
    grep -E '^Cap(Prm|Eff|Bnd)' "/proc/$pid/status"
    ! grep -E '^Cap(Prm|Eff|Bnd):.*[1-9a-f]' "/proc/$pid/status"
}

runs_as() { [ "$(stat -c %U "/proc/$(main_pid)")" = "$1" ]; }

installed_and_idle() {
    hold "installs" quiet_dpkg -i "$this"
    hold "the daemon runs" soon 20 active "$daemon"
    hold "the broker's socket listens" active "$socket"
    hold "status says that it is not configured" status_says "not configured"
    hold "it does nothing: the broker was not even started" inactive "$broker"
    hold "it runs as its own user" runs_as pve-autoscaler
    hold "it has no capability" no_capabilities "$daemon"
    hold "configuration is root's, readable" owned "$config" root:root 644
    hold "credentials are for root and the daemon alone" owned /etc/pve-autoscaler root:pve-autoscaler 750
    hold "the broker's socket is for the daemon's group" owned /run/pve-autoscaler/pve.sock root:pve-autoscaler 660
    hold "the mails' socket listens" active "$mail"
    hold "nobody places vCPUs who was not asked to" inactive "$pinning"
    hold "the mails' socket is for the daemon's group" owned /run/pve-autoscaler/mail.sock root:pve-autoscaler 660
    mails_are_handed_on
    hold "the control socket is for the daemon's group" owned /run/pve-autoscaler/control.sock pve-autoscaler:pve-autoscaler 660
    hold "state is the daemon's alone" owned /var/lib/pve-autoscaler pve-autoscaler:pve-autoscaler 700
    hold "pve-autoscaler status answers" pve-autoscaler status
    hold "pve-autoscaler check accepts the shipped file" pve-autoscaler check
    hold "demo, sim and conformance find their program" pve-autoscaler conformance --fixtures
    hold "and the example" pve-autoscaler --config "$example" check
    hold "manual pages and completions are there" ls /usr/share/man/man1/pve-autoscaler.1.gz \
        /usr/share/man/man5/pve-autoscaler.toml.5.gz \
        /usr/share/bash-completion/completions/pve-autoscaler
    hold "what units, configuration and README name is there" documented
    hold "bash completes past the first word" completes status --outp --output
    hold "bash completes a command below a command" completes explain no node
}

# A sendmail as postfix has it: it hands the mail to a program that is set-group-id, and needs that group to write. The
# configuration is another one for as long: it names a mail and configures nothing.
mails_are_handed_on() {
    local spool=/var/spool/try-mail
    cp "$config" /root/try/as-installed.toml
    printf '[notification.mail]\nkind = "mail"\nto = ["root"]\n' >>"$config"
    install -d -m 0730 -o root -g mail "$spool"
    install -m 2755 -o root -g mail /usr/bin/tee /usr/local/bin/try-postdrop
    printf '#!/bin/sh\n/usr/local/bin/try-postdrop %s/"$$" >/dev/null\n' "$spool" >/usr/sbin/sendmail
    chmod 0755 /usr/sbin/sendmail
    systemctl reload "$daemon"
    hold "the daemon's test mail is taken" soon 10 pve-autoscaler notify-test mail
    hold "and written with the rights of a set-group-id program" grep -qrs '^Auto-Submitted: auto-generated' "$spool"
    hold "the daemon itself may not do so" denied_to_daemon "$spool"
    cp /root/try/as-installed.toml "$config"
    systemctl reload "$daemon"
    rm -rf "$spool" /usr/local/bin/try-postdrop /usr/sbin/sendmail
}
# By its unit: no new privileges, and a root that is read-only.
denied_to_daemon() {
    [ "$(systemctl show --property=NoNewPrivileges --value "$daemon")" = yes ] &&
        [ "$(systemctl show --property=ProtectSystem --value "$daemon")" = strict ]
}

# completes COMMAND WORD WHOLE: what bash makes of the word after the command.
completes() {
    bash -c '
        . /usr/share/bash-completion/completions/pve-autoscaler
        COMP_WORDS=(pve-autoscaler "$1" "$2") COMP_CWORD=2
        "$(complete -p pve-autoscaler | sed -n "s/.* -F \([^ ]*\) .*/\1/p")" pve-autoscaler "$2" "$1"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$1" "$2" | tee /dev/stderr | grep -qx -e "$3"
}

# Paths that the units and the configuration name, and links of the pages on them.
documented() {
    local path page missing=0
    cd /usr/share/doc/pve-autoscaler || return 1
    while read -r path; do
        [ -e "$path" ] || { echo "$path is not there" && missing=1; }
    done < <(
        grep -rhoE '/usr/share/[A-Za-z0-9._/-]*[A-Za-z0-9]' "$config" "$example" /usr/lib/systemd/system/pve-autoscaler*
        for page in *.md docs/*.md docs/decisions/*.md; do
            grep -oE '\]\([^):# ]+[)#]' "$page" | sed -e 's/[)#]$//' -e 's|^\](/|/|' -e "s|^](|$(dirname "$page")/|"
        done
    )
    [ "$missing" -eq 0 ]
}

broker_and_sandbox() {
    hold "the broker answers the daemon's user" broker_answers
    hold "the broker runs" active "$broker"
    hold "the broker has no capability" no_capabilities "$broker"
    hold "the broker's state is root's alone" owned /var/lib/pve-autoscaler-broker root:root 700
    hold "the broker refuses another user" broker_refuses nobody
    hold "the broker's sandbox shows PVE's files, also when they are mounted anew" pve_comes_and_goes
    hold "the broker's sandbox lets the fallback run outside" sandbox_lets_run_outside
    hold "the broker's sandbox lets nothing else be written or owned" sandbox_holds
    sandbox_gone
    hold "the daemon's exposure is at most 1.5" exposure_at_most "$daemon" "$daemon_exposure"
    hold "the broker's exposure is at most 3.0" exposure_at_most "$broker" "$broker_exposure"
    hold "systemd-analyze verify finds nothing" verify_units
    hold "starting logged no error" no_error_logged
}

# Runs a script under exactly the broker's confinement.
in_broker_sandbox() {
    printf '%s\n' "$1" >/run/try-sandbox.sh
    sed -e '/^Requires=/d' -e '/^NotifyAccess=/d' -e '/^Restart/d' -e '/^ExecReload=/d' \
        -e 's/^Type=.*/Type=oneshot/' -e 's|^ExecStart=.*|ExecStart=/bin/sh -ex /run/try-sandbox.sh|' \
        "/usr/lib/systemd/system/$broker" >/run/systemd/system/try-sandbox.service
    systemctl daemon-reload
    systemctl start try-sandbox.service || { journalctl --no-pager --unit=try-sandbox.service && false; }
}

# What the broker's work needs of its sandbox: PVE's private files (a mount like pmxcfs, which a
# restart of pve-cluster puts there anew), Perl, memory shared with pmxcfs, and a way to have the
# fallback run outside.
pve_comes_and_goes() {
    local pid
    pid="$(systemctl show --property=MainPID --value "$broker")"
    mkdir -p /etc/pve
    mount -t tmpfs -o mode=0755 pmxcfs /etc/pve && install -D -m 0600 /dev/null /etc/pve/priv/first || return 1
    nsenter --target "$pid" --mount test -e /etc/pve/priv/first || { echo "not seen" && return 1; }
    umount /etc/pve && mount -t tmpfs -o mode=0755 pmxcfs /etc/pve || return 1
    install -D -m 0600 /dev/null /etc/pve/priv/second
    nsenter --target "$pid" --mount test -e /etc/pve/priv/second || { echo "new mount not seen" && return 1; }
    in_broker_sandbox 'cat /etc/pve/priv/second; perl -e "exit 0"; : >/dev/shm/try-sandbox; rm /dev/shm/try-sandbox'
}
sandbox_lets_run_outside() {
    in_broker_sandbox '/usr/bin/systemd-run --wait --pipe --quiet --collect /bin/sh -ec "touch /root/try/outside; mount -o remount,rw / || true"' &&
        [ -e /root/try/outside ]
}
sandbox_holds() {
    local path
    for path in /etc/x /usr/x /root/x /etc/pve/x /var/lib/x /run/x; do
        ! in_broker_sandbox ": >$path" >/dev/null 2>&1 || { echo "$path was written" && return 1; }
    done
    ! in_broker_sandbox "chown nobody /var/lib/pve-autoscaler-broker" >/dev/null 2>&1 &&
        ! in_broker_sandbox "mount -t tmpfs none /mnt" >/dev/null 2>&1 &&
        in_broker_sandbox ": >/var/lib/pve-autoscaler-broker/try; rm /var/lib/pve-autoscaler-broker/try"
}
sandbox_gone() {
    umount /etc/pve
    rm -f /run/systemd/system/try-sandbox.service /run/try-sandbox.sh
    systemctl daemon-reload
}

verify_units() {
    local said
    said="$(systemd-analyze verify --man=no "$daemon" "$socket" "$broker" "$mail" "$pinning" 2>&1)" || { echo "$said" && return 1; }
    [ -z "$said" ] || { echo "$said" && return 1; }
}

# no_error_logged [--since=TIME]; no_refusal alike
no_error_logged() {
    local said
    said="$(journalctl "$@" --no-pager --quiet --priority=err --unit="$daemon" --unit="$socket" --unit="$broker")"
    [ -z "$said" ] || { echo "$said" && return 1; }
}

edited_and_reloaded() {
    local before
    before="$(main_pid)"
    echo "# edited by the administrator" >>"$config"
    hold "reloads an edited file" systemctl reload "$daemon"
    hold "the same process goes on" soon 5 test "$before" = "$(main_pid)"
    cp "$config" /root/try/edited.toml
    hold "the unit's status names the file in force" soon 40 status_says "in force: $config as read at"
    echo "nonsense = [" >>"$config"
    hold "a reload with a bad file fails" refused systemctl reload "$daemon"
    hold "what is wrong with it is in the log" soon 10 log_says "pve-autoscaler.toml:[0-9]*:[0-9]*: "
    hold "the unit's status says that the previous configuration is in force" soon 40 status_says "it has errors since then"
    hold "and so does pve-autoscaler status" status_shows "the previous configuration is in force"
    hold "and the same process goes on" test "$before" = "$(main_pid)"
    hold "which is active" active "$daemon"
    chmod 0600 "$config"
    cp /root/try/edited.toml "$config"
    hold "a reload with a file that the daemon's user cannot read fails" refused systemctl reload "$daemon"
    chmod 0644 "$config"
    hold "reloads the mended file" systemctl reload "$daemon"
    hold "and the unit's status says so" soon 40 status_is_clean
    hold "the daemon leaves no core" no_core "$daemon"
    hold "the broker leaves no core" no_core "$broker"
}
refused() { ! "$@"; }
status_is_clean() { status_says "in force: $config as read at" && refused status_says "it has errors\|it was changed"; }
no_core() { grep -q '^Max core file size  *0  *0 ' "/proc/$(systemctl show --property=MainPID --value "$1")/limits"; }

# A PVE host as the broker knows it (certificate, Perl modules, pmxcfs's directories), with the
# simulators in the place of pveproxy and of a cluster. The ticket comes from the simulator.
host_made() {
    local ca=/root/try/ca.pem
    mkdir -p /etc/pve/nodes/pve1 /etc/pve/priv
    ln -s nodes/pve1 /etc/pve/local
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=pve1 \
        -addext 'subjectAltName=IP:127.0.0.1,DNS:localhost' -addext 'basicConstraints=critical,CA:FALSE' \
        -keyout /etc/pve/local/pve-ssl.key -out /etc/pve/local/pve-ssl.pem || return 1
    cp /etc/pve/local/pve-ssl.pem "$ca"
    install -m 0700 /root/try/mint /etc/pve/priv/e2e-mint
    mkdir -p /usr/share/perl5/PVE
    cp /root/try/perl5/PVE/*.pm /usr/share/perl5/PVE/
    systemd-run --quiet --unit=sim-pve pve-autoscaler sim pve --listen 127.0.0.1:8006 \
        --tls-cert /etc/pve/local/pve-ssl.pem --tls-key /etc/pve/local/pve-ssl.key
    systemd-run --quiet --unit=sim-kube pve-autoscaler sim kube --listen 127.0.0.1:6443 \
        --kubeconfig /run/sim-kubeconfig
    soon 20 test -s /run/sim-kubeconfig &&
        install -o root -g pve-autoscaler -m 0640 /run/sim-kubeconfig /etc/pve-autoscaler/kubeconfig
}

audit_says() { journalctl --no-pager --unit="$broker" --output=verbose | tee /root/try/audit | grep -Eq "$1"; }
status_shows() { pve-autoscaler status | tee /dev/stderr | grep -q "$1"; }
ready() { curl -sf http://127.0.0.1:9808/readyz; }

# From the shipped file to a machine: only the file is edited and the service reloaded.
configured_and_working() {
    hold "a simulated PVE host and cluster are there" host_made
    cat >"$config" <<-'TOML'
	version = 1
	[proxmox]
	vmids = "9100-9199"
	[template.debian]
	vm_name = "debian-13-k8s"
	[instance_type.small]
	cores = 1
	memory = "2GiB"
	[pool.workers]
	template = "debian"
	instance_types = ["small"]
	min = 1
	max = 2
	TOML
    hold "the edited file is right" pve-autoscaler check
    hold "reloads it" systemctl reload "$daemon"
    hold "the daemon reaches Kubernetes and, through the broker, PVE" soon 60 ready
    hold "the pool's first machine is cloned by the broker" soon 60 audit_says 'CALL=clone'
    hold "status shows the machine" soon 30 status_shows workers-
    hold "no call was refused by the broker" no_refusal
    hold "a changed [web] listen takes effect on reload" listens_elsewhere
    quiet_dpkg -r pve-autoscaler >/root/try/removal 2>&1
    hold "a removal names the machines that stay" grep -E '^  workers-[a-z0-9-]+ \(VM 91[0-9][0-9] on pve' /root/try/removal
    quiet_dpkg -i "$this" >/dev/null 2>&1
    hold "installed again, it goes on with them" soon 60 status_shows workers-
    restored
    cp /root/try/edited.toml "$config"
    hold "goes back to not configured" systemctl reload "$daemon"
    systemctl stop sim-pve sim-kube
    rm -rf /etc/pve /usr/share/perl5/PVE /run/sim-kubeconfig
}

# Task 8 of docs/tasks.md, line by line as the page has it: the host is as new but for the backup, the broker's records are gone, too.
# dpkg stands for apt, which has no network here.
restored() {
    local line
    commands_of 8 >/root/try/task-8
    hold "the page has a task 8" test -s /root/try/task-8
    while IFS= read -r line <&3; do
        line="${line//BACKUP.tar//root/try/backup.tar}"
        case "$line" in
            "apt install ./pve-autoscaler_"*.deb) hold "task 8: $line" quiet_dpkg -i "$this" ;;
            "pve-autoscaler doctor") hold "task 8: $line" doctor_sees_pve ;;
            "pve-autoscaler status") hold "task 8: $line: the machines are there" soon 60 status_shows workers- ;;
            "tar -C / -cpf "*)
                hold "task 8: $line" bash -c "$line"
                quiet_dpkg -P pve-autoscaler >/dev/null 2>&1
                hold "nothing but the backup is left" absent /var/lib/pve-autoscaler-broker
                ;;
            *) hold "task 8: $line" bash -c "$line" ;;
        esac
    done 3</root/try/task-8
    hold "restored, it works with the broker" soon 60 curl -sf http://127.0.0.1:9809/readyz
}
# The commands of a task, without comments.
# shellcheck disable=SC2016 # the backticks are the page's
commands_of() {
    sed -n "/^## $1\. /,/^## /p" /usr/share/doc/pve-autoscaler/docs/tasks.md |
        sed -n '/^```sh$/,/^```$/p' | sed -e '/^```/d' -e 's/  *#.*//'
}
# What else it finds is of the simulated host.
doctor_sees_pve() { { pve-autoscaler doctor || true; } | tee /dev/stderr | grep 'the cluster has quorum' >/dev/null; }

listens_elsewhere() {
    printf '[web]\nlisten = "127.0.0.1:9809"\n' >>"$config"
    systemctl reload "$daemon" && soon 20 curl -sf http://127.0.0.1:9809/readyz && refused ready
}
no_refusal() { ! journalctl "$@" --no-pager --unit="$broker" | grep -F 'refused-by-broker'; }

crashed_and_frozen() {
    local before
    before="$(main_pid)"
    hold "a process to end is there" test "$before" -gt 1
    # Process 0 would be this script's own group.
    [ "$before" -gt 1 ] || return
    kill -KILL "$before"
    hold "starts again after a crash" soon 30 changed_pid "$before"
    before="$(main_pid)"
    hold "a process to freeze is there" test "$before" -gt 1
    [ "$before" -gt 1 ] || return
    kill -STOP "$before"
    hold "the watchdog ends a frozen daemon and starts it again" soon 200 changed_pid "$before"
    hold "both were counted as restarts" soon 30 restarted 2
}

upgraded() {
    local before broker_before
    before="$(main_pid)"
    broker_before="$(systemctl show --property=MainPID --value "$broker")"
    hold "a pause begins" pve-autoscaler pause "the trial"
    hold "upgrades" quiet_dpkg -i "$next"
    hold "the new version runs" soon 20 changed_pid "$before"
    hold "the edited file was kept" cmp "$config" /root/try/edited.toml
    hold "the socket listens again" active "$socket"
    hold "the old broker is gone" test "$broker_before" != "$(systemctl show --property=MainPID --value "$broker")"
    hold "the new broker answers" broker_answers
    hold "the pause outlives it" soon 10 status_shows "paused: the trial"
}

removed() {
    hold "removes" quiet_dpkg -r pve-autoscaler
    hold "nothing of it runs" nothing_runs
    hold "the socket is closed" inactive "$socket"
    hold "and the mails' socket" inactive "$mail"
    hold "the edited file stays" cmp "$config" /root/try/edited.toml
    hold "state stays" test -d /var/lib/pve-autoscaler
    hold "installs again after it was removed" quiet_dpkg -i "$next"
    hold "and runs again" soon 20 active "$daemon"
    hold "with its socket" active "$socket"
    hold "with the edited file" cmp "$config" /root/try/edited.toml
    hold "with its state: the pause holds" soon 10 status_shows "paused: the trial"
    hold "purges what runs" quiet_dpkg -P pve-autoscaler
    hold "nothing of it runs any more" nothing_runs
    hold "nothing is left but the system user" nothing_left
    hold "the system user is left" getent passwd pve-autoscaler
    hold "installs again after it was purged" quiet_dpkg -i "$this"
    hold "and runs once more" soon 20 active "$daemon"
    quiet_dpkg -P pve-autoscaler >/dev/null 2>&1
}
nothing_runs() { [ -z "$(grep -lsx -e pve-autoscaler -e broker /proc/[0-9]*/comm)" ]; }

# dpkg's and systemd's own books, and the backups that sysusers makes of the user files, may differ.
nothing_left() {
    local left
    files >/root/try/after
    left="$(comm -13 /root/try/before /root/try/after |
        grep -vE '^/etc/(passwd|group|shadow|gshadow)-$|^/var/lib/dpkg/|^/var/cache/|^/var/lib/systemd/(timers|random-seed|catalog)|^/etc/\.pwd\.lock$')"
    [ -z "$left" ] || { echo "$left" && return 1; }
}

# From the first installation to the purge.
package() {
    files >/root/try/before
    hold "lintian of this release finds nothing" lintian --pedantic --display-experimental \
        --fail-on error,warning --allow-root "$this"
    installed_and_idle
    broker_and_sandbox
    edited_and_reloaded
    configured_and_working
    crashed_and_frozen
    upgraded
    removed
}

for part; do
    began=$SECONDS
    case "$part" in
        package) package ;;
        road) road_of_a_new_user ;;
        *) hold "there is a part $part" false ;;
    esac
    echo "part $part: $((SECONDS - began)) s"
done
# Once more at the end, where CI's output is cut.
printf 'MISS %s\n' "${misses[@]+"${misses[@]}"}" | grep -v '^MISS $'
echo "$missed missed"
[ "$missed" -eq 0 ]
