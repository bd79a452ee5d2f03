//! What is read of the wire's objects, by what the filters then say of a pod: each field here changes a verdict.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::opinion;
use super::read::pod_info;
use crate::sim::kube::object::set;

const ZONE: &str = "topology.kubernetes.io/zone";
const DRIVER: &str = "csi.example.com";
const FITS: &str = "";

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn storage(kind: &str, name: &str, spec: &Value) -> Value {
    object("storage.k8s.io/v1", kind, name, spec)
}

/// A roomy node with one label besides its name.
fn node(name: &str, key: &str, value: &str) -> Value {
    let mut node = object("v1", "Node", name, &json!({}));
    node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name, key: value});
    node["status"]["allocatable"] = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    node
}

fn space(name: &str, labels: &Value) -> Value {
    let mut space = object("v1", "Namespace", name, &json!({}));
    space["metadata"]["labels"] = labels.clone();
    space
}

fn pod(space: &str, name: &str, spec: &Value) -> Value {
    let mut pod = object("v1", "Pod", name, spec);
    pod["metadata"]["namespace"] = json!(space);
    set(
        &mut pod,
        &["spec", "containers"],
        json!([{"name": "main", "image": "x"}]),
    );
    pod
}

fn labelled(mut pod: Value, labels: &Value) -> Value {
    pod["metadata"]["labels"] = labels.clone();
    pod
}

/// A pod that runs.
fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

fn user_of(name: &str, claim: &str) -> Value {
    let volumes =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    pod("blue", name, &volumes)
}

fn claim(name: &str, class: &str) -> Value {
    let mut claim = object("v1", "PersistentVolumeClaim", name, &json!({}));
    claim["metadata"]["namespace"] = json!("blue");
    claim["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    claim["spec"] = json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
    });
    claim["status"]["phase"] = json!("Pending");
    claim
}

/// A claim and its volume, which has the same name.
fn bound(name: &str, volume: &Value) -> [Value; 2] {
    let mut claim = claim(name, "wait");
    claim["spec"]["volumeName"] = json!(name);
    claim["status"]["phase"] = json!("Bound");
    let mut volume = object("v1", "PersistentVolume", name, volume);
    volume["status"]["phase"] = json!("Bound");
    [claim, volume]
}

fn csi(handle: &str) -> Value {
    json!({"csi": {"driver": DRIVER, "volumeHandle": handle}})
}

/// What is said of a pod on each node, and at last of all nodes together.
fn asked(objects: &[Value], pod: &Value) -> BTreeMap<String, String> {
    let mut all = vec![
        space("blue", &json!({"team": "blue"})),
        space("green", &json!({"team": "green"})),
    ];
    all.extend(objects.iter().cloned());
    let opinion = opinion(&all, pod, "asked").expect("the pod is taken");
    let nodes = opinion.nodes.into_iter();
    nodes
        .map(|(node, reasons)| (node, reasons.join(", ")))
        .collect()
}

/// What is said of a pod on the node `n`.
fn on_n(objects: &[Value], pod: &Value) -> String {
    let all = [objects, &[node("n", ZONE, "a")]].concat();
    asked(&all, pod)["n"].clone()
}

#[test]
fn attach_limits_count_the_drivers_volumes() {
    let slots = |node: &str, allocatable: Value| {
        let mut driver = json!({"name": DRIVER, "nodeID": node});
        driver["allocatable"] = allocatable;
        storage("CSINode", node, &json!({"drivers": [driver]}))
    };
    let attachment = storage(
        "VolumeAttachment",
        "any",
        &json!({"attacher": DRIVER, "nodeName": "m", "source": {"persistentVolumeName": "third"}}),
    );
    let mut world = vec![
        node("n", ZONE, "a"),
        node("m", ZONE, "a"),
        node("o", ZONE, "a"),
        slots("n", json!({"count": 1})),
        slots("m", json!({"count": 1})),
        slots("o", Value::Null),
        attachment,
        on("n", user_of("runs", "first")),
        on("o", user_of("runs-too", "first")),
    ];
    for (name, handle) in [("first", "one"), ("second", "one"), ("third", "three")] {
        world.extend(bound(name, &csi(handle)));
    }
    let full = "node(s) exceed max volume count";
    let said = |claim: &str| asked(&world, &user_of("p", claim)).into_values().collect();
    // `m`, `n`, `o`: one handle is one volume, and what is attached takes a slot.
    assert_eq!(
        said("second"),
        [full, FITS, FITS].map(str::to_owned).to_vec()
    );
    let third: Vec<String> = said("third");
    // Attached already, but not by a pod there: kube-scheduler counts it once more.
    assert_eq!(third, [full, full, FITS]);
}

