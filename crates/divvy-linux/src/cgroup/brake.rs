//! The file by which a cgroup is frozen: `cgroup.freeze` of version 2, `freezer.state` of version 1.
//!
//! Owner, guardian and rescue read and write it by the same words. Allocates nothing and cannot panic, for the guardian uses it in a
//! forked process.
//!
//! *Weak spot*: of version 1 a process that is killed while it is frozen does not die before it is thawed.

use std::ffi::CStr;

/// Bytes of either file that tell its state.
const STATE: usize = 8;

/// A file that freezes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brake {
    /// `cgroup.freeze` of cgroup v2 (Linux 5.2).
    Freeze,
    /// `freezer.state` of cgroup v1.
    State,
}

/// What such a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Braked {
    /// Nobody is to stand.
    Thawed,
    /// Somebody is still on the way to its stop: of version 1 only.
    Freezing,
    /// All are to stand; of version 1, and they do.
    Frozen,
}

impl Brake {
    /// Both. A cgroup has one of them, or none.
    pub(crate) const ALL: [Self; 2] = [Self::Freeze, Self::State];

    /// The file's name.
    pub(crate) const fn file(self) -> &'static CStr {
        match self {
            Self::Freeze => c"cgroup.freeze",
            Self::State => c"freezer.state",
        }
    }

    /// The same, as text.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Freeze => "cgroup.freeze",
            Self::State => "freezer.state",
        }
    }

    /// What is written to it.
    pub(crate) const fn word(self, frozen: bool) -> &'static str {
        match (self, frozen) {
            (Self::Freeze, false) => "0",
            (Self::Freeze, true) => "1",
            (Self::State, false) => "THAWED",
            (Self::State, true) => "FROZEN",
        }
    }

    /// The same, for an error.
    pub(crate) const fn operation(self, frozen: bool) -> &'static str {
        match (self, frozen) {
            (Self::Freeze, false) => "write 0 to",
            (Self::Freeze, true) => "write 1 to",
            (Self::State, false) => "write THAWED to",
            (Self::State, true) => "write FROZEN to",
        }
    }

    /// What it says; `None` for what the kernel does not write there.
    pub(crate) fn parse(self, text: &[u8]) -> Option<Braked> {
        match (self, text.trim_ascii_end()) {
            (Self::Freeze, b"0") | (Self::State, b"THAWED") => Some(Braked::Thawed),
            (Self::State, b"FREEZING") => Some(Braked::Freezing),
            (Self::Freeze, b"1") | (Self::State, b"FROZEN") => Some(Braked::Frozen),
            _ => None,
        }
    }

    /// What an open one says; `None` where it cannot be read.
    pub(crate) fn read(self, file: impl std::os::fd::AsFd) -> Option<Braked> {
        let mut text = [0; STATE];
        let read = rustix::io::pread(file, &mut text, 0).ok()?;
        self.parse(text.get(..read)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_words() {
        for (brake, text, says) in [
            (Brake::Freeze, "0\n", Some(Braked::Thawed)),
            (Brake::Freeze, "1\n", Some(Braked::Frozen)),
            (Brake::State, "THAWED\n", Some(Braked::Thawed)),
            // Eight bytes: without its end.
            (Brake::State, "FREEZING", Some(Braked::Freezing)),
            (Brake::State, "FROZEN\n", Some(Braked::Frozen)),
            (Brake::State, "1\n", None),
            (Brake::Freeze, "FROZEN\n", None),
            (Brake::Freeze, "10\n", None),
            (Brake::State, "", None),
        ] {
            assert_eq!(brake.parse(text.as_bytes()), says, "{text:?}");
        }
        for brake in Brake::ALL {
            assert_eq!(brake.file().to_str(), Ok(brake.name()));
            assert_eq!(brake.parse(brake.word(true).as_bytes()), Some(Braked::Frozen));
            assert_eq!(brake.parse(brake.word(false).as_bytes()), Some(Braked::Thawed));
            for frozen in [true, false] {
                assert_eq!(brake.operation(frozen), format!("write {} to", brake.word(frozen)));
            }
        }
    }

    #[test]
    fn an_open_file_is_read_from_its_beginning_each_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("freezer.state");
        std::fs::write(&path, "FREEZING\n").expect("a file");
        let file = std::fs::File::open(&path).expect("there");
        assert_eq!([(); 2].map(|()| Brake::State.read(&file)), [Some(Braked::Freezing); 2]);
        assert_eq!(Brake::Freeze.read(&file), None);
    }
}
