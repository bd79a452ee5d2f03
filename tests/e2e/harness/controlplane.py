"""A real control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager.

Set up by kubeadm's own phases, so that `kubeadm join` finds what it finds on a
cluster: cluster-info, the uploaded configurations, the RBAC for bootstrap tokens.
"""

import json
import os
import shutil

from .kube import Kube
from .processes import run
from .until import Failed, NotYet, say, until

ADDRESS = "10.231.0.1"
PORT = 6443
SERVER = f"https://{ADDRESS}:{PORT}"
SERVICE_RANGE = "10.96.0.0/16"

# A phase of kubeadm takes under a second on an idle machine.
PHASE_SECONDS = 60
READY_SECONDS = 120
# The bootstrap signer signs cluster-info within about five seconds.
SIGNED_SECONDS = 60
# As `--feature-gates` takes them, of the API server, kube-scheduler and kube-controller-manager: NAME=true|false,...
GATES = os.environ.get("PVE_AUTOSCALER_FEATURE_GATES", "")
# What every node of the cluster keeps back, by its kubelet's configuration.
SYSTEM_RESERVED = {"cpu": "100m", "memory": "128Mi"}


class ControlPlane:
    """Runs in the arena; `self.kube` talks to it as an administrator."""

    def __init__(self, components, directory, processes):
        self.components = components
        self.directory = directory
        self.processes = processes
        self.pki = os.path.join(directory, "pki")
        self.kube = None

    def start(self):
        """From nothing to a control plane that nodes can join."""
        os.makedirs(self.directory, exist_ok=True)
        self._certificates()
        self._etcd()
        self._apiserver()
        self.kube = Kube(self.kubeconfig("super-admin"))
        until(READY_SECONDS, "the API server is ready", self._ready)
        say("the API server is ready")
        self._managers()
        self._uploads()
        until(SIGNED_SECONDS, "cluster-info is signed", self._signed)
        until(READY_SECONDS, "default service accounts", self._service_account)
        say("the control plane can be joined")

    def start_scheduler_alone(self, admission_off, configuration):
        """An API server that changes nothing of what it is given beyond its defaults, and
        kube-scheduler with a configuration of its own. No controllers: nothing happens by itself."""
        os.makedirs(self.directory, exist_ok=True)
        self._certificates()
        self._etcd()
        self._apiserver("--disable-admission-plugins=" + ",".join(admission_off))
        self.kube = Kube(self.kubeconfig("super-admin"))
        until(READY_SECONDS, "the API server is ready", self._ready)
        path = os.path.join(self.directory, "scheduler.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**configuration, "clientConnection": self._scheduler_connection()}, file)
        self._scheduler(f"--config={path}")
        say("API server and kube-scheduler are up")

    def _scheduler_connection(self):
        # By default the scheduler says no more than 50 things a second.
        return {"kubeconfig": self.kubeconfig("scheduler"), "qps": 2000, "burst": 4000}

    def kubeconfig(self, who):
        """The path of one of kubeadm's kubeconfig files."""
        return os.path.join(self.directory, f"{who}.conf")

    def _binary(self, name):
        return os.path.join(self.components, name)

    def _kubeadm(self, *arguments):
        return run([self._binary("kubeadm"), *arguments], PHASE_SECONDS)

    def _config(self, name, certificates):
        """kubeadm's configuration. Nodes read the uploaded one, and look for
        their certificates where it says: so that one must not name our directory."""
        init = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": ADDRESS, "bindPort": PORT},
            "nodeRegistration": {"name": "control-plane"},
        }
        cluster = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": self.version(),
            "clusterName": "e2e",
            "controlPlaneEndpoint": f"{ADDRESS}:{PORT}",
            "encryptionAlgorithm": "ECDSA-P256",
            "networking": {"serviceSubnet": SERVICE_RANGE, "podSubnet": "10.244.0.0/16"},
            "etcd": {"external": {"endpoints": ["http://127.0.0.1:2379"]}},
        }
        if certificates:
            cluster["certificatesDir"] = self.pki
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "systemReserved": SYSTEM_RESERVED,
            "failCgroupV1": False,
        }
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            for document in (init, cluster, kubelet):
                file.write("---\n" + json.dumps(document) + "\n")
        return path

    def version(self):
        """The Kubernetes version, from the directory of the components."""
        return os.path.basename(self.components).rsplit("-", 1)[0]

    def _certificates(self):
        config = self._config("init.yaml", certificates=True)
        self._kubeadm("init", "phase", "certs", "all", "--config", config)
        self._kubeadm(
            "init", "phase", "kubeconfig", "all", "--config", config, "--kubeconfig-dir", self.directory
        )

    def _etcd(self):
        etcd = shutil.which("etcd", path=os.environ["PATH"] + ":/usr/sbin:/usr/bin")
        if not etcd:
            raise Failed("etcd is not installed (Debian: etcd-server)")
        self.processes.start(
            "etcd",
            [
                etcd,
                "--data-dir=" + os.path.join(self.directory, "etcd"),
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                # A test's data need not outlive the machine's power.
                "--unsafe-no-fsync",
            ],
        )

    def _apiserver(self, *options):
        pki = self.pki
        self.processes.start(
            "kube-apiserver",
            [
                self._binary("kube-apiserver"),
                f"--advertise-address={ADDRESS}",
                f"--bind-address={ADDRESS}",
                f"--secure-port={PORT}",
                "--etcd-servers=http://127.0.0.1:2379",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-bootstrap-token-auth=true",
                "--allow-privileged=true",
                f"--client-ca-file={pki}/ca.crt",
                f"--tls-cert-file={pki}/apiserver.crt",
                f"--tls-private-key-file={pki}/apiserver.key",
                f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
                f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={pki}/sa.pub",
                f"--service-account-signing-key-file={pki}/sa.key",
                *gates(),
                *options,
            ],
        )

    def _managers(self):
        pki = self.pki
        self.processes.start(
            "kube-controller-manager",
            [
                self._binary("kube-controller-manager"),
                f"--kubeconfig={self.kubeconfig('controller-manager')}",
                f"--authentication-kubeconfig={self.kubeconfig('controller-manager')}",
                f"--authorization-kubeconfig={self.kubeconfig('controller-manager')}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
                "--use-service-account-credentials=true",
                f"--client-ca-file={pki}/ca.crt",
                f"--root-ca-file={pki}/ca.crt",
                f"--cluster-signing-cert-file={pki}/ca.crt",
                f"--cluster-signing-key-file={pki}/ca.key",
                f"--service-account-private-key-file={pki}/sa.key",
                *gates(),
            ],
        )
        self._scheduler("--leader-elect=false", f"--kubeconfig={self.kubeconfig('scheduler')}")

    def _scheduler(self, *options):
        self.processes.start(
            "kube-scheduler",
            [
                self._binary("kube-scheduler"),
                f"--authentication-kubeconfig={self.kubeconfig('scheduler')}",
                f"--authorization-kubeconfig={self.kubeconfig('scheduler')}",
                "--bind-address=127.0.0.1",
                *gates(),
                *options,
            ],
        )

    def _uploads(self):
        config = self._config("upload.yaml", certificates=False)
        admin = self.kubeconfig("super-admin")
        self._kubeadm("init", "phase", "upload-config", "all", "--config", config, "--kubeconfig", admin)
        self._kubeadm("init", "phase", "bootstrap-token", "--config", config, "--kubeconfig", admin)

    def _ready(self):
        self.processes.check()
        try:
            return self.kube.call("GET", "/readyz") == "ok"
        except OSError as error:
            raise NotYet(error) from error
        except Exception as error:  # 403 and 500 while it starts
            raise NotYet(error) from error

    def _signed(self):
        found = self.kube.get("/api/v1/namespaces/kube-public/configmaps/cluster-info")
        return found and any(key.startswith("jws-kubeconfig-") for key in found["data"])

    def _service_account(self):
        return self.kube.get("/api/v1/namespaces/default/serviceaccounts/default")


def gates():
    """The options that switch features of Kubernetes, where the environment names any."""
    return [f"--feature-gates={GATES}"] if GATES else []
