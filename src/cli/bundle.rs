//! `support-bundle`: all that a bug report needs, in one archive, without secrets, and without names where somebody asks for that.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command as Process;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::args::{CONTROL_SOCKET, PartOptions, STATE_DIRECTORY, SupportBundleOptions};
use super::known_secrets::{self, KnownSecrets};
use super::names::NameHasher;
use super::redact::without_secrets;
use super::times::{local, part};
use super::{CliFailure, metrics_page, output, runtime, write};
use crate::bounded_file;
use crate::clock::Clock;
use crate::config;
use crate::config::settings::WebSettings;
use crate::controller::control::{self, ControlCommand};
use crate::controller::journal;
use crate::controller::status::directory_of;
use crate::record::{Filter, History};

/// A program that is asked something has this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Doctor looks at all side by side, at each for 20 seconds at most, and at some after others.
const DOCTOR_PATIENCE: Duration = Duration::from_secs(90);
/// What a program says is cut after this many bytes.
const MOST: usize = 16 << 20;

/// What is asked of the host, by the file that its answer becomes.
const ASKED: [(&str, &[&str]); 4] = [
    ("versions/pve.txt", &["pveversion", "-v"]),
    (
        "versions/packages.txt",
        &["dpkg-query", "-W", "pve-autoscaler", "systemd", "libc6"],
    ),
    ("versions/kernel.txt", &["uname", "-srvm"]),
    (
        "units.txt",
        &[
            "systemctl",
            "show",
            "pve-autoscaler.service",
            "pve-autoscaler-broker.service",
            "pve-autoscaler-mail.socket",
            "pve-autoscaler-pinning.service",
            "--property=Id,ActiveState,SubState,StatusText,NRestarts,MemoryCurrent,ExecMainStatus",
        ],
    ),
];

/// Asks for the log of the daemon, the broker, each mail that was sent, and the pinning, behind which stands since when.
const LOG: [&str; 7] = [
    "journalctl",
    "--unit=pve-autoscaler",
    "--unit=pve-autoscaler-broker",
    "--unit=pve-autoscaler-mail@*",
    "--unit=pve-autoscaler-pinning",
    "--no-pager",
    "--output=short-iso-precise",
];

/// Files of the daemon's own directory that a crash leaves, and what they are called in the archive.
const STATE: [(&str, &str); 4] = [
    ("memory.json", "state/memory.json"),
    ("memory.json.set-aside", "state/memory-set-aside.json"),
    ("panics.json", "state/panics.json"),
    (VIEW, "state/panicked-view.json"),
];
/// The view on which a decision panicked.
const VIEW: &str = "panicked-view.json";
/// Where entries of the journal are in the archive.
const JOURNAL: &str = "state/journal/";
/// Entries of the journal that go into it at most: one is a machine that is made or removed.
const ENTRIES: usize = 1000;

/// What an archive without names says of itself.
const HASHED: &str = "\
Names in this archive are hashed: `pve-autoscaler support-bundle --hash-names` wrote it.

Each name is replaced by a token: x and four letters or digits, such as x4k2p. The same name has the same token in all files here,
and another one in every other archive: the tokens come of a random number that was thrown away. Parts of a name that are joined by
- . / : @ and _ have a token each, so that a machine shows its pool, and a pod its ReplicaSet. So it is with names of pods,
namespaces, nodes, hosts, machines, pools, templates, instance types, regions, networks, storages, labels, images, people, files,
servers and domains. Addresses become addresses that nobody has: IPv4 in 240.0.0.0/5, IPv6 in 2001:db8::/32, both with the last number
as it was, MAC addresses and fingerprints that begin with 02. UUIDs become other UUIDs.

What stays is all that is no name:
- numbers, VMIDs, ports, sizes, times, versions
- the program's own words: keys of the configuration and of JSON, words of its sentences
- words of Kubernetes and PVE, such as kube-system, default, kubernetes.io, NoSchedule, local-lvm, vmbr0
- in a name, numbers of three digits at most, such as the 0 of a StatefulSet's first pod

A name that is itself one of these words, such as a pool `batch`, stays; so does one of its sentences' words where it stands in a line
of the log and nowhere else. Any other word that the program does not know is replaced, also where it was no name.

`pve-autoscaler history --record record` tells what was decided. `replay` reads the record, too, but may decide otherwise than the
daemon did: where all else is alike, names decide by their order, and tokens have another.

Look through the files before you send them.
";

