//! The ways here from another autoscaler, `docs/moving.md`: the commands of the page are typed one after the other, in its order, at a
//! cluster in which the other one has made nodes. `site.rs` says what stands for commands; what stands for those of the other
//! autoscaler is here: a Deployment that is scaled is remembered, and nothing of it runs.

use std::collections::BTreeSet;

use pve_autoscaler::sim::guests::StandingNode;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Act, WorkloadPods};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::site::{FIRST, Site};
use super::tasks::commands_of;

const PAGE: &str = include_str!("../../docs/moving.md");
const RECIPES: &str = include_str!("../../docs/recipes.md");
/// The pods that both autoscalers make nodes for; each fills one.
const WEB: &str = "web";
/// A node that kproximate made, and its VM.
const OLD_NODE: &str = "kp-node-163c3d58-4c4d-426d-baef-e0c30ecb5fcd";
const OLD_VM: u32 = 601;
/// What `helm get values kproximate` prints there.
const VALUES: &str = "USER-SUPPLIED VALUES:
kproximate:
  config:
    kpNodeCores: 2
    kpNodeMemory: 4096
    kpNodeNamePrefix: kp-node
    kpNodeTemplateName: debian-13-k8s
    kpQemuExecJoin: true
    maxKpNodes: 4
    pmUrl: https://192.0.2.11:8006/api2/json
    pmUserID: kproximate@pam!kproximate
  secrets:
    pmToken: 42adb612-906d-425e-a46a-aff2826162e2
";

/// A person who moves here.
struct Mover {
    site: Site,
    /// Deployments of the other autoscaler that were scaled to nothing.
    stopped: BTreeSet<String>,
    /// Kubelets of its nodes, by the node's name.
    kubelets: Vec<(String, JoinHandle<()>)>,
}

impl Mover {
    fn begin() -> Mover {
        Mover {
            site: Site::without_package(),
            stopped: BTreeSet::new(),
            kubelets: Vec::new(),
        }
    }

    /// A node that the other autoscaler made; one pod of the workload fills it.
    fn stand(&mut self, name: &str, taints: Vec<Value>) {
        let node = StandingNode {
            name: name.to_owned(),
            cores: 2,
            memory_mib: 4_096,
            labels: String::new(),
            taints,
            ..StandingNode::default()
        };
        let number = u32::try_from(self.kubelets.len()).expect("few") + 1;
        let kubelet = self.site.stand_node(&node, number);
        self.kubelets.push((name.to_owned(), kubelet));
    }

    /// The pods come, on one node that is there.
    fn deploy(&self) {
        self.site.play(Act::Deploy {
            name: WEB.to_owned(),
            replicas: 1,
            pods: WorkloadPods::of("1500m", "1Gi"),
        });
        self.site.until("the pod runs", |site| site.runs(1));
    }

    fn scale(&self, replicas: u32) {
        self.site.play(Act::Scale {
            name: WEB.to_owned(),
            replicas,
        });
    }

    /// Types a line of the page with names in the place of capitals, and gives back what is said.
    fn type_line(&mut self, line: &str, names: &[(&str, &str)]) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [
                "helm",
                "get",
                "values",
                "kproximate",
                "-n",
                "kproximate",
                into,
            ] => {
                let into = into.strip_prefix('>').expect("into a file");
                std::fs::write(self.site.path(into), VALUES).expect("written");
            }
            ["install", "-m", "0644", file, "/etc/pve-autoscaler.toml"] => {
                self.site.install_file(file);
            }
            [
                "kubectl",
                "scale",
                "deployment",
                name,
                "-n",
                _,
                "--replicas=0",
            ] => {
                self.stopped.insert((*name).to_owned());
            }
            // What somebody looks at, and what is no more than clearing up.
            ["kubectl", "logs", ..]
            | ["kubectl", "get", "deployment", ..]
            | ["kubectl", "annotate", "machine", ..]
            | ["helm", "uninstall", ..]
            | ["pveum", ..] => {}
            ["kubectl", "get", "nodes", "-o", ..] => {
                // The names of columns are no capitals to fill in.
                let line = line.replace("NAME:", "Name:").replace("TAINTS:", "Taints:");
                return self.site.type_line(FIRST, &line, names);
            }
            ["kubectl", "delete", "node", _] => {
                self.end_kubelet(names);
                return self.site.type_line(FIRST, line, names);
            }
            ["kubectl", "scale", "machinedeployment", ..] => {
                self.end_kubelet(names);
                return self
                    .site
                    .type_line(FIRST, "kubectl delete node NODE", names);
            }
            [
                "qm",
                "shutdown",
                "VMID",
                "&&",
                "qm",
                "destroy",
                "VMID",
                "--purge",
            ] => {
                assert_eq!(names, [("VMID", "601")]);
                self.site.act(&AdminAct::PowerOff { vmid: OLD_VM });
                self.site.act(&AdminAct::Destroy { vmid: OLD_VM });
            }
            _ => return self.site.type_line(FIRST, line, names),
        }
        String::new()
    }

    /// Types it again and again, until it says this.
    fn type_until(&mut self, line: &str, words: &str) {
        let typed = (line, &[][..]);
        self.site
            .type_until(FIRST, typed, |said| said.contains(words));
    }

    /// Its node is about to go.
    fn end_kubelet(&mut self, names: &[(&str, &str)]) {
        let [("NODE", node)] = names else {
            panic!("which node? {names:?}");
        };
        let of_node = |(name, _): &(String, JoinHandle<()>)| name == node;
        let at = self.kubelets.iter().position(of_node).expect("it stands");
        self.kubelets.remove(at).1.abort();
    }

    /// The node is as its autoscaler left it: nobody has cordoned or tainted it.
    fn is_left_alone(&self, node: &str) -> bool {
        let nodes = self.site.kube.objects("v1", "Node");
        let found = nodes.iter().find(|one| one["metadata"]["name"] == node);
        found.is_some_and(|node| {
            let taints = node["spec"]["taints"].as_array();
            node["spec"]["unschedulable"] != true && taints.is_none_or(Vec::is_empty)
        })
    }

    /// While it is paused nothing is made, for as long as a machine would take to come.
    fn makes_nothing(&self) {
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(self.site.machines().is_empty(), "two autoscalers act");
        }
    }

    /// A VM of the other autoscaler.
    fn old_vm(&self) -> Option<VmFacts> {
        let mut vms = self.site.pve.vms().into_iter();
        vms.find(|vm| vm.vmid == OLD_VM)
    }
}

