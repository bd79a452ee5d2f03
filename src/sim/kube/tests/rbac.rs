//! Rights that Roles and ClusterRoles give.

use serde_json::{Value, json};

use super::{EPOCH, Kube, KubeSpec};
use crate::clock::Clock;
use crate::sim::guests::api::Api;
use crate::sim::kube::KubeUserSpec;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn binding(kind: &str, role: &str, subject: &Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "reader"});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "readers"},
        "roleRef": role, "subjects": [subject],
    })
}

#[tokio::test(start_paused = true)]
async fn roles_give_their_rights_to_whom_a_binding_names_and_where_it_is() {
    let user = |name: &str, group: &str| KubeUserSpec {
        name: name.to_owned(),
        token: format!("token-of-{name}"),
        groups: vec![group.to_owned()],
        rules: Vec::new(),
    };
    let spec = KubeSpec {
        users: vec![user("ann", "staff"), user("bob", "guests")],
        ..KubeSpec::default()
    };
    let kube = Kube::new(spec, Clock::starting_at(EPOCH), 7);
    let admin = Api::new(kube.router());
    let public = Api::new(kube.public_router());
    let may = async |who: &str, path: &str| {
        let asked = public
            .with_bearer(format!("token-of-{who}"))
            .get(path)
            .await;
        match asked {
            Ok(_) => true,
            Err(refused) => {
                assert_eq!(refused.code, 403, "{refused}");
                false
            }
        }
    };
    let (near, far) = (
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/kube-system/pods",
    );
    assert!(!may("ann", near).await);

    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader"}, "rules": rules,
    });
    let space = format!("{RBAC}/namespaces/default");
    admin
        .post(&format!("{space}/roles"), &role)
        .await
        .expect("a role");
    let to_ann = binding(
        "RoleBinding",
        "Role",
        &json!({"kind": "User", "name": "ann"}),
    );
    admin
        .post(&format!("{space}/rolebindings"), &to_ann)
        .await
        .expect("a binding");
    let seen = [
        may("ann", near).await,
        may("ann", far).await,
        may("bob", near).await,
    ];
    assert_eq!(seen, [true, false, false]);

    let mut everywhere = role;
    everywhere["kind"] = json!("ClusterRole");
    admin
        .post(&format!("{RBAC}/clusterroles"), &everywhere)
        .await
        .expect("a role");
    let to_guests = binding(
        "ClusterRoleBinding",
        "ClusterRole",
        &json!({"kind": "Group", "name": "guests"}),
    );
    let made = admin
        .post(&format!("{RBAC}/clusterrolebindings"), &to_guests)
        .await;
    made.expect("a binding");
    let seen = [
        may("bob", near).await,
        may("bob", far).await,
        may("bob", "/api/v1/nodes").await,
    ];
    assert_eq!(seen, [true, true, false]);
    assert!(!may("ann", far).await);
}