/// Gathers it.
pub(super) fn run(config: &Path, options: &SupportBundleOptions) -> Result<(), CliFailure> {
    let stamp = local(Clock::System.now(), &jiff::tz::TimeZone::UTC);
    let stamp: String = stamp.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("pve-autoscaler-support-{stamp}");
    let file = match &options.file {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{name}.tar.gz")),
    };
    let part = part(&PartOptions {
        since: Some(options.since.clone()),
        until: None,
    })?;
    if file.exists() {
        return Err(
            anyhow::anyhow!("{} exists already; --file names another", file.display()).into(),
        );
    }
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(anyhow::anyhow!(
            "--file {}: there is no directory {}; make it, or name another file",
            file.display(),
            parent.display()
        )
        .into());
    }
    let mut stage = file.clone().into_os_string();
    stage.push(".partial");
    let stage = PathBuf::from(stage);
    let gathered = gather(config, (options, &part), &stage.join(&name))
        .and_then(|missing| pack(&stage, &name, &file).map(|()| missing));
    let _ = fs::remove_dir_all(&stage);
    let missing = gathered?;
    let names = match (options.hash_names, options.without_record) {
        (true, _) => "Names in it are hashed; its README.txt says what is not",
        (false, true) => "It has names of pods, nodes and hosts; --hash-names hashes them",
        (false, false) => {
            "It has names of pods, nodes and hosts; --hash-names hashes them. They are also in the record of decisions; \
             --without-record leaves that out"
        }
    };
    let mut text = format!(
        "{} is written. Secrets are blotted out of it by their keys and forms; look through configuration.toml before others see it. \
         {names}.\n",
        file.display(),
    );
    for missing in &missing {
        let _ = writeln!(text, "not in it: {missing}");
    }
    write(&output::sentences(&text))
}

