#!/bin/bash
# Makes the root that both PVE hosts and the control plane are booted from, once for each state of what goes into it: Debian with
# what PVE needs of it, and PVE's own code. PVE's Perl lies there as it is; pmxcfs, its Perl binding, qmeventd and the query of the
# machine's capabilities are built in the root; what PVE has in Rust is replaced by stubs/. Prints the root's folder.
#
#   tests/pve-world/make-root.sh
#
# PVE_RELEASE=8        Proxmox VE 8 on Debian 12, of sources-8.txt, and not 9 on Debian 13, of sources.txt.
# PVE_SOURCES=FOLDER   PVE's repositories lie there, checked out, one folder for each name in that file. Without it they are cloned
# PVE_GIT=ADDRESS      from here (https://git.proxmox.com/git), at the commits of that file.
# Exit 77: it cannot be made on this machine, for the reason that is said.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
# shellcheck source=tests/pve-world/common.sh
. tests/pve-world/common.sh

case "${PVE_RELEASE:-9}" in
    8) readonly suite=bookworm debian=12 sources_list="$here/sources-8.txt" ;;
    9) readonly suite=trixie debian=13 sources_list="$here/sources.txt" ;;
    *) die "PVE_RELEASE=$PVE_RELEASE is neither 8 nor 9" ;;
esac
readonly git="${PVE_GIT:-https://git.proxmox.com/git}"
# How long a clone, Debian's root, and the compilers may take.
readonly clone_seconds=900 debian_seconds=1800 build_seconds=900
# A host's system and its tools.
packages=systemd,systemd-sysv,dbus,init-system-helpers,procps,psmisc,iproute2,iputils-ping,ca-certificates,curl,wget,openssl,openssh-client
packages+=,openssh-server,less,man-db,bash-completion,nano,file,tmux,kmod,tzdata,lsb-release,cron,logrotate,bsdextrautils
# What PVE's Perl uses.
packages+=,perl,libjson-perl,libjson-xs-perl,libnet-ssleay-perl,libio-socket-ssl-perl,libanyevent-perl,libanyevent-http-perl
packages+=,libhttp-daemon-perl,libwww-perl,libfile-readbackwards-perl,libfile-sync-perl,libfilesys-df-perl,libnet-dbus-perl
packages+=,liblinux-inotify2-perl,libuuid-perl,libtemplate-perl,libdigest-hmac-perl,libmime-base32-perl,libnet-ldap-perl
packages+=,libauthen-pam-perl,libcrypt-openssl-rsa-perl,libcrypt-openssl-random-perl,libhttp-message-perl,libxml-libxml-perl
packages+=,libterm-readline-gnu-perl,librrds-perl,rrdcached,libapt-pkg-perl,libnet-ip-perl,libnetaddr-ip-perl,libclone-perl
packages+=,libstring-shellquote-perl,libyaml-libyaml-perl,libposix-strptime-perl,libio-multiplex-perl,libio-stringy-perl
packages+=,libdevel-cycle-perl,libtest-mockmodule-perl,libnet-subnet-perl,libfile-chdir-perl,libstring-crc32-perl
# What its services and commands run.
packages+=,e2fsprogs,ethtool,iptables,conntrack,ebtables,zstd,lvm2,gdisk,bridge-utils,ifupdown2,jq,fuse,libnetfilter-conntrack3
packages+=,corosync,qemu-system-x86,qemu-utils,genisoimage,socat,numactl,python3,xsltproc,faketime
# What its C is built with.
packages+=,gcc,make,pkg-config,libcorosync-common-dev,libcpg-dev,libcmap-dev,libquorum-dev,libqb-dev,libfuse3-dev,libfuse-dev
packages+=,libsqlite3-dev,libglib2.0-dev,librrd-dev,libjson-c-dev,libc6-dev,check
readonly packages

# repositories: the names and commits of this release of PVE.
repositories() { grep -v '^#' "$sources_list"; }

# clone NAME COMMIT: the repository at that commit, in the cache.
clone() {
    local name="$1" commit="$2" place="$world/sources/$1"
    [ "$(cat "$place/.commit" 2>/dev/null)" != "$commit" ] || return 0
    rm -rf "$place"
    mkdir -p "$place"
    git -C "$place" init --quiet
    # One commit alone where the server gives it, all of the history where it does not.
    { limited "$clone_seconds" git -C "$place" fetch --quiet --depth 1 "$git/$name.git" "$commit" ||
        limited "$clone_seconds" git -C "$place" fetch --quiet "$git/$name.git"; } 2>"$world/clone.log" ||
        cannot "PVE's repository $name cannot be had from $git: $(tail -n 1 "$world/clone.log")" \
            "(PVE_SOURCES=FOLDER names a folder with PVE's repositories, PVE_GIT another server)"
    git -C "$place" checkout --quiet "$commit" || cannot "$git/$name.git has no commit $commit"
    echo "$commit" >"$place/.commit"
}

