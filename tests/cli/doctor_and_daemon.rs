//! Nothing that `doctor` passes may fail the daemon for a reason that could have been seen: one thing after the other is spoilt, and the same
//! world is given to `doctor`, the program over sockets, and to the daemon with a pod that waits, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::{KubeSpec, KubeUserSpec};
use pve_autoscaler::sim::pve::{AdminAct, BridgeSpec, PveSpec, StorageKind};
use pve_autoscaler::sim::world::{World, WorldSpec};
use serde_json::{Value, json};

use super::doctor::examine;
use super::service::replace;
use super::traces::Stage;

const RBAC: &str = include_str!("../../contrib/kubernetes/rbac.yaml");
const POLICY: &str = include_str!("../../contrib/kubernetes/admission-policy.yaml");
/// The daemon's bearer token at the API server; its user has the rights of the manifests.
const TOKEN: &str = "of-the-daemon";
/// Who holds a Lease that nobody takes over.
const OTHER: &str = "elsewhere_0000000000000007";
/// What is said of a file that may not be read.
const DENIED: &str = "Permission denied";
/// How often the daemon is looked at, and the pause in between, in virtual time: ten minutes, in which a machine is there five times over.
const LOOKS: u32 = 60;
const PAUSE: Duration = Duration::from_secs(10);
/// How often the log of a real daemon is read, and the pause in between.
const READS: u32 = 200;
const SHORT: Duration = Duration::from_millis(100);
/// Worlds at the same time.
const THREADS: usize = 3;
/// What lets bootstrap tokens read what kubeadm left.
const BINDING_OF_KUBEADM: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/kubeadm:nodes-kubeadm-config";
const ROLE_OF_KUBELET: &str =
    "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/kubeadm:kubelet-config";
/// What doctor says of every world here, since both APIs are on this host.
const LOOPBACK: &str = "kubernetes: cluster-info sends machines to 127.0.0.1:";

/// What both are given.
struct Given {
    pve: PveSpec,
    kube: KubeSpec,
    /// Parts of the file, and what stands in their place.
    file: Vec<(&'static str, String)>,
    /// Objects that an administrator made in Kubernetes.
    objects: Vec<Value>,
    /// Paths of objects that an administrator deleted then.
    deleted: Vec<&'static str>,
    /// What somebody did to PVE.
    acts: Vec<AdminAct>,
}

/// What is spoilt, and what comes of it.
struct Spoiling {
    name: &'static str,
    spoil: fn(&mut Given, &'static str),
    /// What `spoil` is told: a privilege, a name.
    with: &'static str,
    /// The probe that sees it, and its words.
    doctor: (&'static str, &'static str),
    /// Words of the daemon, which brings no node for it; `None`: it brings one all the same.
    daemon: Option<&'static str>,
}

/// All is well: the manifests are applied, a control plane is there, and a pod waits.
fn unspoilt() -> Given {
    let documents = [RBAC, POLICY]
        .into_iter()
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(text).expect("it is YAML"));
    let mut objects: Vec<Value> = documents.filter(|object| !object.is_null()).collect();
    objects.push(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "cp-1" },
        "status": { "nodeInfo": { "kubeletVersion": "v1.34.1", "osImage": "Debian GNU/Linux 13 (trixie)" } },
    }));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "containers": [
            { "name": "c", "image": "x", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } },
        ] },
    }));
    Given {
        pve: PveSpec::default(),
        kube: KubeSpec {
            users: vec![KubeUserSpec {
                name: "pve-autoscaler".to_owned(),
                token: TOKEN.to_owned(),
                ..KubeUserSpec::default()
            }],
            ..KubeSpec::default()
        },
        file: Vec::new(),
        objects,
        deleted: Vec::new(),
        acts: Vec::new(),
    }
}

impl Given {
    /// Lines in the template's table.
    fn template(&mut self, lines: &str) {
        let name = "vm_name = \"debian-13-k8s\"\n";
        self.file.push((name, format!("{name}{lines}")));
    }

    /// Lines in the pool's table, and tables behind it.
    fn pool(&mut self, lines: &str) {
        let max = "max = 2\n";
        self.file.push((max, format!("{max}{lines}")));
    }

    /// Somebody sets a key of the template, or takes it out.
    fn set(&mut self, key: &str, value: Option<&str>) {
        self.acts.push(AdminAct::Configure {
            vmid: 9000,
            key: key.to_owned(),
            value: value.map(str::to_owned),
        });
    }

    /// A bridge of all hosts.
    fn bridge(&mut self, spec: &BridgeSpec) {
        for host in &mut self.pve.hosts {
            host.bridge_specs.insert("vmbr0".to_owned(), spec.clone());
        }
    }

    /// Objects of this kind and name are not made.
    fn without(&mut self, kind: &str, name: &str) {
        let before = self.objects.len();
        self.objects
            .retain(|object| object["kind"] != kind || object["metadata"]["name"] != name);
        assert!(self.objects.len() < before, "there is no {kind} {name}");
    }

