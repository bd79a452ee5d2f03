set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
. /etc/os-release
family=
for id in ${ID:-} ${ID_LIKE:-}; do
  case $id in
    debian | ubuntu) family=apt ;;
    rhel | fedora | centos | rocky | almalinux) family=dnf ;;
  esac
  if [ -n "$family" ]; then break; fi
done
if [ -z "$family" ]; then
  echo "${PRETTY_NAME:-this system} is like neither Debian, Ubuntu nor RHEL (/etc/os-release): nothing is known of its packages" >&2
  exit 1
fi
echo "$PRETTY_NAME, packages by $family"
if command -v cloud-init >/dev/null 2>&1; then cloud-init status --wait >/dev/null 2>&1 || true; fi

printf 'overlay\nbr_netfilter\n' >/etc/modules-load.d/kubernetes.conf
modprobe overlay || true
modprobe br_netfilter || true
printf 'net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\nnet.ipv4.ip_forward = 1\n' >/etc/sysctl.d/90-kubernetes.conf
sysctl --system >/dev/null || true
swapoff -a || true
sed -i -E '/^[^#].*[[:space:]]swap[[:space:]]/s/^/#/' /etc/fstab

fetch() { curl -fsSL --retry 3 -o "$2" "$1" || { echo "cannot get $1" >&2; return 1; }; }
# apt waits for dpkg's lock by itself, and not for that of its lists, which a first boot's apt-daily holds.
update_lists() {
  tries=0
  until $apt update 2>/tmp/apt.said; do
    cat /tmp/apt.said >&2
    tries=$((tries + 1))
    if [ "$tries" -ge 60 ] || ! grep -q 'lists/lock' /tmp/apt.said; then return 1; fi
    sleep 5
  done
  cat /tmp/apt.said >&2
  rm -f /tmp/apt.said
}
if [ "$family" = apt ]; then
  apt="apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -y"
  systemctl disable --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service 2>/dev/null || true
  update_lists
  # shellcheck disable=SC2086 # a list of words
  $apt install --no-install-recommends ca-certificates curl gpg qemu-guest-agent conntrack ethtool iptables socat $packages
  if [ -d /etc/default/grub.d ]; then
    echo GRUB_TIMEOUT=0 >/etc/default/grub.d/90-pve-autoscaler.cfg
    update-grub || true
  fi
else
  # What kubeadm.sh installs: the repository that containerd is in comes with it, and until then dnf knows no such package.
  runtime=''
  others=''
  for package in $packages; do
    case $method:$package in
      kubeadm:containerd | kubeadm:containerd-[0-9]* | kubeadm:containerd.io | kubeadm:containerd.io-[0-9]*) runtime=$package ;;
      *) others="$others $package" ;;
    esac
  done
  packages=$others
  # shellcheck disable=SC2086 # a list of words
  dnf -y install ca-certificates curl qemu-guest-agent conntrack-tools ethtool iptables-nft socat $packages
  if command -v grub2-editenv >/dev/null 2>&1 && [ -f /etc/default/grub ]; then
    sed -i 's/^GRUB_TIMEOUT=.*/GRUB_TIMEOUT=0/' /etc/default/grub
    grub2-mkconfig -o /boot/grub2/grub.cfg || true
  fi
fi
systemctl enable qemu-guest-agent || true
# PVE gives cloud-init's data on a drive: looking for clouds costs every boot seconds. The last file by name decides, and 90_dpkg.cfg,
# which images of Debian and Ubuntu may have, names all clouds.
if [ -d /etc/cloud/cloud.cfg.d ]; then
  echo 'datasource_list: [NoCloud, ConfigDrive, None]' >/etc/cloud/cloud.cfg.d/99-pve-autoscaler.cfg
fi