/// Files of the bundle with their text, without secrets, and what could not be had.
#[derive(Default)]
struct BundleParts {
    had: Vec<(Cow<'static, str>, String)>,
    missing: Vec<String>,
}

impl BundleParts {
    fn add(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        text: anyhow::Result<String>,
        known: &KnownSecrets,
    ) {
        let name = name.into();
        match text {
            Ok(text) => self.had.push((name, clean(known, &text))),
            Err(error) => self
                .missing
                .push(format!("{name}: {}", super::said(&error))),
        }
    }
}

/// A text without secrets.
fn clean(known: &KnownSecrets, text: &str) -> String {
    without_secrets(&known.blotted(text)).into_owned()
}

/// Writes all parts below `folder`. Gives what could not be had.
fn gather(
    config: &Path,
    (options, part): (&SupportBundleOptions, &Filter),
    folder: &Path,
) -> anyhow::Result<Vec<String>> {
    let runtime = runtime().map_err(|_| anyhow::anyhow!("there can be no runtime"))?;
    let status = runtime.block_on(control::ask(
        &options.control.socket,
        &ControlCommand::Status,
    ));
    let state = find_state_directory(options, status.as_ref().ok());
    let at = state.as_deref().unwrap_or(Path::new(STATE_DIRECTORY));
    let status = status.map_err(anyhow::Error::from);
    let (mut parts, known) = asked_for(config, (options, at, part), status, &runtime);
    add_state(&mut parts, (options, at), &known);
    let clean = |text: &str| clean(&known, text);
    let history = if options.without_record {
        None
    } else {
        let record = state.map(|state| state.join(crate::record::DIRECTORY));
        let history = record.and_then(|record| History::open(&record).map_err(of_the_record));
        history.map_err(|missing| parts.missing.push(missing)).ok()
    };
    let mut hasher = options.hash_names.then(NameHasher::new).transpose()?;
    if let Some(hasher) = &mut hasher {
        for (name, text) in &parts.had {
            hasher.learn(name, text);
        }
        if let Some(history) = &history {
            // What cannot be read now is told of when it is copied.
            let _ = history.texts(part, &mut |text: &str| hasher.learn_json(text));
        }
        keep(folder, "README.txt", HASHED.as_bytes())?;
    }
    let hashed = |name: &str, text: String| match &hasher {
        Some(hasher) => hasher.hashed(name, &text),
        None => text,
    };
    for (name, text) in parts.had {
        let text = hashed(&name, text);
        // An entry has its machine's name.
        let file = match name.strip_prefix(JOURNAL) {
            Some(entry) => {
                let (machine, form) = entry.rsplit_once('.').unwrap_or((entry, "txt"));
                format!("{JOURNAL}{}.{form}", hashed("", machine.to_owned()))
            }
            None => name.into_owned(),
        };
        keep(folder, &file, text.as_bytes())?;
    }
    if let Some(history) = history {
        let to = folder.join(crate::record::DIRECTORY);
        make(&to)?;
        let copied = history.copy(part, &to, &|text: &str| match &hasher {
            Some(hasher) => hasher.hashed_json(&clean(text)),
            None => clean(text),
        });
        if let Err(error) = copied {
            parts.missing.push(of_the_record(error));
        }
    }
    let list = clean(&parts.missing.join("\n"));
    keep(
        folder,
        "missing.txt",
        hashed("missing.txt", list).as_bytes(),
    )?;
    Ok(parts.missing)
}

fn of_the_record(error: impl std::fmt::Display) -> String {
    format!("the record of decisions: {error}")
}

/// The daemon's own directory: as the command line names it, else that of the daemon which answers (`status` is its answer), else the
/// package's, where the socket is the package's, too. The record of another daemon must not stand for the one that was asked for.
fn find_state_directory(
    options: &SupportBundleOptions,
    status: Option<&Value>,
) -> Result<PathBuf, String> {
    if let Some(directory) = &options.state_directory {
        return Ok(directory.clone());
    }
    let record = status.and_then(|status| status.get("record")?.as_str());
    if let Some(directory) = record.and_then(directory_of) {
        return Ok(directory.to_owned());
    }
    let socket = &options.control.socket;
    if socket == Path::new(CONTROL_SOCKET) {
        return Ok(PathBuf::from(STATE_DIRECTORY));
    }
    Err(of_the_record(format_args!(
        "the daemon at {} does not say where it is; --state-directory names the directory that has it",
        socket.display()
    )))
}

/// All parts but the record, and the secrets that the configuration names. `state` is the daemon's own directory, `status` what it says.
fn asked_for(
    config: &Path,
    (options, state, part): (&SupportBundleOptions, &Path, &Filter),
    status: anyhow::Result<Value>,
    runtime: &Runtime,
) -> (BundleParts, KnownSecrets) {
    let read = fs::read_to_string(config).with_context(|| config.display().to_string());
    let read = read.and_then(|text| known_secrets::of_configuration(&text));
    let (configuration, known) = match read {
        Ok((text, known)) => (Ok(text), known),
        Err(error) => (Err(error), KnownSecrets::default()),
    };
    let mut parts = BundleParts::default();
    let mut had = |name: &'static str, text| parts.add(name, text, &known);
    let about = format!(
        "pve-autoscaler {}, support bundle of {}\n",
        env!("CARGO_PKG_VERSION"),
        Clock::System.now()
    );
    had("about.txt", Ok(about));
    had("configuration.toml", configuration);
    let (checked, web) = match config::load(config) {
        Ok(settings) => (
            format!("valid\n{}\n", settings.warnings.join("\n")),
            settings.web,
        ),
        // The lines themselves may have secrets, and configuration.toml has the lines.
        Err(errors) => (errors.without_values().to_string(), WebSettings::default()),
    };
    had("check.txt", Ok(checked));
    let plan = control::ask(&options.control.socket, &ControlCommand::Plan);
    let plan = runtime.block_on(plan).map_err(anyhow::Error::from);
    for (name, answer) in [("status.json", status), ("plan.json", plan)] {
        had(
            name,
            answer.and_then(|value| Ok(serde_json::to_string_pretty(&value)?)),
        );
    }
    had("metrics.prom", runtime.block_on(metrics_page::read(&web)));
    for (name, words) in ASKED {
        had(name, runtime.block_on(said(words)));
    }
    // Of what is older nothing is in the record either.
    let since = part
        .since
        .map(|since| format!("--since=@{}", since.0 / 1000));
    let log: Vec<&str> = LOG.into_iter().chain(since.as_deref()).collect();
    had("journal.txt", runtime.block_on(said(&log)));
    had(
        "doctor.json",
        runtime.block_on(examined(config, options, state)),
    );
    (parts, known)
}

/// Adds what lies in the daemon's own directory besides the record. A file that is not there is nothing that is missing: most are left by faults.
fn add_state(
    parts: &mut BundleParts,
    (options, state): (&SupportBundleOptions, &Path),
    known: &KnownSecrets,
) {
    let read = |path: &Path| {
        let text = bounded_file::read_text(path, bounded_file::SNAPSHOT);
        text.with_context(|| format!("cannot read {}", path.display()))
    };
    for (file, name) in STATE {
        let path = state.join(file);
        // A view has as many names as the record.
        let left_out = options.without_record && file == VIEW;
        if path.exists() && !left_out {
            parts.add(name, read(&path), known);
        }
    }
    let folder = state.join(journal::DIRECTORY);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => {
            let why = format!("{JOURNAL}: cannot read {}: {error}", folder.display());
            parts.missing.push(why);
            return;
        }
    };
    let entries = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut entries: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    entries.sort_unstable();
    if let Some(more) = entries.len().checked_sub(ENTRIES).filter(|more| *more > 0) {
        parts
            .missing
            .push(format!("{JOURNAL}: {more} more entries"));
    }
    for path in entries.iter().take(ENTRIES) {
        if let Some(file) = path.file_name() {
            let name = format!("{JOURNAL}{}", file.to_string_lossy());
            parts.add(name, read(path), known);
        }
    }
}

