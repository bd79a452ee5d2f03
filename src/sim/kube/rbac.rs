//! What Roles and ClusterRoles give to a caller, through the bindings that name him.

use serde_json::Value;

use super::auth::User;
use super::object::{list, namespace, text};
use super::resources::Res;
use super::spec::PolicyRule;
use super::store::State;

const GROUP: &str = "rbac.authorization.k8s.io/v1";

/// The rules that bindings give this caller. A binding whose role is not there gives nothing.
pub(super) fn rules(state: &State, user: &User) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    for (kind, cluster) in [("ClusterRoleBinding", true), ("RoleBinding", false)] {
        let Some(bindings) = Res::of_kind(GROUP, kind) else {
            continue;
        };
        let bindings = state.all(bindings).values();
        for binding in bindings.filter(|binding| names(binding, user)) {
            let space = if cluster { "" } else { namespace(binding) };
            rules.extend(of_role(state, binding, space));
        }
    }
    rules
}

/// Whether the caller is among a binding's subjects.
fn names(binding: &Value, user: &User) -> bool {
    list(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "User" => name == user.name,
            "Group" => user.is_in(name),
            _ => false,
        }
    })
}

/// The rules of a binding's role, which hold in the binding's namespace; everywhere when that is empty.
fn of_role(state: &State, binding: &Value, space: &str) -> Vec<PolicyRule> {
    let kind = text(binding, "/roleRef/kind");
    let of = if kind == "Role" { space } else { "" };
    let role = Res::of_kind(GROUP, kind)
        .and_then(|res| state.get(res, of, text(binding, "/roleRef/name")));
    let Some(role) = role else {
        return Vec::new();
    };
    let rules = list(&role, "/rules").iter();
    rules
        .filter_map(|rule| serde_json::from_value::<PolicyRule>(rule.clone()).ok())
        .map(|rule| PolicyRule {
            namespace: space.to_owned(),
            ..rule
        })
        .collect()
}
