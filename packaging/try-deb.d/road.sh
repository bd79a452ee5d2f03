# shellcheck shell=bash
# shellcheck disable=SC2154 # this, daemon and config are in-root.sh's
# The road of a new user, read by in-root.sh: from nothing to a node that is Ready, by the commands of README and docs/setup.md,
# which are taken from the pages and typed as they stand there. A command of theirs that needs more than the root has meets this:
#
#   on the page                          here
#   a host of the PVE cluster            the root, with `sim pve` for its pveproxy and road/guest for its VMs
#   /srv/pve-autoscaler                  the release of this package (packaging/try-release.sh); without one the package and its sum
#   _amd64.deb                           the root's own architecture
#   CONTROL-PLANE                        cp1, a name of the root itself, where `sim kube` is
#   scp, kubectl                         road/person: the file, and the calls that kubectl makes
#   Debian's mirror (setup looks at it)  road/mirror, with a certificate of an authority that the root trusts
#   an answer at the terminal            Enter at each question, and y (road/at-terminal)
#   answers.toml                         the file on docs/setup.md, with cp1 for the address in it
#
# Each line that a person types is a step: it is numbered as it is typed, with the seconds until its command ended or showed what was
# waited for. The last lines say how many steps the road has and how many minutes they took; the time in which a person reads is not in them.

readonly road=/root/try/road world=/run/road
readonly release=/srv/pve-autoscaler
# What the mirror has. The simulated PVE compares the sums alone.
readonly image_date=20251117-2299
# Seconds for setup with its template, and for a machine from the pod to the Ready node.
readonly setup_seconds=180 machine_seconds=90
# The 20 MB of an idle daemon are held by benches/idle.rs, on a large cluster. This finds a page that leaves much behind: kB of the kernel's. A daemon
# whose file is larger than these bytes was built quickly and not for size: of that the number is told alone.
readonly looked_kilobytes=24576 built_for_size=20000000

# part_of PAGE FROM TO: the lines of a page between two that match.
part_of() { sed -n "/$2/,/$3/p" "/root/try/$1"; }
# blocks KIND: the lines of the blocks of this kind, without comments at their ends.
# shellcheck disable=SC2016 # the backticks are the page's
blocks() { sed -n '/^```'"$1"'$/,/^```$/p' | sed -e '/^```/d' -e 's/  *#.*//' -e '/^$/d'; }

# typed LINE: a command of a page, in the folder that the ones before it left.
typed() {
    local line="${1//CONTROL-PLANE/cp1}"
    line="${line//_amd64.deb/_$(dpkg --print-architecture).deb}"
    PATH="$road/person:$PATH" bash -c '
        cd "$(cat /run/road/folder)" || exit 1
        eval "$1"
        status=$?
        pwd >/run/road/folder
        exit "$status"' bash "$line" </dev/null
}
# at_terminal SECONDS LINE
at_terminal() {
    typed "$road/at-terminal $1 '$2'" >/root/try/terminal
    local status=$?
    tail -n 20 /root/try/terminal
    return "$status"
}
# watched PATTERN SECONDS LINE: a command that has no end shows it.
watched() { typed "timeout --foreground $2 $3 | tee /root/try/watched | grep -qE -m 1 '$1'" || { tail -n 12 /root/try/watched && false; }; }

