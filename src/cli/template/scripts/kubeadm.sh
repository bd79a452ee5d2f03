# containerd, kubelet and kubeadm. Behind prepare.sh, of which it has `family`, `apt`, `update_lists`, `fetch` and for dnf `runtime`.
repository=${repository:-https://pkgs.k8s.io/core:/stable:}/v$minor
if [ -n "$proxy" ]; then
  mkdir -p /etc/systemd/system/containerd.service.d
  printf '[Service]\nEnvironment="HTTP_PROXY=%s" "HTTPS_PROXY=%s" "NO_PROXY=%s"\n' "$proxy" "$proxy" "$no_proxy" \
    >/etc/systemd/system/containerd.service.d/90-pve-autoscaler-proxy.conf
  systemctl daemon-reload
fi
with_apt() {
  # One that is there stays: `packages` may pin its version, and apt-get would upgrade what is named without one.
  $apt install --no-upgrade --no-install-recommends containerd
  mkdir -p /etc/apt/keyrings
  fetch "$repository/deb/Release.key" /tmp/kubernetes.key
  gpg --batch --yes --dearmor -o /etc/apt/keyrings/kubernetes.gpg /tmp/kubernetes.key
  echo "deb [signed-by=/etc/apt/keyrings/kubernetes.gpg] $repository/deb/ /" >/etc/apt/sources.list.d/kubernetes.list
  update_lists
  exact=
  if [ -n "$patch" ]; then
    exact=$(apt-cache madison kubeadm | awk -v wanted="$patch-" 'index($3, wanted) == 1 { print $3; exit }')
    if [ -z "$exact" ]; then echo "kubeadm $patch is not in $repository/deb" >&2; exit 1; fi
    exact="=$exact"
  fi
  $apt install --no-install-recommends "kubelet$exact" "kubeadm$exact" cri-tools
  apt-mark hold kubelet kubeadm
}
with_dnf() {
  printf '[kubernetes]\nname=Kubernetes\nbaseurl=%s/rpm/\nenabled=1\ngpgcheck=1\ngpgkey=%s/rpm/repodata/repomd.xml.key\nexclude=kubelet kubeadm kubectl cri-tools kubernetes-cni\n' \
    "$repository" "$repository" >/etc/yum.repos.d/kubernetes.repo
  if [ -z "$runtime" ]; then
    runtime=containerd
    if ! dnf -q list --available containerd >/dev/null 2>&1; then runtime=containerd.io; fi
  fi
  case $runtime in
    containerd.io*) fetch https://download.docker.com/linux/centos/docker-ce.repo /etc/yum.repos.d/docker-ce.repo ;;
  esac
  dnf -y install "$runtime"
  # The version that `packages` pins stays, as kubelet and kubeadm do.
  case $runtime in
    containerd.io-*) sed -i '/^\[docker-ce-stable\]$/a exclude=containerd.io' /etc/yum.repos.d/docker-ce.repo ;;
  esac
  exact=
  if [ -n "$patch" ]; then exact="-$patch"; fi
  dnf -y install --setopt=disable_excludes=kubernetes "kubelet$exact" "kubeadm$exact" cri-tools
}
with_$family

mkdir -p /etc/containerd
containerd config default >/etc/containerd/config.toml
pause=$(kubeadm config images list --kubernetes-version "$(kubeadm version -o short)" --image-repository "$image_repository" 2>/dev/null | grep '/pause:' || true)
sed -i 's/SystemdCgroup = false/SystemdCgroup = true/; s#/usr/lib/cni#/opt/cni/bin#' /etc/containerd/config.toml
if [ -n "$pause" ]; then
  sed -i -E "s#^( *(sandbox_image|sandbox) = ).*#\1\"$pause\"#" /etc/containerd/config.toml
fi
printf 'runtime-endpoint: unix:///run/containerd/containerd.sock\n' >/etc/crictl.yaml
systemctl enable containerd kubelet
systemctl restart containerd
kubeadm version -o short
containerd --version
