set -eu
# What tells one machine from another, and what only this boot needed.
if command -v apt-get >/dev/null 2>&1; then
  apt-get clean
  rm -rf /var/lib/apt/lists/*
fi
if command -v dnf >/dev/null 2>&1; then dnf clean all; fi
rm -f /tmp/kubernetes.key /root/.bash_history
rm -f /etc/ssh/ssh_host_*
journalctl --rotate --vacuum-time=1s >/dev/null 2>&1 || true
find /var/log -type f -name '*.gz' -delete
find /var/log -type f -exec truncate -s 0 {} +
if command -v cloud-init >/dev/null 2>&1; then cloud-init clean --logs; fi
rm -f /etc/netplan/50-cloud-init.yaml /etc/network/interfaces.d/50-cloud-init /etc/NetworkManager/system-connections/cloud-init-*
truncate -s 0 /etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
fstrim -a || true
sync