    /// The ClusterRole without this verb on this resource.
    fn without_right(&mut self, verb: &str, resource: &str) {
        let role = self.objects.iter_mut().find(|object| {
            object["kind"] == "ClusterRole" && object["metadata"]["name"] == "pve-autoscaler"
        });
        let rules = role.expect("the role")["rules"].as_array_mut();
        let rules = rules.expect("rules");
        let mut of_its_own = Vec::new();
        for rule in rules.iter_mut() {
            let resources = rule["resources"].as_array_mut().expect("a list");
            if !resources.contains(&json!(resource)) {
                continue;
            }
            resources.retain(|one| one != resource);
            let mut own = rule.clone();
            own["resources"] = json!([resource]);
            let verbs = own["verbs"].as_array_mut().expect("a list");
            verbs.retain(|one| one != verb);
            of_its_own.push(own);
        }
        assert!(!of_its_own.is_empty(), "no rule is about {resource}");
        rules.extend(of_its_own);
        rules.retain(|rule| rule["resources"] != json!([]));
    }
}

/// The token of PVE lacks a privilege.
fn lacks(given: &mut Given, privilege: &'static str) {
    for token in &mut given.pve.tokens {
        for acl in &mut token.acl {
            acl.privileges.retain(|one| one != privilege);
        }
    }
}

fn without_binding(given: &mut Given, name: &'static str) {
    given.without("ValidatingAdmissionPolicyBinding", name);
}