# What was typed so far: lines in all; and by leg of the road, lines and milliseconds.
steps=0
declare -A leg_steps=() leg_millis=()
millis() { echo "$((${EPOCHREALTIME//[!0-9]/} / 1000))"; }
# tenths NUMBER UNIT: how many units NUMBER is, with one decimal.
tenths() {
    local tenths=$((($1 * 10 + $2 / 2) / $2))
    echo "$((tenths / 10)).$((tenths % 10))"
}
# counted NUMBER WORD
counted() { if [ "$1" = 1 ]; then echo "1 $2"; else echo "$1 $2s"; fi; }
# step LEG LINE COMMAND...: COMMAND, which types LINE, must succeed. Counts LINE for this leg of the road.
step() {
    local leg="$1" line="$2" began took
    shift 2
    began="$(millis)"
    hold "$leg: $line" "$@"
    took=$(($(millis) - began))
    steps=$((steps + 1))
    leg_steps["$leg"]=$((${leg_steps["$leg"]-0} + 1))
    leg_millis["$leg"]=$((${leg_millis["$leg"]-0} + took))
    printf 'step %2d %6s s  %s\n' "$steps" "$(tenths "$took" 1000)" "$line"
}
# road_in_numbers: steps and time of the way from the package to the Ready node, by part of README, and of what is tried beside it.
road_in_numbers() {
    local leg all=0 took=0
    for leg in "README 1" "README 2" "README 3" "README 4"; do
        leg_in_numbers "$leg"
        all=$((all + ${leg_steps["$leg"]-0})) took=$((took + ${leg_millis["$leg"]-0}))
    done
    echo "road: from the package to the Ready node: $(counted "$all" step) and $(counted "$(cat "$world/answers")" answer)," \
        "$(tenths "$took" 60000) minutes on $(counted "$(nproc)" core)"
    for leg in "README 1, the repository" "README 4, afterwards" docs/setup.md; do
        echo "beside the $(leg_in_numbers "$leg")"
    done
}
leg_in_numbers() { echo "road: $1: $(counted "${leg_steps["$1"]-0}" step), $(tenths "${leg_millis["$1"]-0}" 1000) s"; }

# certificate NAME FILE: FILE.pem and FILE.key, signed by itself.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" \
        -addext "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:$1" -addext 'basicConstraints=critical,CA:FALSE' \
        -keyout "$2.key" -out "$2.pem"
}

# A host alone without templates, a cluster with one small worker, and Debian's mirror.
road_world() {
    local here sum
    here="$(hostname)" sum="$(printf '%128s' '' | tr ' ' 5)"
    mkdir -p "$world/guests" "/etc/pve/nodes/$here" /etc/pve/priv /usr/share/perl5/PVE
    ln -s "nodes/$here" /etc/pve/local
    touch /etc/hosts
    cp /etc/hosts "$world/hosts"
    printf '127.0.0.1 cp1 cloud.debian.org %s\n' "$here" >>/etc/hosts
    certificate "$here" /etc/pve/local/pve-ssl || return 1
    certificate cloud.debian.org "$world/mirror" || return 1
    cp /etc/ssl/certs/ca-certificates.crt "$world/trusted.pem"
    cat "$world/mirror.pem" >>/etc/ssl/certs/ca-certificates.crt
    install -m 0700 /root/try/mint /etc/pve/priv/e2e-mint
    cp /root/try/perl5/PVE/*.pm /usr/share/perl5/PVE/
    cat >"$world/pve.json" <<-JSON
	{
	  "cluster": "", "machines": [],
	  "hosts": [{"name": "$here", "cpus": 16, "memory": 68719476736, "address": "192.0.2.11"}],
	  "storages": [
	    {"name": "local", "kind": "dir", "total": 107374182400, "content": "backup,iso,vztmpl", "files": "/var/lib/vz"},
	    {"name": "local-zfs", "kind": "zfspool", "total": 858993459200, "content": "images,rootdir"}],
	  "downloads": {"https://cloud.debian.org/images/cloud/trixie/$image_date/debian-13-genericcloud-amd64-$image_date.qcow2": "$sum"}
	}
	JSON
    echo '{"nodes": [{}, {"name": "worker", "cores": 2, "memory_mib": 2048, "labels": "", "taints": []}]}' >"$world/kube.json"
    systemd-run --quiet --unit=road-mirror "$road/mirror" "$world/mirror.pem" "$world/mirror.key" "$image_date" "$sum"
    systemd-run --quiet --unit=road-pve pve-autoscaler sim pve --listen 127.0.0.1:8006 --spec "$world/pve.json" \
        --tls-cert /etc/pve/local/pve-ssl.pem --tls-key /etc/pve/local/pve-ssl.key \
        --guest-program "$road/guest" --guest-dir "$world/guests"
    systemd-run --quiet --unit=road-kube pve-autoscaler sim kube --listen cp1:6443 --spec "$world/kube.json" \
        --kubeconfig "$world/admin.conf"
    soon 20 test -s "$world/admin.conf" || return 1
    # It has the address that it listens at, and the user's the name of the control plane.
    sed -i 's|https://127.0.0.1:6443|https://cp1:6443|' "$world/admin.conf"
    sed -n 's/.*certificate-authority-data: *//p' "$world/admin.conf" | base64 -d >"$world/ca.pem"
}

