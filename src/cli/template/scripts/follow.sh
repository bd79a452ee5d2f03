# pve-autoscaler guest script: build-follow
# Says how far a step is, and the part of its log from a byte on.
dir=/run/pve-autoscaler-build
step=$1
from=$2
part=8192
alive=yes
if [ -s "$dir/$step.pid" ] && ! kill -0 "$(cat "$dir/$step.pid")" 2>/dev/null; then alive=no; fi
# Looked at after its process, whose last act it is.
if [ -s "$dir/$step.exit" ]; then
  printf 'state=exited\nexit=%s\n' "$(cat "$dir/$step.exit")"
elif [ "$alive" = no ]; then
  echo state=killed
elif [ -e "$dir/$step.sh" ]; then
  echo state=running
else
  echo state=none
fi
size=$(wc -c <"$dir/$step.log" 2>/dev/null || echo 0)
next=$((from + part))
if [ "$next" -gt "$size" ]; then next=$((size)); fi
printf 'size=%s\nnext=%s\n---\n' "$((size))" "$next"
tail -c "+$((from + 1))" "$dir/$step.log" 2>/dev/null | head -c "$((next - from))"
