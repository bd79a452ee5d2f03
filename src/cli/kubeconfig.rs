//! `kubeconfig`: from an admin's credentials to the daemon's own.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::anyhow;

use super::args::KubeconfigOptions;
use super::{CliFailure, output, print, runtime};
use crate::clock::Clock;
use crate::config::syntax;
use crate::kubernetes::bootstrap::{self, KubeconfigRequest, POLICY};

/// The command that makes the daemon's own kubeconfig in place of one that is there and was made by others.
pub(super) fn command_over(path: &Path) -> String {
    format!(
        "pve-autoscaler kubeconfig --kubeconfig ADMIN_KUBECONFIG --output {} --force",
        path.display()
    )
}

/// Makes the kubeconfig and says what was done, line by line.
pub(super) fn run(options: KubeconfigOptions) -> Result<(), CliFailure> {
    let namespace = &options.namespace;
    if !syntax::dns_label(namespace) {
        return Err(anyhow!(
            "--namespace {namespace:?} is no name of a namespace: small letters, digits and hyphens"
        )
        .into());
    }
    let Some(admin) = options.kubeconfig.filter(|_| !options.print_manifest) else {
        return print(&format!("{}{POLICY}", bootstrap::manifest_in(namespace)));
    };
    let known = (
        "kubeconfig of ours",
        bootstrap::is_ours as fn(&[u8]) -> bool,
    );
    options.force.check(&options.output, known)?;
    let request = KubeconfigRequest {
        admin,
        context: options.context,
        given_by: "--",
        server: options.server,
        namespace: options.namespace,
        output: options.output,
        group: options.group,
        apply: !options.no_apply,
    };
    let made = runtime()?.block_on(bootstrap::kubeconfig(&request, Clock::System))?;
    let mut text = String::new();
    for object in made.applied {
        let _ = writeln!(text, "applied {object}");
    }
    let _ = writeln!(
        text,
        "wrote {}: user {} at {}, until {}",
        request.output.display(),
        bootstrap::USER,
        made.server,
        made.expires
    );
    if let Some(hint) = made.owner_hint {
        let _ = writeln!(text, "note: {hint} {}", request.output.display());
    }
    print(&output::sentences(&text))
}
