//! `setup`: from a host and a cluster to a configured service. It looks at what there is, asks little, says why it chose what it
//! chose, shows everything before it does any of it, and leaves a file that a person would have written.
//!
//! It is a person's command, with a person's rights: root's on a PVE host, or an administrator's token. Run again it proposes
//! what is still to be done, and what was answered anew. Choosing ([`choose`]) is apart from looking ([`survey`]) and doing
//! ([`steps`]), and pure.

mod answers;
mod ask;
mod choose;
mod cluster;
mod former;
mod free;
mod hardware;
mod images;
mod network;
mod policy;
mod range;
mod readable;
mod rights;
mod room;
mod steps;
mod survey;
mod templates;
mod text;
mod token;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{anyhow, bail};

use super::args::SetupOptions;
use super::doctor::releases;
use super::table::table;
use super::{CliFailure, kubeconfig, output, print, runtime};
use crate::config;
use crate::kubernetes::bootstrap::USER;
use crate::model::words;

use answers::SetupAnswers;
use choose::Proposal;
use images::ImagesFound;
use policy::PolicyFound;
use rights::OwnerHints;
use steps::SetupStep;
use survey::{Admin, Existing, Survey};
use token::TokenLack;

/// What `--save-answers` writes, and how it is known.
const SAVED: (&str, fn(&[u8]) -> bool) = ("file of answers", SetupAnswers::is_in);

/// What is said where the admission policy is not in force and nothing can be done about it.
const NO_POLICY: &str = "the admission policy is not in force, and only an administrator can apply it: answer kubernetes.kubeconfig, or";

/// Runs it.
pub(super) fn run(path: &Path, options: &SetupOptions) -> Result<(), CliFailure> {
    if let Some(file) = options.save_answers.as_ref().filter(|_| !options.dry_run) {
        // Before anybody is asked anything.
        options.force.check(file, SAVED)?;
    }
    let mut answers = match &options.answers {
        Some(file) => SetupAnswers::read(file)?,
        None => SetupAnswers::default(),
    };
    if let Some(kubeconfig) = &options.kubeconfig {
        answers.kubernetes.kubeconfig = Some(kubeconfig.clone());
    }
    let existing = Existing::read(path).map_err(CliFailure::Config)?;
    runtime()?.block_on(set_up(path, options, answers, &existing))
}

async fn set_up(
    path: &Path,
    options: &SetupOptions,
    mut answers: SetupAnswers,
    existing: &Existing,
) -> Result<(), CliFailure> {
    let mut admin = Admin::open(&answers, existing)?;
    admin.file = path.to_owned();
    // With a file of answers nobody is asked: what is not in it is chosen.
    let asks = ask::somebody() && options.answers.is_none() && !options.yes && !options.dry_run;
    let mut survey = survey::look(&admin, &answers, existing).await?;
    tell(&found(&survey))?;
    if let Some(why) = &survey.silent {
        return Err(anyhow!("{why}; nothing was changed").into());
    }
    let images = images(&survey, &answers, (existing, &admin)).await?;
    let proposal = ask_all(asks, &mut survey, &mut answers, (existing, &admin), images).await?;
    tell(&chosen(&proposal))?;
    if !proposal.missing.is_empty() {
        let all = proposal.missing.iter();
        let all = all.fold(String::new(), |text, one| text + "\n  " + one);
        return Err(
            anyhow!("these answers are missing or wrong; nothing was changed:{all}").into(),
        );
    }
    let new = new_text((&survey, existing), &answers, &proposal)?;
    let written = config::parse(&new, "what setup would write").map_err(CliFailure::Config)?;
    let newer = releases::notes(&written, &survey.pve.version);
    for note in written.warnings.iter().chain(&newer) {
        tell(&format!("note: {note}\n"))?;
    }
    if let Some(file) = &options.save_answers {
        save(
            file,
            &answers.text(&SetupAnswers::of_choices(&proposal))?,
            options,
        )?;
    }
    let of_token = (existing.settings.configured, admin.is_daemons);
    let token = token::lacking(&written, &survey.pve, of_token).await;
    let told = match &token {
        Some(TokenLack::Told(what)) => Some(what.clone()),
        _ => None,
    };
    let mut steps = steps::plan((&survey, &admin, existing), &answers, (path, &new), token)?;
    for step in &mut steps {
        step.look(&admin).await?;
    }
    if let Some(what) = &told {
        tell(&format!("\nnote: {what}\n"))?;
    }
    let lacking = tell_policy((&survey, existing), &admin, &steps)? || told.is_some();
    if steps.is_empty() {
        tell_nothing(&admin, lacking)?;
        return tell_change(options, "no");
    }
    carry_out(&steps, &admin, (options, &answers)).await
}

