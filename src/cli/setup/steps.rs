//! What is to be done, in order: shown first, each with what a person would type for it, and then done.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::process::Command;
use tokio::time::timeout;

use super::answers::SetupAnswers;
use super::cluster::kubeconfig_request;
use super::policy::PolicyStep;
use super::readable;
use super::rights::{self, OwnerHints};
use super::survey::{Admin, Existing, Survey};
use super::templates::{FILES, content_lacking};
use super::text;
use super::token::{self, Grants, TokenLack};
use crate::cli::doctor::user::DAEMON;
use crate::cli::in_force::digest;
use crate::cli::place::ForceOptions;
use crate::cli::template::options::BuildOptions;
use crate::cli::{CliFailure, output, print, template};
use crate::clock::Clock;
use crate::config::settings::Channel;
use crate::config::{self, Settings};
use crate::kubernetes::bootstrap::{self, KubeconfigRequest};
use crate::model::region::GuestKind;

/// Where systemd tells that it runs.
const SYSTEMD: &str = "/run/systemd/system";
/// The longest that systemctl may take: longer than systemd lets the service take to start.
const SYSTEMD_PATIENCE: Duration = Duration::from_mins(3);
const UNIT: &str = "pve-autoscaler.service";
/// Files that are kept as they were before a run: more than anybody changes his mind, and a loop that runs setup fills no disk.
const MAX_KEPT: u32 = 99;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum SetupStep {
    /// RBAC, admission policy, and the daemon's own kubeconfig.
    Kubeconfig(Box<KubeconfigRequest>),
    /// The admission policy alone.
    Policy(Box<PolicyStep>),
    /// A resource pool, roles, a user and a token in PVE.
    Token(Box<Grants>, PathBuf),
    /// What a storage may hold.
    Content(BTreeSet<String>),
    /// The configuration file.
    File {
        path: PathBuf,
        old: Option<String>,
        new: String,
    },
    /// A file of the daemon's that its group may not read.
    Rights(PathBuf),
    /// The configuration's file, which the daemon may not read.
    Readable(PathBuf),
    /// A template.
    Build(String),
    /// The service takes the file.
    Service,
}

/// What is to be done so that all is as the file's new text says.
pub(super) fn plan(
    (survey, admin, existing): (&Survey, &Admin, &Existing),
    answers: &SetupAnswers,
    (path, new): (&Path, &str),
    token: Option<TokenLack>,
) -> anyhow::Result<Vec<SetupStep>> {
    let settings = config::parse(new, "what setup would write")?;
    let mut steps = Vec::new();
    steps.extend(in_kubernetes(survey, existing, answers));
    if let Some(TokenLack::Made(grants, file)) = token {
        steps.push(SetupStep::Token(grants, file));
    }
    // Of several regions only one was looked at, and nobody said which is meant.
    let is_one = settings.regions.len() == 1;
    let builds = if is_one && (admin.here || answers.proxmox.admin_token_id.is_some()) {
        to_build(&settings, survey)
    } else {
        Vec::new()
    };
    let downloads = |name: &String| {
        settings.templates.get(&**name).is_some_and(|template| {
            template
                .build
                .as_ref()
                .is_some_and(|build| build.image.is_some())
        })
    };
    if !builds.is_empty()
        && let Some(content) = content_lacking(&survey.pve.resources, builds.iter().any(downloads))
    {
        steps.push(SetupStep::Content(content));
    }
    if existing.text.as_deref() != Some(new) {
        steps.push(SetupStep::File {
            path: path.to_owned(),
            old: existing.text.clone(),
            new: new.to_owned(),
        });
    } else if rights::is_shut(path, DAEMON) {
        steps.push(SetupStep::Readable(path.to_owned()));
    }
    let written = |step: &SetupStep| match step {
        SetupStep::Kubeconfig(_) => true,
        SetupStep::Token(grants, _) => !grants.has_token(),
        _ => false,
    };
    if !steps.iter().any(written) {
        let secrets = daemons_files(&settings).into_iter();
        let shut = secrets.filter(|file| rights::is_shut(file, DAEMON));
        steps.extend(shut.map(SetupStep::Rights));
    }
    steps.extend(builds.into_iter().map(SetupStep::Build));
    let behind = survey.in_force.as_deref() != Some(&*digest(new));
    if has_service() && is_service_due(path, &steps, behind) {
        steps.push(SetupStep::Service);
    }
    Ok(steps)
}

