//! The file of a user's rules, read at the start and whenever it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use divvy_api::rules::{self, Rules, RulesError};
use divvy_linux::clock;
use divvy_policy::Nanos;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// An editor writes a file in several steps: what it comes to is read this long after the first.
const SETTLE: Nanos = Nanos::from_millis(50);

/// What the file said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    /// `None` where there is no file.
    pub(crate) rules: Result<Option<Rules>, RulesError>,
}

impl Loaded {
    fn read(path: &Path) -> Self {
        Self { path: path.to_owned(), rules: rules::read(path) }
    }
}

/// A file of rules that is followed: what it says goes to `take` whenever it is something else than before. Clones are of the
/// same file.
#[derive(Clone)]
pub(crate) struct RulesFile {
    path: PathBuf,
    /// What was handed over last.
    last: Arc<Mutex<Option<Loaded>>>,
    take: Arc<dyn Fn(Loaded) + Send + Sync>,
}

impl std::fmt::Debug for RulesFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RulesFile {
    /// Hands what the file says to `take`, now and whenever it says something else, until the process ends. Where the kernel
    /// does not tell of changes, that is said, and it is read when it is asked for.
    pub(crate) fn watch(path: PathBuf, take: impl Fn(Loaded) + Send + Sync + 'static) -> Self {
        let file = Self { path, last: Arc::default(), take: Arc::new(take) };
        file.refresh();
        let followed = file.clone();
        let follow = move || {
            if let Err(e) = follow(&followed) {
                crate::say(format_args!(
                    "the rules are not read again when they change: watch their file: {e}"
                ));
            }
        };
        if let Err(e) = std::thread::Builder::new().name("divvyd-rules".into()).spawn(follow) {
            crate::say(format_args!("the rules are not read again when they change: start a thread: {e}"));
        }
        file
    }

    /// Reads the file, and hands over what it says if that is something new: whoever asks for the rules afterwards is told of
    /// these, however shortly before they were written.
    pub(crate) fn refresh(&self) {
        // Held while it is handed over, so that what was read last is handed over last.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Loaded::read(&self.path);
        if last.as_ref() != Some(&now) {
            (self.take)(now.clone());
            *last = Some(now);
        }
    }
}

fn follow(file: &RulesFile) -> rustix::io::Result<()> {
    let path = &file.path;
    loop {
        let dir = nearest_dir(path);
        let watching = inotify::init(CreateFlags::CLOEXEC)?;
        let of_dir = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watching, dir, of_dir)?;
        // The file may be a link to one elsewhere, which changes there.
        let of_file =
            WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let _ = inotify::add_watch(&watching, path, of_file);
        // What changed before we watched was not told.
        file.refresh();
        if nearest_dir(path) != dir {
            continue;
        }
        let mut events = [0; 4096];
        match rustix::io::read(&watching, &mut events) {
            Ok(_) | Err(rustix::io::Errno::INTR) => clock::sleep(SETTLE),
            Err(e) => return Err(e),
        }
    }
}

/// The directory of `path`, or where that is not there, the nearest above it that is.
fn nearest_dir(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|dir| dir.is_dir()).unwrap_or_else(|| Path::new("/"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Each way in which editors, tools and people change a file is noticed.
    #[test]
    fn every_change_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config/divvy/config.toml");
        let (told, loads) = channel();
        RulesFile::watch(path.clone(), move |loaded| told.send(loaded.rules).unwrap());
        let next = || loads.recv_timeout(Duration::from_secs(30)).expect("to be told");
        let name =
            |rules: Result<Option<Rules>, RulesError>| rules.unwrap().map(|all| all.rules[0].name.clone());
        let rule = |name: &str| format!("[[rule]]\nname = \"{name}\"\n");
        assert_eq!(name(next()), None);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, rule("written")).unwrap();
        assert_eq!(name(next()).as_deref(), Some("written"));
        let other = path.with_file_name("new");
        std::fs::write(&other, rule("renamed")).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(name(next()).as_deref(), Some("renamed"));
        std::fs::write(&path, "[[rule]]\nnam = 1\n").unwrap();
        assert_eq!(next().unwrap_err().line, 2);
        let elsewhere = dir.path().join("dotfiles.toml");
        std::fs::write(&elsewhere, rule("linked")).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let mut last = next();
        if last == Ok(None) {
            last = next(); // It was seen between the two.
        }
        assert_eq!(name(last).as_deref(), Some("linked"));
        std::fs::write(&elsewhere, rule("changed")).unwrap();
        assert_eq!(name(next()).as_deref(), Some("changed"));
        std::fs::remove_dir_all(dir.path().join("config")).unwrap();
        assert_eq!(name(next()), None);
    }
}