/// Says so where the admission policy is not in force and no step puts it there, or where the daemon has another user's kubeconfig.
fn tell_policy(
    (survey, existing): (&Survey, &Existing),
    admin: &Admin,
    steps: &[SetupStep],
) -> Result<bool, CliFailure> {
    if let PolicyFound::OtherUser(name) = &survey.policy {
        tell(&format!(
            "\nnote: {}\n",
            other_user(name, &existing.settings.kubernetes.kubeconfig)
        ))?;
        return Ok(true);
    }
    let mut steps = steps.iter();
    let made = steps.any(|step| matches!(step, SetupStep::Policy(_)));
    let lacking = survey.policy.is_missing() && !made;
    if lacking {
        let setup = admin.command("pve-autoscaler setup");
        tell(&format!(
            "\nnote: {NO_POLICY} `{setup} --kubeconfig FILE`\n"
        ))?;
    }
    Ok(lacking)
}

/// What is said where the daemon's kubeconfig is another user's, such as a copy of `admin.conf`.
fn other_user(name: &str, path: &Path) -> String {
    format!(
        "the daemon's kubeconfig {} is that of {name:?}, not of {USER}: it may do more than the daemon needs, and the admission policy does not \
         hold it. With an administrator's kubeconfig that lies elsewhere, `{}` makes the daemon's own",
        path.display(),
        kubeconfig::command_over(path)
    )
}

/// Says that there is no step; `lacking`: something is missing all the same, which was said.
fn tell_nothing(admin: &Admin, lacking: bool) -> Result<(), CliFailure> {
    let what = if lacking {
        "Nothing else is to be done"
    } else {
        "Nothing is to be done: all is as it should be"
    };
    tell(&format!(
        "\n{what}. `{}` looks closer.\n",
        admin.command("pve-autoscaler doctor")
    ))
}

/// The text that the file gets.
fn new_text(
    (survey, existing): (&Survey, &Existing),
    answers: &SetupAnswers,
    proposal: &Proposal,
) -> anyhow::Result<String> {
    if !existing.settings.configured {
        return Ok(text::new(existing, &proposal.wanted));
    }
    let mut answers = answers.clone();
    if existing.lacks_range {
        answers.proxmox.vmids = Some(proposal.wanted.vmids.clone());
    }
    let vmid = answers.template.vmid;
    let named = vmid.and_then(|vmid| templates::name_on_hosts(survey, vmid));
    text::changed(existing, &answers, named.as_deref())
}

/// The last line, for a program that runs setup again and again: whether anything was changed. A person at a terminal has seen it.
fn tell_change(options: &SetupOptions, changed: &str) -> Result<(), CliFailure> {
    if options.answers.is_none() && !options.yes {
        return Ok(());
    }
    print(&format!("changed: {changed}\n"))
}

/// Tells sentences, a line each, folded at words where this is a terminal.
fn tell(text: &str) -> Result<(), CliFailure> {
    print(&output::sentences(text))
}

/// Writes what was answered to a file; with `--dry-run` nowhere.
fn save(file: &Path, text: &str, options: &SetupOptions) -> Result<(), CliFailure> {
    if options.dry_run {
        return print(&format!(
            "\nWhat would be saved in {}:\n\n{text}",
            file.display()
        ));
    }
    options.force.check(file, SAVED)?;
    std::fs::write(file, text)
        .map_err(|error| anyhow!("cannot write the answers to {}: {error}", file.display()))?;
    Ok(())
}