/// By and by all of docs/doctor.md, "What can fail", that a simulated world can have.
const SPOILT: &[Spoiling] = &[
    Spoiling {
        name: "there is no template",
        spoil: |given, _| {
            let name = "vm_name = \"debian-13-k8s\"";
            given
                .file
                .push((name, "vm_name = \"debian-14\"".to_owned()));
        },
        with: "",
        doctor: ("templates", "there is no template of the name debian-14"),
        daemon: Some("has no copy that the host pve1 can clone"),
    },
    Spoiling {
        name: "the template has no agent",
        spoil: |given, _| given.set("agent", None),
        with: "",
        doctor: ("templates", "VM 9000 has no guest agent enabled"),
        daemon: Some("VM 9000 has no guest agent enabled"),
    },
    Spoiling {
        name: "the template has a fixed address, and the pool may have two machines",
        spoil: |given, _| given.set("ipconfig0", Some("ip=192.0.2.50/24,gw=192.0.2.1")),
        with: "",
        doctor: (
            "templates",
            "VM 9000 has a fixed address (ipconfig0: ip=192.0.2.50/24,gw=192.0.2.1) that all its machines would have, and pool general may have 2",
        ),
        daemon: Some("VM 9000 has a fixed address (ipconfig0: "),
    },
    Spoiling {
        name: "the template's card has no link",
        spoil: |given, _| {
            given.set(
                "net0",
                Some("virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=1"),
            );
        },
        with: "",
        doctor: ("templates", "VM 9000 has no link at net0 (link_down=1)"),
        daemon: Some("VM 9000 has no link at net0 (link_down=1)"),
    },
    Spoiling {
        name: "the template's CPUs are frozen at its start",
        spoil: |given, _| given.set("freeze", Some("1")),
        with: "",
        doctor: (
            "templates",
            "VM 9000 starts with its CPUs frozen (freeze: 1)",
        ),
        daemon: Some("VM 9000 starts with its CPUs frozen (freeze: 1)"),
    },
    Spoiling {
        name: "the template has arguments for QEMU",
        spoil: |given, _| given.set("args", Some("-no-fd-bootchk")),
        with: "",
        doctor: (
            "templates",
            "VM 9000 has arguments of its own for QEMU (args)",
        ),
        // It works: whoever set them knows what they are.
        daemon: None,
    },
    Spoiling {
        name: "the template is locked",
        spoil: |given, _| {
            given.acts.push(AdminAct::Lock {
                vmid: 9000,
                lock: Some("backup".to_owned()),
            });
        },
        with: "",
        doctor: ("templates", "VM 9000 is locked (backup)"),
        daemon: Some("VM 9000 is locked (backup)"),
    },
    Spoiling {
        name: "a drive of the template is on a storage that is not there, and no other host is asked for",
        spoil: |given, _| {
            given.set("scsi1", Some("attic:vm-9000-disk-9,size=1G"));
            given.pool("hosts = [\"pve1\"]\n");
        },
        with: "",
        doctor: (
            "templates",
            "VM 9000: its scsi1 is on attic, which PVE does not show on pve1",
        ),
        daemon: Some("attic:vm-9000-disk-9"),
    },
    Spoiling {
        name: "linked clones of LVM",
        spoil: |given, _| {
            let mut storages = given.pve.storages.iter_mut();
            let shared = storages.find(|one| one.name == "shared");
            shared.expect("the template's").kind = StorageKind::Lvm;
        },
        with: "",
        doctor: (
            "templates",
            "its scsi0 is on shared (lvm), which has no linked clones",
        ),
        daemon: Some("its scsi0 is on shared (lvm), which has no linked clones"),
    },
    Spoiling {
        name: "the storage is full",
        spoil: |given, _| {
            given.acts.push(AdminAct::Fill {
                storage: "shared".to_owned(),
                host: "pve1".to_owned(),
                left: 1_000,
            });
        },
        with: "",
        doctor: (
            "clones",
            "no host has room for the disks of instance type small",
        ),
        daemon: Some("the storage shared of the host pve1 has 1000 free"),
    },
    Spoiling {
        name: "the storage is off",
        spoil: |given, _| {
            given.acts.push(AdminAct::StorageActive {
                storage: "shared".to_owned(),
                active: false,
            });
        },
        with: "",
        doctor: (
            "clones",
            "the storage shared is not available on the host pve1",
        ),
        daemon: Some("the storage shared is not available on the host pve1"),
    },
    Spoiling {
        name: "there is no bridge",
        spoil: |given, _| {
            for host in &mut given.pve.hosts {
                host.bridges = vec!["vmbr9".to_owned()];
            }
        },
        with: "",
        doctor: (
            "network",
            "there is no bridge vmbr0 that may be used on pve1, pve2, pve3",
        ),
        daemon: Some("bridge 'vmbr0' does not exist"),
    },
    Spoiling {
        name: "two hosts have not the bridge",
        spoil: |given, _| {
            for host in &mut given.pve.hosts[..2] {
                host.bridges = vec!["vmbr9".to_owned()];
            }
        },
        with: "",
        doctor: (
            "network",
            "there is no bridge vmbr0 that may be used on pve1, pve2; machines would not start there",
        ),
        // It brings the node to the third.
        daemon: None,
    },
    Spoiling {
        name: "the bridge takes no VLANs apart",
        spoil: |given, _| {
            given.template("vlan = 20\n");
            given.bridge(&BridgeSpec {
                ports: Vec::new(),
                ..BridgeSpec::default()
            });
        },
        with: "",
        doctor: (
            "network",
            "net0 has VLAN 20 on vmbr0, which takes no VLANs apart",
        ),
        daemon: Some("no physical interface on bridge 'vmbr0'"),
    },
    Spoiling {
        name: "the bridge has a smaller MTU",
        spoil: |given, _| {
            given.template("mtu = 9000\n");
            given.bridge(&BridgeSpec {
                ports: Vec::new(),
                mtu: Some(1_400),
                ..BridgeSpec::default()
            });
        },
        with: "",
        doctor: (
            "network",
            "net0 has MTU 9000, and vmbr0 has 1400 on pve1, pve2, pve3",
        ),
        daemon: Some("MTU '9000' is bigger than the bridge MTU '1400'"),
    },
    Spoiling {
        name: "there is no resource pool",
        spoil: |given, _| given.template("resource_pool = \"k9s\"\n"),
        with: "",
        doctor: ("network", "there is no resource pool k9s"),
        daemon: Some("pool 'k9s' does not exist"),
    },
    Spoiling {
        name: "there is no security group",
        spoil: |given, _| given.template("security_groups = [\"web\"]\n"),
        with: "",
        doctor: ("firewall", "there is no security group web"),
        // PVE starts the machine; the rule lets nothing through, which no simulated network knows.
        daemon: None,
    },
    Spoiling {
        name: "there is no mapping of the PCI device",
        spoil: |given, _| {
            let disk = "disk = \"20GiB\"\n";
            given.file.push((disk, format!("{disk}pci = [\"gpu\"]\n")));
        },
        with: "",
        doctor: ("devices", "PVE shows no mapping gpu of PCI devices"),
        daemon: Some("PVE shows no mapping gpu of PCI devices"),
    },
    Spoiling {
        name: "no VMID is free",
        spoil: |given, _| given.file.push(("9100-9120", "100-101".to_owned())),
        with: "",
        doctor: ("range", "no VMID from 100 to 101 is free"),
        daemon: Some("has no free VMID in its range"),
    },
    Spoiling {
        name: "no address is free",
        spoil: |given, _| {
            given.pool(
                "network = \"lan\"\n[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50\"]\n",
            );
            given.acts.push(AdminAct::Configure {
                vmid: 100,
                key: "ipconfig0".to_owned(),
                value: Some("ip=192.0.2.50/24".to_owned()),
            });
        },
        with: "",
        doctor: ("addresses", "no address in 192.0.2.50 is free"),
        daemon: Some("the network lan has no free address"),
    },
    Spoiling {
        name: "the host is off",
        spoil: |given, _| {
            given.pool("hosts = [\"pve3\"]\n");
            given.acts.push(AdminAct::HostOnline {
                host: "pve3".to_owned(),
                online: false,
            });
        },
        with: "",
        doctor: ("hosts", "host pve3 is offline"),
        daemon: Some("the host pve3 is not online"),
    },
    Spoiling {
        name: "the host is in maintenance",
        spoil: |given, _| {
            given.pool("hosts = [\"pve3\"]\n");
            given.acts.push(AdminAct::Maintenance {
                host: "pve3".to_owned(),
                on: true,
            });
        },
        with: "",
        doctor: ("hosts", "host pve3 is in maintenance"),
        daemon: Some("the host pve3 is in maintenance"),
    },
    Spoiling {
        name: "there is no such host",
        spoil: |given, _| given.pool("hosts = [\"pve7\"]\n"),
        with: "",
        doctor: ("hosts", "there is no host pve7"),
        daemon: Some("shows no host that the pool may use"),
    },
    Spoiling {
        name: "the hosts are too small",
        spoil: |given, _| given.file.push(("cores = 2", "cores = 64".to_owned())),
        with: "",
        doctor: (
            "hosts",
            "no host has the CPUs for instance type small: 64 wanted, 32 at most",
        ),
        daemon: Some("the host pve1 has 32 CPUs, one of this type has 64"),
    },
    Spoiling {
        name: "more memory is to stay free than any host has",
        spoil: |given, _| given.pool("min_free_memory = \"900GiB\"\n"),
        with: "",
        doctor: (
            "hosts",
            "no host could hold a machine of instance type small (memory 4Gi, 2 cores), however empty it is: pve1 has ",
        ),
        daemon: Some("and min_free_memory keeps 900Gi"),
    },
    Spoiling {
        name: "more cores are to stay free than any host has",
        spoil: |given, _| given.pool("min_free_cores = 31\n"),
        with: "",
        doctor: (
            "hosts",
            "pve1 has 32 CPUs, and min_free_cores keeps 31 free",
        ),
        daemon: Some("and min_free_cores keeps 31"),
    },
    Spoiling {
        name: "guests may be promised too few cores of any host",
        spoil: |given, _| {
            let range = "vmids = \"9100-9120\"\n";
            let lines = "cpu_overcommit = 1\nhost_cores_reserve = 31\n";
            given.file.push((range, format!("{range}{lines}")));
        },
        with: "",
        doctor: ("hosts", "cores that guests of pve1 may have: 1"),
        daemon: Some("cores left for VMs within cpu_overcommit"),
    },
    Spoiling {
        name: "the hosts' CPU is another one",
        spoil: |given, _| given.template("cpu_type = \"x86-64-v4\"\n"),
        with: "",
        doctor: (
            "cpus",
            "CPU type x86-64-v4 of template debian asks for what the CPU of pve1, pve2, pve3 does not have",
        ),
        daemon: Some("Host doesn't support requested features"),
    },
    Spoiling {
        name: "the hosts' release is older than an option",
        spoil: |given, _| {
            "8.4.21".clone_into(&mut given.pve.version);
            given.template("options = { allow-ksm = false }\n");
        },
        with: "",
        doctor: (
            "releases",
            "allow-ksm in [template.debian.options] is known to PVE from 9 on, and pve1 (8.4.21), pve2 (8.4.21), pve3 (8.4.21) have an older one",
        ),
        daemon: Some("property is not defined in schema"),
    },
    Spoiling {
        name: "the clock of a host is wrong",
        spoil: |given, _| given.pve.hosts[1].clock_ahead = 90,
        with: "",
        doctor: ("clocks", "pve2"),
        daemon: None,
    },
    Spoiling {
        name: "there is no quorum",
        spoil: |given, _| given.acts.push(AdminAct::Quorum(false)),
        with: "",
        doctor: ("version", "the cluster has no quorum"),
        daemon: Some("has no quorum"),
    },
    Spoiling {
        name: "the token may not read the cluster",
        spoil: lacks,
        with: "Sys.Audit",
        doctor: ("region", "Permission check failed (/, Sys.Audit)"),
        daemon: Some("Permission check failed (/, Sys.Audit)"),
    },
    Spoiling {
        name: "the token may not clone",
        spoil: lacks,
        with: "VM.Clone",
        doctor: ("token", "lacks VM.Clone on /vms/9000"),
        daemon: Some("Permission check failed (/vms/9000, VM.Clone)"),
    },
    Spoiling {
        name: "the token may make no VM",
        spoil: lacks,
        with: "VM.Allocate",
        doctor: ("token", "lacks VM.Allocate on /vms/9100"),
        daemon: Some("VM.Allocate)"),
    },
    Spoiling {
        name: "the token may not take off the protection",
        spoil: lacks,
        with: "VM.Config.Options",
        doctor: ("token", "lacks VM.Config.Options on /vms/9100"),
        daemon: Some("VM.Config.Options)"),
    },
    Spoiling {
        name: "the token may start nothing",
        spoil: lacks,
        with: "VM.PowerMgmt",
        doctor: ("token", "lacks VM.PowerMgmt on /vms/9100"),
        daemon: Some("VM.PowerMgmt)"),
    },
    Spoiling {
        name: "the token may not talk to guests",
        spoil: lacks,
        with: "VM.GuestAgent.Unrestricted",
        doctor: ("token", "lacks VM.GuestAgent.Unrestricted on /vms/9100"),
        daemon: Some("VM.GuestAgent.Unrestricted)"),
    },
    Spoiling {
        name: "the token may put nothing on the storage",
        spoil: lacks,
        with: "Datastore.AllocateSpace",
        doctor: ("token", "lacks Datastore.AllocateSpace on /storage/shared"),
        daemon: Some("Permission check failed (/storage/shared, Datastore.AllocateSpace)"),
    },
    Spoiling {
        name: "the token may not use the bridge",
        spoil: lacks,
        with: "SDN.Use",
        doctor: ("token", "lacks SDN.Use on /sdn/zones/localnetwork/vmbr0"),
        daemon: Some("Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
    },
    Spoiling {
        name: "the daemon may not list pods",
        spoil: |given, _| given.without_right("list", "pods"),
        with: "",
        doctor: ("rights", "list pods"),
        daemon: Some("cannot list resource \"pods\""),
    },
    Spoiling {
        name: "the daemon may not label nodes",
        spoil: |given, _| given.without_right("patch", "nodes"),
        with: "",
        doctor: ("rights", "these rights are missing: patch nodes"),
        daemon: Some("cannot patch resource \"nodes\""),
    },
    Spoiling {
        name: "the daemon may make no tokens",
        spoil: |given, _| given.without("RoleBinding", "pve-autoscaler-tokens"),
        with: "",
        doctor: ("admission", "no bootstrap token can be made for a machine"),
        daemon: Some("cannot create resource \"secrets\""),
    },
    Spoiling {
        name: "the daemon may not have the Lease",
        spoil: |given, _| given.without("RoleBinding", "pve-autoscaler"),
        with: "",
        doctor: (
            "rights",
            "get leases.coordination.k8s.io pve-autoscaler in kube-system",
        ),
        daemon: Some("cannot get resource \"leases\""),
    },
    Spoiling {
        name: "there is no namespace for the Lease",
        spoil: |given, _| {
            let name = "name = \"home\"\n";
            let own = format!("{name}namespace = \"autoscaling\"\n");
            given.file.push((name, own));
        },
        with: "",
        doctor: ("lease", "there is no namespace autoscaling for the Lease"),
        daemon: Some("leases autoscaling/pve-autoscaler"),
    },
    Spoiling {
        name: "another daemon leads",
        spoil: |given, _| {
            given.objects.push(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": "pve-autoscaler", "namespace": "kube-system" },
                "spec": { "holderIdentity": OTHER, "leaseDurationSeconds": 86_400 },
            }));
        },
        with: "",
        doctor: ("lease", "elsewhere_0000000000000007 holds the Lease"),
        daemon: Some("elsewhere_0000000000000007 does"),
    },
    Spoiling {
        name: "machines cannot learn where to join",
        spoil: |given, _| {
            given
                .deleted
                .push("/api/v1/namespaces/kube-public/configmaps/cluster-info");
        },
        with: "",
        doctor: ("cluster-info", "configmaps \"cluster-info\" not found"),
        daemon: Some("configmaps \"cluster-info\" not found"),
    },
    Spoiling {
        name: "kubeadm's configuration is gone",
        spoil: |given, _| {
            given
                .deleted
                .push("/api/v1/namespaces/kube-system/configmaps/kubeadm-config");
        },
        with: "",
        doctor: (
            "kubeadm",
            "the ConfigMap kubeadm-config in kube-system is not there",
        ),
        daemon: Some("failed to get config map: configmaps \"kubeadm-config\" not found"),
    },
    Spoiling {
        name: "the kubelets' configuration is gone",
        spoil: |given, _| {
            given
                .deleted
                .push("/api/v1/namespaces/kube-system/configmaps/kubelet-config");
        },
        with: "",
        doctor: (
            "kubeadm",
            "the ConfigMap kubelet-config in kube-system is not there",
        ),
        daemon: Some("configmaps \"kubelet-config\" not found"),
    },
    Spoiling {
        name: "bootstrap tokens may not read kubeadm's configuration",
        spoil: |given, _| given.deleted.push(BINDING_OF_KUBEADM),
        with: "",
        doctor: (
            "kubeadm",
            "the ConfigMap kubeadm-config in kube-system may not be read with a bootstrap token",
        ),
        daemon: Some("configmaps \"kubeadm-config\" is forbidden"),
    },
    Spoiling {
        name: "the role of kubelets' configuration is gone",
        spoil: |given, _| given.deleted.push(ROLE_OF_KUBELET),
        with: "",
        doctor: (
            "kubeadm",
            "the ConfigMap kubelet-config in kube-system may not be read with a bootstrap token",
        ),
        daemon: Some("configmaps \"kubelet-config\" is forbidden"),
    },
    Spoiling {
        name: "a kubelet is newer than the API server",
        spoil: |given, _| {
            let mut objects = given.objects.iter_mut();
            let node = objects.find(|object| object["kind"] == "Node");
            node.expect("a node")["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.36.0");
        },
        with: "",
        doctor: (
            "skew",
            "the kubelet v1.36.0 of cp-1 is newer than the API server",
        ),
        daemon: None,
    },
    Spoiling {
        name: "the policy for tokens is not bound",
        spoil: without_binding,
        with: "pve-autoscaler-tokens",
        doctor: (
            "admission",
            "(pve-autoscaler-tokens or its binding is missing",
        ),
        daemon: None,
    },
    Spoiling {
        name: "the policy for nodes is not bound",
        spoil: without_binding,
        with: "pve-autoscaler-nodes",
        doctor: (
            "admission",
            "(pve-autoscaler-nodes or its binding is missing",
        ),
        daemon: None,
    },
    Spoiling {
        name: "the policy for pods is not bound",
        spoil: without_binding,
        with: "pve-autoscaler-pods",
        doctor: (
            "admission",
            "(pve-autoscaler-pods or its binding is missing",
        ),
        daemon: None,
    },
];