/// A VM as kproximate leaves one: a name with a UUID, and no mark.
fn add_old_vm(site: &Site) {
    let machines = PveSpec::default().machines;
    let mut vm = machines.first().expect("a VM of somebody").clone();
    vm.vmid = OLD_VM;
    vm.config.insert("name".to_owned(), OLD_NODE.to_owned());
    site.act(&AdminAct::AddMachine(vm));
}

/// It finds commands of the page that do not lead there: a file that `check` or `doctor` does not pass, machines while both programs could
/// act, none afterwards, an old node or VM that is touched before its owner does, and machines that stay when nothing needs them.
#[test]
fn the_way_from_kproximate_is_gone_by_the_commands_of_the_page() {
    let commands = commands_of(PAGE, "From kproximate");
    let [
        install,
        pause,
        helm,
        migrate,
        kubeconfig,
        check,
        place,
        reload,
        doctor,
        status,
        plan,
        stop,
        logs,
        stop_workers,
        resume,
        look,
        drain,
        delete,
        destroy,
        clean @ ..,
    ] = &commands[..]
    else {
        panic!("nineteen commands, and those that clean up: {commands:#?}");
    };
    let mut mover = Mover::begin();
    mover.stand(OLD_NODE, Vec::new());
    add_old_vm(&mover.site);
    mover.deploy();
    let vm = mover.old_vm();
    assert!(vm.is_some());
    for line in [install, pause, helm, migrate, kubeconfig] {
        mover.type_line(line, &[]);
    }
    let changes = [
        ("channel = \"local\"\n", ""),
        (
            "[scale_down]\n",
            "[scale_down]\nunneeded_time = \"2s\"\ndelay_after_add = \"1s\"\ndelay_after_failure = \"1s\"\n",
        ),
    ];
    mover.site.fit_file("new.toml", "\"9000-9999\"", &changes);
    for line in [check, place, reload, doctor] {
        mover.type_line(line, &[]);
    }
    mover.type_until(status, "paused: moving from kproximate");
    mover.scale(2);
    mover.type_until(plan, "default/web-");
    mover.makes_nothing();
    for line in [stop, logs, stop_workers] {
        mover.type_line(line, &[]);
    }
    let controller_and_worker = ["kproximate-controller", "kproximate-worker"];
    let stopped: Vec<&str> = mover.stopped.iter().map(|name| &**name).collect();
    assert_eq!(stopped, controller_and_worker, "before this one acts");
    mover.makes_nothing();

    mover.type_line(resume, &[]);
    mover.type_until(look, ": leader; ");
    mover.site.until("both pods run", |site| site.runs(2));
    let made = mover.site.machines();
    assert_eq!(made.len(), 1, "the old node has a pod, too: {made:#?}");
    assert!(made.keys().all(|name| name.starts_with("kp-node-")));
    assert_eq!(mover.old_vm(), vm, "it is another's");
    assert!(mover.is_left_alone(OLD_NODE));

    mover.type_line(drain, &[("NODE", OLD_NODE)]);
    mover.site.until("its pod runs elsewhere", |site| {
        let nodes = site.nodes_of_pods();
        nodes.is_some_and(|nodes| nodes.len() == 2 && !nodes.iter().any(|node| node == OLD_NODE))
    });
    assert_eq!(mover.old_vm(), vm, "its owner destroys it");
    mover.type_line(delete, &[("NODE", OLD_NODE)]);
    mover.type_line(destroy, &[("VMID", "601")]);
    assert!(!clean.is_empty());
    for line in clean {
        mover.type_line(line, &[]);
    }
    assert_eq!(mover.site.machines().len(), 2);
    mover.scale(0);
    mover
        .site
        .until("no machine is needed", |site| site.machines().is_empty());
}