#[test]
fn a_claim_for_one_pod_alone_has_one_user_on_all_nodes() {
    let world = |mode: &str, space: &str| {
        let mut runs = on("m", user_of("runs", "data"));
        runs["metadata"]["namespace"] = json!(space);
        let mut all = bound("data", &csi("data")).to_vec();
        all[0]["spec"]["accessModes"] = json!([mode]);
        all.extend([runs, node("m", ZONE, "a")]);
        all
    };
    let said = |mode: &str, space: &str| on_n(&world(mode, space), &user_of("p", "data"));
    assert_eq!(
        said("ReadWriteOncePod", "blue"),
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    );
    assert_eq!(said("ReadWriteOncePod", "green"), FITS);
    assert_eq!(said("ReadWriteOnce", "blue"), FITS);
}

#[test]
fn zones_of_volumes_stand_in_their_labels() {
    let old = "failure-domain.beta.kubernetes.io/zone";
    let region = "topology.kubernetes.io/region";
    let elsewhere = "node(s) had no available volume zone";
    for (key, value, wanted) in [
        (ZONE, "a", FITS),
        (ZONE, "b", elsewhere),
        (ZONE, "b__a", FITS),
        (ZONE, "b__ a ", FITS),
        (ZONE, "b__c", elsewhere),
        // An empty part makes it no label of a zone.
        (ZONE, "b__", FITS),
        (old, "a", FITS),
        (old, "b", elsewhere),
        (region, "a", elsewhere),
        ("topology.example.com/zone", "b", FITS),
    ] {
        let mut world = bound("data", &csi("data"));
        world[1]["metadata"]["labels"] = json!({key: value});
        let said = on_n(&world, &user_of("p", "data"));
        assert_eq!(said, wanted, "{key}={value}");
        let mut all = world.to_vec();
        all.push(node("bare", "disk", "ssd"));
        assert_eq!(asked(&all, &user_of("p", "data"))["bare"], FITS);
    }
}

#[test]
fn terms_mean_pods_of_the_namespaces_that_they_name() {
    let averse = "node(s) didn't satisfy existing pods anti-affinity rules";
    for (more, wanted) in [
        (json!({}), FITS),
        (json!({"namespaceSelector": null}), FITS),
        (json!({"namespaces": ["green"]}), averse),
        (json!({"namespaces": ["blue"]}), FITS),
        (json!({"namespaceSelector": {}}), averse),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "green"}}}),
            averse,
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}),
            FITS,
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "NotIn", "values": ["blue"]}]}}),
            averse,
        ),
    ] {
        let mut term = json!({"topologyKey": ZONE, "labelSelector": {}});
        for (key, value) in more.as_object().expect("a map") {
            term[key] = value.clone();
        }
        let spec = json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let runs = on("n", pod("blue", "runs", &spec));
        assert_eq!(
            on_n(&[runs], &pod("green", "p", &json!({}))),
            wanted,
            "{more}"
        );
    }
}

#[test]
fn label_keys_ask_for_the_pods_own_values() {
    let with = |kind: &str, field: &str| {
        let mut term =
            json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}});
        term[field] = json!(["rev", "unknown"]);
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let own = pod("blue", "p", &json!({"affinity": {kind: terms}}));
        labelled(own, &json!({"app": "web", "rev": "2"}))
    };
    let company = |revision: &str| {
        let runs = on("n", pod("blue", "runs", &json!({})));
        [labelled(runs, &json!({"app": "web", "rev": revision}))]
    };
    let alone = "node(s) didn't match pod anti-affinity rules";
    for (kind, field, revision, wanted) in [
        ("podAntiAffinity", "matchLabelKeys", "2", alone),
        ("podAntiAffinity", "matchLabelKeys", "1", FITS),
        ("podAntiAffinity", "mismatchLabelKeys", "2", FITS),
        ("podAntiAffinity", "mismatchLabelKeys", "1", alone),
        ("podAffinity", "matchLabelKeys", "2", FITS),
    ] {
        let said = on_n(&company(revision), &with(kind, field));
        assert_eq!(said, wanted, "{kind} {field} beside {revision}");
    }
    let constraint = json!({
        "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev"],
    });
    let spec = json!({"topologySpreadConstraints": [constraint]});
    let spread = labelled(pod("blue", "p", &spec), &json!({"app": "web", "rev": "2"}));
    for (revision, wanted) in [
        ("1", FITS),
        ("2", "node(s) didn't match pod topology spread constraints"),
    ] {
        let all = [&company(revision)[..], &[node("m", ZONE, "a")]].concat();
        assert_eq!(on_n(&all, &spread), wanted, "spread beside {revision}");
    }
    // Servers before 1.34 leave them beside the selector of a spread constraint.
    let read = pod_info(&spread);
    assert_eq!(*read.shape.spread[0].match_label_keys[0], *"rev");
}