# Sets sources to the folder with PVE's repositories.
get_sources() {
    local name commit
    if [ -n "${PVE_SOURCES-}" ]; then
        sources="$(readlink -f "$PVE_SOURCES")"
        while read -r name _; do
            [ -d "$sources/$name/debian" ] || cannot "PVE_SOURCES=$PVE_SOURCES has no $name/debian"
        done < <(repositories)
        return 0
    fi
    sources="$world/sources"
    command -v git >/dev/null || cannot "there is no git, with which PVE's repositories are cloned"
    while read -r name commit <&3; do
        clone "$name" "$commit"
    done 3< <(repositories)
}

# version NAME: of a repository, by the first line of its Debian changelog.
version() { sed -n '1s/.*(\(.*\)).*/\1/p' "$sources/$1/debian/changelog"; }
versions() {
    local name
    while read -r name _; do echo "$name $(version "$name")"; done < <(repositories)
}

# Debian alone is kept beside the root: what is ours changes more often.
install_debian() {
    local base status=0
    base="$world/debian-$suite-$(sha256sum <<<"$packages" | cut -c1-8)"
    if [ ! -d "$base" ]; then
        say "a root of Debian $debian: some minutes, once"
        rm -rf --one-file-system "$base.new"
        # What it mounts there and what it starts ends with it, however it ends.
        limited "$debian_seconds" nice unshare --mount --propagation private --pid --fork --kill-child --mount-proc mmdebstrap --quiet \
            --variant=minbase --aptopt='Apt::Install-Recommends "false"' --include="$packages" "$suite" "$base.new" \
            >"$world/debian.log" 2>&1 || status=$?
        [ "$status" -eq 0 ] || tail -n 5 "$world/debian.log" | cut -c1-200 >&2
        case "$status" in
            0) ;;
            124 | 137) cannot "a root of Debian $debian was not made within $debian_seconds s (a slow mirror, or a busy machine); try again" ;;
            *) cannot "no root of Debian $debian could be made (no Debian mirror?): mmdebstrap ended with $status" ;;
        esac
        mv "$base.new" "$base"
    fi
    cp -a --reflink=auto "$base" "$root"
}

# PVE's Perl as it is in its repositories, and what its build writes out of it.
install_perl() {
    local place perl="$root/usr/share/perl5" release
    for place in pve-common/src pve-cluster/src qemu-server/src pve-storage/src pve-access-control/src pve-http-server/src pve-guest-common/src \
        pve-container/src pve-firewall/src pve-ha-manager/src pve-network/src pve-manager pve-apiclient/src; do
        (cd "$sources/$place" && find PVE \( -name '*.pm' -o -name '*.pl' \) -print0 | tar --null -T - -cf -) | tar -xf - -C "$perl" --no-same-owner
    done
    release="$(version pve-manager)"
    sed "s/@VERSION@/$release/;s/@PVERELEASE@/${release%.*}/;s/@PACKAGE@/pve-manager/;s/@REPOID@/$(repositories | sed -n 's/^pve-manager \(.\{8\}\).*/\1/p')/" \
        "$sources/pve-manager/PVE/pvecfg.pm.in" >"$perl/PVE/pvecfg.pm"
    awk -f "$sources/pve-cluster/src/PVE/Cluster/IPCConst.pm.awk" "$sources/pve-cluster/src/pmxcfs/cfs-ipc-ops.h" >"$perl/PVE/Cluster/IPCConst.pm"
}

# Ours in the place of PVE's parts in Rust, of Ceph and of ACME.
install_stubs() {
    local module file perl="$root/usr/share/perl5"
    cp -r "$here/stubs/." "$perl/"
    rm "$perl/loads-alone.txt"
    while read -r module; do
        file="$perl/${module//:://}.pm"
        mkdir -p "$(dirname "$file")"
        cat >"$file" <<-PERL
	package $module;
	# A stub of pve-autoscaler's tests/pve-world: it loads, and answers nothing.
	use strict; use warnings;
	our \$AUTOLOAD;
	sub new { my (\$c) = @_; return bless {}, \$c }
	sub import {}
	sub AUTOLOAD { return if \$AUTOLOAD =~ /::DESTROY\$/; return; }
	1;
	PERL
    done < <(grep -v '^#' "$here/stubs/loads-alone.txt")
}

