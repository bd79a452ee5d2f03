//! Resource pools: who may move a VM, and what PVE says where not (pve-manager's `PVE/API2/Pool.pm`).

use http::Method;

use super::super::{AclSpec, AdminAct, PveSpec, PveUserSpec, TEMPLATE, TokenSpec};
use super::{Bench, send};

const TOKEN: [(&str, &str); 1] = [("authorization", "PVEAPIToken=mover@pve!one=secret")];

/// The router is in pool `k8s`; a token has rights on pools and guests.
fn spec(acl: &[(&str, &[&str])]) -> PveSpec {
    let acl = acl.iter().map(|(path, privileges)| AclSpec {
        path: (*path).to_owned(),
        privileges: privileges.iter().map(|one| (*one).to_owned()).collect(),
    });
    let mut spec = PveSpec {
        pools: vec!["k8s".to_owned(), "more".to_owned()],
        ..PveSpec::default()
    };
    spec.tokens.push(TokenSpec {
        id: "mover@pve!one".to_owned(),
        secret: "secret".to_owned(),
        privsep: true,
        acl: acl.collect(),
    });
    let router = spec.machines.iter_mut().find(|one| one.vmid == 100);
    router.expect("there").pool = Some("k8s".to_owned());
    spec
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_in_one_pool_and_moves_when_asked_to() {
    let bench = Bench::with(spec(&[]));
    let put = async |form: &'static str| bench.call(Method::PUT, "/pools", form).await;
    put("poolid=nope&vms=100")
        .await
        .refused(500, "update pools failed: pool 'nope' does not exist");
    put("poolid=k8s&vms=100&allow-move=1")
        .await
        .refused(500, "update pools failed: VM 100 is already a pool member");
    put("poolid=more&vms=100").await.refused(
        500,
        "update pools failed: VM 100 belongs already to pool 'k8s' and 'allow-move' is not set",
    );
    assert_eq!(put("poolid=more&vms=100&allow-move=1").await.status, 200);
    assert_eq!(
        bench.pve.vm(100).expect("there").pool.as_deref(),
        Some("more")
    );
    assert_eq!(put("poolid=more&vms=100&delete=1").await.status, 200);
    assert_eq!(bench.pve.vm(100).expect("there").pool, None);
    put("poolid=more&vms=7")
        .await
        .refused(400, "Parameter verification failed.");
    bench
        .pve
        .administer(&AdminAct::Quorum(false))
        .expect("done");
    put("poolid=more&vms=100").await.refused(
        500,
        "update pools failed: cfs-lock 'file-user_cfg' error: no quorum!",
    );
}

/// Rights on the new pool are asked for before the call, on the VM and its old pool within it.
#[tokio::test(start_paused = true)]
async fn a_token_needs_rights_on_both_pools_and_the_vm() {
    let form = "poolid=more&vms=100&allow-move=1";
    let more: (&str, &[&str]) = ("/pool/more", &["Pool.Allocate"]);
    let vm: (&str, &[&str]) = ("/vms/100", &["VM.Allocate"]);
    let old: (&str, &[&str]) = ("/pool/k8s", &["Pool.Allocate"]);
    for (acl, refused) in [
        (
            vec![],
            Some((403, "Permission check failed (/pool/more, Pool.Allocate)")),
        ),
        (
            vec![more],
            Some((
                500,
                "update pools failed: 403 Permission check failed (/vms/100, Permissions.Modify|VM.Allocate)",
            )),
        ),
        (
            vec![more, vm],
            Some((
                500,
                "update pools failed: 403 Permission check failed (/pool/k8s, Pool.Allocate)",
            )),
        ),
        (vec![more, vm, old], None),
    ] {
        let bench = Bench::with(spec(&acl));
        let answer = send(&bench.pve.router(), Method::PUT, "/pools", form, &TOKEN).await;
        match refused {
            Some((status, words)) => answer.refused(status, words),
            None => assert_eq!(answer.status, 200, "{acl:?}"),
        }
    }
}

/// Who may see a VM and not its pool is not told that it is in one.
#[tokio::test(start_paused = true)]
async fn a_pool_that_may_not_be_audited_does_not_show() {
    for (acl, shown) in [
        (vec![("/vms", &["VM.Audit"][..])], None),
        (
            vec![("/vms", &["VM.Audit"][..]), ("/pool/k8s", &["Pool.Audit"])],
            Some("k8s"),
        ),
    ] {
        let bench = Bench::with(spec(&acl));
        let router = bench.pve.router();
        let path = "/cluster/resources";
        let answer = send(&router, Method::GET, path, "type=vm", &TOKEN).await;
        let rows = answer.data().as_array().expect("rows");
        let row = rows.iter().find(|row| row["vmid"] == 100).expect("seen");
        assert_eq!(row["pool"].as_str(), shown);
    }
}

/// A destroyed VM leaves no pool and no right to the next VM of its VMID; rights on a VMID beside it stay (`remove_vm_access`).
#[tokio::test(start_paused = true)]
async fn a_destroyed_vm_leaves_no_rights_behind() {
    let clone: &[&str] = &["VM.Audit", "VM.Clone"];
    let mut spec = spec(&[("/vms/500", clone), ("/vms/5001", clone)]);
    spec.users.push(PveUserSpec {
        name: "helper@pve".to_owned(),
        password: "simulated".to_owned(),
        acl: vec![AclSpec {
            path: "/vms/5001".to_owned(),
            privileges: vec!["VM.Audit".to_owned()],
        }],
    });
    let bench = Bench::with(spec);
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    let held = async |vmid: u32| {
        let form = format!("path=/vms/{vmid}");
        let router = bench.pve.router();
        let answer = send(&router, Method::GET, "/access/permissions", &form, &TOKEN).await;
        let rights = answer.data()[format!("/vms/{vmid}")].clone();
        rights.as_object().map_or(0, serde_json::Map::len)
    };
    let form = "newid=5001&pool=k8s";
    assert_eq!(bench.task(Method::POST, &path, form).await, "OK");
    assert_eq!((held(500).await, held(5001).await), (2, 2));
    let helper = bench.pve.router_as("helper@pve");
    let config = "/nodes/pve1/qemu/5001/config";
    let seen = send(&helper, Method::GET, config, "", &[]).await;
    assert_eq!(seen.status, 200, "{seen:?}");

    let unprotected = bench.call(Method::PUT, config, "protection=0").await;
    assert_eq!(unprotected.status, 200, "{unprotected:?}");
    let gone = "/nodes/pve1/qemu/5001";
    assert_eq!(bench.task(Method::DELETE, gone, "").await, "OK");
    assert_eq!(bench.task(Method::POST, &path, "newid=5001").await, "OK");
    assert_eq!((held(500).await, held(5001).await), (2, 0));
    let vm = bench.pve.vm(5001).expect("there");
    assert_eq!(vm.pool, None);
    send(&helper, Method::GET, config, "", &[])
        .await
        .refused(403, "Permission check failed (/vms/5001, VM.Audit)");
}
