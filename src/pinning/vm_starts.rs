//! News of VMs that start on this host: the kernel tells (inotify) when QEMU makes its files in PVE's directory for them.
//!
//! News only bring the next look forward. It is the same look, and what was missed here it finds when it is due: where the directory is not there
//! yet, where it was made anew, or where the kernel gives no watch.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Roots;

/// QEMU's vCPU threads come after its files: at once, or seconds later where it takes much memory first. These times lie between the news and a
/// look, and then from look to look, until nothing is left to do.
const RESTS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// What QEMU makes when it starts: the file with its process id, and the socket by which PVE speaks to it. One of them may be left from before.
const ENDS: [&str; 2] = [".pid", ".qmp"];

/// A watch on a directory.
#[derive(Debug)]
struct FolderWatch {
    inotify: Inotify,
    /// The same once more, which the runtime watches: it wants no more of a pipe than that it can be waited for.
    ready: pipe::Receiver,
}

impl FolderWatch {
    /// Begins one.
    fn on(folder: &Path) -> io::Result<FolderWatch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let flags =
            AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(folder, flags)?;
        let again = inotify.as_fd().try_clone_to_owned()?;
        let ready = pipe::Receiver::from_owned_fd_unchecked(again)?;
        Ok(FolderWatch { inotify, ready })
    }

    /// The next that the kernel tells, but for files that are nothing to us.
    async fn news(&self) -> io::Result<FolderNews> {
        loop {
            self.ready.readable().await?;
            match self.ready.try_io(|| Ok(self.inotify.read_events()?)) {
                Ok(events) => {
                    if let Some(news) = events.iter().find_map(meaning) {
                        return Ok(news);
                    }
                }
                // Nothing was there.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderNews {
    /// A VM starts.
    Start,
    /// The directory is gone, and with it the watch.
    Gone,
}

/// Waits for VMs that start on this host.
#[derive(Debug)]
pub struct VmStarts {
    folder: PathBuf,
    watch: Option<FolderWatch>,
    /// Why the kernel gives no watch, once it was told.
    told: Option<String>,
}

impl VmStarts {
    /// Those of a host, from now on. It needs the runtime of tokio.
    pub fn of(roots: &Roots) -> VmStarts {
        let mut starts = VmStarts {
            folder: roots.run.join("qemu-server"),
            watch: None,
            told: None,
        };
        starts.begin();
        starts
    }

    /// Waits for a VM that starts, or for so long; whether one does, or may have while nobody watched. VMs that started since the last call count.
    pub async fn wait(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        if self.watch.is_none() && self.begin() {
            return true;
        }
        let Some(watch) = &self.watch else {
            sleep_until(end).await;
            return false;
        };
        match timeout_at(end, watch.news()).await {
            Err(_) => return false,
            Ok(Ok(FolderNews::Start)) => return true,
            Ok(Ok(FolderNews::Gone)) => {}
            Ok(Err(error)) => self.tell(&error),
        }
        // The next call begins anew.
        self.watch = None;
        sleep_until(end).await;
        false
    }

    /// Forgets what the kernel told until now: the look that begins sees it.
    pub fn forget(&mut self) {
        let Some(watch) = &self.watch else { return };
        let mut gone = false;
        while let Ok(events) = watch.inotify.read_events() {
            let mut all = events.iter().filter_map(meaning);
            gone |= all.any(|news| news == FolderNews::Gone);
        }
        if gone {
            self.watch = None;
        }
    }

    /// Begins to watch; whether it did.
    fn begin(&mut self) -> bool {
        match FolderWatch::on(&self.folder) {
            Ok(watch) => {
                self.watch = Some(watch);
                self.told = None;
                true
            }
            // No VM was started since the host did.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                self.tell(&error);
                false
            }
        }
    }

    /// Logs, once, that starts are not noticed by themselves.
    fn tell(&mut self, error: &io::Error) {
        let why = error.to_string();
        if self.told.as_ref() != Some(&why) {
            let folder = self.folder.display();
            tracing::warn!(%folder, error = why, "the kernel does not tell when a VM starts here; it is noticed by the next look that is due");
            self.told = Some(why);
        }
    }
}

/// What an event is to us.
fn meaning(event: &InotifyEvent) -> Option<FolderNews> {
    // Where the kernel has more to tell than it keeps, a start may be among it.
    if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
        return Some(FolderNews::Start);
    }
    if event.mask.contains(AddWatchFlags::IN_IGNORED) {
        return Some(FolderNews::Gone);
    }
    let name = event.name.as_ref()?.to_str()?;
    let starts = ENDS.iter().any(|end| name.ends_with(end));
    starts.then_some(FolderNews::Start)
}