/// Runs `pve-autoscaler doctor` and gives its JSON. It is another process, as doctor gives up root's rights and cannot take them
/// back, and the bundle's other parts are read as root.
async fn examined(
    config: &Path,
    options: &SupportBundleOptions,
    state: &Path,
) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let mut asked = Process::new(program);
    asked
        .args(["doctor", "--output", "json", "--config"])
        .arg(config)
        .arg("--state-directory")
        .arg(state)
        .arg("--socket")
        .arg(&options.control.socket)
        .arg("--user")
        .arg(&options.user)
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null());
    let output = timeout(DOCTOR_PATIENCE, asked.output())
        .await
        .with_context(|| format!("it was not done after {} s", DOCTOR_PATIENCE.as_secs()))?
        .context("cannot run it")?;
    // Doctor's exit code is not 0 where it finds something wrong, so the code is not looked at. Without any JSON it could not
    // begin; its error on stderr may quote lines of the configuration, which may have secrets, and is left out.
    if output.stdout.is_empty() {
        bail!("it could not begin; type `pve-autoscaler doctor` to see why");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a program prints.
async fn said(words: &[&str]) -> anyhow::Result<String> {
    let Some((program, arguments)) = words.split_first() else {
        bail!("there is no program to ask");
    };
    let mut asked = Process::new(program);
    asked
        .args(arguments)
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let output = async {
        let mut child = asked.spawn()?;
        let (said, failure) = (child.stdout.take(), child.stderr.take());
        let (said, failure, status) = tokio::join!(end_of(said), end_of(failure), child.wait());
        std::io::Result::Ok((said?, failure?, status?))
    };
    let (said, failure, status) = timeout(PATIENCE, output)
        .await
        .with_context(|| format!("{program} said nothing for {} s", PATIENCE.as_secs()))?
        .with_context(|| format!("cannot run {program}"))?;
    let mut text = String::from_utf8_lossy(&said).into_owned();
    if !status.success() {
        text.push_str(&String::from_utf8_lossy(&failure));
    }
    Ok(text)
}

/// The last [`MOST`] bytes that come: a log may be longer than memory.
async fn end_of(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let Some(mut from) = from else {
        return Ok(Vec::new());
    };
    let (mut kept, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = from.read(&mut piece).await?;
        kept.extend_from_slice(piece.get(..read).unwrap_or_default());
        let most = if read == 0 { MOST } else { 2 * MOST };
        if kept.len() > most {
            kept.drain(..kept.len() - MOST);
        }
        if read == 0 {
            return Ok(kept);
        }
    }
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes one part.
fn keep(folder: &Path, name: &str, text: &[u8]) -> anyhow::Result<()> {
    let path = folder.join(name);
    make(path.parent().unwrap_or(folder))?;
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the archive, for its owner alone.
fn pack(stage: &Path, name: &str, file: &Path) -> anyhow::Result<()> {
    let archive = stage.join("archive.tar.gz");
    let packed = std::process::Command::new("tar")
        .arg("--create")
        .arg("--gzip")
        // Who made it is nobody's business.
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(stage)
        .arg(name)
        .output()
        .context("cannot run tar")?;
    if !packed.status.success() {
        bail!(
            "tar could not make the archive: {}",
            String::from_utf8_lossy(&packed.stderr)
        );
    }
    fs::set_permissions(&archive, fs::Permissions::from_mode(0o600))?;
    fs::rename(&archive, file).with_context(|| format!("cannot write {}", file.display()))
}
