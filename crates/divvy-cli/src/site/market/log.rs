//! The dealer's log: what nodes and places are called, and its records, a line of JSON each. Nothing is sent before what led to
//! it is on disk.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use divvy_site::Record;
use serde::{Deserialize, Serialize};

use crate::files::cause;
use crate::{Code, Failure};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The first: the dealer's term.
    Term(u64),
    /// The next node is called so.
    Node(String),
    /// The next place is called so.
    Place(String),
    /// A record.
    Did(Record),
}

/// The log, open; nobody else can open it.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Opens the log and reads it. A last line that was not finished was never acted upon, and goes.
    ///
    /// # Errors
    /// [`Failure`] where it cannot be read, is no log, or another dealer has it open.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Line>), Failure> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            Failure::new(Code::File, format!("{what} {}: {e}", path.display()))
        };
        // On a host without a divvyd nobody else has made it.
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|e| failed("make a directory for", &cause(&e)))?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = file.map_err(|e| failed("open", &cause(&e)))?;
        file.try_lock().map_err(|e| failed("lock (does another dealer run?)", &e))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|e| failed("read", &cause(&e)))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let lines = text[..whole].lines().enumerate().map(|(k, line)| {
            serde_json::from_str(line).map_err(|e| failed("read", &format!("line {}: {e}", k + 1)))
        });
        let lines = lines.collect::<Result<Vec<Line>, Failure>>()?;
        let mut log = Self { file, path: path.to_owned() };
        log.cut(whole as u64)?;
        Ok((log, lines))
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.cut(0)
    }

    fn cut(&mut self, length: u64) -> Result<(), Failure> {
        let done = self.file.set_len(length).and_then(|()| self.file.seek(std::io::SeekFrom::End(0)));
        done.map(drop).map_err(|e| self.failed(&e))
    }

    /// Puts lines on disk.
    pub(super) fn append(&mut self, lines: &[Line]) -> Result<(), Failure> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(line).map_err(|e| self.failed(&e))?);
            text.push('\n');
        }
        let done = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        done.map_err(|e| self.failed(&e))
    }

    fn failed(&self, e: &dyn std::fmt::Display) -> Failure {
        Failure::new(Code::File, format!("write {}: {e}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_finished_goes_and_what_is_wrong_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, lines) = Log::open(&path).unwrap();
        assert!(lines.is_empty());
        log.append(&[Line::Term(7), Line::Node("n1".to_owned())]).unwrap();
        assert!(Log::open(&path).is_err(), "one dealer at a time");
        log.file.write_all(b"{\"did\":{\"di").unwrap();
        drop(log);
        let (mut log, lines) = Log::open(&path).unwrap();
        assert!(matches!(&lines[..], [Line::Term(7), Line::Node(name)] if name == "n1"));
        log.append(&[Line::Did(Record::Began { exchange: 3 })]).unwrap();
        drop(log);
        let (log, lines) = Log::open(&path).unwrap();
        assert_eq!(lines.len(), 3);
        drop(log);
        std::fs::write(&path, "{\"term\":1}\nno log\n").unwrap();
        assert!(format!("{:?}", Log::open(&path).unwrap_err()).contains("line 2"));
    }
}
