# pve-autoscaler guest script: state
# Says how the join stands, and the end of its log. Reads only.
dir=/run/pve-autoscaler
me() { cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id; }
if [ -s "$dir/exit" ]; then
  printf 'state=exited\nexit=%s\n' "$(cat "$dir/exit")"
elif [ -s "$dir/pid" ]; then
  if kill -0 "$(cat "$dir/pid")" 2>/dev/null; then
    echo state=running
  elif [ -s "$dir/exit" ]; then
    printf 'state=exited\nexit=%s\n' "$(cat "$dir/exit")"
  else
    printf 'state=exited\nexit=255\n'
  fi
elif [ "$(cat /etc/kubernetes/pve-autoscaler-joined 2>/dev/null)" = "$(me)" ]; then
  # It joined, and rebooted since.
  printf 'state=exited\nexit=0\n'
else
  echo state=none
fi
echo ---
if [ -f "$dir/log" ]; then tail -c 4096 "$dir/log"; fi
exit 0