/// Asks for what is worth a question, one by one, since each answer may change what is proposed next; the proposal in the end.
async fn ask_all(
    asks: bool,
    survey: &mut Survey,
    answers: &mut SetupAnswers,
    (existing, admin): (&Existing, &Admin),
    mut images: ImagesFound,
) -> Result<Proposal, CliFailure> {
    let mut asked = BTreeSet::new();
    let mut said = false;
    loop {
        let proposal = propose(survey, answers, existing, admin, &images);
        let open = proposal.choices.iter();
        let mut open = open.filter(|one| one.ask && !one.answered && !asked.contains(one.key));
        let Some(choice) = open.next().filter(|_| asks) else {
            return Ok(proposal);
        };
        if !std::mem::replace(&mut said, true) {
            tell("\nQuestions. Enter takes what is in brackets; ? says what can be answered.\n")?;
        }
        let typed = ask::about(choice)?;
        if typed.is_empty() {
            asked.insert(choice.key);
        } else if let Err(why) = take(survey, answers, (choice.key, &typed), |survey, answers| {
            propose(survey, answers, existing, admin, &images).missing
        }) {
            tell(&format!("  {why:#}\n"))?;
        } else if choice.key == "template" && !images.looked {
            images = self::images(survey, answers, (existing, admin)).await?;
        } else if choice.key.starts_with("kubernetes.") {
            *survey = survey::look(admin, answers, existing).await?;
        }
    }
}

/// Takes an answer, if nothing is wrong with it beside all others: else it is asked for once more.
fn take(
    survey: &Survey,
    answers: &mut SetupAnswers,
    (key, typed): (&str, &str),
    missing: impl Fn(&Survey, &SetupAnswers) -> Vec<String>,
) -> anyhow::Result<()> {
    // The question for a template is answered by one of two keys.
    let keys: &[&str] = match key {
        "template" => &["template", "template.vmid", "template.build"],
        key => &[key],
    };
    let of_key = |missing: Vec<String>| {
        let is_of_key = |one: &String| {
            let named = one.split(':').next();
            named.is_some_and(|named| keys.contains(&named))
        };
        missing.into_iter().find(is_of_key)
    };
    let mut with = answers.clone();
    with.set(key, typed)?;
    // What lacks for another reason lacks without this answer, too.
    let before = of_key(missing(survey, answers));
    match of_key(missing(survey, &with)).filter(|wrong| before.as_ref() != Some(wrong)) {
        Some(wrong) => bail!("{wrong}"),
        None => {
            *answers = with;
            Ok(())
        }
    }
}

/// Shows the steps, and does them after a yes.
async fn carry_out(
    steps: &[SetupStep],
    admin: &Admin,
    (options, answers): (&SetupOptions, &SetupAnswers),
) -> Result<(), CliFailure> {
    print("\nTo do\n")?;
    for (number, step) in steps.iter().enumerate() {
        let shown = step.show();
        let (title, below) = shown.split_once('\n').unwrap_or((&shown, ""));
        tell(&format!("  {}. {title}\n", number + 1))?;
        // Commands and files are for whoever copies them.
        print(below)?;
    }
    if options.dry_run {
        print("\nNothing was changed (--dry-run).\n")?;
        return tell_change(options, "would be");
    }
    if !options.yes {
        if !ask::somebody() {
            let text =
                "nobody can be asked here: look at the list, then say --yes; nothing was changed";
            return Err(anyhow!(text).into());
        }
        if !ask::whether(&format!("\nDo {}?", words::count(steps.len(), "step")))? {
            print("Nothing was changed.\n")?;
            if *answers != SetupAnswers::default() && options.save_answers.is_none() {
                let text = answers.text(&SetupAnswers::default())?;
                print(&format!(
                    "What you answered, for a file that --answers takes:\n\n{text}"
                ))?;
            }
            return Ok(());
        }
    }
    let mut hints = OwnerHints::default();
    for (number, step) in steps.iter().enumerate() {
        let title = step.show();
        let title = title.lines().next().unwrap_or_default();
        tell(&format!("{}. {title}\n", number + 1))?;
        if let Err(failure) = step.run(admin, &mut hints).await {
            tell(&hints.show())?;
            tell(&format!(
                "  FAILED at step {} of {}; what came before is done. Run setup again when it is mended: it goes on with what is missing.\n",
                number + 1,
                steps.len()
            ))?;
            return Err(failure);
        }
    }
    tell(&hints.show())?;
    tell(&format!(
        "\nDone. Look at it: {}; pve-autoscaler status; pve-autoscaler plan\n",
        admin.command("pve-autoscaler doctor")
    ))?;
    tell_change(options, "yes")
}