# PVE's programs in C, built in the root by its own makefiles.
build_programs() {
    say "building pmxcfs, its Perl binding and qmeventd in the root"
    mkdir -p "$root/root/build"
    cp -r "$sources/pve-cluster" "$sources/qemu-server" "$root/root/build/"
    # shellcheck disable=SC2016 # the dollars are the inner shell's
    limited "$build_seconds" chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -ec '
        exec >/root/build.log 2>&1
        cd /root/build/pve-cluster/src/pmxcfs
        nice make pmxcfs create_pmxcfs_db CFLAGS_EXTRA=
        install -m755 pmxcfs create_pmxcfs_db /usr/bin/
        cd ../PVE
        nice make IPCC.so
        install -D IPCC.so "$(perl -MConfig -e "print \$Config{vendorarch}")/auto/PVE/IPCC/IPCC.so"
        cd /root/build/qemu-server/src/qmeventd
        nice make qmeventd
        install -m755 qmeventd /usr/sbin/
        cd ../query-machine-capabilities
        nice make query-machine-capabilities
        install -D -m755 query-machine-capabilities /usr/libexec/qemu-server/query-machine-capabilities' ||
        { tail -n 12 "$root/root/build.log" >&2 && die "PVE's programs in C could not be built ($root/root/build.log)"; }
    rm -rf "$root/root/build"
}

# PVE's commands, units and the folders that its packages make.
install_programs() {
    local manager="$sources/pve-manager" cluster="$sources/pve-cluster" server="$sources/qemu-server" libexec="$root/usr/libexec/qemu-server"
    local units="$root/usr/lib/systemd/system"
    install -m755 "$manager"/bin/{pvedaemon,pveproxy,pvestatd,pvescheduler,pvesh,pvenode,pveversion,pvesr,vzdump,pvesubscription,pveam,pveupdate} "$root/usr/bin/"
    install -m755 "$cluster/src/PVE/pvecm" "$root/usr/bin/"
    install -m755 "$server"/src/bin/{qm,qmrestore,qmextract} "$root/usr/sbin/"
    install -m755 "$sources/pve-storage/src/bin/pvesm" "$sources/pve-access-control/src/pveum" "$sources/pve-ha-manager/src/ha-manager" "$root/usr/sbin/"
    install -d "$libexec" "$root/usr/share/qemu-server"
    install -m755 "$server"/src/usr/{pve-bridge,pve-bridge-hotplug,pve-bridgedown} "$libexec/"
    cp "$server"/src/usr/{*.cfg,bootsplash.jpg} "$root/usr/share/qemu-server/"
    cp "$manager"/services/{pvedaemon,pveproxy,pvestatd,pvescheduler}.service "$manager/services/pve-storage.target" \
        "$server/src/qmeventd/qmeventd.service" "$cluster/debian/pve-cluster.service" \
        "$server/src/query-machine-capabilities/pve-query-machine-capabilities.service" "$units/"
    # PVE 9 alone has these. In 8 its programs make the folders.
    if [ "$debian" != 12 ]; then
        install -m755 "$server/src/usr/dbus-vmstate" "$libexec/"
        cp "$manager/debian/tmpfiles" "$root/usr/lib/tmpfiles.d/pve-manager.conf"
        cp "$server/debian/tmpfiles" "$root/usr/lib/tmpfiles.d/qemu-server.conf"
    fi
    mkdir -p "$root"/var/lib/{pve-cluster,vz,lxc} "$root/var/lib/pve-manager/apl-info" "$root"/var/log/{pveproxy,pve/tasks} "$root"/etc/{pve,vz} \
        "$root"/usr/share/pve-manager/{images,css,js,locale,touch,templates,helpers} \
        "$root"/usr/share/{pve-i18n,fonts-font-awesome,javascript,pve-yew-mobile-gui}
    touch "$root/var/log/pveam.log"
    chroot "$root" chown -R www-data:www-data /var/log/pveproxy /var/log/pve
}

need_root
command -v mmdebstrap >/dev/null || (get_packages "to make a root of Debian" mmdebstrap) || cannot "apt-get could not install mmdebstrap"
mkdir -p "$world"
exec 8>"$world/root.lock"
flock -w 3600 8 || cannot "another run has held $world/root.lock for an hour"
get_sources
root="$world/root-$({ versions && cat "$here/make-root.sh" "$sources_list" && find "$here/stubs" -type f -print0 | sort -z | xargs -0 cat; } | sha256sum | cut -c1-8)"
if [ ! -e "$root/complete" ]; then
    rm -rf --one-file-system "$root"
    install_debian
    say "PVE's own code: $(versions | tr '\n' ',' | sed 's/,$//; s/,/, /g')"
    install_perl
    install_stubs
    build_programs
    install_programs
    versions >"$root/complete"
fi
printf '%s\n' "$root"
