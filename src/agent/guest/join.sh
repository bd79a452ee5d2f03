# pve-autoscaler guest script: join
# Reads a JoinConfiguration on stdin and starts kubeadm with it, detached; run again, it attaches.
# Everything it leaves lies in a directory of root's on a tmpfs: lock, pid, exit code, log.
umask 077
dir=/run/pve-autoscaler
mkdir -p "$dir" && chmod 0700 "$dir" || { echo "cannot make $dir" >&2; exit 1; }
exec 9>"$dir/lock"
if command -v flock >/dev/null 2>&1; then
  flock -w 20 9 || { echo "another join holds $dir/lock" >&2; exit 1; }
fi
if [ -s "$dir/exit" ]; then
  cat >/dev/null
  printf 'state=exited\nexit=%s\n' "$(cat "$dir/exit")"
  exit 0
fi
if [ -s "$dir/pid" ]; then
  cat >/dev/null
  if kill -0 "$(cat "$dir/pid")" 2>/dev/null; then
    echo state=running
  else
    printf 'state=exited\nexit=255\n'
  fi
  exit 0
fi
# After a reboot: that this very VM joined stands on its disk. A template that was a node once has a
# kubelet.conf too, but not this VM's id beside it; kubeadm then says what is wrong.
me() { cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id; }
if [ -s /etc/kubernetes/kubelet.conf ] && [ "$(cat /etc/kubernetes/pve-autoscaler-joined 2>/dev/null)" = "$(me)" ]; then
  cat >/dev/null
  printf 'state=exited\nexit=0\n'
  exit 0
fi
cat >"$dir/join.json" || exit 1
detach=
if command -v setsid >/dev/null 2>&1; then detach=setsid; fi
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $detach sh -c '
  cd / || exit 1
  kubeadm join --config "$0/join.json"
  code=$?
  rm -f "$0/join.json"
  if [ "$code" -eq 0 ]; then
    { cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id; } >/etc/kubernetes/pve-autoscaler-joined
  fi
  echo "$code" >"$0/exit.new" && mv "$0/exit.new" "$0/exit"
' "$dir" </dev/null >"$dir/log" 2>&1 9>&- &
echo "$!" >"$dir/pid"
echo state=started
