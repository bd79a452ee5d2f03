# pve-autoscaler guest script: probe
# Says how far the guest has booted. Reads only.
cloud_init=absent
if command -v cloud-init >/dev/null 2>&1; then
  said=$(cloud-init status 2>/dev/null)
  code=$?
  case $said in
    *'status: done'*) if [ "$code" -eq 2 ]; then cloud_init=degraded; else cloud_init=done; fi ;;
    *'status: degraded'*) cloud_init=degraded ;;
    *'status: error'*) cloud_init=error ;;
    *'status: disabled'*) cloud_init=disabled ;;
    *) cloud_init=running ;;
  esac
fi
system=unknown
if command -v systemctl >/dev/null 2>&1; then
  system=$(systemctl is-system-running 2>/dev/null)
fi
kubeadm=
if command -v kubeadm >/dev/null 2>&1; then
  kubeadm=$(kubeadm version -o short 2>/dev/null)
fi
printf 'cloud_init=%s\nsystem=%s\nkubeadm=%s\n' "$cloud_init" "$system" "$kubeadm"
