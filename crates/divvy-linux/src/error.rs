//! What can go wrong at the edge: the operation, its object and the cause, and the fix where there is one.

use std::fmt::Display;
use std::path::PathBuf;

use rustix::io::Errno;

/// [`std::result::Result`] with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on the system failed. A process that vanished is not among the reasons: that is a normal answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{operation} {object}: {cause}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// The kernel refused for lack of a permission.
    #[error("{operation} {object}: not permitted ({cause}); {fix}")]
    Permission {
        /// What was tried.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// What would make it work.
        fix: &'static str,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// A file of divvy's own cannot have its room.
    #[error("{operation} {object}: {cause}{}", room_fix(*cause))]
    Room {
        /// What was tried.
        operation: &'static str,
        /// The file.
        object: String,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// There is no file descriptor left, and one is needed for each process.
    #[error("{operation} {object}: {cause}; raise the limit of open files (ulimit -n)")]
    OpenFiles {
        /// What was tried.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// No process could be had.
    #[error("{operation} {object}: {cause}; raise the limit of processes (ulimit -u), or end some")]
    Processes {
        /// What was tried.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// A CPU was asked for that this process may not use, or that is not there.
    #[error("CPU {cpu} cannot be used: this process may run on {allowed}")]
    Cpu {
        /// The one asked for.
        cpu: u32,
        /// Those that there are.
        allowed: String,
    },
    /// A selector names nobody who can be scheduled.
    #[error("attach {selector}: {what}; {fix}")]
    Select {
        /// The selector.
        selector: String,
        /// Why not.
        what: String,
        /// What would make it work.
        fix: &'static str,
    },
    /// All processes that a selector names are in clients already that are theirs by a narrower one.
    #[error("attach {selector}: its processes belong to client {} already; change that client's share, or detach it first", of.0)]
    Taken {
        /// The selector.
        selector: String,
        /// The first of these clients.
        of: divvy_policy::ClientId,
    },
    /// A cgroup could not be read, changed, made or removed.
    #[error("{operation} {file} in {}: {cause}{}{fix}", path.display(), if fix.is_empty() { "" } else { "; " })]
    Cgroup {
        /// What was tried.
        operation: &'static str,
        /// The file, or the cgroup in it, with the value that it was to have.
        file: Box<str>,
        /// Which cgroup.
        path: Box<std::path::Path>,
        /// What would help; empty where nothing is known to.
        fix: Box<str>,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// A command could not be started.
    #[error("start '{command}': {cause}{}", limit_fix(cause))]
    Spawn {
        /// The program.
        command: String,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// A file under `/proc` does not read as the manual page says it does.
    #[error("read {object}: {what} is missing or malformed")]
    Malformed {
        /// The file.
        object: String,
        /// The part that could not be read.
        what: &'static str,
    },
    /// The runtime directory cannot be trusted with the table of held processes.
    #[error("runtime directory {}: {what}; {fix}", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What would make it right.
        fix: &'static str,
    },
    /// The runtime directory of this environment cannot be made or opened.
    #[error("{operation} {object}: {cause}; {fix}")]
    RuntimeDirectory {
        /// What was tried.
        operation: &'static str,
        /// The directory.
        object: String,
        /// What would help.
        fix: &'static str,
        /// What the kernel said.
        #[source]
        cause: Errno,
    },
    /// A file that should be a table of held processes is none. It is left as it is.
    #[error("table of held processes {}: {what}; left as it is: remove it once no divvy runs", path.display())]
    CorruptTable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The table has no free slot left.
    #[error("table of held processes {}: all {capacity} slots are taken", path.display())]
    TableFull {
        /// The file.
        path: PathBuf,
        /// Slots in all.
        capacity: u32,
    },
}

impl Error {
    /// The error for `operation` on `object` that failed with `cause`; a lacking permission becomes
    /// [`Error::Permission`] with the fix that holds for processes.
    pub(crate) fn system(operation: &'static str, object: impl Display, cause: Errno) -> Self {
        let object = object.to_string();
        match cause {
            Errno::PERM | Errno::ACCESS => Self::Permission {
                operation,
                object,
                fix: "run divvy as the user who owns it, or as root",
                cause,
            },
            Errno::MFILE | Errno::NFILE => Self::OpenFiles { operation, object, cause },
            _ if operation == ALLOCATE => Self::Room { operation, object, cause },
            Errno::AGAIN if operation == START => Self::Processes { operation, object, cause },
            _ => Self::System { operation, object, cause },
        }
    }

    /// What the kernel said, where it was the kernel that refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { cause, .. }
            | Self::Room { cause, .. }
            | Self::Permission { cause, .. }
            | Self::OpenFiles { cause, .. }
            | Self::Processes { cause, .. }
            | Self::RuntimeDirectory { cause, .. }
            | Self::Cgroup { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// The operation that asks for the room of a file. Others have other reasons to say that there is none: no watch is left, no cgroup.
pub(crate) const ALLOCATE: &str = "allocate space for";

/// The operation that asks for a process.
pub(crate) const START: &str = "start";

/// What would help where something could not be started for lack of processes or descriptors, to be put behind `cause`; else empty.
#[must_use]
pub fn limit_fix(cause: &std::io::Error) -> &'static str {
    match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit of open files (ulimit -n)",
        Some(Errno::AGAIN) => "; raise the limit of processes (ulimit -u), or end some",
        _ => "",
    }
}

/// What would help where a file of divvy's own cannot have its room, to be put behind `cause`; else empty.
#[must_use]
pub const fn room_fix(cause: Errno) -> &'static str {
    match cause {
        Errno::NOSPC | Errno::DQUOT => {
            "; make room there, or name another directory in DIVVY_RUNTIME_DIR (of the system's divvyd: --run-dir, --state-dir)"
        }
        Errno::FBIG => "; raise the limit of a file's size (ulimit -f)",
        _ => "",
    }
}

/// Why the last call through the C library failed. Only to be asked after one that did.
pub(crate) fn last_errno() -> Errno {
    match nix::errno::Errno::last_raw() {
        // No failure at all would be ours, and must not become a panic in the guardian.
        ..=0 => Errno::IO,
        code => Errno::from_raw_os_error(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_names_its_fix() {
        let error = Error::system("open a pidfd of process", 7, Errno::MFILE);
        assert_eq!(error.errno(), Some(Errno::MFILE));
        let text = error.to_string();
        assert!(text.starts_with("open a pidfd of process 7: ") && text.ends_with("(ulimit -n)"), "{text}");
        let cause = std::io::Error::from(Errno::MFILE);
        let text = Error::Spawn { command: "true".to_owned(), cause }.to_string();
        assert!(text.starts_with("start 'true': ") && text.ends_with("(ulimit -n)"), "{text}");
    }

    #[test]
    fn a_lack_of_room_names_its_fix() {
        for (cause, fix) in [(Errno::NOSPC, "DIVVY_RUNTIME_DIR"), (Errno::FBIG, "(ulimit -f)")] {
            let text = Error::system(ALLOCATE, "/run/x", cause).to_string();
            assert!(text.starts_with("allocate space for /run/x: ") && text.contains(fix), "{text}");
        }
        let text = Error::system("make cgroup", "/x", Errno::NOSPC).to_string();
        assert!(!text.contains("DIVVY_RUNTIME_DIR"), "{text}");
        assert_eq!(room_fix(Errno::NOENT), "");
    }

    #[test]
    fn a_lack_of_processes_names_its_fix() {
        let text = Error::system(START, "the guardian", Errno::AGAIN).to_string();
        assert!(text.starts_with("start the guardian: ") && text.contains("(ulimit -u)"), "{text}");
        assert!(!Error::system("read", "a pipe", Errno::AGAIN).to_string().contains("ulimit"));
    }
}
