//! The real daemon in a simulated world, in this process and in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{GIB, PveSpec};
use pve_autoscaler::sim::world::{World, WorldSpec};

/// Runs on a paused clock of its own: virtual time.
pub(crate) fn simulate<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// A world, and where its daemon keeps its state.
pub(crate) struct Scene {
    pub(crate) world: World,
    state: tempfile::TempDir,
}

impl Scene {
    /// A new world.
    pub(crate) fn new(seed: u64, config: &str, pve: PveSpec, guests: GuestSpec) -> Scene {
        let world = World::new(WorldSpec {
            seed,
            pve,
            kube: KubeSpec::default(),
            guests,
            config: config.to_owned(),
        });
        let world = world.unwrap_or_else(|errors| panic!("{errors}"));
        // On a tmpfs where there is one: the disk is not what is measured.
        let shared_memory = std::path::Path::new("/dev/shm");
        let state = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        };
        Scene {
            world,
            state: state.expect("a directory"),
        }
    }

    /// Runs the daemon while `story` is told; gives what it tells.
    pub(crate) async fn live<T>(&self, story: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            ended = self.world.daemon(self.state.path(), None, 0) => {
                panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
            }
            told = story => told,
        }
    }

    /// Waits until `done`, looking every second of virtual time.
    ///
    /// # Panics
    /// When it is not done within `limit`.
    pub(crate) async fn until(&self, what: &str, limit: Duration, done: impl Fn(&World) -> bool) {
        let waiting = async {
            while !done(&self.world) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let waited = tokio::time::timeout(limit, waiting).await;
        assert!(waited.is_ok(), "{what}: not within {} s", limit.as_secs());
    }

    /// How many nodes of ours are Ready and in service.
    pub(crate) fn nodes_in_service(&self) -> usize {
        self.world
            .kube
            .objects("v1", "Node")
            .iter()
            .filter(|node| !node["metadata"]["labels"]["pve-autoscaler.io/pool"].is_null())
            .filter(|node| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty))
            .filter(|node| {
                node["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|is| is["type"] == "Ready" && is["status"] == "True")
            })
            .count()
    }
}

/// Hosts with room for a few hundred machines.
pub(crate) fn roomy() -> PveSpec {
    let mut pve = PveSpec::default();
    for host in &mut pve.hosts {
        host.memory = 2_048 * GIB;
        host.cpus = 256;
    }
    pve
}

/// Calls by what they are: method and path, names and numbers of single things left out.
pub(crate) fn calls_by_kind(seen: &[pve_autoscaler::sim::pve::Seen]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for call in seen {
        let parts: Vec<&str> = call
            .path
            .split('/')
            .map(|part| {
                let number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                match part {
                    _ if part.starts_with("UPID:") => "UPID",
                    _ if number => "N",
                    _ => part,
                }
            })
            .collect();
        *kinds
            .entry(format!("{} {}", call.method, parts.join("/")))
            .or_default() += 1;
    }
    kinds
}