#[test]
fn volumes_are_made_where_class_and_driver_allow_it() {
    let class = |provisioner: &str, mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"},
            "provisioner": provisioner, "volumeBindingMode": mode,
        })
    };
    let none = "node(s) didn't find available persistent volumes to bind";
    let wait = "WaitForFirstConsumer";
    let said = |class: &Value, more: &[Value]| {
        let all = [&[class.clone(), claim("data", "c")], more].concat();
        on_n(&all, &user_of("p", "data"))
    };
    assert_eq!(said(&class(DRIVER, wait), &[]), FITS);
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    assert_eq!(said(&class(DRIVER, "Immediate"), &[]), unbound);
    assert_eq!(
        said(&class("kubernetes.io/no-provisioner", wait), &[]),
        none
    );
    for (zones, wanted) in [(json!(["a"]), FITS), (json!(["b", "c"]), none)] {
        let mut zoned = class(DRIVER, wait);
        zoned["allowedTopologies"] =
            json!([{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]);
        assert_eq!(said(&zoned, &[]), wanted, "{zones}");
    }
    let full = "node(s) did not have enough free storage";
    let counted = storage("CSIDriver", DRIVER, &json!({"storageCapacity": true}));
    for (zone, class_named, amounts, wanted) in [
        ("a", "c", json!({"capacity": "2Gi"}), FITS),
        ("a", "c", json!({"capacity": "1Gi"}), full),
        (
            "a",
            "c",
            json!({"capacity": "9Gi", "maximumVolumeSize": "1Gi"}),
            full,
        ),
        ("a", "other", json!({"capacity": "2Gi"}), full),
        ("b", "c", json!({"capacity": "2Gi"}), full),
        ("a", "c", json!({}), full),
    ] {
        let mut free = storage("CSIStorageCapacity", "f", &Value::Null);
        free["storageClassName"] = json!(class_named);
        free["nodeTopology"] = json!({"matchLabels": {ZONE: zone}});
        for (key, amount) in amounts.as_object().expect("a map") {
            free[key] = amount.clone();
        }
        let told = said(&class(DRIVER, wait), &[counted.clone(), free]);
        assert_eq!(told, wanted, "{zone} {class_named} {amounts}");
    }
    let mut told = claim("data", "c");
    told["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "m"});
    let all = [class(DRIVER, wait), told];
    assert_eq!(on_n(&all, &user_of("p", "data")), none);
}

#[test]
fn a_claim_takes_a_volume_that_is_like_it() {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fixed"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let terms = |zone: &str| {
        json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}})
    };
    let kept = |name: &str, uid: &str| json!({"namespace": "blue", "name": name, "uid": uid});
    let text = |text: &str| json!(text);
    for (path, value, fits) in [
        ("volume spec note", Value::Null, true),
        ("volume spec nodeAffinity", terms("a"), true),
        ("volume spec nodeAffinity", terms("b"), false),
        ("volume spec storageClassName", text("other"), false),
        ("volume spec accessModes", json!(["ReadOnlyMany"]), false),
        ("volume spec volumeMode", text("Block"), false),
        ("volume spec volumeAttributesClassName", text("fast"), false),
        ("volume spec capacity", json!({"storage": "2047Mi"}), false),
        ("volume spec claimRef", kept("data", ""), true),
        ("volume spec claimRef", kept("data", "uid-of-data"), true),
        ("volume spec claimRef", kept("data", "earlier"), false),
        ("volume spec claimRef", kept("other", ""), false),
        ("volume status phase", text("Pending"), false),
        (
            "volume metadata deletionTimestamp",
            text("2026-11-01T00:00:00Z"),
            false,
        ),
        (
            "claim spec selector",
            json!({"matchLabels": {"tier": "gold"}}),
            true,
        ),
        (
            "claim spec selector",
            json!({"matchLabels": {"tier": "lead"}}),
            false,
        ),
        ("claim spec volumeMode", text("Block"), false),
    ] {
        let mut both = json!({"claim": claim("data", "fixed"), "volume": {
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "v", "labels": {"tier": "gold"}},
            "spec": {
                "storageClassName": "fixed", "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "capacity": {"storage": "2Gi"}, "nfs": {"server": "s", "path": "/"},
            },
            "status": {"phase": "Available"},
        }});
        let keys: Vec<&str> = path.split(' ').collect();
        set(&mut both, &keys, value.clone());
        let all = [class.clone(), both["claim"].clone(), both["volume"].clone()];
        let said = on_n(&all, &user_of("p", "data"));
        let none = "node(s) didn't find available persistent volumes to bind";
        assert_eq!(said, if fits { FITS } else { none }, "{path} {value}");
    }
}

