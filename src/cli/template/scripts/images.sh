set -eu
list=
if [ "$pull" = 1 ]; then
  list=$(kubeadm config images list --kubernetes-version "$(kubeadm version -o short)" | grep -E '/(pause|kube-proxy):')
fi
for image in $list $images; do
  echo "pulling $image"
  tries=0
  until crictl pull "$image"; do
    tries=$((tries + 1))
    if [ "$tries" -ge 3 ]; then echo "cannot pull $image" >&2; exit 1; fi
    sleep 5
  done
done