/// Looks for what a template could be built of, where one may have to be built: the newest image of Debian where no image is answered;
/// the volumes of storages where Debian's mirror cannot be reached, or where a volume is answered.
async fn images(
    survey: &Survey,
    answers: &SetupAnswers,
    (existing, admin): (&Existing, &Admin),
) -> Result<ImagesFound, CliFailure> {
    let template = &answers.template;
    let mut found = ImagesFound::default();
    if existing.settings.configured || template.build == Some(false) {
        return Ok(found);
    }
    if template.build.is_none() && (template.vmid.is_some() || templates::has_likely(survey)) {
        return Ok(found);
    }
    found.looked = true;
    let unknown = match &template.image {
        Some(image) => images::is_volume(image),
        None => {
            let mirror = template.mirror.as_deref().unwrap_or(images::MIRROR);
            match images::newest(mirror).await {
                Ok(image) => found.newest = Some(image),
                Err(why) => tell(&format!("note: {mirror}: {why:#}\n"))?,
            }
            found.newest.is_none()
        }
    };
    if unknown {
        let resources = &survey.pve.resources;
        found.look_for_volumes(&admin.client, resources).await;
    }
    Ok(found)
}

/// What is proposed: all, or, where the file is configured, only how the cluster is reached, and the range that its region lacks.
fn propose(
    survey: &Survey,
    answers: &SetupAnswers,
    existing: &Existing,
    admin: &Admin,
    images: &ImagesFound,
) -> Proposal {
    if existing.settings.configured {
        let mut proposal = Proposal::default();
        choose::kubernetes(survey, answers, &mut proposal);
        if existing.lacks_range {
            choose::range(survey, answers, &mut proposal);
        }
        choose::sizes(survey, answers, existing, &mut proposal);
        choose::check_named(survey, answers, &mut proposal);
        return proposal;
    }
    choose::choose(survey, answers, (existing, admin.here), images)
}

/// What was found, in a few lines.
fn found(survey: &Survey) -> String {
    let (pve, mut text) = (&survey.pve, String::from("Found\n"));
    let name = pve
        .status
        .name
        .as_deref()
        .map_or(String::new(), |name| format!(" {name}"));
    let _ = writeln!(
        text,
        "  PVE {}, {}{name}: {}, {}",
        pve.version.version,
        if pve.status.name.is_some() {
            "cluster"
        } else {
            "a host alone"
        },
        words::count(pve.resources.hosts.len(), "host"),
        words::count(pve.resources.guests.len(), "guest"),
    );
    if !pve.status.quorate {
        text.push_str("  WARNING: the cluster has no quorum; PVE changes nothing until it has\n");
    }
    let hosts = pve.resources.hosts.iter().map(|(name, host)| {
        let bridges = pve.bridges.get(name).into_iter().flatten();
        let bridges: Vec<&str> = bridges.map(|(bridge, _)| &**bridge).collect();
        let state = if host.online { "online" } else { "OFFLINE" };
        vec![
            name.to_string(),
            state.to_owned(),
            host.cpus.to_string(),
            words::bytes(host.memory),
            bridges.join(","),
        ]
    });
    let hosts: Vec<Vec<String>> = hosts.collect();
    text.push_str(&table(
        &["HOST", "STATE", "CPUS", "MEMORY", "BRIDGES"],
        &hosts,
    ));
    match &survey.kube {
        Some(kube) => {
            let _ = writeln!(
                text,
                "  Kubernetes {} at {}: {}",
                kube.version,
                kube.server,
                words::count(kube.nodes.len(), "node")
            );
        }
        None if survey.silent.is_some() => {
            text.push_str("  Kubernetes: its API server does not answer\n");
        }
        None => text.push_str("  Kubernetes: no kubeconfig leads to it yet\n"),
    }
    if let Some(named) = survey.ours.named() {
        let count = words::count(survey.ours.count(), "machine");
        let _ = writeln!(text, "  {count} of ours, by the marks of the VMs: {named}");
    }
    text.extend(survey.policy.show());
    text
}

/// What was chosen, and why.
fn chosen(proposal: &Proposal) -> String {
    let mut text = String::new();
    if !proposal.choices.is_empty() {
        text.push_str("\nChosen\n");
    }
    let widest = proposal.choices.iter().map(|choice| choice.key.len()).max();
    for choice in &proposal.choices {
        let (key, value, width) = (choice.key, &choice.value, widest.unwrap_or(0));
        let _ = writeln!(text, "  {key:width$}  {value}");
        if !choice.answered {
            let _ = writeln!(text, "      {}", choice.why);
        }
    }
    for note in &proposal.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}