/// What is to be done in Kubernetes: all of it, or, where the daemon's kubeconfig is good, the admission policy alone.
fn in_kubernetes(
    survey: &Survey,
    existing: &Existing,
    answers: &SetupAnswers,
) -> Option<SetupStep> {
    let request = kubeconfig_request(answers, existing)?;
    if survey.kubeconfig_lacks.is_some() {
        return Some(SetupStep::Kubeconfig(Box::new(request)));
    }
    // Answers may name an administrator's kubeconfig that is gone again, as it should be.
    let due = survey.policy.is_missing() && request.admin.exists();
    due.then(|| {
        SetupStep::Policy(Box::new(PolicyStep {
            request,
            own_context: existing.settings.kubernetes.context.clone(),
        }))
    })
}

/// Whether the service is to take something: what the steps make, or (it runs with another file, or not at all) what an earlier
/// run made before a later step of it failed. The unit has one file: of another it takes nothing.
fn is_service_due(path: &Path, steps: &[SetupStep], behind: bool) -> bool {
    let made = |step: &SetupStep| {
        matches!(
            step,
            SetupStep::File { .. } | SetupStep::Kubeconfig(_) | SetupStep::Token(..)
        )
    };
    path == Path::new(config::DEFAULT_PATH) && (behind || steps.iter().any(made))
}

/// The files that the daemon alone reads besides its configuration: kubeconfig and secrets of tokens.
fn daemons_files(settings: &Settings) -> Vec<PathBuf> {
    let tokens = settings.regions.values();
    let secrets = tokens.filter_map(|region| match &region.channel {
        Channel::Token { secret_file, .. } => Some(secret_file.clone()),
        Channel::Local => None,
    });
    let kubeconfig = settings.kubernetes.kubeconfig.clone();
    std::iter::once(kubeconfig).chain(secrets).collect()
}

/// Templates with a build of which no VM is there.
fn to_build(settings: &Settings, survey: &Survey) -> Vec<String> {
    let templates = settings
        .templates
        .iter()
        .filter(|(_, template)| template.build.is_some());
    let missing = templates.filter(|(_, template)| {
        let guests = survey.pve.resources.guests.iter();
        let mut copies = guests.filter(|(vmid, guest)| {
            guest.kind == GuestKind::Qemu
                && template.means(**vmid, guest.template, &guest.name, &guest.tags)
        });
        copies.next().is_none()
    });
    missing.map(|(name, _)| name.to_string()).collect()
}

fn has_service() -> bool {
    let units = [
        "/etc/systemd/system",
        "/lib/systemd/system",
        "/usr/lib/systemd/system",
    ];
    Path::new(SYSTEMD).exists() && units.iter().any(|unit| Path::new(unit).join(UNIT).exists())
}

