# pve-autoscaler guest script: build-start
# Takes a step's script on stdin and runs it detached, its output in a log; run again, it attaches.
umask 077
dir=/run/pve-autoscaler-build
step=$1
mkdir -p "$dir" && chmod 0700 "$dir" || { echo "cannot make $dir" >&2; exit 1; }
if [ -e "$dir/$step.sh" ]; then
  cat >/dev/null
  echo state=running
  exit 0
fi
cat >"$dir/$step.new" && mv "$dir/$step.new" "$dir/$step.sh" || exit 1
detach=
if command -v setsid >/dev/null 2>&1; then detach=setsid; fi
# Out of the agent's control group: who upgrades the agent's package restarts it, and systemd ends all that is in its group.
scope=
if systemd-run --quiet --scope true >/dev/null 2>&1; then scope='systemd-run --quiet --scope'; fi
# The step makes files of the system that others read: apt reads its keys as a user of its own.
HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $detach $scope sh -c '
  cd / || exit 1
  umask 022
  sh "$0/$1.sh"
  echo "$?" >"$0/$1.code" && mv "$0/$1.code" "$0/$1.exit"
' "$dir" "$step" </dev/null >"$dir/$step.log" 2>&1 &
echo "$!" >"$dir/$step.pid"
echo state=started
