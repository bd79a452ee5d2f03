#!/bin/bash
# Boots the world: pve1 and pve2, a PVE cluster of PVE's own code, and cp1, a control plane, in a network of their own. What is up
# already stays; what earlier runs did in the hosts stays, too.
#
#   tests/pve-world/up.sh [--fresh] [PACKAGE.deb]
#
# --fresh: the hosts begin anew.
# PACKAGE.deb: lies at /srv/pve-autoscaler on both hosts afterwards, and cp1's control plane is its `sim kube`. Without it the newest in
# target/package is taken.
# PVE_RELEASE=8: of PVE 8, not 9. PVE_SOURCES, PVE_GIT: where PVE's code comes from (make-root.sh). KUBECTL=FILE: a kubectl for cp1.
# Exit 77: it cannot be booted on this machine, for the reason that is said.
set -euo pipefail
readonly called_in="$PWD"
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

# How long a host may take to boot, and the cluster and its services to be there.
readonly boot_seconds=180 cluster_seconds=180
# The image that Debian's mirror has: a date that no real one has.
readonly image_date=20261117-2299
readonly conf="$state/conf"

need_tools() {
    local missing=()
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    command -v dpkg-deb >/dev/null || missing+=(dpkg)
    command -v ip >/dev/null || missing+=(iproute2)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v ssh-keygen >/dev/null || missing+=(openssh-client)
    [ ${#missing[@]} -eq 0 ] || (get_packages "to boot Debian in containers" "${missing[@]}") || cannot "apt-get could not install ${missing[*]}"
    [ -c /dev/fuse ] || cannot "there is no /dev/fuse, which pmxcfs needs"
    [ -c /dev/net/tun ] || cannot "there is no /dev/net/tun, which VMs' network cards need"
    [ -c /dev/kvm ] || cannot "there is no /dev/kvm: PVE asks it for its version before it starts a VM (the VMs are emulated all the same)"
}

# Authority and certificate of Debian's mirror, the image that it has, ssh's keys, corosync's.
make_conf() {
    local images="$conf/mirror/images/cloud/trixie"
    [ ! -e "$conf/complete" ] || return 0
    say "certificates, keys, and an empty cloud image"
    mkdir -p "$images/$image_date" "$images/20250101-1" "$images/latest"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=CA of pve-world" \
        -addext basicConstraints=critical,CA:TRUE -keyout "$conf/ca.key" -out "$conf/ca.pem" 2>/dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=cloud.debian.org -keyout "$conf/mirror.key" -out "$conf/mirror.csr" 2>/dev/null
    openssl x509 -req -in "$conf/mirror.csr" -CA "$conf/ca.pem" -CAkey "$conf/ca.key" -CAcreateserial -days 300 \
        -extfile <(echo subjectAltName=DNS:cloud.debian.org) -out "$conf/mirror.pem" 2>/dev/null
    chroot "$root" qemu-img create -q -f qcow2 /root/image.qcow2 3G
    mv "$root/root/image.qcow2" "$images/$image_date/debian-13-genericcloud-amd64-$image_date.qcow2"
    (cd "$images/$image_date" && sha512sum ./*.qcow2 | sed 's|\./||' >SHA512SUMS)
    [ -e "$conf/ssh" ] || ssh-keygen -q -t rsa -b 2048 -N "" -f "$conf/ssh"
    (umask 077 && head -c 256 /dev/urandom >"$conf/authkey")
    install -m 0644 "$here/inside/corosync.conf" "$conf/corosync.conf"
    touch "$conf/complete"
}

# lend_files: what the hosts have of this machine, and read alone: our stand-ins, the guest of the end-to-end test, the package.
lend_files() {
    mkdir -p "$state"/{components,guest,inside,deb,nas}
    cp -r "$here/inside/." "$state/inside/"
    cp -r tests/e2e/guest tests/e2e/guest.d "$state/guest/"
    cp "$here"/inside/components/* "$state/components/"
    [ -z "${KUBECTL-}" ] || install -m 0755 "$KUBECTL" "$state/components/kubectl"
    cmp --silent "$deb" "$state/deb/$(basename "$deb")" && [ -x "$state/components/simulator" ] && return 0
    rm -f "$state"/deb/*
    cp "$deb" "$state/deb/"
    (cd "$state/deb" && sha256sum ./*.deb | sed 's|\./||' >SHA256SUMS)
    dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/libexec/pve-autoscaler/simulator >"$state/components/simulator.new"
    chmod 0755 "$state/components/simulator.new"
    mv "$state/components/simulator.new" "$state/components/simulator"
}

make_network() {
    [ ! -e "/run/netns/$net" ] || return 0
    ip netns add "$net"
    ip -n "$net" link set lo up
    ip -n "$net" link add lan type bridge
    ip -n "$net" address add "$gateway/16" dev lan
    ip -n "$net" link set lan up
}

# mount_root HOST: this host's view of the root, with what it wrote itself.
mount_root() {
    local place="$state/$1"
    mkdir -p "$place"/{upper,changing,root}
    mountpoint -q "$place/root" || mount -t overlay -o "lowerdir=$root,upperdir=$place/upper,workdir=$place/changing" "pve-world-$1" "$place/root"
    mkdir -p "$place/root"/opt/{components,e2e,inside,conf} "$place/root"/{srv/pve-autoscaler,mnt/nas}
}

# boot HOST SETUP [ARGUMENT...]: SETUP runs in its root before the first boot.
boot() {
    local host="$1" part place
    shift
    ! leader "$host" >/dev/null || return 0
    place="$state/$host/root"
    mount_root "$host"
    if [ ! -e "$state/$host/set-up" ]; then
        for part in inside conf; do mount --bind "$state/$part" "$place/opt/$part"; done
        chroot "$place" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
        for part in inside conf; do umount "$place/opt/$part"; done
        touch "$state/$host/set-up"
    fi
    # Guests see the host's own files and nothing that is lent.
    install -m 0755 -D packaging/try-deb.d/road/bin/kubeadm "$place/usr/local/libexec/pve-world/kubeadm-of-the-road"
    if [ "$host" != cp1 ]; then
        install -m 0755 "$here/inside/guest-agent" "$place/usr/local/libexec/pve-world/guest-agent"
        install -m 0755 "$here/inside/kvm" "$here/inside/qemu-img" "$place/usr/bin/"
    elif [ -e "$state/components/kubectl" ]; then
        ln -sf /opt/components/kubectl "$place/usr/bin/kubectl"
    fi
    (
        enter_cgroup "pve-world-$host" || say "$host: no control group of its own, so a start of one of its services may fail now and then"
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_NSPAWN_API_VFS_WRITABLE=network exec setsid nsenter --net="/run/netns/$net" \
            systemd-nspawn --quiet --directory="$place" --boot --register=no --keep-unit --network-bridge=lan --link-journal=no \
            --machine="pve-world-$host" --hostname="$host" --capability=all --bind-ro="$state/components:/opt/components" \
            --bind-ro="$state/guest:/opt/e2e" --bind-ro="$state/inside:/opt/inside" --bind-ro="$state/conf:/opt/conf" \
            --bind-ro="$state/deb:/srv/pve-autoscaler" --bind="$state/nas:/mnt/nas" \
            --bind=/dev/fuse --bind=/dev/net/tun --bind=/dev/kvm
    ) </dev/null >"$state/$host/console" 2>&1 8>&- &
    echo "$!" >"$state/$host/pid"
}

# "degraded" is no success to systemctl, but to us: a container lacks this and that.
booted() {
    case "$(inside "$1" systemctl is-system-running 2>/dev/null)" in
        running | degraded) return 0 ;;
        *) return 1 ;;
    esac
}

# soon SECONDS COMMAND...: waits until COMMAND succeeds.
soon() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 1
    done
}

# The first boot: two hosts become a cluster as pvecm would make it, with a storage for each host's VMs and a shared one.
make_cluster() {
    [ ! -e "$state/clustered" ] || return 0
    say "the cluster"
    inside pve1 sh -ec 'install -m 400 /opt/conf/authkey /etc/corosync/authkey
        install -m 644 /opt/conf/corosync.conf /etc/corosync/corosync.conf
        cp /opt/conf/corosync.conf /etc/pve/corosync.conf
        systemctl restart corosync
        sleep 2
        systemctl restart pve-cluster'
    inside pve2 sh -ec 'systemctl stop pve-cluster
        rm -f /var/lib/pve-cluster/config.db*
        install -m 400 /opt/conf/authkey /etc/corosync/authkey
        install -m 644 /opt/conf/corosync.conf /etc/corosync/corosync.conf
        systemctl restart corosync
        systemctl start pve-cluster'
    soon "$cluster_seconds" quorate || die "the two hosts found no quorum; $here/in.sh pve1 pvecm status"
    inside pve1 sh -ec 'pvecm updatecerts -f
        cp /opt/inside/storage.cfg /etc/pve/storage.cfg
        systemctl restart pvedaemon pveproxy pvestatd' >/dev/null
    inside pve2 sh -ec 'pvecm updatecerts -f
        systemctl restart pvedaemon pveproxy pvestatd' >/dev/null
    touch "$state/clustered"
}
quorate() { grep -q '^Quorate: *Yes' <<<"$(inside pve2 pvecm status 2>/dev/null)" && inside pve2 test -d /etc/pve/nodes/pve1; }

# Both hosts tell the other's state, and the control plane has written who may enter.
at_work() {
    inside pve1 pvesh get /cluster/resources --type node --output-format json 2>/dev/null | grep -o '"status":"online"' | wc -l | grep -qx 2 &&
        inside cp1 test -s /etc/kubernetes/admin.conf
}

fresh=no
[ "${1-}" != --fresh ] || { fresh=yes && shift; }
deb="${1-}"
# As it is seen from where this was called.
[[ -z "$deb" || "$deb" = /* ]] || deb="$called_in/$deb"
if [ -z "$deb" ]; then
    deb="$(find target/package -maxdepth 1 -name "pve-autoscaler_*_$(dpkg --print-architecture).deb" 2>/dev/null | sort | tail -n 1)"
    [ -n "$deb" ] || { echo "pve-world: no package in target/package; packaging/build-deb.sh makes it, or name one" >&2 && exit 1; }
fi
[ -f "$deb" ] || { echo "pve-world: there is no file $deb" >&2 && exit 1; }
need_root
need_tools
mkdir -p "$world"
exec 9>"$world/lock"
flock -n 9 || die "another up.sh is at work ($world/lock)"
root="$("$here/make-root.sh" 9>&-)" || exit $?
[ "$fresh" = no ] || "$here/down.sh" --fresh 9>&-
mkdir -p "$conf"
# What a host wrote lies over the root that it began with, and over no other.
[ "$(cat "$state/made-of" 2>/dev/null || echo "$root")" = "$root" ] || die "the hosts' root was made anew since they began; up.sh --fresh has them begin anew, too"
echo "$root" >"$state/made-of"
make_conf
lend_files
make_network
boot cp1 /opt/inside/cp-setup 9>&-
boot pve1 /opt/inside/pve-setup pve1 11 9>&-
boot pve2 /opt/inside/pve-setup pve2 12 9>&-
for host in "${hosts[@]}"; do
    soon "$boot_seconds" booted "$host" || { tail -n 5 "$state/$host/console" >&2 && cannot "$host did not boot in a container on this machine"; }
done
make_cluster
soon "$cluster_seconds" at_work || die "the cluster is not at work; $here/in.sh pve1 pvesh get /cluster/resources"
say "pve1, pve2 and cp1 are up: $here/in.sh HOST COMMAND runs something there, $here/down.sh ends them"