/// When the next look is due.
#[derive(Debug)]
pub struct LookTimes {
    every: Duration,
    /// Rests that were taken since the last news.
    taken: usize,
}

impl LookTimes {
    /// A look so often, and more only after news.
    pub fn every(every: Duration) -> LookTimes {
        LookTimes {
            every,
            taken: RESTS.len(),
        }
    }

    /// How long to wait after a look; `settled`: it found nothing that it could not do.
    pub fn after_look(&mut self, settled: bool) -> Duration {
        if settled {
            self.taken = RESTS.len();
        }
        self.rest()
    }

    /// How long to wait after news: more of them come with one start.
    pub fn after_news(&mut self) -> Duration {
        self.taken = 0;
        self.rest()
    }

    fn rest(&mut self) -> Duration {
        let rest = RESTS.get(self.taken).copied().unwrap_or(self.every);
        self.taken += 1;
        rest.min(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough that a wait which ends before was woken.
    const LONG: Duration = Duration::from_mins(10);
    /// In this time nothing comes.
    const SHORT: Duration = Duration::from_millis(50);

    fn simulate(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(work);
    }

    #[test]
    fn files_of_a_start_are_news_and_others_are_not() {
        simulate(async {
            let directory = tempfile::tempdir().expect("a directory");
            let roots = Roots::below(directory.path());
            let folder = roots.run.join("qemu-server");
            std::fs::create_dir_all(&folder).expect("made");
            let write = |name: &str| std::fs::write(folder.join(name), "1\n").expect("written");
            write("909.pid");
            let mut starts = VmStarts::of(&roots);
            assert!(!starts.wait(SHORT).await, "it was there before");
            for name in ["910.vnc", "910.serial0", "910.pid.tmp", "pid"] {
                write(name);
            }
            assert!(!starts.wait(SHORT).await, "no VM starts");
            for name in ["910.pid", "911.qmp"] {
                write(name);
                assert!(starts.wait(LONG).await, "{name}");
                // What a look does to the files is no news.
                std::fs::read(folder.join(name)).expect("read");
                assert!(!starts.wait(SHORT).await, "{name}, once more");
            }
            std::fs::rename(folder.join("910.pid.tmp"), folder.join("912.pid")).expect("renamed");
            assert!(starts.wait(LONG).await, "it is moved there");
            // A burst is seen by one look.
            for vmid in 1000..1100 {
                write(&format!("{vmid}.pid"));
            }
            assert!(starts.wait(LONG).await);
            starts.forget();
            assert!(!starts.wait(SHORT).await, "all of them were forgotten");
            // While nobody waits, too.
            write("913.pid");
            tokio::time::sleep(SHORT).await;
            assert!(starts.wait(LONG).await);
        });
    }

    #[test]
    fn a_directory_that_comes_later_or_anew_is_watched_from_the_next_look_on() {
        simulate(async {
            let directory = tempfile::tempdir().expect("a directory");
            let roots = Roots::below(directory.path());
            let folder = roots.run.join("qemu-server");
            let mut starts = VmStarts::of(&roots);
            assert!(!starts.wait(SHORT).await);
            for round in 0..2 {
                std::fs::create_dir_all(&folder).expect("made");
                // A VM may have come before the watch.
                assert!(starts.wait(LONG).await, "{round}");
                assert!(!starts.wait(SHORT).await, "{round}: it is told once");
                std::fs::write(folder.join("910.pid"), "").expect("written");
                assert!(starts.wait(LONG).await, "{round}");
                std::fs::remove_dir_all(&folder).expect("removed");
                if round == 0 {
                    // A look begins first.
                    starts.forget();
                }
                assert!(!starts.wait(SHORT).await, "{round}: it is gone");
            }
        });
    }

    #[test]
    fn after_news_looks_come_soon_until_nothing_is_left_to_do() {
        let every = Duration::from_secs(30);
        let mut looks = LookTimes::every(every);
        assert_eq!(looks.after_look(false), every, "there were no news");
        assert_eq!(looks.after_news(), RESTS[0]);
        for rest in &RESTS[1..] {
            assert_eq!(looks.after_look(false), *rest);
        }
        assert_eq!(looks.after_look(false), every, "it does not end by itself");
        assert_eq!(looks.after_news(), RESTS[0]);
        assert_eq!(looks.after_look(true), every);
        assert_eq!(looks.after_look(false), every, "a later fault is no start");
        // Whoever looks each second does so.
        let mut often = LookTimes::every(Duration::from_secs(1));
        assert_eq!(often.after_news(), RESTS[0]);
        for _ in 0..9 {
            assert_eq!(often.after_look(false), Duration::from_secs(1));
        }
    }
}
