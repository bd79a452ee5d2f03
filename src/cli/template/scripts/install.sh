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

repository=https://pkgs.k8s.io/core:/stable:/v$minor
fetch() { curl -fsSL --retry 3 -o "$2" "$1" || { echo "cannot get $1" >&2; return 1; }; }
with_apt() {
  apt="apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -y"
  $apt update
  # shellcheck disable=SC2086 # a list of words
  $apt install --no-install-recommends ca-certificates curl gpg qemu-guest-agent containerd conntrack ethtool iptables socat $packages
  mkdir -p /etc/apt/keyrings
  fetch "$repository/deb/Release.key" /tmp/kubernetes.key
  gpg --batch --yes --dearmor -o /etc/apt/keyrings/kubernetes.gpg /tmp/kubernetes.key
  echo "deb [signed-by=/etc/apt/keyrings/kubernetes.gpg] $repository/deb/ /" >/etc/apt/sources.list.d/kubernetes.list
  $apt update
  exact=
  if [ -n "$patch" ]; then
    exact=$(apt-cache madison kubeadm | awk -v wanted="$patch-" 'index($3, wanted) == 1 { print $3; exit }')
    if [ -z "$exact" ]; then echo "kubeadm $patch is not in $repository/deb" >&2; exit 1; fi
    exact="=$exact"
  fi
  $apt install --no-install-recommends "kubelet$exact" "kubeadm$exact" cri-tools
  apt-mark hold kubelet kubeadm
  systemctl disable --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service 2>/dev/null || true
  if [ -d /etc/default/grub.d ]; then
    echo GRUB_TIMEOUT=0 >/etc/default/grub.d/90-pve-autoscaler.cfg
    update-grub || true
  fi
}
with_dnf() {
  printf '[kubernetes]\nname=Kubernetes\nbaseurl=%s/rpm/\nenabled=1\ngpgcheck=1\ngpgkey=%s/rpm/repodata/repomd.xml.key\nexclude=kubelet kubeadm kubectl cri-tools kubernetes-cni\n' \
    "$repository" "$repository" >/etc/yum.repos.d/kubernetes.repo
  if ! dnf -q list --available containerd >/dev/null 2>&1; then
    fetch https://download.docker.com/linux/centos/docker-ce.repo /etc/yum.repos.d/docker-ce.repo
    runtime=containerd.io
  else
    runtime=containerd
  fi
  # shellcheck disable=SC2086 # a list of words
  dnf -y install ca-certificates curl qemu-guest-agent conntrack-tools ethtool iptables-nft socat $runtime $packages
  exact=
  if [ -n "$patch" ]; then exact="-$patch"; fi
  dnf -y install --disableexcludes=kubernetes "kubelet$exact" "kubeadm$exact" cri-tools
  if command -v grub2-editenv >/dev/null 2>&1 && [ -f /etc/default/grub ]; then
    sed -i 's/^GRUB_TIMEOUT=.*/GRUB_TIMEOUT=0/' /etc/default/grub
    grub2-mkconfig -o /boot/grub2/grub.cfg || true
  fi
}
with_$family

mkdir -p /etc/containerd
containerd config default >/etc/containerd/config.toml
pause=$(kubeadm config images list --kubernetes-version "$(kubeadm version -o short)" 2>/dev/null | grep '/pause:' || true)
sed -i 's/SystemdCgroup = false/SystemdCgroup = true/; s#/usr/lib/cni#/opt/cni/bin#' /etc/containerd/config.toml
if [ -n "$pause" ]; then
  sed -i -E "s#^( *(sandbox_image|sandbox) = ).*#\1\"$pause\"#" /etc/containerd/config.toml
fi
printf 'runtime-endpoint: unix:///run/containerd/containerd.sock\n' >/etc/crictl.yaml
systemctl enable qemu-guest-agent || true
systemctl enable containerd kubelet
systemctl restart containerd
# PVE gives cloud-init's data on a drive: looking for clouds costs every boot seconds.
if [ -d /etc/cloud/cloud.cfg.d ]; then
  echo 'datasource_list: [NoCloud, ConfigDrive, None]' >/etc/cloud/cloud.cfg.d/90-pve-autoscaler.cfg
fi
kubeadm version -o short
containerd --version
