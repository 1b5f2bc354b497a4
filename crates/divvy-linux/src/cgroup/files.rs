//! What is done to a cgroup file system, so that a test can stand in for it and refuse.

use std::path::Path;

use rustix::fs::{Access, Mode};
use rustix::io::Errno;

/// Reading and writing cgroups.
pub(crate) trait Files: std::fmt::Debug {
    /// The text of a file.
    fn read(&self, path: &Path) -> Result<String, Errno>;
    /// Writes a whole text at once, as these files want it.
    fn write(&self, path: &Path, text: &str) -> Result<(), Errno>;
    /// Makes a cgroup.
    fn make(&self, path: &Path) -> Result<(), Errno>;
    /// Whether we may write to a file or directory.
    fn writable(&self, path: &Path) -> Result<(), Errno>;
    /// Whether the kernel keeps what `sched_setaffinity` said where a process changes from one cpuset to another: since Linux 6.2.
    fn keeps_affinities(&self) -> bool;
}

/// The kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Real;

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

impl Files for Real {
    fn read(&self, path: &Path) -> Result<String, Errno> {
        std::fs::read_to_string(path).map_err(|e| errno(&e))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Errno> {
        use std::io::Write as _;
        // Never made anew: a file that the kernel does not offer is not there.
        let mut file = std::fs::File::options().write(true).open(path).map_err(|e| errno(&e))?;
        file.write_all(text.as_bytes()).map_err(|e| errno(&e))
    }

    fn make(&self, path: &Path) -> Result<(), Errno> {
        rustix::fs::mkdir(path, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH)
    }

    fn writable(&self, path: &Path) -> Result<(), Errno> {
        rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, rustix::fs::AtFlags::EACCESS)
    }

    fn keeps_affinities(&self) -> bool {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        crate::sched_ext::version_of(&release).is_some_and(|version| version >= (6, 2))
    }
}

/// A directory that looks like a cgroup file system, and refuses what a test wants refused.
#[cfg(test)]
pub(crate) mod fixture {
    use std::cell::{Cell, RefCell};
    use std::path::PathBuf;

    use super::*;

    #[derive(Debug)]
    pub(crate) struct Fixture {
        pub dir: tempfile::TempDir,
        /// What a new cgroup has.
        pub files: &'static [(&'static str, &'static str)],
        /// The end of a path, and what whoever writes there, or makes it, gets; or the end of one, `=` and how the text begins.
        pub refused: RefCell<Vec<(String, Errno)>>,
        /// All writes, in order: path below the directory, and text.
        pub written: RefCell<Vec<(String, String)>>,
        /// The kernel is one that forgets affinities.
        pub is_old: Cell<bool>,
    }

    impl Fixture {
        pub(crate) fn new(files: &'static [(&'static str, &'static str)]) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            Self {
                dir,
                files,
                refused: RefCell::default(),
                written: RefCell::default(),
                is_old: Cell::default(),
            }
        }

        pub(crate) fn path(&self, below: &str) -> PathBuf {
            if below.is_empty() { self.dir.path().to_owned() } else { self.dir.path().join(below) }
        }

        /// A cgroup with its files, and what a test wants to be different.
        pub(crate) fn cgroup(&self, below: &str, different: &[(&str, &str)]) {
            let dir = self.path(below);
            std::fs::create_dir_all(&dir).expect("directories");
            for (name, text) in self.files.iter().chain(different) {
                std::fs::write(dir.join(name), text).expect("a file");
            }
        }

        pub(crate) fn refuse(&self, end: &str, e: Errno) {
            self.refused.borrow_mut().push((end.to_owned(), e));
        }

        fn check(&self, path: &Path, text: &str) -> Result<(), Errno> {
            let is_meant = |end: &str| {
                let (end, begin) = end.split_once('=').unwrap_or((end, ""));
                path.to_string_lossy().ends_with(end) && text.starts_with(begin)
            };
            match self.refused.borrow().iter().find(|(end, _)| is_meant(end)) {
                Some((_, e)) => Err(*e),
                None => Ok(()),
            }
        }
    }

    impl Files for Fixture {
        fn read(&self, path: &Path) -> Result<String, Errno> {
            Real.read(path)
        }

        fn write(&self, path: &Path, text: &str) -> Result<(), Errno> {
            self.check(path, text)?;
            let below = path.strip_prefix(self.dir.path()).expect("below the fixture");
            self.written.borrow_mut().push((below.to_string_lossy().into_owned(), text.to_owned()));
            if !path.exists() {
                return Err(Errno::NOENT);
            }
            // These files are not overwritten but told something.
            std::fs::write(path, text).map_err(|e| errno(&e))
        }

        fn make(&self, path: &Path) -> Result<(), Errno> {
            self.check(path, "")?;
            Real.make(path)?;
            for (name, text) in self.files {
                std::fs::write(path.join(name), text).expect("a file");
            }
            Ok(())
        }

        fn writable(&self, path: &Path) -> Result<(), Errno> {
            self.check(path, "")?;
            Real.writable(path)
        }

        fn keeps_affinities(&self) -> bool {
            !self.is_old.get()
        }
    }
}
