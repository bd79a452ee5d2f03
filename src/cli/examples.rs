//! What stands at the end of each command's help: lines to copy.

pub(super) const TOP: &str = "\
Exit codes: 0 success, 1 failure, 2 wrong command line or configuration.

Examples:
  pve-autoscaler demo  # try it: nothing is needed, nothing is changed
  pve-autoscaler setup --kubeconfig admin.conf  # on a PVE host: begin
  pve-autoscaler status  # how things stand
  # why a pod is pending, and what would run it
  pve-autoscaler explain pod shop/db-0
  pve-autoscaler doctor  # what is wrong, and what to type";

pub(super) const RUN: &str = "\
Examples:
  systemctl start pve-autoscaler                # the usual way
  pve-autoscaler --config ./try.toml run \\
    --state-directory ./state --control-socket ./control.sock";

pub(super) const BROKER: &str = "\
Examples:
  # the usual way, as a program of its own
  systemctl restart pve-autoscaler-broker
  pve-autoscaler broker                         # by hand, as root";

pub(super) const SETUP: &str = "\
Examples:
  # on a PVE host: asks, shows, and does it after a yes
  pve-autoscaler setup --kubeconfig admin.conf
  pve-autoscaler setup --dry-run --kubeconfig admin.conf
  pve-autoscaler setup --answers answers.toml --yes     # without a person
  pve-autoscaler setup  # again, later: what is missing";

pub(super) const CHECK: &str = "\
Examples:
  pve-autoscaler check  # after editing /etc/pve-autoscaler.toml
  pve-autoscaler check --config ./new.toml      # a file that is not in force
  pve-autoscaler check --live  # also what the file names; doctor says more";

pub(super) const DOCTOR: &str = "\
Exit codes: 0 nothing is wrong, 1 something is wrong, 2 nothing is wrong but not
everything could be looked at, or the command line or the configuration file is
wrong.

Examples:
  pve-autoscaler doctor  # everything, as root on the host
  pve-autoscaler doctor --quiet  # only what is not as it should be
  pve-autoscaler doctor && pve-autoscaler template try  # and boot each template
  pve-autoscaler doctor -o json | jq '.findings[] | select(.grade != \"ok\")'
  pve-autoscaler --config new.toml doctor  # a file that is not in force yet";

pub(super) const PLAN: &str = "\
Examples:
  pve-autoscaler plan                           # what would be done now
  pve-autoscaler plan -o wide  # each pod on a line of its own
  pve-autoscaler plan -o json | jq .plan
  # another configuration on a saved view
  pve-autoscaler --config new.toml plan --snapshot view.json";

pub(super) const EXPLAIN: &str = "\
Examples:
  # why it is pending, and what would run it
  pve-autoscaler explain pod shop/db-0
  pve-autoscaler explain node workers-x7k2p     # why it stays, or goes";

pub(super) const EXPLAIN_POD: &str = "\
Examples:
  pve-autoscaler explain pod shop/db-0
  pve-autoscaler explain pod db-0               # in the namespace default
  pve-autoscaler explain pod shop/db-0 --snapshot view.json";

pub(super) const EXPLAIN_NODE: &str = "\
Examples:
  pve-autoscaler explain node workers-x7k2p
  pve-autoscaler explain node workers-x7k2p -o json | jq .verdict";

pub(super) const SNAPSHOT: &str = "\
Examples:
  pve-autoscaler snapshot --file view.json
  pve-autoscaler plan --snapshot view.json      # the decision on it, anywhere";

pub(super) const STATUS: &str = "\
Examples:
  pve-autoscaler status
  pve-autoscaler status -o wide  # nothing shortened, nothing folded
  pve-autoscaler status -o json | jq .machines
  # again every two seconds; --watch 10: every ten; so for `plan` and `explain`
  pve-autoscaler status --watch";

pub(super) const PAUSE: &str = "\
Examples:
  pve-autoscaler pause \"storage move\"  # the reason stands in status
  pve-autoscaler resume";

pub(super) const RESUME: &str = "\
Examples:
  pve-autoscaler resume";

pub(super) const RETRY: &str = "\
Examples:
  pve-autoscaler status  # which pool waits, and after what
  pve-autoscaler retry workers                  # the template was mended";

pub(super) const EVACUATE: &str = "\
Examples:
  pve-autoscaler evacuate pve2                  # before its reboot
  pve-autoscaler status  # until pve2 has no machine
  pve-autoscaler evacuate --end pve2";

