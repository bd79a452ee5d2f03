//! How machines of a pool become nodes.

use super::Problems;
use super::labels::{SAMPLE, filled};
use crate::config::cloud_init::GapValues;
use crate::config::file::{self, Delivery, Method};
use crate::config::place::KeyPath;
use crate::config::settings::{JoinMethod, JoinSettings};
use crate::config::syntax;
use crate::model::facts::{self, Facts};
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
pub(super) fn join(join: &file::Join, pool: &KeyPath, problems: &mut Problems) -> JoinSettings {
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
    let method = method(join, &at, problems);
    kubelet_args(join, &at, problems);
    let lasting = join.delivery == Delivery::CloudInit && join.secret_file.is_some();
    problems.unless(!lasting, &at.at("secret_file"), || {
        "with delivery = \"cloud-init\" the secret would stay on the machine's disk; without secret_file the command gets a bootstrap token, which is deleted after the join".to_owned()
    });
    if let Some(text) = &join.provider_id {
        provider_id(text, &at.at("provider_id"), problems);
    }
    JoinSettings {
        method,
        at_first_boot: join.delivery == Delivery::CloudInit,
        endpoint: join.endpoint.clone(),
        token_ttl: ttl,
        provider_id: join.provider_id.clone(),
        kubelet_args: join.kubelet_args.clone(),
        ignore_preflight_errors: join.ignore_preflight_errors.clone(),
        cri_socket: join.cri_socket.clone(),
    }
}

/// How machines join; what is for another method is an error.
fn method(join: &file::Join, at: &KeyPath, problems: &mut Problems) -> JoinMethod {
    let kubeadm = join.method == Method::Kubeadm;
    for (key, set) in [
        (
            "ignore_preflight_errors",
            !join.ignore_preflight_errors.is_empty(),
        ),
        ("cri_socket", join.cri_socket.is_some()),
    ] {
        problems.unless(kubeadm || !set, &at.at(key), || {
            "is for method = \"kubeadm\"".to_owned()
        });
    }
    let command = join.method == Method::Command;
    for (key, set) in [
        ("command", join.command.is_some()),
        ("secret_file", join.secret_file.is_some()),
    ] {
        problems.unless(command || !set, &at.at(key), || {
            "is for method = \"command\"".to_owned()
        });
    }
    match join.method {
        Method::Kubeadm => JoinMethod::Kubeadm,
        Method::K3s => JoinMethod::K3s,
        Method::Rke2 => JoinMethod::Rke2,
        Method::Itself => {
            tells_nothing(join, at, problems);
            JoinMethod::Itself
        }
        Method::Command => {
            if let Some(path) = &join.secret_file {
                problems.unless(path.is_absolute(), &at.at("secret_file"), || {
                    "expected an absolute path".to_owned()
                });
            }
            let script = problems
                .require(join.command.clone(), &at.at("command"), "a script")
                .unwrap_or_default();
            check_script(&script, &at.at("command"), problems);
            JoinMethod::Command {
                script,
                secret_file: join.secret_file.clone(),
            }
        }
    }
}

/// A machine that joins by itself is told nothing; what stands here all the same would not come to it.
fn tells_nothing(join: &file::Join, at: &KeyPath, problems: &mut Problems) {
    for (key, set) in [
        ("delivery", join.delivery != Delivery::GuestAgent),
        ("endpoint", join.endpoint.is_some()),
        ("kubelet_args", !join.kubelet_args.is_empty()),
    ] {
        problems.unless(!set, &at.at(key), || {
            "is for machines that are told to join; with method = \"self\" their image or configuration says it".to_owned()
        });
    }
}

/// What a command may name beside its machine and its network cards.
pub(super) const COMMAND_WORDS: [&str; 4] = ["endpoint", "labels", "provider_id", "taints"];
/// The guest agent takes 64 KiB in all.
const LONGEST_SCRIPT: usize = 16 * 1024;

fn check_script(script: &str, path: &KeyPath, problems: &mut Problems) {
    let Some(trials) = problems.trials else {
        return;
    };
    let words = COMMAND_WORDS.map(|word| (word, word));
    match (trials.node)(script, &SAMPLE, &GapValues::sample(), &words) {
        Ok(text) => problems.unless(text.len() <= LONGEST_SCRIPT, path, || {
            format!("expected at most {LONGEST_SCRIPT} bytes")
        }),
        Err(why) => problems.add(path, why),
    }
}

/// The arguments that a pool gives its kubelets.
fn kubelet_args(join: &file::Join, at: &KeyPath, problems: &mut Problems) {
    for (key, text) in &join.kubelet_args {
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
        let tried = problems.trials.filter(|_| facts::has_gaps(text));
        let tried = tried.map(|of| (of.node)(text, &SAMPLE, &GapValues::sample(), &[]));
        if let Some(Err(why)) = tried {
            problems.add(&at.at("kubelet_args").at(key), why);
        }
    }
}

/// `NAME://ID`, another for each machine.
fn provider_id(text: &str, path: &KeyPath, problems: &mut Problems) {
    let other = Facts {
        machine: "pool-vwxyz",
        vmid: 9001,
        ..SAMPLE
    };
    let Some(trials) = problems.trials else {
        return;
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
    let two = (trials.fill)(text, &other, &[]);
    problems.unless(two.is_ok_and(|two| two != one), path, || {
        "expected another id for each machine: with {{ vmid }} or {{ machine }} in it".to_owned()
    });
}
