//! Each privilege of the table in docs/operations.md, taken from a token of the simulated PVE.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;

use crate::cli::doctor::Here;
use crate::cli::doctor::addresses::ClusterAddresses;
use crate::cli::doctor::finding::{Findings, Grade};
use crate::cli::doctor::region::{ReachedRegion, SeenRegion, read};
use crate::cli::doctor::rights::look;
use crate::clock::Clock;
use crate::config::parse;
use crate::model::time::Time;
use crate::pve::transport::memory::RouterTransport;
use crate::pve::{Client, PveVersion};
use crate::sim::guests::none::NoGuests;
use crate::sim::pve::{AclSpec, Pve, PveSpec, Timings, TokenSpec};

const EPOCH: Time = Time(1_795_000_000_000);
/// The page that tells an administrator which privileges to give.
const PAGE: &str = include_str!("../../../../docs/operations.md");
const SECRET: &str = "secret";

/// Machines of a template in no resource pool, with a PCI device; of one with all that a template can have; and without a template.
const FILE: &str = r#"
version = 1
[proxmox]
channel = "token"
endpoints = ["https://192.0.2.1:8006"]
token_id = "scaler@pve!sim"
token_secret_file = "/nowhere/secret"
ca_file = "/nowhere/ca.pem"
vmids = "9100-9120"
[template.plain]
vm_name = "debian-13-k8s"
[template.more]
vm_name = "debian-13-k8s-local"
resource_pool = "k8s"
bridge = "vmbr9"
vlan = 20
[template.more.options]
keyboard = "de"
rng0 = "source=/dev/hwrng"
usb0 = "mapping=key"
virtiofs0 = "dirid=data"
vmstatestorage = "state"
[template.more.startup]
order = 3
[template.more.cloud_init]
storage = "local"
[template.made]
resource_pool = "made"
bridge = "vmbr0"
[template.made.create]
storage = "local-lvm"
image = "files:import/a.qcow2"
[instance_type.small]
cores = 2
memory = "4GiB"
disk = "20GiB"
[instance_type.cards]
cores = 2
memory = "4GiB"
disk = "20GiB"
pci = ["gpu"]
[pool.plain]
template = "plain"
instance_types = ["cards"]
max = 1
[pool.more]
template = "more"
instance_types = ["small"]
max = 1
[pool.made]
template = "made"
instance_types = ["small"]
max = 1
"#;

/// Privileges that PVE wants of the token on every machine's VM, whether they are given on the VM, its pool or `/vms`.
const ON_EACH_MACHINE: &str = "VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network \
                               VM.Config.Options VM.GuestAgent.Unrestricted";

/// The token's rights for the configuration above: a path of PVE's access control with the privileges needed there. Written by hand, so
/// that a privilege that `needed()` forgets is missed.
fn table() -> Vec<AclSpec> {
    let machines = |more: &str| format!("{ON_EACH_MACHINE} {more}");
    let disks = "Datastore.AllocateSpace Datastore.Audit";
    let rows = [
        ("/", "Sys.Audit Sys.Modify".to_owned()),
        ("/mapping/dir/data", "Mapping.Use".to_owned()),
        ("/mapping/hwrng", "Mapping.Use".to_owned()),
        ("/mapping/pci/gpu", "Mapping.Use".to_owned()),
        ("/mapping/usb/key", "Mapping.Use".to_owned()),
        (
            "/pool/k8s",
            machines("VM.Config.CDROM VM.Config.Cloudinit VM.Config.HWType"),
        ),
        ("/pool/made", machines("VM.Config.CDROM VM.Config.HWType")),
        ("/sdn/zones/localnetwork/vmbr0", "SDN.Use".to_owned()),
        ("/sdn/zones/localnetwork/vmbr9/20", "SDN.Use".to_owned()),
        ("/storage/files", "Datastore.Audit".to_owned()),
        (
            "/storage/local",
            "Datastore.Allocate Datastore.AllocateTemplate Datastore.Audit".to_owned(),
        ),
        ("/storage/local-lvm", disks.to_owned()),
        ("/storage/shared", disks.to_owned()),
        ("/storage/state", "Datastore.AllocateSpace".to_owned()),
        ("/vms/9000", "VM.Audit VM.Clone".to_owned()),
        ("/vms/9001", "VM.Audit VM.Clone".to_owned()),
        ("/vms/9100", machines("VM.Config.HWType")),
    ];
    let rows = rows.into_iter().map(|(path, privileges)| AclSpec {
        path: path.to_owned(),
        privileges: privileges.split_whitespace().map(str::to_owned).collect(),
    });
    rows.collect()
}

