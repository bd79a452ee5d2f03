//! From the admin's rights to the daemon's, against the simulated cluster.

use super::*;
use crate::clock::Clock;
use crate::kubernetes::{Unobserved, in_memory};
use crate::sim::kube::{Kube, KubeSpec};

const EPOCH: Time = Time(1_795_000_000_000);

async fn admin() -> KubeClient {
    let clock = Clock::starting_at(EPOCH);
    let kube = Kube::new(KubeSpec::default(), clock, 5);
    KubeClient::new(in_memory(kube.router()), clock, Arc::new(Unobserved)).await
}

#[tokio::test(start_paused = true)]
async fn the_manifest_is_applied_into_the_wanted_namespace() {
    let admin = admin().await;
    let missing = apply(&admin, "autoscaling")
        .await
        .expect_err("no namespace");
    assert!(missing.to_string().contains("autoscaling"), "{missing}");
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "autoscaling" } });
    let create = KubeRequest::new("create", "namespaces", "", "/api/v1/namespaces".into());
    admin.call(create.json(namespace)).await.expect("made");
    let applied = apply(&admin, "autoscaling").await.expect("it applies");
    assert_eq!(applied.len(), 16, "{applied:?}");
    for expected in [
        "ClusterRole pve-autoscaler",
        "Role kube-system/pve-autoscaler-tokens",
        "RoleBinding autoscaling/pve-autoscaler",
        "Role kube-public/pve-autoscaler",
        "RoleBinding kube-system/pve-autoscaler-doctor",
        "ValidatingAdmissionPolicy pve-autoscaler-tokens",
        "ValidatingAdmissionPolicyBinding pve-autoscaler-nodes",
    ] {
        assert!(
            applied.contains(&expected.to_owned()),
            "{expected}: {applied:?}"
        );
    }
    let again = apply(&admin, "autoscaling").await.expect("and again");
    assert_eq!(again, applied);
}

/// What is printed for a namespace is what is applied in it: whoever deletes what was printed takes all of it away.
#[test]
fn the_printed_manifest_is_the_applied_one() {
    for namespace in ["kube-system", "autoscaling"] {
        let printed: Vec<Value> =
            serde_saphyr::from_multiple(&manifest_in(namespace)).expect("it is YAML");
        let printed: Vec<Value> = printed.into_iter().filter(|one| !one.is_null()).collect();
        let applied = manifest::objects(namespace).expect("objects");
        let applied: Vec<Value> = applied.into_iter().map(|object| object.content).collect();
        assert_eq!(printed, applied);
    }
}

/// A kubeconfig that is tried out and does not work leaves the one there as it is, and nothing beside it.
#[test]
fn credentials_that_are_not_put_in_place_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "old").expect("written");
    let staged = StagedCredentials::write(&path, "new", "nobody-of-that-name").expect("staged");
    let text = std::fs::read_to_string(&staged.temporary).expect("there");
    assert_eq!(text, "new");
    drop(staged);
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "old");
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files(), 1);
    // What a process left that was killed goes with the next one; what is another's stays.
    let left = folder.path().join(format!(".kubeconfig.{}", u32::MAX));
    let other = folder.path().join(".kubeconfig.1");
    for path in [&left, &other] {
        std::fs::write(path, "key").expect("written");
    }
    drop(StagedCredentials::write(&path, "new", "nobody-of-that-name").expect("staged"));
    assert!(!left.exists() && other.exists());
    std::fs::remove_file(&other).expect("removed");
    let staged = StagedCredentials::write(&path, "new", "nobody-of-that-name").expect("staged");
    staged.put_in_place().expect("in place");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
    assert_eq!(files(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_cluster_signs_a_certificate_that_makes_a_kubeconfig() {
    let admin = admin().await;
    let identity = issue(&admin).await.expect("it is signed");
    let read = certificate::read_pem(identity.certificate.as_bytes()).expect("it reads");
    assert_eq!(read[0].common_name, USER);
    assert!(identity.expires > EPOCH);
    let list = KubeRequest::new("list", "certificatesigningrequests", "", REQUESTS.into());
    let left: Value = admin.read(list).await.expect("a list");
    assert_eq!(
        left["items"].as_array().map(Vec::len),
        Some(0),
        "it cleans up"
    );

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    let target = ApiServerTarget {
        server: "https://10.0.0.5:6443".to_owned(),
        ca: Some(identity.certificate.clone().into_bytes()),
    };
    let text = render(&target, &identity);
    write::write_credentials(&path, text.expose_secret(), "no-such-group").expect("it is written");
    let loaded = connect::load(&path, None).await.expect("it loads");
    assert_eq!(loaded.expires, Some(identity.expires));
    assert_eq!(loaded.server, "https://10.0.0.5:6443");
}

#[test]
fn a_file_is_written_whole_and_for_the_group_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, "old").expect("an old file");
    let hint = write::write_credentials(&path, "new", "no-such-group").expect("it is written");
    assert!(hint.is_some(), "the group does not exist");
    assert_eq!(std::fs::read_to_string(&path).expect("it reads"), "new");
    let mode = std::fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let names: Vec<_> = std::fs::read_dir(&directory)
        .expect("a directory")
        .collect();
    assert_eq!(names.len(), 1, "nothing else stays");
    let nowhere = directory.path().join("no/such/place");
    assert!(write::write_credentials(&nowhere, "new", "x").is_err());
}

