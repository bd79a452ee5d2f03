//! PCI devices of machines: those of their instance type, and what is told of others'.

use serde_json::{Value, json};

use super::rig::{rig, rig_with};
use super::world::{HOST, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::model::mark::Mark;
use crate::model::pci::PciDevice;

/// Machines of the type get two devices, and a part of a third one.
fn carded() -> BrokerPolicy {
    let mut policy = policy();
    let kind = policy.allow.types.get_mut("s2").expect("there");
    let device = |mapping: &str, pcie| PciDevice {
        mapping: mapping.into(),
        pcie,
        ..PciDevice::default()
    };
    let vgpu = PciDevice {
        mdev: Some("nvidia-63".into()),
        ..device("vgpu", true)
    };
    kind.pci = vec![device("gpu", true), device("sound", false), vgpu];
    let mut other = kind.clone();
    other.pci = vec![device("net", false)];
    policy.allow.types.insert("other".to_owned(), other);
    policy
}

fn told(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

#[tokio::test]
async fn a_machine_gets_the_devices_of_its_type_each_at_its_place_and_no_other() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (name, value, passes) in [
        ("hostpci0", "mapping=gpu,pcie=1", true),
        ("hostpci1", "mapping=sound", true),
        ("hostpci0", "mapping=gpu", false),
        ("hostpci0", "mapping=sound", false),
        ("hostpci1", "mapping=gpu,pcie=1", false),
        ("hostpci2", "mapping=gpu,pcie=1", false),
        ("hostpci2", "mapping=vgpu,mdev=nvidia-63,pcie=1", true),
        ("hostpci2", "mapping=vgpu,mdev=nvidia-64,pcie=1", false),
        ("hostpci2", "mapping=vgpu,pcie=1", false),
        ("hostpci2", "mapping=gpu,mdev=nvidia-63,pcie=1", false),
        ("hostpci0", "mapping=gpu,mdev=nvidia-63,pcie=1", false),
        ("hostpci2", "0000:03:00.4,mdev=nvidia-63", false),
        ("hostpci0", "mapping=net", false),
        ("hostpci0", "0000:01:00.0", false),
        ("hostpci0", "host=0000:01:00.0,mapping=gpu,pcie=1", false),
        ("hostpci0", "mapping=gpu,pcie=1,romfile=x", false),
        ("hostpci16", "mapping=gpu,pcie=1", false),
        ("delete", "hostpci2", true),
        ("delete", "hostpci2,hostpci15,vcpus", true),
        ("delete", "hostpci16", false),
        ("delete", "hostpci01", false),
    ] {
        let rig = rig_with(carded());
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name}={value}"));
        }
    }
    // Another type's are not this machine's; where types have none nobody gets one.
    let other = Mark {
        instance_type: "other".into(),
        ..mark(9001)
    };
    let rig = rig_with(carded());
    rig.world.put(9001, &other.line());
    let params = [("hostpci0", "mapping=gpu,pcie=1")];
    let reply = rig.send("PUT", &path, &params).await;
    rig.refused(&reply, "instance type other has mapping=net");
    let none = super::rig::rig();
    let reply = none.send("PUT", &path, &params).await;
    none.refused(&reply, "no type has a device");
}

#[tokio::test]
async fn which_devices_guests_have_is_told_where_machines_get_some() {
    let guest = "/nodes/pve1/qemu/300/config";
    for (rig, tells) in [(rig_with(carded()), true), (rig(), false)] {
        for (key, value) in [
            ("hostpci0", "0000:01:00,pcie=1,romfile=secret.rom"),
            ("hostpci1", "mdev=nvidia-35,mapping=net"),
            ("hostpcix", "0000:02:00"),
        ] {
            rig.world.set(300, key, json!(value));
        }
        let reply = rig.send("GET", guest, &[]).await;
        let data = &told(&reply.body)["data"];
        if tells {
            assert_eq!(data["hostpci0"], "host=0000:01:00");
            assert_eq!(data["hostpci1"], "mapping=net,mdev=nvidia-35");
        } else {
            assert_eq!(data["hostpci0"], json!(null));
        }
        assert_eq!(data["hostpcix"], json!(null));
        let answer = json!({"data": [{
            "id": "gpu", "description": "bought by ann", "digest": "0",
            "mdev": 1, "map": ["id=10de:1b38,node=pve1,path=0000:01:00.0,subsystem-id=10de:11d9"],
        }, {"map": []}]});
        let mappings = "/cluster/mapping/pci";
        rig.world.answer(mappings, 200, &answer);
        let reply = rig.send("GET", mappings, &[]).await;
        let all = json!([{"id": "gpu", "mdev": 1, "map": ["node=pve1,path=0000:01:00.0"]}]);
        let wanted = if tells { all } else { json!([]) };
        assert_eq!(told(&reply.body), json!({ "data": wanted }));
        rig.said("GET", "/cluster/mapping/pci", &[("check-node", "pve1")])
            .await;
        rig.said("GET", "/cluster/mapping/pci/gpu", &[]).await;
        rig.said("PUT", "/cluster/mapping/pci/gpu", &[("map", "x")])
            .await;
    }
}

/// What a host has left is told of mappings of which machines get mediated devices, and of the types that they get.
#[tokio::test]
async fn what_is_left_of_mediated_devices_is_told_where_machines_get_some() {
    let left = |mapping: &str| format!("/nodes/{HOST}/hardware/pci/{mapping}/mdev");
    let answer = json!({"data": [
        {"type": "nvidia-63", "available": 3, "name": "GRID T4-1Q", "description": "max_instance=16"},
        {"type": "nvidia-64", "available": 8, "description": ""},
    ]});
    let rig = rig_with(carded());
    rig.world.answer(&left("vgpu"), 200, &answer);
    let reply = rig.send("GET", &left("vgpu"), &[]).await;
    let wanted = json!({"data": [{"type": "nvidia-63", "available": 3}]});
    assert_eq!(told(&reply.body), wanted, "{reply:?}");
    for mapping in [
        "gpu",
        "net",
        "other",
        "0000:01:00.0",
        "0000%3A01%3A00.0",
        "vgpu%2F..",
    ] {
        let reply = rig.send("GET", &left(mapping), &[]).await;
        rig.refused(&reply, mapping);
    }
    let reply = rig.send("GET", &left("vgpu"), &[("verbose", "1")]).await;
    rig.refused(&reply, "no parameter");
    let odd = json!({"data": [{"type": "nvidia-63"}]});
    rig.world.answer(&left("vgpu"), 200, &odd);
    let reply = rig.send("GET", &left("vgpu"), &[]).await;
    assert_ne!(reply.outcome, "done", "{reply:?}");
    let none = super::rig::rig();
    let reply = none.send("GET", &left("vgpu"), &[]).await;
    none.refused(&reply, "no type has a mediated device");
}