impl SetupStep {
    /// What it does, and below it what it would be by hand, or the text.
    pub(super) fn show(&self) -> String {
        let mut text = String::new();
        let _ = match self {
            SetupStep::Kubeconfig(request) => writeln!(text, "{}", show_kubeconfig(request)),
            SetupStep::Policy(step) => write!(text, "{}", step.show()),
            SetupStep::Token(grants, _) if grants.has_token() => writeln!(
                text,
                "give the daemon's user in PVE these privileges, of which its token lacks some; the token stays as it is\n{}",
                indented(&grants.typed())
            ),
            SetupStep::Token(grants, file) => writeln!(
                text,
                "make a user in PVE for the daemon, with these privileges and no others, and its token, whose secret goes to {}\n{}",
                file.display(),
                indented(&grants.typed())
            ),
            SetupStep::Content(content) => writeln!(
                text,
                "let the storage {FILES} hold what a build needs: cloud-init snippets, and images that are downloaded\n     pvesm set {FILES} --content {}",
                content
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            SetupStep::File { path, old, new } => match old {
                Some(old) => writeln!(
                    text,
                    "change {}\n{}",
                    path.display(),
                    indented(&text::differences(old, new))
                ),
                None => writeln!(text, "write {}\n{}", path.display(), indented(new)),
            },
            SetupStep::Rights(path) => writeln!(
                text,
                "let the daemon's group read {0}\n     chgrp {DAEMON} {0} && chmod 640 {0}",
                path.display()
            ),
            SetupStep::Readable(path) => writeln!(
                text,
                "let everybody read {0}, which holds no secrets\n     chmod 644 {0}",
                path.display()
            ),
            SetupStep::Build(name) => writeln!(
                text,
                "build the template {name}, on each host that needs one: some minutes each\n     pve-autoscaler template build {name}"
            ),
            SetupStep::Service => writeln!(
                text,
                "start the service now and at boot, and have it take the file\n     systemctl enable --now {UNIT} && systemctl reload {UNIT}"
            ),
        };
        text.trim_end().to_owned() + "\n"
    }

    /// Looks whether it can be done, before any step is.
    pub(super) async fn look(&mut self, admin: &Admin) -> anyhow::Result<()> {
        match self {
            SetupStep::Token(grants, file) => grants.look(&admin.client, file).await,
            SetupStep::Policy(step) => step.look().await,
            SetupStep::Kubeconfig(request) => {
                let known = (
                    "kubeconfig of ours",
                    bootstrap::is_ours as fn(&[u8]) -> bool,
                );
                ForceOptions { force: false }
                    .check(&request.output, known)
                    .context(
                        "move it away, or make the daemon's by `pve-autoscaler kubeconfig --force`",
                    )
            }
            _ => Ok(()),
        }
    }

    /// Does it; says what was done. What a person must do about files is in `hints`.
    pub(super) async fn run(
        &self,
        admin: &Admin,
        hints: &mut OwnerHints,
    ) -> Result<(), CliFailure> {
        let done = match self {
            SetupStep::Kubeconfig(request) => kubeconfig(request, hints).await?,
            SetupStep::Policy(step) => step.run().await?,
            SetupStep::Token(grants, file) => {
                let group = (DAEMON, hints);
                let made = grants.make(&admin.client, file, group).await;
                made.map_err(|error| token::of_refusal(error, admin.is_daemons))?
            }
            SetupStep::Content(wanted) => {
                let downloads = wanted.contains("import");
                // The call replaces the whole list, so that it is read again.
                let resources = admin.client.resources().await?;
                if let Some(content) = content_lacking(&resources, downloads) {
                    let named = format!("what the storage {FILES} may hold");
                    let set = admin.client.set_storage_content(FILES, &content);
                    set.await.context(named)?;
                }
                let all: Vec<&str> = wanted.iter().map(String::as_str).collect();
                vec![format!("the storage {FILES} may hold {}", all.join(", "))]
            }
            SetupStep::File { path, old, new } => write(path, (old.as_deref(), new))?,
            SetupStep::Rights(path) => {
                rights::open(path, DAEMON)?;
                vec![format!("the group {DAEMON} may read {}", path.display())]
            }
            SetupStep::Readable(path) => {
                readable::open(path)?;
                vec![format!("everybody may read {}", path.display())]
            }
            SetupStep::Build(name) => {
                let settings =
                    Settings::clone(&config::load(&admin.file).map_err(CliFailure::Config)?);
                let options = BuildOptions {
                    names: vec![name.clone()],
                    hosts: Vec::new(),
                    again: false,
                    keep_failed: false,
                };
                template::build(&settings, &options).await?;
                Vec::new()
            }
            SetupStep::Service => service().await?,
        };
        let done = done
            .iter()
            .fold(String::new(), |text, line| text + "  done: " + line + "\n");
        print(&output::sentences(&done))
    }
}

/// How the daemon's kubeconfig is made, and by which command.
fn show_kubeconfig(request: &KubeconfigRequest) -> String {
    let option = |name: &str, value: Option<String>| {
        value.map_or_else(String::new, |value| format!(" --{name} {value}"))
    };
    let server = request.server.as_ref().map(ToString::to_string);
    let context = request.context.as_ref().map(ToString::to_string);
    format!(
        "apply the RBAC manifest and the admission policy, and make the daemon's own kubeconfig {}\n\
         \u{20}    pve-autoscaler kubeconfig --kubeconfig {}{}{} --output {0}",
        request.output.display(),
        request.admin.display(),
        option("context", context),
        option("server", server),
    )
}

fn indented(text: &str) -> String {
    text.lines()
        .fold(String::new(), |all, line| all + "     " + line + "\n")
}

async fn kubeconfig(
    request: &KubeconfigRequest,
    hints: &mut OwnerHints,
) -> anyhow::Result<Vec<String>> {
    if let Some(folder) = request.output.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let made = bootstrap::kubeconfig(request, Clock::System).await?;
    let mut done: Vec<String> = made
        .applied
        .iter()
        .map(|object| format!("applied {object}"))
        .collect();
    done.push(format!(
        "{}: user {} at {}, until {}",
        request.output.display(),
        bootstrap::USER,
        made.server,
        made.expires
    ));
    hints.add(made.owner_hint, &request.output);
    Ok(done)
}

/// Writes the file whole or not at all. What was there is kept beside it.
fn write(path: &Path, (old, new): (Option<&str>, &str)) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    let now = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => bail!("cannot read {}: {error}", path.display()),
    };
    if now.as_deref() != old {
        bail!(
            "{} was changed while setup asked: it is left as it is; run setup again",
            path.display()
        );
    }
    if let Some(old) = old {
        let beside = free_beside(path)?;
        let failed = |why: String| {
            anyhow::anyhow!("cannot keep the old file as {}: {why}", beside.display())
        };
        readable::write(&beside, old, path).map_err(failed)?;
        done.push(format!("the file as it was is in {}", beside.display()));
    }
    readable::write(path, new, path)
        .map_err(|why| anyhow::anyhow!("cannot write {}: {why}", path.display()))?;
    done.push(format!("wrote {}", path.display()));
    Ok(done)
}

