# k3s and the unit of its agent, neither enabled nor started: a machine's join does that. Behind prepare.sh, of which it has `fetch`.
case $(uname -m) in
  x86_64) arch=amd64 suffix= ;;
  aarch64) arch=arm64 suffix=-arm64 ;;
  *) echo "k3s has no program for $(uname -m)" >&2; exit 1 ;;
esac
release=v$patch
if [ -z "$patch" ]; then
  channel=https://update.k3s.io/v1-release/channels/v$minor
  # It leads to the page of the release.
  page=$(curl -fsSL --retry 3 -o /dev/null -w '%{url_effective}' "$channel") || { echo "cannot get $channel" >&2; exit 1; }
  release=$(basename "$page" | sed 's/%2B/+/')
  case $release in
    "v$minor."*+k3s*) ;;
    *) echo "$channel leads to $page, which is no release of k3s $minor" >&2; exit 1 ;;
  esac
fi
from=${repository:-https://github.com/k3s-io/k3s/releases/download}/$(echo "$release" | sed 's/+/%2B/')
echo "k3s $release"
fetch "$from/sha256sum-$arch.txt" /tmp/k3s.sums
fetch "$from/k3s$suffix" /tmp/k3s
wanted=$(awk -v file="k3s$suffix" '$2 == file { print $1 }' /tmp/k3s.sums)
found=$(sha256sum </tmp/k3s | cut -d ' ' -f 1)
if [ -z "$wanted" ] || [ "$wanted" != "$found" ]; then
  echo "$from/k3s$suffix has the checksum $found; sha256sum-$arch.txt says ${wanted:-nothing of it}" >&2
  exit 1
fi
install -m 0755 /tmp/k3s /usr/local/bin/k3s
rm -f /tmp/k3s /tmp/k3s.sums
for tool in kubectl crictl ctr; do
  if ! command -v "$tool" >/dev/null 2>&1; then ln -sf k3s "/usr/local/bin/$tool"; fi
done
# k3s hands what begins with CONTAINERD_ to its containerd alone: its agent reaches the server without a proxy.
if [ -n "$proxy" ]; then
  mkdir -p /etc/default
  printf 'CONTAINERD_HTTP_PROXY=%s\nCONTAINERD_HTTPS_PROXY=%s\nCONTAINERD_NO_PROXY=%s\n' "$proxy" "$proxy" "$no_proxy" >/etc/default/k3s-agent
fi
cat >/etc/systemd/system/k3s-agent.service <<'UNIT'
[Unit]
Description=k3s agent
Documentation=https://docs.k3s.io
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
EnvironmentFile=-/etc/default/k3s-agent
EnvironmentFile=-/etc/sysconfig/k3s-agent
EnvironmentFile=-/etc/systemd/system/k3s-agent.service.env
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s agent
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
/usr/local/bin/k3s --version