#[test]
fn claims_that_cannot_be_used_are_said_of_all_nodes() {
    let ephemeral = pod(
        "blue",
        "p",
        &json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}),
    );
    let usual = user_of("p", "data");
    let mut not_its_own = bound("p-scratch", &csi("data")).to_vec();
    not_its_own[0]["metadata"]["ownerReferences"] =
        json!([{"kind": "Pod", "name": "p", "uid": "of-another-life", "controller": true}]);
    let with = |path: [&str; 2], value: Value| {
        let mut both = bound("data", &csi("data")).to_vec();
        set(&mut both[0], &path, value);
        both
    };
    let volumeless = bound("data", &csi("data"))[..1].to_vec();
    let deleted = with(
        ["metadata", "deletionTimestamp"],
        json!("2026-11-01T00:00:00Z"),
    );
    for (pod, objects, wanted) in [
        (
            &usual,
            Vec::new(),
            "persistentvolumeclaim \"data\" not found",
        ),
        (&usual, volumeless, "persistentvolume \"data\" not found"),
        (
            &usual,
            deleted,
            "persistentvolumeclaim \"data\" is being deleted",
        ),
        (
            &usual,
            with(["status", "phase"], json!("Lost")),
            "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"data\"",
        ),
        (
            &usual,
            with(["status", "phase"], json!("Pending")),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            &ephemeral,
            Vec::new(),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\"",
        ),
        (
            &ephemeral,
            not_its_own,
            "PVC blue/p-scratch was not created for pod blue/p (pod is not owner)",
        ),
    ] {
        let mut all = objects;
        all.extend([
            space("blue", &json!({})),
            node("n", ZONE, "a"),
            node("m", ZONE, "b"),
        ]);
        let opinion = opinion(&all, pod, "asked").expect("the pod is taken");
        assert_eq!(opinion.said, format!("0/2 nodes are available: {wanted}."));
    }
}

#[test]
fn disks_are_for_one_writer_on_a_node() {
    let monitors = |names: &[&str]| json!({"monitors": names, "image": "i"});
    let reads = |mut disk: Value| {
        disk["readOnly"] = json!(true);
        disk
    };
    let gce = json!({"pdName": "d"});
    let ebs = json!({"volumeID": "d"});
    let iscsi = json!({"iqn": "d", "targetPortal": "t", "lun": 0});
    let busy = "node(s) had no available disk";
    for (kind, one, other, wanted) in [
        ("gcePersistentDisk", gce.clone(), gce.clone(), busy),
        ("gcePersistentDisk", reads(gce.clone()), gce.clone(), busy),
        (
            "gcePersistentDisk",
            reads(gce.clone()),
            reads(gce.clone()),
            FITS,
        ),
        ("gcePersistentDisk", json!({"pdName": "e"}), gce, FITS),
        ("awsElasticBlockStore", reads(ebs.clone()), reads(ebs), busy),
        ("iscsi", reads(iscsi.clone()), iscsi.clone(), busy),
        ("iscsi", reads(iscsi.clone()), reads(iscsi), FITS),
        ("rbd", monitors(&["a", "b"]), monitors(&["b", "c"]), busy),
        ("rbd", monitors(&["a"]), monitors(&["b"]), FITS),
    ] {
        let with = |name: &str, disk: &Value| {
            pod(
                "blue",
                name,
                &json!({"volumes": [{"name": "d", kind: disk}]}),
            )
        };
        let said = on_n(&[on("n", with("runs", &one))], &with("p", &other));
        assert_eq!(said, wanted, "{kind}: {one} beside {other}");
    }
}

#[test]
fn a_runtime_class_says_on_which_nodes_it_is() {
    let mut class = object("node.k8s.io/v1", "RuntimeClass", "r", &Value::Null);
    class["overhead"] = json!({"podFixed": {"cpu": "5"}});
    class["scheduling"] = json!({
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
    });
    let mut tainted = node("m", "disk", "ssd");
    tainted["spec"]["taints"] = json!([{"key": "only", "effect": "NoSchedule"}]);
    let said = asked(
        &[class, tainted, node("n", ZONE, "a")],
        &pod("blue", "p", &json!({"runtimeClassName": "r"})),
    );
    assert_eq!(said["m"], "Insufficient cpu");
    assert_eq!(
        said["n"],
        "node(s) didn't match Pod's node affinity/selector"
    );
}
