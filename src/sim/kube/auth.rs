//! Who calls, and whether they may.

use serde_json::{Value, json};

use super::object::{is_true, list, member, text};
use super::resources::{Res, SECRETS};
use super::spec::{KubeSpec, PolicyRule};
use super::status::Status;
use super::store::State;

/// The group of tokens for machines, which kubeadm's roles name.
pub(super) const NODE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// A caller.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
    pub(super) rules: Vec<PolicyRule>,
}

impl User {
    /// Cluster-admin.
    pub(super) fn admin() -> User {
        User {
            name: "kubernetes-admin".to_owned(),
            groups: vec![
                "system:masters".to_owned(),
                "system:authenticated".to_owned(),
            ],
            rules: Vec::new(),
        }
    }

    /// Nobody known.
    pub(super) fn anonymous() -> User {
        User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            rules: Vec::new(),
        }
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The node this caller is, for kubelets.
    pub(super) fn node(&self) -> Option<&str> {
        if self.is_in("system:nodes") {
            self.name.strip_prefix("system:node:")
        } else {
            None
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    /// With its subresource: `pods/eviction`.
    pub(super) resource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// The caller behind a bearer token, with the rights that RBAC objects give; `None` for a token that nobody has.
pub(super) fn authenticate(state: &State, spec: &KubeSpec, token: &str) -> Option<User> {
    let mut user = identify(state, spec, token)?;
    user.rules.extend(super::rbac::rules(state, &user));
    Some(user)
}

fn identify(state: &State, spec: &KubeSpec, token: &str) -> Option<User> {
    if token == spec.admin_token {
        return Some(User::admin());
    }
    if let Some(user) = spec.users.iter().find(|u| u.token == token) {
        let mut groups = user.groups.clone();
        groups.push("system:authenticated".to_owned());
        return Some(User {
            name: user.name.clone(),
            groups,
            rules: user.rules.clone(),
        });
    }
    if token.starts_with("certificate:") {
        return by_certificate(state, token);
    }
    by_bootstrap_token(state, token)
}

/// The holder of a client certificate that the cluster issued.
fn by_certificate(state: &State, token: &str) -> Option<User> {
    let subject = state.issued.get(token)?;
    let mut groups = subject.organisations.clone();
    groups.push("system:authenticated".to_owned());
    Some(User {
        name: subject.name.clone(),
        groups,
        rules: Vec::new(),
    })
}

/// A bootstrap token (`ID.SECRET`), as the bootstrap authenticator checks it.
fn by_bootstrap_token(state: &State, token: &str) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let stored = state.get(SECRETS, "kube-system", &format!("bootstrap-token-{id}"))?;
    let field = |name: &str| super::bootstrap::secret_field(&stored, name).unwrap_or_default();
    let valid = text(&stored, "/type") == "bootstrap.kubernetes.io/token"
        && !super::object::deleting(&stored)
        && field("token-id") == id
        && field("token-secret") == secret
        && field("usage-bootstrap-authentication") == "true"
        && super::bootstrap::expiry(&stored).is_none_or(|end| end > state.now);
    if !valid {
        return None;
    }
    let mut groups = vec!["system:bootstrappers".to_owned()];
    groups.extend(
        field("auth-extra-groups")
            .split(',')
            .map(str::trim)
            .filter(|g| !g.is_empty())
            .map(str::to_owned),
    );
    groups.push("system:authenticated".to_owned());
    Some(User {
        name: format!("system:bootstrap:{id}"),
        groups,
        rules: Vec::new(),
    })
}

fn among(list: &[String], wanted: &str) -> bool {
    list.iter().any(|l| l == "*" || l == wanted)
}

fn rule_allows(rule: &PolicyRule, asked: &Attributes) -> bool {
    among(&rule.verbs, asked.verb)
        && among(&rule.api_groups, asked.group)
        && among(&rule.resources, asked.resource)
        && (rule.resource_names.is_empty() || rule.resource_names.iter().any(|n| n == asked.name))
        && (rule.namespace.is_empty() || rule.namespace == asked.namespace)
}

/// What kubeadm's ClusterRoles give to bootstrap tokens; what its Roles give is among the cluster's objects.
fn bootstrapper_may(user: &User, asked: &Attributes) -> bool {
    if asked.group == "certificates.k8s.io" && asked.resource == "certificatesigningrequests" {
        return matches!(asked.verb, "create" | "get" | "list" | "watch");
    }
    user.is_in(NODE_GROUP) && asked.verb == "get" && asked.resource == "nodes"
}

/// What the node authorizer and NodeRestriction leave a kubelet, in short: to read what it needs,
/// and to write its own node, lease and pods.
fn kubelet_may(node: &str, asked: &Attributes) -> bool {
    let reads = matches!(asked.verb, "get" | "list" | "watch");
    match asked.resource {
        "nodes" | "nodes/status" => {
            reads || asked.verb == "create" || (asked.name == node && asked.verb != "delete")
        }
        "leases" => {
            asked.namespace == "kube-node-lease" && (asked.verb == "create" || asked.name == node)
        }
        "csinodes" => asked.name == node || asked.verb == "create",
        "pods" => reads || matches!(asked.verb, "create" | "delete"),
        "pods/status" => matches!(asked.verb, "update" | "patch" | "get"),
        "pods/eviction" | "events" | "certificatesigningrequests" => true,
        "secrets" => asked.verb == "get",
        _ => reads,
    }
}

/// Whether the caller may.
pub(super) fn allowed(user: &User, asked: &Attributes) -> bool {
    if user.is_in("system:masters") {
        return true;
    }
    let public = asked.verb == "get"
        && asked.resource == "configmaps"
        && asked.namespace == "kube-public"
        && asked.name == "cluster-info";
    let own = asked.verb == "create"
        && user.is_in("system:authenticated")
        && matches!(
            asked.resource,
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "selfsubjectreviews"
        );
    public
        || own
        || user.rules.iter().any(|r| rule_allows(r, asked))
        || (user.is_in("system:bootstrappers") && bootstrapper_may(user, asked))
        || user.node().is_some_and(|node| kubelet_may(node, asked))
}

/// The refusal's reason in RBAC's words.
pub(super) fn refusal(user: &User, asked: &Attributes) -> String {
    let place = if asked.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", asked.namespace)
    };
    format!(
        "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
        user.name, asked.verb, asked.resource, asked.group
    )
}

/// Whether whoever is asked about may do what a review's body names.
fn granted(user: &User, body: &Value) -> bool {
    let path = text(body, "/spec/nonResourceAttributes/path");
    if !path.is_empty() {
        return user.is_in("system:masters");
    }
    let part = |name: &str| text(body, &format!("/spec/resourceAttributes/{name}"));
    let resource = match part("subresource") {
        "" => part("resource").to_owned(),
        sub => format!("{}/{sub}", part("resource")),
    };
    let asked = Attributes {
        verb: part("verb"),
        group: part("group"),
        resource: &resource,
        namespace: part("namespace"),
        name: part("name"),
    };
    allowed(user, &asked)
}

/// The user and groups that a review asks about.
fn subject(state: &State, body: &Value) -> User {
    let groups = list(body, "/spec/groups").iter();
    let mut user = User {
        name: text(body, "/spec/user").to_owned(),
        groups: groups
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        rules: Vec::new(),
    };
    user.rules = super::rbac::rules(state, &user);
    user
}

/// Answers a review of the caller's own rights or identity, or of another's rights in a namespace.
pub(super) fn review(
    state: &State,
    (res, namespace): (Res, &str),
    user: &User,
    mut body: Value,
) -> Result<Value, Status> {
    match res.row().kind {
        "SelfSubjectAccessReview" => {
            body["status"] = json!({"allowed": granted(user, &body)});
        }
        "LocalSubjectAccessReview" => {
            if text(&body, "/spec/resourceAttributes/namespace") != namespace {
                let why = "spec.resourceAttributes.namespace must match metadata.namespace";
                return Err(Status::bad_request(why));
            }
            let asked_about = subject(state, &body);
            if asked_about.name.is_empty() && asked_about.groups.is_empty() {
                let why = "at least one of user or group must be specified";
                return Err(Status::bad_request(why));
            }
            body["status"] = json!({"allowed": granted(&asked_about, &body)});
        }
        "SelfSubjectReview" => {
            body["status"] = json!({"userInfo": {"username": user.name, "groups": user.groups}});
        }
        _ => {
            let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let own: Vec<Value> = user
                .rules
                .iter()
                .filter_map(|r| serde_json::to_value(r).ok())
                .collect();
            let shown = if user.is_in("system:masters") {
                rules
            } else {
                Value::Array(own)
            };
            body["status"] =
                json!({"incomplete": false, "nonResourceRules": [], "resourceRules": shown});
        }
    }
    Ok(body)
}

/// Whether a certificate request was approved and not denied.
pub(super) fn approved(request: &Value) -> bool {
    is_true(request, "Approved")
        && !list(request, "/status/conditions")
            .iter()
            .any(|c| matches!(text(c, "/type"), "Denied" | "Failed"))
}

/// The key of a Secret's or ConfigMap's data, undecoded.
pub(super) fn data<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    member(object, "/data", key)
}
