//! Serving certificates of machines' kubelets: what a machine is gets approved, and nothing else.

use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::common::{Scene, simulate};
use crate::joining::{CARDS, internal_addresses, node, two_bridges};
use crate::{HASTY, events};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Machines have addresses out of a range: PVE knows them.
const NETWORK: &str = "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.59\"]\n\
                       gateway = \"192.0.2.1\"\n[instance_type.small]";

fn file(asked: bool) -> String {
    HASTY
        .replace("[instance_type.small]", NETWORK)
        .replace("max = 3", "max = 3\nnetwork = \"lan\"")
        .replace(
            "name = \"test\"\n",
            &format!("name = \"test\"\nserving_certificates = {asked}\n"),
        )
}

/// What a kubelet asks for.
struct Ask<'a> {
    name: &'a str,
    common_name: &'a str,
    organisation: &'a str,
    names: &'a [&'a str],
    usages: &'a [&'a str],
    signer: &'a str,
}

/// Asks as the kubelet of this VM.
async fn ask(scene: &Scene, vmid: u32, ask: &Ask<'_>) {
    let names: Vec<String> = ask.names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, ask.organisation);
    subject.push(DnType::CommonName, ask.common_name);
    params.distinguished_name = subject;
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": ask.name},
        "spec": {
            "request": STANDARD.encode(pem.pem().expect("PEM")),
            "signerName": ask.signer, "usages": ask.usages,
        },
    });
    let bearer = scene.world.guests.bearer_of(vmid).expect("it has joined");
    let request = http::Request::post(PATH)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {bearer}"))
        .body(Body::from(object.to_string()))
        .expect("a request");
    let answer = tower::ServiceExt::oneshot(scene.world.kube.public_router(), request).await;
    let status = answer.expect("an answer").status();
    assert!(status.is_success(), "{}: {status}", ask.name);
}

/// What became of a request: its conditions, and whether it was signed.
async fn became(scene: &Scene, name: &str) -> (Vec<String>, bool) {
    let get = http::Request::get(format!("{PATH}/{name}"));
    let object = crate::call(scene, get, String::new()).await;
    let all = object["status"]["conditions"].as_array();
    let kinds = all.into_iter().flatten();
    let kinds = kinds.filter_map(|one| one["type"].as_str().map(str::to_owned));
    let signed = object["status"]["certificate"].is_string();
    (kinds.collect(), signed)
}

const SERVING: &str = "kubernetes.io/kubelet-serving";
const USAGES: [&str; 2] = ["digital signature", "server auth"];

/// A machine's kubelet asks for its own name and address, and for others. Of a judge that forgets one of these rules the request of that
/// name is approved.
async fn ask_all(scene: &Scene) {
    let node = node(scene);
    let name = node["metadata"]["name"].as_str().expect("a name");
    let own = format!("system:node:{name}");
    let right = Ask {
        name: "right",
        common_name: &own,
        organisation: "system:nodes",
        names: &[name, "192.0.2.50"],
        usages: &USAGES,
        signer: SERVING,
    };
    ask(scene, 9100, &right).await;
    let with = |of: &'static str, names: &'static [&'static str]| Ask {
        name: of,
        names,
        ..right
    };
    for forged in [
        with("another-name", &["kubernetes"]),
        with("another-address", &["192.0.2.51"]),
        with("the-gateway", &["192.0.2.1"]),
        with("loopback", &["127.0.0.1"]),
        with("everybody", &["*"]),
        with("nothing", &[]),
        Ask {
            name: "another-node",
            common_name: "system:node:control-plane",
            ..right
        },
        Ask {
            name: "masters",
            organisation: "system:masters",
            ..right
        },
        Ask {
            name: "client",
            usages: &["digital signature", "server auth", "client auth"],
            ..right
        },
        Ask {
            name: "another-signer",
            signer: "kubernetes.io/kube-apiserver-client",
            ..right
        },
    ] {
        ask(scene, 9100, &forged).await;
    }
}

const FORGED: [&str; 10] = [
    "another-name",
    "another-address",
    "the-gateway",
    "loopback",
    "everybody",
    "nothing",
    "another-node",
    "masters",
    "client",
    "another-signer",
];