/// Where objects like this one are made.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("a version");
    let base = if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    };
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}

/// Both APIs on sockets, as they are given, and the file that names them.
fn stage(given: &Given) -> Stage {
    let stage = Stage::where_machines_join(given.pve.clone(), given.kube.clone());
    replace(&stage.path("kubeconfig"), "sim-admin-token", TOKEN);
    let file = fs::read_to_string(&stage.config).expect("it is there");
    let file = file.split("[telemetry]").next().unwrap_or_default();
    let file = format!("{file}[recorder]\nenabled = false\n");
    fs::write(&stage.config, file).expect("written");
    for (from, to) in &given.file {
        replace(&stage.config, from, to);
    }
    for object in &given.objects {
        stage.make(&collection(object), object);
    }
    for path in &given.deleted {
        stage.delete(path);
    }
    for act in &given.acts {
        stage.act(act);
    }
    stage
}

/// What doctor finds, with the exit code that the docs give its verdict.
fn diagnose(config: &Path) -> Result<Vec<Value>, String> {
    let output = examine(config, &["-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("doctor: {error}: {output:?}"))?;
    let wanted = match told["verdict"].as_str() {
        Some("ok" | "warning") => 0,
        Some("wrong") => 1,
        Some("unseen") => 2,
        _ => return Err(format!("doctor has no verdict: {told:#}")),
    };
    if output.status.code() != Some(wanted) {
        return Err(format!("doctor ended with {:?}: {told:#}", output.status));
    }
    let findings = told["findings"].as_array().cloned();
    let mut findings = findings.ok_or_else(|| format!("no findings: {told:#}"))?;
    findings.retain(|one| {
        let text = one["text"].as_str().unwrap_or_default();
        one["grade"] != "ok" && !text.starts_with(LOOPBACK)
    });
    Ok(findings)
}

/// Doctor names the thing, and says what to type.
fn is_told(found: &[Value], (probe, words): (&str, &str)) -> Result<(), String> {
    let told = found.iter().any(|one| {
        let text = one["text"].as_str().unwrap_or_default();
        let mend = one["mend"].as_str().unwrap_or_default();
        one["probe"] == probe
            && (one["grade"] == "wrong" || one["grade"] == "warning")
            && text.contains(words)
            && !mend.is_empty()
    });
    if told {
        Ok(())
    } else {
        Err(format!(
            "doctor passes it: no {probe} with {words:?} in {found:#?}"
        ))
    }
}

/// How the daemon lived.
#[derive(Debug, Default)]
struct Life {
    /// The pod came to a node of ours, which is what the daemon is for.
    placed: bool,
    /// All that it said, at any time.
    heard: BTreeSet<String>,
}

/// Every text in a document.
fn texts(value: &Value, heard: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            heard.insert(text.clone());
        }
        Value::Array(list) => list.iter().for_each(|one| texts(one, heard)),
        Value::Object(map) => map.values().for_each(|one| texts(one, heard)),
        _ => {}
    }
}

