//! What machines have made of their jobs, kept, so that a run of an hour that was ended can go on where it was.
//!
//! A result has the name of all that it came of: the job, the machine's options, the programs in it, and the sources of what is done
//! there. Whatever is another of these is not found, and made anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// What carries out a job in the machine, and the machine itself.
const SOURCES: [&str; 7] = [
    include_str!("clients.rs"),
    include_str!("inside.rs"),
    include_str!("requests.rs"),
    include_str!("storm.rs"),
    include_str!("../../vm/guest.rs"),
    include_str!("../../vm/kernel.rs"),
    include_str!("../../vm/machine.rs"),
];

/// A directory of results.
pub(super) struct Kept {
    dir: PathBuf,
    /// Whether those of an earlier run are taken.
    resumes: bool,
}

impl Kept {
    /// Those in `dir`; where the run does not resume and is a whole one, earlier ones go.
    pub(super) fn new(dir: PathBuf, resumes: bool, whole: bool) -> Result<Self> {
        if !resumes && whole && dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir, resumes })
    }

    /// Where the result of `job` in a machine with `options` and `programs` is, or will be.
    pub(super) fn place(&self, job: &str, options: &[&str], programs: &[PathBuf]) -> Result<PathBuf> {
        let mut all = Vec::new();
        for text in [job].iter().chain(options).chain(&SOURCES) {
            all.extend_from_slice(text.as_bytes());
            all.push(0);
        }
        for program in programs {
            let text = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
            all.extend_from_slice(&text);
        }
        Ok(self.dir.join(format!("{}.json", checksum(&self.dir, &all)?)))
    }

    /// What is at `place`, if it may be taken.
    pub(super) fn take(&self, place: &Path) -> Result<Option<Vec<u8>>> {
        if !self.resumes || !place.exists() {
            return Ok(None);
        }
        std::fs::read(place).map(Some).with_context(|| format!("read {}", place.display()))
    }

    /// Keeps a result, all of it or nothing.
    pub(super) fn put(&self, place: &Path, result: &[u8]) -> Result<()> {
        let part = place.with_extension("part");
        std::fs::write(&part, result).with_context(|| format!("write {}", part.display()))?;
        std::fs::rename(&part, place).with_context(|| format!("write {}", place.display()))
    }
}

/// The SHA-256 of `bytes`, by the program of that name.
fn checksum(dir: &Path, bytes: &[u8]) -> Result<String> {
    let file = tempfile::NamedTempFile::new_in(dir).context("make a file")?;
    std::fs::write(file.path(), bytes).with_context(|| format!("write {}", file.path().display()))?;
    let output = Command::new("sha256sum").arg(file.path()).output().context("start sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = text.split_whitespace().next().unwrap_or_default();
    ensure!(output.status.success() && sum.len() == 64, "sha256sum: {}", output.status);
    Ok(sum.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_that_of_its_job_and_programs_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("program");
        std::fs::write(&program, "one").expect("a program");
        let programs = [program.clone()];
        let kept = Kept::new(dir.path().join("kept"), true, true).expect("a directory");
        let place = kept.place("job", &["--shift", "3"], &programs).expect("a name");
        assert_eq!(kept.take(&place).expect("nothing yet"), None);
        kept.put(&place, b"[1]").expect("kept");
        let again = kept.place("job", &["--shift", "3"], &programs).expect("a name");
        assert_eq!(kept.take(&again).expect("readable").as_deref(), Some(b"[1]".as_slice()));
        assert_ne!(kept.place("another", &["--shift", "3"], &programs).expect("a name"), place);
        assert_ne!(kept.place("job", &["--shift", "2"], &programs).expect("a name"), place);
        std::fs::write(&program, "two").expect("another program");
        assert_ne!(kept.place("job", &["--shift", "3"], &programs).expect("a name"), place);
    }

    #[test]
    fn a_whole_run_that_does_not_resume_begins_without_results() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = || dir.path().join("kept");
        let first = Kept::new(at(), false, true).expect("a directory");
        let place = first.place("job", &[], &[]).expect("a name");
        first.put(&place, b"1").expect("kept");
        assert_eq!(first.take(&place).expect("not asked for"), None, "this run does not resume");
        let part = Kept::new(at(), false, false).expect("a directory");
        assert!(place.exists(), "one part alone leaves what the others came to");
        drop(part);
        let resumed = Kept::new(at(), true, true).expect("a directory");
        assert_eq!(resumed.take(&place).expect("readable").as_deref(), Some(b"1".as_slice()));
        let _ = Kept::new(at(), false, true).expect("a directory");
        assert!(!place.exists());
    }
}