#[test]
fn a_server_that_only_the_control_plane_reaches_is_not_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("admin");
    let write = |server: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: secret-token}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        std::fs::write(&path, text).expect("written");
    };
    let mut request = KubeconfigRequest {
        admin: path.clone(),
        context: None,
        server: None,
        given_by: "--",
        namespace: "kube-system".to_owned(),
        output: directory.path().join("out"),
        group: "x".to_owned(),
        apply: true,
    };
    for loopback in [
        "https://127.0.0.1:6443",
        "https://localhost:6443",
        "https://[::1]:6443",
    ] {
        write(loopback);
        let error = target(&request).expect_err("loopback").to_string();
        assert!(error.contains("--server"), "{error}");
    }
    request.server = Some("https://10.0.0.5:6443".to_owned());
    assert_eq!(
        target(&request).expect("a server").server,
        "https://10.0.0.5:6443"
    );
    // As people type it.
    for (given, server) in [
        ("10.0.0.5:6443", "https://10.0.0.5:6443"),
        ("k8s.example.org", "https://k8s.example.org"),
        ("[fd00::5]:6443", "https://[fd00::5]:6443"),
    ] {
        request.server = Some(given.to_owned());
        assert_eq!(target(&request).expect("a server").server, server);
    }
    for given in [
        "",
        "https://",
        "fd00::5:6443",
        "10.0.0.5:70000",
        "ftp://10.0.0.5",
        "a b:6443",
    ] {
        request.server = Some(given.to_owned());
        let error = target(&request).expect_err(given).to_string();
        assert!(
            error.contains("--server") && error.contains("expected https://ADDRESS:6443"),
            "{error}"
        );
    }
    request.server = None;
    write("10.0.0.5:6443");
    let error = target(&request).expect_err("no scheme").to_string();
    for part in [
        "context \"c\"",
        "server \"10.0.0.5:6443\"",
        "no scheme",
        path.to_str().expect("text"),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    write("https://k8s.example.org:6443");
    assert_eq!(
        target(&request).expect("a server").server,
        "https://k8s.example.org:6443"
    );
}

/// Of an account without rights alone: an admission policy refuses with the same status, and rights are no help then.
#[tokio::test(start_paused = true)]
async fn an_account_without_rights_is_told_which_has_them() {
    let clock = Clock::starting_at(EPOCH);
    let kube = Kube::new(KubeSpec::default(), clock, 5);
    let nobody = in_memory(kube.public_router());
    let nobody = KubeClient::new(nobody, clock, Arc::new(Unobserved)).await;
    let refused = apply(&nobody, "kube-system").await.expect_err("no rights");
    let said = refused.to_string();
    for words in [
        "was refused with 403",
        "/etc/kubernetes/super-admin.conf",
        "clusterrolebinding kubeadm:cluster-admins --clusterrole=cluster-admin",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let refused = |code: u16, message: &str| KubeError::Refused {
        call: super::super::error::ApiCall {
            verb: "create",
            kind: "secrets",
            name: String::new(),
        },
        code,
        reason: "Forbidden".into(),
        message: message.into(),
        retry_after: None,
    };
    let by_policy = "secrets \"x\" is forbidden: ValidatingAdmissionPolicy 'tokens' denied request";
    for (code, message, advised) in [
        (
            403,
            "nodes is forbidden: User \"a\" cannot list resource \"nodes\"",
            true,
        ),
        (
            403,
            "user not permitted to approve requests with signerName \"s\"",
            true,
        ),
        (
            403,
            "user \"a\" is attempting to grant RBAC permissions not currently held",
            true,
        ),
        (403, by_policy, false),
        (404, "it cannot be found", false),
    ] {
        let advice = advice_for_admin(&refused(code, message));
        assert_eq!(advice.is_some(), advised, "{message}");
    }
}
