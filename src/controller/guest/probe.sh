# pve-autoscaler guest script: probe
# Says how far the guest has booted. Reads only. While cloud-init runs it waits for the file that
# cloud-init leaves at its end, three seconds at most: that costs less than being asked again.
cloud_init=absent
ask() {
  said=$(cloud-init status 2>/dev/null)
  code=$?
  case $said in
    *'status: done'*) if [ "$code" -eq 2 ]; then cloud_init=degraded; else cloud_init=done; fi ;;
    *'status: degraded'*) cloud_init=degraded ;;
    *'status: error'*) cloud_init=error ;;
    *'status: disabled'*) cloud_init=disabled ;;
    *) cloud_init=running ;;
  esac
}
if command -v cloud-init >/dev/null 2>&1; then
  ask
  if [ "$cloud_init" = running ]; then
    waits=0
    while [ ! -e /run/cloud-init/result.json ] && [ "$waits" -lt 15 ]; do
      sleep 0.2
      waits=$((waits + 1))
    done
    ask
  fi
fi
system=unknown
if command -v systemctl >/dev/null 2>&1; then
  system=$(systemctl is-system-running 2>/dev/null)
fi
kubeadm=
if command -v kubeadm >/dev/null 2>&1; then
  kubeadm=$(kubeadm version -o short 2>/dev/null)
fi
distribution() {
  if command -v "$1" >/dev/null 2>&1; then "$1" --version 2>/dev/null | sed -n "s/^$1 version \\([^ ]*\\).*/\\1/p"; fi
}
join=none
if [ -s /run/pve-autoscaler/pid ] || [ -s /run/pve-autoscaler/exit ]; then join=begun; fi
printf 'cloud_init=%s\nsystem=%s\nkubeadm=%s\njoin=%s\n' "$cloud_init" "$system" "$kubeadm" "$join"
printf 'k3s=%s\nrke2=%s\n' "$(distribution k3s)" "$(distribution rke2)"
