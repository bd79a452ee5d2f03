//! Processes of the program under test, and the arena in which they find what a PVE host has.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where the programs are: with the bench they were built with, or where this variable says.
fn programs() -> PathBuf {
    let named = std::env::var_os("PVE_AUTOSCALER_PROGRAMS").map(PathBuf::from);
    let built = Path::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    named.unwrap_or_else(|| built.parent().unwrap_or(built).to_owned())
}
/// The argument of a bench that runs in the arena.
const INSIDE: &str = "--inside";
/// The daemon's user.
pub(crate) const USER: &str = "pve-autoscaler";

/// A path of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether this process runs in the arena.
pub(crate) fn inside() -> bool {
    std::env::args().any(|argument| argument == INSIDE)
}

/// Becomes this program in the arena of the end-to-end test, a network and mounts of its own.
///
/// # Errors
/// Why that cannot be; then nothing has happened.
pub(crate) fn enter_arena() -> Result<std::convert::Infallible, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the broker needs root".to_owned());
    }
    let needed = ["ip", "openssl", "perl", "python3", "setpriv", "useradd"];
    for tool in needed {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{tool} is missing"));
        }
    }
    let tried = Command::new("unshare")
        .args([
            "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "true",
        ])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        return Err("no namespaces can be made here".to_owned());
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let error = Command::new(repository("tests/e2e/arena"))
        .arg(this)
        .args(std::env::args_os().skip(1))
        .arg(INSIDE)
        .exec();
    Err(format!("the arena cannot be entered: {error}"))
}

/// Makes the arena a PVE host, as the end-to-end test does: certificate, PVE's modules for tickets,
/// the daemon's user and the directories of the package.
pub(crate) fn furnish(directory: &Path, host: &str, address: &str, password: &str) {
    let root = directory.join("pve-root");
    let mount = repository("tests/e2e/pve-root/mount");
    run(Command::new(mount)
        .arg(root)
        .args([host, address, password]));
    let script = format!(
        "useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {USER} &&
         install -d -m 1770 -o root -g {USER} /run/pve-autoscaler &&
         install -d -m 0750 -o root -g {USER} /etc/pve-autoscaler &&
         install -d -m 0700 -o {USER} -g {USER} /var/lib/pve-autoscaler &&
         install -d -m 0700 /var/lib/pve-autoscaler-broker"
    );
    run(Command::new("sh").args(["-ec", &script]));
}

fn run(command: &mut Command) {
    let done = command.stdout(Stdio::null()).status();
    let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.success(), "{command:?}: {done}");
}

/// One of the two services as a process; it is killed with its value.
pub(crate) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts the program of a unit, as `user` where one is given, with the environment that
    /// `unit` sets and without the capabilities that systemd takes away.
    pub(crate) fn start(
        directory: &Path,
        unit: &str,
        arguments: &[&str],
        user: Option<&str>,
    ) -> Service {
        let log = directory.join(format!("{unit}.log"));
        let file = File::create(&log).expect("the log can be made");
        let again = file.try_clone().expect("the log can be made");
        let mut command = if let Some(user) = user {
            let mut command = Command::new("setpriv");
            command.args(["--no-new-privs", "--inh-caps=-all"]);
            if user == "root" {
                // The broker makes its socket itself here and gives it to the group.
                command.arg("--bounding-set=-all,+chown");
            } else {
                command.args([
                    "--bounding-set=-all",
                    &format!("--reuid={user}"),
                    &format!("--regid={user}"),
                    "--clear-groups",
                ]);
            }
            command.arg(program(unit));
            command
        } else {
            Command::new(program(unit))
        };
        let child = command
            .args(arguments)
            .envs(environment(unit))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Service {
            name: unit.to_owned(),
            child,
            log,
        }
    }

    /// Its process id: `setpriv` becomes what it starts.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its unit's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until a look at it succeeds.
    ///
    /// # Panics
    /// When it ended or the time is up; its log is in the message.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> Result<(), String>,
    ) {
        let end = tokio::time::Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended with {status}:\n{}", self.name, self.said());
            }
            let Err(why) = look().await else { return };
            assert!(
                tokio::time::Instant::now() < end,
                "{what}: not within {} s: {why}\n{}",
                limit.as_secs(),
                self.said()
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that a unit runs, as cargo calls it: that of the daemon's unit has more in its name.
fn program(unit: &str) -> PathBuf {
    programs().join(match unit {
        "pve-autoscaler" => "pve-autoscaler-daemon",
        other => other,
    })
}

/// What a unit of ours sets in its service's environment.
fn environment(unit: &str) -> Vec<(String, String)> {
    let path = repository("systemd").join(format!("{unit}.service"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .flat_map(str::split_whitespace)
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