/// Lives until a machine's kubelet has asked for everything, and a while longer.
async fn lived(scene: &Scene, look: impl AsyncFn(&Scene)) {
    let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
    let story = async {
        tokio::time::sleep(Duration::from_mins(2)).await;
        look(scene).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.live(None, 0, stays, Duration::from_mins(3)) => {}
        () = story => {}
    }
}

#[test]
fn a_machines_own_name_and_address_are_approved_and_what_is_forged_is_not() {
    simulate(async {
        let scene = Scene::new(5, &file(true), GuestSpec::default());
        lived(&scene, async |scene: &Scene| ask_all(scene).await).await;
        assert_eq!(
            became(&scene, "right").await,
            (vec!["Approved".to_owned()], true)
        );
        for name in FORGED {
            assert_eq!(became(&scene, name).await, (Vec::new(), false), "{name}");
        }
        let told = events(&scene).await.join("\n");
        for why in [
            "another-address for a serving certificate is left alone: it names 192.0.2.51, and its VM has 192.0.2.50",
            "the-gateway for a serving certificate is left alone: it names 192.0.2.1, and it is a gateway",
            "another-name for a serving certificate is left alone: it names \"kubernetes\"",
        ] {
            assert!(told.contains(why), "{why}: {told}");
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A machine with two cards whose kubelet is told the second's address: the node has that one, and a certificate with it is approved, as is
/// one with the addresses of both cards. Whose node it is goes by the UUID, whatever addresses it has.
#[test]
fn the_address_of_a_second_card_is_approved_where_it_is_the_nodes() {
    simulate(async {
        let config = file(true)
            .replace(NETWORK, CARDS)
            .replace(
                "[scale_up]",
                "[pool.general.join]\nkubelet_args = { node-ip = \"{{ nics[1].ips[0] }}\" }\n[scale_up]",
            );
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve: two_bridges(),
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config,
        });
        lived(&scene, async |scene: &Scene| {
            let node = node(scene);
            assert_eq!(internal_addresses(&node), ["198.51.100.20"]);
            let name = node["metadata"]["name"].as_str().expect("a name");
            let own = format!("system:node:{name}");
            let second = Ask {
                name: "second",
                common_name: &own,
                organisation: "system:nodes",
                names: &[name, "198.51.100.20"],
                usages: &USAGES,
                signer: SERVING,
            };
            ask(scene, 9100, &second).await;
            let both = Ask {
                name: "both",
                names: &[name, "192.0.2.50", "198.51.100.20"],
                ..second
            };
            ask(scene, 9100, &both).await;
            let next = Ask {
                name: "next",
                names: &[name, "198.51.100.21"],
                ..second
            };
            ask(scene, 9100, &next).await;
        })
        .await;
        for name in ["second", "both"] {
            let approved = (vec!["Approved".to_owned()], true);
            assert_eq!(became(&scene, name).await, approved, "{name}");
        }
        assert_eq!(became(&scene, "next").await, (Vec::new(), false));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Somebody else's node asks: it is none of our machines, whatever it asks for.
#[test]
fn nodes_that_are_no_machines_are_left_to_others() {
    simulate(async {
        let scene = Scene::new(5, &file(true), GuestSpec::default());
        lived(&scene, async |scene: &Scene| {
            let node = node(scene);
            let name = node["metadata"]["name"].as_str().expect("a name");
            // Its annotation names another VM: it is not to be told whose the node is.
            let path = format!("/api/v1/nodes/{name}");
            let patch =
                http::Request::patch(path).header("content-type", "application/merge-patch+json");
            let other = "default/9119/0b5f3a6e-0000-4000-8000-0123456789ab";
            let change = json!({"metadata": {"annotations": {"pve-autoscaler.io/machine": other}}});
            crate::patch(scene, patch, change.to_string()).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let own = format!("system:node:{name}");
            let right = Ask {
                name: "contradicted",
                common_name: &own,
                organisation: "system:nodes",
                names: &[name, "192.0.2.50"],
                usages: &USAGES,
                signer: SERVING,
            };
            ask(scene, 9100, &right).await;
        })
        .await;
        assert_eq!(became(&scene, "contradicted").await, (Vec::new(), false));
    });
}

#[test]
fn nothing_is_approved_unless_it_is_asked_for() {
    simulate(async {
        let scene = Scene::new(5, &file(false), GuestSpec::default());
        lived(&scene, async |scene: &Scene| ask_all(scene).await).await;
        assert_eq!(became(&scene, "right").await, (Vec::new(), false));
        let requests = scene.world.kube.trace().1.join("\n");
        let asked = requests.matches("certificatesigningrequests?").count();
        assert_eq!(asked, 0, "they are not even read");
    });
}

/// Asks for these names and addresses as the kubelet of the machine at VMID 9100.
async fn ask_for(scene: &Scene, request: &str, names: &[&str]) {
    let node = node(scene);
    let name = node["metadata"]["name"].as_str().expect("a name");
    let own = format!("system:node:{name}");
    let names: Vec<&str> = [name].iter().chain(names).copied().collect();
    let wanted = Ask {
        name: request,
        common_name: &own,
        organisation: "system:nodes",
        names: &names,
        usages: &USAGES,
        signer: SERVING,
    };
    ask(scene, 9100, &wanted).await;
}

/// The machine has its address by DHCP, and gets another one later. The node says so each time, and nobody else knows: neither is
/// approved, and the node's Event says what would help. A request for the name alone is.
#[test]
fn with_dhcp_no_address_is_approved_whatever_the_node_says() {
    let config = HASTY.replace(
        "name = \"test\"\n",
        "name = \"test\"\nserving_certificates = true\n",
    );
    assert_ne!(config, HASTY);
    simulate(async {
        let scene = Scene::new(5, &config, GuestSpec::default());
        lived(&scene, async |scene: &Scene| {
            let node = node(scene);
            let name = node["metadata"]["name"].as_str().expect("a name");
            let address = &node["status"]["addresses"][0]["address"];
            ask_for(scene, "first", &[address.as_str().expect("an address")]).await;
            let change = json!({"status": {"addresses": [
                {"type": "InternalIP", "address": "10.20.99.7"}, {"type": "Hostname", "address": name},
            ]}});
            let path = format!("/api/v1/nodes/{name}/status");
            let patch =
                http::Request::patch(path).header("content-type", "application/merge-patch+json");
            crate::patch(scene, patch, change.to_string()).await;
            ask_for(scene, "changed", &["10.20.99.7"]).await;
            ask_for(scene, "name-alone", &[]).await;
        })
        .await;
        for name in ["first", "changed"] {
            assert_eq!(became(&scene, name).await, (Vec::new(), false), "{name}");
        }
        let approved = (vec!["Approved".to_owned()], true);
        assert_eq!(became(&scene, "name-alone").await, approved);
        let told = events(&scene).await.join("\n");
        for why in [
            "changed for a serving certificate is left alone: it names 10.20.99.7, and no address of its VM is known, as with DHCP",
            "give the pool a network of ranges",
        ] {
            assert!(told.contains(why), "{why}: {told}");
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The machine has an address of each family on its first card and one on a second: a certificate for all of them is approved. One with
/// an address that the second card found by itself besides is not.
#[test]
fn several_addresses_are_approved_when_each_is_the_vms() {
    let nic = "[[template.debian.nic]]\nbridge = \"vmbr0\"\nnetwork = \"storage\"\n\
               [network.storage]\nsubnet = \"203.0.113.0/24\"\nranges = [\"203.0.113.10-203.0.113.19\"]\nipv6 = \"auto\"\n";
    let six = "subnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::50-2001:db8::5f\"]\n";
    let config = file(true).replace("[network.lan]\n", &format!("{nic}[network.lan]\n{six}"));
    simulate(async {
        let scene = Scene::new(5, &config, GuestSpec::default());
        lived(&scene, async |scene: &Scene| {
            let all = ["192.0.2.50", "2001:db8::50", "203.0.113.10"];
            ask_for(scene, "all", &all).await;
            ask_for(scene, "second-card", &["203.0.113.10"]).await;
            let found = ["192.0.2.50", "2001:db8:1::be24:11ff:fe00:1"];
            ask_for(scene, "found-by-itself", &found).await;
        })
        .await;
        let approved = (vec!["Approved".to_owned()], true);
        for name in ["all", "second-card"] {
            assert_eq!(became(&scene, name).await, approved, "{name}");
        }
        let left = became(&scene, "found-by-itself").await;
        assert_eq!(left, (Vec::new(), false));
        let told = events(&scene).await.join("\n");
        assert!(told.contains("is the guest's word alone"), "{told}");
    });
}