/// A token for each row and privilege, which lacks that one; the first one lacks none. PVE takes what stands deepest.
fn tokens() -> Vec<(Option<(String, String)>, TokenSpec)> {
    let each = table().into_iter().flat_map(|row| {
        let path = row.path;
        let privileges = row.privileges.into_iter();
        privileges.map(move |privilege| Some((path.clone(), privilege)))
    });
    let without = std::iter::once(None).chain(each).enumerate();
    let token = |(at, lacks): (usize, Option<(String, String)>)| {
        let mut acl = table();
        if let Some((path, privilege)) = &lacks {
            let row = acl.iter_mut().find(|row| row.path == *path);
            let row = row.expect("a row of the table");
            row.privileges.retain(|one| one != privilege);
        }
        acl.push(AclSpec {
            path: "/vms".to_owned(),
            privileges: vec!["VM.Audit".to_owned()],
        });
        let token = TokenSpec {
            id: format!("scaler@pve!without-{at}"),
            secret: SECRET.to_owned(),
            privsep: true,
            acl,
        };
        (lacks, token)
    };
    without.map(token).collect()
}

async fn said(region: &SeenRegion) -> Vec<(Grade, String)> {
    let mut findings = Findings::default();
    look(region, &mut findings).await;
    let found = findings.0.into_iter();
    found.map(|one| (one.grade, one.text)).collect()
}

/// The region as root sees it, with a client of whoever looks next.
async fn region_of(pve: &Pve) -> SeenRegion {
    let settings = parse(FILE, "test").unwrap_or_else(|errors| panic!("{errors}"));
    let here = Here {
        settings: Arc::new(settings),
        ..Here::of_test(Path::new("/nowhere"))
    };
    let root = RouterTransport::new(pve.router_as("root@pam"));
    let client = Client::new(Arc::new(root));
    let mut findings = Findings::default();
    let seen = read(&client, "default", &here.settings, &mut findings).await;
    SeenRegion {
        region: ReachedRegion {
            here,
            name: "default".into(),
            client,
            cluster: None,
            kubernetes: None,
            addresses: ClusterAddresses::default(),
        },
        seen: seen.expect("root reads it"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_privilege_of_the_table_is_missed_by_its_name_and_path() {
    let tokens = tokens();
    let spec = PveSpec {
        tokens: tokens.iter().map(|(_, token)| token.clone()).collect(),
        timings: Timings::none(),
        ..PveSpec::default()
    };
    let guests = NoGuests::new(Duration::ZERO, Duration::ZERO);
    let pve = Pve::new(spec, Arc::new(guests), Clock::starting_at(EPOCH), 7);
    let mut region = region_of(&pve).await;
    for (lacks, token) in &tokens {
        let credentials = format!("PVEAPIToken={}={SECRET}", token.id);
        let credentials = HeaderValue::from_str(&credentials).expect("plain letters");
        let transport = RouterTransport::new(pve.router()).with_header(AUTHORIZATION, credentials);
        region.region.client = Client::new(Arc::new(transport));
        let (grade, words) = match lacks {
            Some((path, privilege)) => (Grade::Wrong, format!("lacks {privilege} on {path}")),
            None => {
                let rows = table();
                let paths: Vec<&str> = rows.iter().map(|row| &*row.path).collect();
                let words = format!("has the privileges that it needs on {}", paths.join(", "));
                (Grade::Fine, words)
            }
        };
        let words = format!("region default: the token scaler@pve!sim {words}");
        assert_eq!(said(&region).await, [(grade, words)], "{lacks:?}");
    }

    // The last token lacks VM.Config.HWType on /vms/9100; before PVE 9 the guest agent's privilege was another.
    region.seen.version = PveVersion {
        version: "8.4.14".to_owned(),
        release: "8.4".to_owned(),
    };
    let found = said(&region).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let words = "lacks VM.Monitor on /pool/k8s; VM.Monitor on /pool/made; VM.Config.HWType, VM.Monitor on /vms/9100";
    assert!(found[0].1.ends_with(words), "{found:?}");
}

/// An administrator gives what the page says, and nothing is left to be named.
#[test]
fn the_page_has_each_privilege_that_doctor_asks_for() {
    let (_, section) = PAGE
        .split_once("## Without the broker")
        .expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let all = table().into_iter().flat_map(|row| row.privileges);
    let mut all: BTreeSet<String> = all.collect();
    all.insert("VM.Monitor".to_owned());
    for privilege in all {
        let told = format!("`{privilege}`");
        assert!(rows.iter().any(|row| row.contains(&told)), "{privilege}");
    }
}
