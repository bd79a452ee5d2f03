use super::*;
use crate::pve::transport::memory::Memory;
use crate::sim::guests::GuestSpec;
use crate::sim::kube::KubeSpec;
use crate::sim::pve::{AdminAct, MachineSpec, PveSpec};
use crate::sim::world::{World, WorldSpec};

const CONFIG: &str =
    "version = 1\n[kubernetes]\nname = \"test\"\n[proxmox]\nvmids = \"9100-9120\"\n";

fn stranger(description: &str) -> AdminAct {
    AdminAct::AddMachine(MachineSpec {
        vmid: 9100,
        host: "pve1".to_owned(),
        container: false,
        template: false,
        running: true,
        storage: "shared".to_owned(),
        disk: 1 << 30,
        disk_used: 1 << 20,
        cloudinit: false,
        pool: None,
        config: [("description".to_owned(), description.to_owned())].into(),
    })
}

#[test]
fn what_is_doubted_is_read_with_the_next_poll() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let world = World::new(WorldSpec {
            seed: 1,
            pve: PveSpec::default(),
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: CONFIG.to_owned(),
        });
        let world = world.unwrap_or_else(|errors| panic!("{errors}"));
        world.pve.administer(&stranger("mine")).expect("added");
        let region: RegionName = "default".into();
        let client = Client::new(Arc::new(Memory::new(world.pve_way())));
        let doubts = Doubts::default();
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new(region.clone(), client, world.clock, settings)
            .with_doubts(doubts.clone());
        let mut owner = async || {
            let observed = watcher.poll().await.expect("it is read");
            observed.region.vms[&9100].ownership.clone()
        };
        assert_eq!(owner().await, Some(Ownership::Unmarked));
        let edit = AdminAct::Configure {
            vmid: 9100,
            key: "description".to_owned(),
            value: Some("pve-autoscaler:v9 x".to_owned()),
        };
        world.pve.administer(&edit).expect("edited");
        assert_eq!(owner().await, Some(Ownership::Unmarked), "nobody looked");
        doubts.add(&"elsewhere".into(), 9100);
        assert_eq!(owner().await, Some(Ownership::Unmarked), "another region's");
        doubts.add(&region, 9100);
        let seen = owner().await;
        assert_eq!(seen, Some(Ownership::UnknownVersion("v9".into())));
        assert!(doubts.of(&region).is_empty());
    });
}
