# pve-autoscaler guest script: join
# Reads on stdin what to do, one thing a line: `file MODE PATH CONTENT` writes a file, `run SCRIPT` starts a script when all files
# are there, detached; CONTENT and SCRIPT are base64. Run again, it attaches.
# What it leaves for itself lies in a directory of root's on a tmpfs: lock, pid, exit code, log; and files/, which goes with the script's end.
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
# After a reboot: that this very VM joined stands on its disk. A template that was a node once may have that file too, but not with
# this VM's id in it.
me() { cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id; }
if [ "$(cat /etc/kubernetes/pve-autoscaler-joined 2>/dev/null)" = "$(me)" ]; then
  cat >/dev/null
  printf 'state=exited\nexit=0\n'
  exit 0
fi
rm -rf "$dir/files"
put() {
  (umask 022 && mkdir -p "$(dirname "$2")") && base64 -d >"$2.new" && chmod "$1" "$2.new" && mv "$2.new" "$2"
}
while read -r what one path content; do
  case $what in
    file) printf '%s' "$content" | put "$one" "$path" ;;
    run) printf '%s' "$one" | put 0700 "$dir/files/run" ;;
    *) false ;;
  esac || { echo "cannot do: $what ${path:+$path}" >&2; rm -rf "$dir/files"; exit 1; }
done
[ -s "$dir/files/run" ] || { echo "there is nothing to run" >&2; exit 1; }
detach=
if command -v setsid >/dev/null 2>&1; then detach=setsid; fi
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $detach sh -c '
  cd / || exit 1
  # What joins makes files of the system, that others may have to read.
  umask 022
  sh "$0/files/run"
  code=$?
  rm -rf "$0/files"
  if [ "$code" -eq 0 ]; then
    mkdir -p /etc/kubernetes
    { cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id; } >/etc/kubernetes/pve-autoscaler-joined
  fi
  echo "$code" >"$0/exit.new" && mv "$0/exit.new" "$0/exit"
' "$dir" </dev/null >"$dir/log" 2>&1 9>&- &
echo "$!" >"$dir/pid"
echo state=started