/// A call to the API server of a world, as an administrator.
async fn call(world: &World, method: &str, path: &str, body: String) -> Value {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body))
        .expect("a request");
    let answer = tower::ServiceExt::oneshot(world.kube.router(), request).await;
    let answer = answer.expect("an answer");
    assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
    let body = axum::body::to_bytes(answer.into_body(), 1 << 24).await;
    serde_json::from_slice(&body.expect("a body")).expect("an object")
}

/// What the daemon says now: in its report, its status and its events. And whether the pod has its node.
async fn listen(world: &World, life: &mut Life) {
    let turn = world.turns.borrow().clone();
    if let Some(turn) = turn {
        let status = DaemonStatus::of(&turn);
        life.heard.insert(status.line());
        texts(
            &serde_json::to_value(&status).expect("JSON"),
            &mut life.heard,
        );
        let report = serde_json::to_value(&turn.decision.report);
        texts(&report.expect("JSON"), &mut life.heard);
    }
    let events = call(world, "GET", "/api/v1/events", String::new()).await;
    texts(&events, &mut life.heard);
    let path = "/api/v1/namespaces/default/pods/web";
    let pod = call(world, "GET", path, String::new()).await;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    life.placed = node.starts_with("general-");
}

/// The daemon in this world, until the pod has its node or the time is over.
async fn live(given: &Given, file: &str) -> Life {
    let spec = WorldSpec {
        seed: 5,
        pve: PveSpec::default(),
        kube: given.kube.clone(),
        guests: GuestSpec::default(),
        config: file.to_owned(),
    };
    // Reached by the token, as the file says, and not by the broker of the host.
    let region = BTreeMap::from([("default".to_owned(), given.pve.clone())]);
    let world = World::with_regions(spec, region);
    let mut world = world.unwrap_or_else(|errors| panic!("{errors}"));
    world.kube_token = Some(TOKEN.to_owned());
    for object in &given.objects {
        call(&world, "POST", &collection(object), object.to_string()).await;
    }
    for path in &given.deleted {
        call(&world, "DELETE", path, String::new()).await;
    }
    for act in &given.acts {
        let done = world.further["default"].pve.administer(act);
        done.unwrap_or_else(|error| panic!("{act:?}: {error}"));
    }
    let state = tempfile::tempdir().expect("a folder");
    let mut life = Life::default();
    let watch = async {
        for _ in 0..LOOKS {
            tokio::time::sleep(PAUSE).await;
            listen(&world, &mut life).await;
            if life.placed {
                break;
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = world.daemon(state.path(), None, 0) => ended.err(),
        () = watch => None,
    };
    life.heard.extend(ended.map(|error| error.to_string()));
    life
}

/// On a paused clock of its own.
fn simulate(given: &Given, file: &str) -> Life {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(live(given, file))
}

/// The daemon brings no node, and says why; or it brings one all the same.
fn is_lived(life: &Life, words: Option<&str>) -> Result<(), String> {
    match words {
        None if life.placed => Ok(()),
        None => Err(format!("the daemon brings no node: {:#?}", life.heard)),
        Some(words) if life.placed => {
            Err(format!("the daemon brings a node in spite of {words:?}"))
        }
        Some(words) if life.heard.iter().any(|one| one.contains(words)) => Ok(()),
        Some(words) => Err(format!(
            "the daemon does not say {words:?}: {:#?}",
            life.heard
        )),
    }
}

/// What is wrong with how both take a thing that is spoilt.
fn judge(spoiling: &Spoiling) -> Result<(), String> {
    let mut given = unspoilt();
    (spoiling.spoil)(&mut given, spoiling.with);
    let stage = stage(&given);
    is_told(&diagnose(&stage.config)?, spoiling.doctor)?;
    let file = fs::read_to_string(&stage.config).expect("it is there");
    is_lived(&simulate(&given, &file), spoiling.daemon)
}

/// It finds a probe that is gone or sees nothing, one that has nothing to type, a daemon that says another reason than the one that it has, and
/// a doctor that knows nothing of what the daemon needs.
#[test]
fn what_fails_the_daemon_is_told_by_doctor() {
    let part = |part: usize| -> Vec<String> {
        let mine = SPOILT.iter().skip(part).step_by(THREADS);
        let judged = mine.map(|one| judge(one).map_err(|why| format!("{}: {why}", one.name)));
        judged.filter_map(Result::err).collect()
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || part(number)))
            .collect();
        let done = threads.into_iter();
        done.flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let count = SPOILT.len();
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The other side of it: where nothing is spoilt, doctor has no complaint and the pod gets its node.
#[test]
fn where_nothing_is_spoilt_doctor_passes_it_and_the_daemon_brings_a_node() {
    let given = unspoilt();
    let stage = stage(&given);
    let found = diagnose(&stage.config).unwrap_or_else(|why| panic!("{why}"));
    assert!(found.is_empty(), "{found:#?}");
    let file = fs::read_to_string(&stage.config).expect("it is there");
    let lived = is_lived(&simulate(&given, &file), None);
    lived.unwrap_or_else(|why| panic!("{why}"));
}

/// With the manifest of an earlier version doctor says that it could not look, and what to type; no right of the daemon's is missing. Who
/// may look and not ask for others is told no more.
#[test]
fn an_older_manifest_leaves_kubeadms_configuration_unseen() {
    let mut without = unspoilt();
    without.without("RoleBinding", "pve-autoscaler-doctor");
    let mut half = unspoilt();
    let mut objects = half.objects.iter_mut();
    let role = objects.find(|object| {
        object["kind"] == "Role" && object["metadata"]["name"] == "pve-autoscaler-doctor"
    });
    let rules = role.expect("the role")["rules"].as_array_mut();
    rules
        .expect("rules")
        .retain(|rule| rule["resources"] == json!(["configmaps"]));
    for given in [without, half] {
        let stage = stage(&given);
        let found = diagnose(&stage.config).unwrap_or_else(|why| panic!("{why}"));
        let [one] = &found[..] else {
            panic!("{found:#?}");
        };
        assert_eq!(
            (&one["probe"], &one["grade"]),
            (&json!("kubeadm"), &json!("unseen"))
        );
        let part = |key: &str| one[key].as_str().unwrap_or_default();
        assert!(
            part("text").contains("kubeadm-config and kubelet-config"),
            "{one}"
        );
        assert!(part("mend").starts_with("kubectl apply -f "), "{one}");
    }
    // Pools that join in another way have nothing to do with it.
    let mut k3s = unspoilt();
    k3s.without("RoleBinding", "pve-autoscaler-doctor");
    k3s.pool("[pool.general.join]\nmethod = \"self\"\n");
    let stage = stage(&k3s);
    let found = diagnose(&stage.config).unwrap_or_else(|why| panic!("{why}"));
    assert!(
        found.iter().all(|one| one["probe"] != "kubeadm"),
        "{found:#?}"
    );
}

/// A file with this mode.
fn mode(path: &Path, bits: u32) {
    let mode = fs::Permissions::from_mode(bits);
    fs::set_permissions(path, mode).expect("it is ours");
}

/// What is missing on the daemon's host, and what comes of it.
struct Missing {
    name: &'static str,
    /// Is given an address that is taken.
    spoil: fn(&Stage, &str),
    doctor: (&'static str, &'static str),
    /// Words in the daemon's log.
    daemon: &'static str,
}

const MISSING: &[Missing] = &[
    Missing {
        name: "no kubeconfig",
        spoil: |stage, _| fs::remove_file(stage.path("kubeconfig")).expect("removed"),
        doctor: ("files", "cannot be read: No such file or directory"),
        daemon: "it cannot be read (No such file or directory",
    },
    Missing {
        name: "a kubeconfig that the daemon may not read",
        spoil: |stage, _| mode(&stage.path("kubeconfig"), 0o000),
        doctor: ("files", DENIED),
        daemon: DENIED,
    },
    Missing {
        name: "credentials that ended",
        spoil: |stage, _| replace(&stage.path("kubeconfig"), TOKEN, "of-before"),
        doctor: ("kubernetes", "401 Unauthorized"),
        daemon: "401 Unauthorized",
    },
    Missing {
        name: "another secret",
        spoil: |stage, _| {
            let secret = "00000000-0000-4000-8000-0000000000ff";
            fs::write(stage.path("secret"), secret).expect("written");
        },
        doctor: ("region", "does not take the token"),
        daemon: "Authentication failed!",
    },
    Missing {
        name: "a port that is taken",
        spoil: |stage, taken| replace(&stage.config, "127.0.0.1:0", taken),
        doctor: ("state", "Address already in use"),
        daemon: "Address already in use",
    },
    Missing {
        name: "a file in the place of the daemon's directory",
        spoil: |stage, _| {
            fs::remove_dir(stage.path("state")).expect("it is empty");
            fs::write(stage.path("state"), "").expect("written");
        },
        doctor: ("state", "is no directory"),
        daemon: "is the state directory writable by the daemon's user?",
    },
];

/// What is on this host no simulated daemon reads: the program itself is started, and its log is read.
#[test]
fn what_is_missing_on_this_host_is_told_by_both() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound").to_string();
    for missing in MISSING {
        let name = missing.name;
        if nix::unistd::geteuid().is_root() && missing.daemon == DENIED {
            println!("skipped: root may read everything: {name}");
            continue;
        }
        let stage = stage(&unspoilt());
        (missing.spoil)(&stage, &address);
        let found = diagnose(&stage.config).unwrap_or_else(|why| panic!("{name}: {why}"));
        is_told(&found, missing.doctor).unwrap_or_else(|why| panic!("{name}: {why}"));
        let _daemon = stage.daemon("log");
        let log = || fs::read_to_string(stage.path("log")).unwrap_or_default();
        let mut tries = 0;
        while !log().contains(missing.daemon) {
            tries += 1;
            assert!(
                tries < READS,
                "{name}: no {:?} in {}",
                missing.daemon,
                log()
            );
            std::thread::sleep(SHORT);
        }
    }
}
