//! How machines of a pool become nodes.

use super::labels::{SAMPLE, filled};
use super::{Problems, file};
use crate::config::place::KeyPath;
use crate::config::settings::Join;
use crate::config::syntax;
use crate::model::facts::Facts;
use crate::model::time::Span;

/// Arguments of the kubelet that would switch off what the program relies on, and what to use instead.
const OWN_KUBELET_ARGS: [(&str, &str); 8] = [
    ("node-labels", "use the pool's labels"),
    ("register-with-taints", "use the pool's taints"),
    ("hostname-override", "a node is called as its machine"),
    ("register-node", "the kubelet must register its node"),
    ("provider-id", "use join.provider_id"),
    ("kubeconfig", "kubeadm writes it"),
    ("bootstrap-kubeconfig", "kubeadm writes it"),
    (
        "config",
        "kubeadm writes it; [pool.NAME.kubelet] changes it",
    ),
];

/// `[pool.NAME.join]`.
pub(super) fn join(join: &file::Join, pool: &KeyPath, problems: &mut Problems) -> Join {
    let at = pool.at("join");
    let endpoint = join.endpoint.as_deref().is_none_or(syntax::host_port);
    problems.unless(endpoint, &at.at("endpoint"), || {
        "expected host:port".to_owned()
    });
    let ttl = join.token_ttl.0;
    problems.unless(
        ttl >= Span::minutes(1) && ttl <= file::MAX_TOKEN_TTL,
        &at.at("token_ttl"),
        || format!("expected 1m to {}", file::MAX_TOKEN_TTL),
    );
    kubelet_args(join, &at, problems);
    if let Some(text) = &join.provider_id {
        provider_id(text, &at.at("provider_id"), problems);
    }
    Join {
        endpoint: join.endpoint.clone(),
        token_ttl: ttl,
        provider_id: join.provider_id.clone(),
        kubelet_args: join.kubelet_args.clone(),
        ignore_preflight_errors: join.ignore_preflight_errors.clone(),
        cri_socket: join.cri_socket.clone(),
    }
}

/// The arguments that a pool gives its kubelets.
fn kubelet_args(join: &file::Join, at: &KeyPath, problems: &mut Problems) {
    for key in join.kubelet_args.keys() {
        problems.unless(
            syntax::dns_label(key),
            &at.at("kubelet_args").at(key),
            || "expected an argument's name without dashes in front, such as \"v\"".to_owned(),
        );
        let own = OWN_KUBELET_ARGS.iter().find(|(name, _)| key == name);
        problems.unless(own.is_none(), &at.at("kubelet_args").at(key), || {
            let instead = own.map_or("", |(_, instead)| *instead);
            format!("may not be set here: {instead}")
        });
    }
}

/// `NAME://ID`, another for each machine.
fn provider_id(text: &str, path: &KeyPath, problems: &mut Problems) {
    let other = Facts {
        machine: "pool-vwxyz",
        vmid: 9001,
        ..SAMPLE
    };
    let Some(one) = filled(text, &SAMPLE, path, problems) else {
        return;
    };
    let form = one
        .split_once("://")
        .is_some_and(|(name, id)| syntax::dns_label(name) && !id.is_empty());
    let plain = one.bytes().all(|byte| byte.is_ascii_graphic());
    problems.unless(form && plain, path, || {
        format!(
            "expected a provider and an id, such as \"proxmox://{{{{ region }}}}/{{{{ vmid }}}}\"; it comes to {one:?}"
        )
    });
    let two = crate::model::facts::fill(text, &other);
    problems.unless(two.is_ok_and(|two| two != one), path, || {
        "expected another id for each machine: with {{ vmid }} or {{ machine }} in it".to_owned()
    });
}
