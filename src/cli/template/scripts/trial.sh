# pve-autoscaler guest script: template-trial
# Tells what a machine's join would find in this guest. Reads only. $1: HOST:PORT of the API server, or nothing.
say() { printf '%s=%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
booted=$(sed -n 's/^btime //p' /proc/stat)
# Made before this boot: what a file says then is the template's, and so every clone's.
older() {
  changed=$(stat -c %Y "$1" 2>/dev/null) || { echo absent; return; }
  if [ "$changed" -lt "$booted" ]; then echo template; else echo own; fi
}
say system "$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"')"
say kernel "$(uname -r)"
say hostname "$(hostname 2>/dev/null || cat /proc/sys/kernel/hostname)"
say machine_id "$(older /etc/machine-id)"
keys=absent
for key in /etc/ssh/ssh_host_*_key; do
  if [ -e "$key" ] && [ "$keys" != template ]; then keys=$(older "$key"); fi
done
say host_keys "$keys"
cloud_init=absent
if has cloud-init; then cloud_init=$(cloud-init status 2>/dev/null | sed -n 's/^status: *//p'); fi
say cloud_init "$cloud_init"
joined=no
for file in /etc/kubernetes/kubelet.conf /var/lib/rancher/k3s/agent/kubelet.kubeconfig /var/lib/rancher/rke2/agent/kubelet.kubeconfig /etc/rancher/node/password; do
  if [ -e "$file" ]; then joined=yes; fi
done
say joined "$joined"
if has kubeadm; then say kubeadm "$(kubeadm version -o short 2>/dev/null)"; fi
if has kubelet; then say kubelet "$(kubelet --version 2>/dev/null | sed 's/^Kubernetes //')"; fi
if has k3s; then say k3s "$(k3s --version 2>/dev/null | sed -n 's/^k3s version \([^ ]*\).*/\1/p')"; fi
if has rke2; then say rke2 "$(rke2 --version 2>/dev/null | sed -n 's/^rke2 version \([^ ]*\).*/\1/p')"; fi
for socket in /run/containerd/containerd.sock /var/run/crio/crio.sock /var/run/cri-dockerd.sock; do
  if [ -S "$socket" ]; then say runtime "$socket"; break; fi
done
say swap "$(sed 1d /proc/swaps 2>/dev/null | wc -l | tr -d ' ')"
say forward "$(cat /proc/sys/net/ipv4/ip_forward 2>/dev/null)"
say address "$(hostname -I 2>/dev/null | tr -s ' ' ',' | sed 's/,$//')"
say clock "$(date +%s)"
say root_bytes "$(df -B1 --output=size / 2>/dev/null | sed 1d | tr -d ' ')"
if [ -n "$1" ]; then
  api=untried
  if has curl; then
    if curl -sk -o /dev/null --max-time 5 "https://$1"; then api=yes; else api=no; fi
  elif has bash && has timeout; then
    # shellcheck disable=SC2016
    if timeout 5 bash -c 'exec 3<>"/dev/tcp/${0%:*}/${0##*:}"' "$1" 2>/dev/null; then api=yes; else api=no; fi
  fi
  say api "$api"
fi
exit 0
