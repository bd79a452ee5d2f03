set -eu
pull_each() {
  for image in $list $images; do
    echo "pulling $image"
    tries=0
    until crictl --runtime-endpoint "unix://$socket" pull "$image"; do
      tries=$((tries + 1))
      if [ "$tries" -ge 3 ]; then echo "cannot pull $image" >&2; return 1; fi
      sleep 5
    done
  done
}
list=
if [ "$method" = kubeadm ]; then
  socket=/run/containerd/containerd.sock
  if [ "$pull" = 1 ]; then
    list=$(kubeadm config images list --kubernetes-version "$(kubeadm version -o short)" --image-repository "$image_repository" | grep -E '/(pause|kube-proxy):')
  fi
  pull_each
else
  # The containerd that k3s brings, with the agent's folders, runs for the pulls alone.
  PATH=/usr/local/bin:$PATH
  k3s crictl --version
  tools=/var/lib/rancher/k3s/data/current/bin
  state=/run/k3s/containerd socket=/run/k3s/containerd/containerd.sock
  if [ "$pull" = 1 ]; then list=$(k3s agent --help | sed -n 's/.*--pause-image.*(default: "\(.*\)").*/\1/p'); fi
  mkdir -p "$state"
  PATH=$tools:$PATH "$tools/containerd" --address "$socket" --state "$state" --root /var/lib/rancher/k3s/agent/containerd >/tmp/containerd.log 2>&1 &
  containerd=$!
  tries=0
  until [ -S "$socket" ]; do
    tries=$((tries + 1))
    if [ "$tries" -ge 60 ] || ! kill -0 "$containerd"; then tail -n 5 /tmp/containerd.log >&2; exit 1; fi
    sleep 1
  done
  failed=0
  pull_each || failed=1
  kill "$containerd"
  wait "$containerd" || true
  rm -f /tmp/containerd.log
  exit "$failed"
fi