/// It finds the same of the way from cluster-autoscaler, with the file of the recipe; and nodes that its taints keep closed.
#[test]
fn the_way_from_cluster_autoscaler_is_gone_by_the_commands_of_the_page() {
    const TO_GO: &str = "ca-node-2";
    let commands = commands_of(PAGE, "From cluster-autoscaler");
    let [
        install,
        pause,
        get,
        setup,
        reload,
        doctor,
        plan,
        stop,
        taints,
        taint,
        candidate,
        resume,
        status,
        drain,
        annotate,
        scale_down,
    ] = &commands[..]
    else {
        panic!("sixteen commands: {commands:#?}");
    };
    let mut mover = Mover::begin();
    mover.stand("ca-node-1", Vec::new());
    mover.deploy();
    let tainted = [
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
        ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
    ];
    let tainted = tainted.map(|(key, effect)| json!({"key": key, "value": "1", "effect": effect}));
    mover.stand(TO_GO, tainted.to_vec());
    for line in [install, pause, get] {
        mover.type_line(line, &[]);
    }
    // What `setup` leaves, and a person makes of it by the table of the flags.
    assert!(setup.starts_with("pve-autoscaler setup"), "{setup}");
    mover.type_line("pve-autoscaler kubeconfig --kubeconfig admin.conf", &[]);
    let recipe = RECIPES
        .split("\n## ")
        .find(|section| section.starts_with("Moving from cluster-autoscaler"))
        .and_then(|section| section.split("```toml\n").nth(1)?.split("```").next());
    std::fs::write(mover.site.path("made.toml"), recipe.expect("a file")).expect("written");
    let changes = [
        ("vmid = 8000", "vmid = 9000"),
        ("min = 1\n", "min = 0\n"),
        ("unneeded_time = \"5m\"", "unneeded_time = \"2s\""),
        ("delay_after_add = \"5m\"", "delay_after_add = \"1s\""),
        ("cores = 4", "cores = 2"),
        ("memory = \"8GiB\"", "memory = \"4GiB\""),
    ];
    mover.site.fit_file("made.toml", "\"9000-9099\"", &changes);
    mover.site.install_file("made.toml");
    for line in [reload, doctor] {
        mover.type_line(line, &[]);
    }
    mover.scale(2);
    mover.type_until(plan, "default/web-");
    mover.makes_nothing();

    mover.type_line(stop, &[]);
    assert!(mover.stopped.contains("cluster-autoscaler"));
    let told = mover.type_line(taints, &[]);
    assert!(told.contains("ToBeDeletedByClusterAutoscaler"), "{told}");
    mover.type_line(taint, &[("NODE", TO_GO)]);
    mover.type_line(candidate, &[("NODE", TO_GO)]);
    mover.site.until("its room is used", |site| site.runs(2));
    mover.makes_nothing();

    mover.type_line(resume, &[]);
    mover.type_until(status, ": leader; ");
    mover.makes_nothing();
    mover.scale(3);
    mover.site.until("all pods run", |site| site.runs(3));
    let made = mover.site.machines();
    assert!(made.len() == 1 && made.keys().all(|name| name.starts_with("workers-")));
    assert!(mover.is_left_alone("ca-node-1") && mover.is_left_alone(TO_GO));

    mover.type_line(drain, &[("NODE", TO_GO)]);
    mover.site.until("its pod runs elsewhere", |site| {
        let nodes = site.nodes_of_pods();
        nodes.is_some_and(|nodes| nodes.len() == 3 && !nodes.iter().any(|node| node == TO_GO))
    });
    mover.type_line(annotate, &[]);
    mover.type_line(scale_down, &[("NODE", TO_GO)]);
    assert_eq!(mover.site.machines().len(), 2);
    assert!(mover.is_left_alone("ca-node-1"));

    // Back again: what was made stays, with its pods.
    let back = "systemctl disable --now pve-autoscaler";
    assert!(PAGE.contains(back));
    mover.type_line(back, &[]);
    assert_eq!(mover.site.machines().len(), 2);
    assert!(mover.site.runs(3));
}
