//! Which policy file a system's divvyd goes by, and whether the file still says so.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use divvy_api::types::PolicyInForce;

/// The file, and what came of it when it was last read.
#[derive(Debug)]
pub(crate) struct InForce {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    is_there: bool,
    /// When the file was last changed, as of the last time that it was read.
    modified: Option<SystemTime>,
    from_next_start: bool,
    refused: Option<String>,
}

impl InForce {
    /// Before the first read.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    /// When the file was last changed: asked before it is read, so that what changes meanwhile is seen.
    pub(super) fn modified(&self) -> Option<SystemTime> {
        self.path.metadata().and_then(|file| file.modified()).ok()
    }

    /// What it said, as of `modified`, holds, some of it `from_next_start` on; the defaults, if it was not there.
    pub(super) fn took(&self, is_there: bool, modified: Option<SystemTime>, from_next_start: bool) {
        *self.lock() = State { is_there, modified, from_next_start, refused: None };
    }

    /// What it says, as of `modified`, was not taken: what held before holds.
    pub(super) fn refused(&self, why: String, modified: Option<SystemTime>) {
        let mut state = self.lock();
        (state.modified, state.refused) = (modified, Some(why));
    }

    pub(crate) fn told(&self) -> PolicyInForce {
        let now = self.modified();
        let State { is_there, modified, from_next_start, refused } = self.lock().clone();
        let path = self.path.display().to_string();
        let (changed, gone) = (now != modified, now.is_none() && modified.is_some());
        PolicyInForce { path, is_default: !is_there, changed, gone, from_next_start, refused }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a file was not taken, in one line: without the line of the file, which not everybody may read.
pub(super) fn brief(why: &str) -> String {
    let is_of_file =
        |line: &&str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    let lines: Vec<&str> = why.lines().map(str::trim_end).filter(|line| !is_of_file(line)).collect();
    lines.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_without_that_of_the_file() {
        let why =
            crate::market::policy::Policy::parse("[limits]\n\nclients = -12345\n").expect_err("below 0");
        let said = brief(&why.to_string());
        assert!(said.starts_with("TOML parse error at line 3, column 11: invalid value"), "{said}");
        assert!(!said.contains('\n') && !said.contains('|'), "{said}");
        assert_eq!(brief("[scheduler]: no such policy"), "[scheduler]: no such policy");
    }

    #[test]
    fn a_file_is_changed_until_it_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("divvyd.toml");
        let told = |file: &InForce| {
            let told = file.told();
            assert_eq!(told.gone, std::fs::metadata(&path).is_err() && told.changed);
            (told.is_default, told.changed, told.refused)
        };
        let file = InForce::new(path.clone());
        file.took(false, file.modified(), false);
        assert_eq!(told(&file), (true, false, None));

        std::fs::write(&path, "").expect("written");
        assert_eq!(told(&file), (true, true, None));
        file.refused("line 1: no such key".to_owned(), file.modified());
        assert_eq!(told(&file), (true, false, Some("line 1: no such key".to_owned())));
        file.took(true, file.modified(), false);
        assert_eq!(told(&file), (false, false, None));

        std::fs::remove_file(&path).expect("removed");
        assert_eq!(told(&file), (false, true, None));
    }
}