/// Where the file is kept as it was: a name that nothing has, so that what was there before the first run outlives the others.
fn free_beside(path: &Path) -> anyhow::Result<PathBuf> {
    let named = |number: u32| {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".before-setup");
        if number > 1 {
            beside.push(format!(".{number}"));
        }
        PathBuf::from(beside)
    };
    let mut all = (1..=MAX_KEPT).map(named);
    let free = all.find(|beside| beside.symlink_metadata().is_err());
    free.with_context(|| {
        format!(
            "the old file cannot be kept: {} to .{MAX_KEPT} are there; move some of them away",
            named(1).display()
        )
    })
}

async fn service() -> anyhow::Result<Vec<String>> {
    for arguments in [["enable", "--now", UNIT], ["reload-or-restart", "--", UNIT]] {
        let shown = format!("systemctl {}", arguments.join(" "));
        let asked = Command::new("systemctl")
            .args(arguments)
            .kill_on_drop(true)
            .output();
        let output = timeout(SYSTEMD_PATIENCE, asked).await;
        let output = output.map_err(|_| {
            anyhow!("{shown} did not end within {SYSTEMD_PATIENCE:?}: systemctl status {UNIT}")
        })?;
        let output = output.with_context(|| shown.clone())?;
        if !output.status.success() {
            bail!(
                "{shown}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    Ok(vec![format!("{UNIT} runs with the file")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_the_first_run_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "0").expect("written");
        for run in 0..3 {
            let (old, new) = (run.to_string(), (run + 1).to_string());
            write(&path, (Some(&old), &new)).expect("written");
        }
        let kept = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
        let names = [
            "c.toml.before-setup",
            "c.toml.before-setup.2",
            "c.toml.before-setup.3",
        ];
        let all = names.map(|name| kept(name).unwrap_or_default());
        assert_eq!(all, ["0", "1", "2"]);
        for number in 4..=MAX_KEPT {
            let name = format!("c.toml.before-setup.{number}");
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let full = write(&path, (Some("3"), "4")).expect_err("no name is free");
        assert!(full.to_string().contains("to .99 are there"), "{full}");
        assert_eq!(kept("c.toml").as_deref(), Some("3"));
    }

    #[test]
    fn a_run_after_one_that_failed_at_the_template_still_tells_the_service() {
        let own = Path::new(config::DEFAULT_PATH);
        let build = [SetupStep::Build("debian".to_owned())];
        assert!(
            is_service_due(own, &build, true),
            "the file came in the run before"
        );
        assert!(is_service_due(own, &[], true));
        assert!(!is_service_due(own, &build, false) && !is_service_due(own, &[], false));
        let file = SetupStep::File {
            path: PathBuf::from("/x"),
            old: None,
            new: String::new(),
        };
        let file = [file];
        assert!(is_service_due(own, &file, false));
        let other = Path::new("/root/trial.toml");
        assert!(
            !is_service_due(other, &file, true),
            "the service has another"
        );
    }
}