pub(super) const NOTIFY_TEST: &str = "\
Examples:
  pve-autoscaler notify-test                    # everybody
  pve-autoscaler notify-test ops                # [notification.ops] alone";

pub(super) const KUBECONFIG: &str = "\
Examples:
  pve-autoscaler kubeconfig --kubeconfig admin.conf
  pve-autoscaler kubeconfig --kubeconfig admin.conf --server 192.0.2.5:6443
  pve-autoscaler kubeconfig --print-manifest | less";

pub(super) const WEB_PASSWORD: &str = "\
Examples:
  pve-autoscaler web-password ann               # asks for it
  pwgen -s 32 1 | tee secret | pve-autoscaler web-password prometheus
  pve-autoscaler web-password ann --remove";

pub(super) const ADOPT: &str = "\
Examples:
  pve-autoscaler adopt  # shows what is left of former clusters, and asks
  systemctl reload-or-restart pve-autoscaler && pve-autoscaler doctor";

pub(super) const HOST_TOPOLOGY: &str = "\
Examples:
  pve-autoscaler host-topology >>/etc/pve-autoscaler.toml
  for host in pve2 pve3; do
    ssh root@$host pve-autoscaler host-topology --reserved 0-1
  done";

pub(super) const HOST_PINNING: &str = "\
Examples:
  # on each host with such machines
  systemctl enable --now pve-autoscaler-pinning
  pve-autoscaler host-pinning --show            # what it has placed here
  pve-autoscaler host-pinning --once --housekeeping 0-1";

pub(super) const SCHEMA: &str = "\
Examples:
  # for editors that complete and check TOML
  pve-autoscaler schema >pve-autoscaler.schema.json";

pub(super) const DEMO: &str = "\
Examples:
  pve-autoscaler demo
  pve-autoscaler demo --once                    # ends by itself
  # slowly enough to ask about a pod before it is gone
  pve-autoscaler demo --speed 2 --page 127.0.0.1:9900
  # two PVE clusters, one of which is away for a while
  pve-autoscaler demo --regions 2";

pub(super) const CONFORMANCE: &str = "\
Examples:
  pve-autoscaler conformance tests/conformance
  # the worlds that cases can begin with
  pve-autoscaler conformance --fixtures";

pub(super) const SIM: &str = "\
Examples:
  pve-autoscaler sim pve --listen 127.0.0.1:8006
  pve-autoscaler sim kube --listen 127.0.0.1:6443 --kubeconfig admin.conf";

pub(super) const TEMPLATE_BUILD: &str = "\
Examples:
  pve-autoscaler template build  # what is missing or was changed
  pve-autoscaler template build debian --host pve2
  pve-autoscaler template build debian --again  # with newer packages";

pub(super) const TEMPLATE_LIST: &str = "\
Examples:
  pve-autoscaler template list
  pve-autoscaler template list -o json | jq .";

pub(super) const TEMPLATE_PRUNE: &str = "\
Examples:
  pve-autoscaler template prune --dry-run       # what would be removed
  pve-autoscaler template prune";

pub(super) const TEMPLATE: &str = "\
Examples:
  pve-autoscaler template build debian
  pve-autoscaler template list
  pve-autoscaler template prune --dry-run       # what would be removed";

pub(super) const TEMPLATE_TRY: &str = "\
Examples:
  pve-autoscaler template try  # every template that a pool uses
  pve-autoscaler template try debian --host pve2
  pve-autoscaler template try debian --ipconfig ip=192.0.2.250/24,gw=192.0.2.1";

pub(super) const SUPPORT_BUNDLE: &str = "\
Examples:
  pve-autoscaler support-bundle
  pve-autoscaler support-bundle --since 4h --file bundle.tar.gz
  pve-autoscaler support-bundle --without-record
  pve-autoscaler support-bundle --hash-names  # a token for each name";

pub(super) const MIGRATE: &str = "\
Examples:
  pve-autoscaler migrate kproximate values.yaml >new.toml
  pve-autoscaler check --config new.toml";

pub(super) const MIGRATE_KPROXIMATE: &str = "\
Examples:
  pve-autoscaler migrate kproximate values.yaml >new.toml
  helm get values kproximate -n kproximate | pve-autoscaler migrate kproximate -
  kubectl get configmap,secret,deployment -n kproximate -o yaml |
    pve-autoscaler migrate kproximate -
  pve-autoscaler check --config new.toml        # after the lines with DECIDE";