# README, 1: both ways to the package, the second from a host as new.
road_package() {
    local line leg="README 1"
    if [ ! -e "$release" ]; then
        mkdir -p "$release"
        cp "$this" "$release/pve-autoscaler_0_$(dpkg --print-architecture).deb"
        (cd "$release" && sha256sum ./*.deb >SHA256SUMS)
    fi
    part_of README.md '^\*\*1\. ' '^\*\*2\. ' | blocks sh >/root/try/step-1
    hold "README has commands for the package" grep -q '^apt install ' /root/try/step-1
    while IFS= read -r line <&3; do
        case "$line" in
            "cd $release")
                if [ "$(cat "$world/folder")" != /root ]; then
                    another_way || return 0
                    leg="README 1, the repository"
                fi
                ;;
        esac
        step "$leg" "$line" typed "$line"
    done 3</root/try/step-1
    hold "installed from the repository, it is this package" from_repository
}
# The second way begins: the host is as new.
another_way() {
    hold "installed by README 1, it runs" soon 20 active "$daemon"
    if [ ! -e "$release/apt" ]; then
        echo "skip README 1, the repository: target/release-files has no release of this package (packaging/try-release.sh)"
        return 1
    fi
    quiet_dpkg -P pve-autoscaler >/dev/null 2>&1
    echo /root >"$world/folder"
}
from_repository() {
    active "$daemon" || return 1
    apt-cache policy pve-autoscaler
    apt-cache policy pve-autoscaler | grep -q "file:$release/apt"
}

# README, 2 and 3.
road_setup() {
    local part line
    echo /root >"$world/folder"
    part_of README.md '^\*\*2\. ' '^\*\*3\. ' | blocks sh >/root/try/step-2
    part_of README.md '^\*\*3\. ' '^\*\*4\. ' | blocks sh >/root/try/step-3
    hold "README has a setup" grep -qx 'pve-autoscaler setup --kubeconfig admin.conf' /root/try/step-2
    hold "README looks at what was set up" grep -q '^pve-autoscaler doctor' /root/try/step-3
    for part in 2 3; do
        while IFS= read -r line <&3; do
            case "$line" in
                "pve-autoscaler setup "*) step "README $part" "$line" at_terminal "$setup_seconds" "$line" ;;
                *) step "README $part" "$line" typed "$line" ;;
            esac
        done 3<"/root/try/step-$part"
    done
    hold "the mirror's newest image was downloaded for the template" grep -q "downloading https://cloud.debian.org/images/cloud/trixie/$image_date/" /root/try/terminal
    hold "the guest ran the build" grep -q 'the guest runs install' /root/try/terminal
    hold "the daemon reaches Kubernetes and PVE" soon 30 ready
}

# road_node SINCE: README, 4: pods that no node has room for, and the machine for them.
road_node() {
    local line leg="README 4"
    part_of README.md '^\*\*4\. ' '^\*\*What the file says' | blocks sh >/root/try/step-4
    hold "README has pods to try it with" grep -q '^kubectl create deployment ' /root/try/step-4
    while IFS= read -r line <&3; do
        case "$line" in
            "pve-autoscaler status --watch")
                # Until it shows one Ready node of the pool.
                step "$leg" "$line" watched '^  workers +0 +5 +1 ' "$machine_seconds" "$line"
                leg="README 4, afterwards"
                hold "Kubernetes has the Ready node" soon 10 node_is_ready
                hold "the pods run on it" soon 30 pods_run_there
                ;;
            *) step "$leg" "$line" typed "$line" ;;
        esac
    done 3</root/try/step-4
    hold "the page is looked at" page_looked_at
    hold "afterwards the daemon takes no more than $((looked_kilobytes / 1024)) MiB" soon 30 small_again
    [ ! -s /root/try/looked ] || echo "     $(cat /root/try/looked)"
    hold "no call was refused by the broker" no_refusal "--since=@$1"
    hold "daemon and broker logged no error" no_error_logged "--since=@$1"
}
# What a browser fetches: the page, its stream for some seconds, the record of a day, and one machine's and one pod's story.
page_looked_at() {
    local path pages=http://127.0.0.1:9808
    for path in / $(curl -sf $pages/ | grep -oE '(src|href)="/[a-z./-]+"' | cut -d'"' -f2 | sort -u) '/api/when?hours=24' '/api/find?q=try-it'; do
        curl -sf -o /dev/null "$pages$path" || { echo "$path is not served" && return 1; }
    done
    timeout --foreground 5 curl -sfN -o /root/try/stream $pages/api/events
    grep -q '^data:' /root/try/stream
}
small_again() {
    local kilobytes
    kilobytes="$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$(main_pid)/status")"
    echo "VmRSS of the daemon after the page was looked at: $kilobytes kB" | tee /root/try/looked
    [ "$kilobytes" -le "$looked_kilobytes" ] || [ "$(stat -c %s "/proc/$(main_pid)/exe" -L)" -gt "$built_for_size" ]
}
kube() { curl -sf --cacert "$world/ca.pem" -H "Authorization: Bearer sim-admin-token" "https://cp1:6443$1"; }
# Perl's JSON, one line for each object.
node_is_ready() {
    kube /api/v1/nodes | perl -MJSON::PP -e '
        for my $node (@{ decode_json(join "", <>)->{items} }) {
            my ($ready) = map { $_->{status} } grep { $_->{type} eq "Ready" } @{ $node->{status}{conditions} };
            print "$node->{metadata}{name} $ready\n";
        }' | tee /dev/stderr | grep -q '^workers-.* True$'
}
pods_run_there() {
    kube /api/v1/namespaces/default/pods | perl -MJSON::PP -e '
        for my $pod (@{ decode_json(join "", <>)->{items} }) {
            print join(" ", $pod->{metadata}{name}, $pod->{spec}{nodeName} // "-", $pod->{status}{phase}), "\n";
        }' | tee /root/try/pods
    grep -q '^try-it-.* workers-.* Running$' /root/try/pods && ! grep -v ' Running$' /root/try/pods
}

# docs/setup.md: what is set up at a terminal is changed by a file of answers, and the same answers again change nothing.
road_answers() {
    local line
    echo /root >"$world/folder"
    part_of setup.md '^## Without a person' '^## From another machine' >/root/try/answers.md
    blocks toml </root/try/answers.md | sed 's/192\.0\.2\.5/cp1/' >/root/answers.toml
    blocks sh </root/try/answers.md >/root/try/answers
    hold "docs/setup.md has a setup without a person" grep -q ' --yes$' /root/try/answers
    while IFS= read -r line <&3; do
        step docs/setup.md "$line" typed "$line"
    done 3</root/try/answers
    hold "the pool has what was answered" grep -q '^max = 10 ' "$config"
    hold "the same answers again: nothing is to be done" nothing_to_do
}
nothing_to_do() { typed "$(tail -n 1 /root/try/answers)" | tee /dev/stderr | grep -q 'Nothing is to be done'; }

road_of_a_new_user() {
    local sources=/etc/apt/sources.list since
    since="$(date +%s)"
    mkdir -p "$world"
    echo /root >"$world/folder"
    echo 0 >"$world/answers"
    # The root has no network: apt would wait for Debian's names.
    [ ! -e "$sources" ] || mv "$sources" "$world/sources.list"
    road_package
    hold "a simulated PVE host, cluster and mirror are there" road_world
    road_setup
    road_node "$since"
    road_answers
    road_in_numbers
    quiet_dpkg -P pve-autoscaler >/dev/null 2>&1
    systemctl stop road-pve road-kube road-mirror
    cp "$world/hosts" /etc/hosts
    cp "$world/trusted.pem" /etc/ssl/certs/ca-certificates.crt
    [ ! -e "$world/sources.list" ] || mv "$world/sources.list" "$sources"
    rm -rf "$world" /etc/pve /usr/share/perl5/PVE /root/answers.toml /etc/kubernetes
    rm -f /etc/apt/sources.list.d/pve-autoscaler.list /etc/apt/keyrings/pve-autoscaler.asc
}
