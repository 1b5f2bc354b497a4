//! Whose a process is: the users that it runs as.
//!
//! A root divvyd may signal everybody, so the kernel's permission says nothing about whose process it is. A process is
//! *owned* by a user if its real, effective and saved user are all that one: nothing of `sudo`, of a set-uid program or
//! of somebody else's shell, whoever started it.

use std::fmt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::procfs::ProcPath;
use crate::{Error, Pid, Result};

/// The users that a process runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Users {
    /// Who started it.
    pub real: u32,
    /// Whose rights it has.
    pub effective: u32,
    /// Whose rights it can take back.
    pub saved: u32,
}

impl Users {
    /// One that runs as `uid` in every way.
    #[must_use]
    pub const fn all(uid: u32) -> Self {
        Self { real: uid, effective: uid, saved: uid }
    }

    /// Whether all of it is `uid`'s.
    #[must_use]
    pub fn is_owned_by(self, uid: u32) -> bool {
        self == Self::all(uid)
    }

    /// The meaning of a `status` file, or the name of the line that does not read.
    ///
    /// # Errors
    /// `Uid`, where it is missing or malformed.
    pub fn parse(status: &[u8]) -> std::result::Result<Self, &'static str> {
        let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"Uid:")).ok_or("Uid")?;
        let text = std::str::from_utf8(line).map_err(|_| "Uid")?;
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u32>);
        let mut next = || fields.next().and_then(std::result::Result::ok).ok_or("Uid");
        Ok(Self { real: next()?, effective: next()?, saved: next()? })
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "real user {}, effective {}, saved {}", self.real, self.effective, self.saved)
    }
}

/// The users that whoever has `pid` now runs as; `None` if there is no such process. 8 us.
///
/// # Errors
/// As [`procfs::stat`](crate::procfs::stat).
pub fn users(pid: Pid) -> Result<Option<Users>> {
    let path = ProcPath::of(pid, "status");
    let gone = |e: Errno| matches!(e, Errno::NOENT | Errno::SRCH);
    let fd = match rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(e) if gone(e) => return Ok(None),
        Err(e) => return Err(Error::system("open", path, e)),
    };
    // The lines before it are short; what does not fit is not asked for.
    let mut buffer = [0; 1024];
    let read = loop {
        match rustix::io::pread(&fd, &mut buffer, 0) {
            Ok(0) => return Ok(None),
            Ok(n) => break n,
            Err(Errno::INTR) => {}
            Err(e) if gone(e) => return Ok(None),
            Err(e) => return Err(Error::system("read", path, e)),
        }
    };
    let users = Users::parse(buffer.get(..read).unwrap_or_default());
    users.map(Some).map_err(|what| Error::Malformed { object: path.to_string(), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_owned_if_all_its_users_are_the_owner() {
        let parse = |line: &str| Users::parse(format!("Name:\tx\n{line}\nGid:\t5\t6\t7\t8\n").as_bytes());
        assert_eq!(parse("Uid:\t1000\t1000\t1000\t1000"), Ok(Users::all(1000)));
        let sudo = parse("Uid:\t1000\t0\t0\t0").unwrap();
        assert_eq!(sudo, Users { real: 1000, effective: 0, saved: 0 });
        let dropped_for_now = parse("Uid:\t1000\t1000\t0\t1000").unwrap();
        for (users, uid, owned) in [
            (Users::all(1000), 1000, true),
            (Users::all(1000), 0, false),
            (sudo, 1000, false),
            (sudo, 0, false),
            (dropped_for_now, 1000, false),
        ] {
            assert_eq!(users.is_owned_by(uid), owned, "{users} {uid}");
        }
        for bad in ["Uid:", "Uid:\t1\t2", "Uid:\t1\tx\t3", "Uid:\t-1\t1\t1", "Guid:\t1\t1\t1"] {
            assert_eq!(parse(bad), Err("Uid"), "{bad}");
        }
    }

    #[test]
    fn our_own_users_are_the_kernels_word() {
        let own = users(rustix::process::getpid()).expect("readable").expect("we run");
        assert_eq!(own.real, rustix::process::getuid().as_raw());
        assert_eq!(own.effective, rustix::process::geteuid().as_raw());
        let nobody = Pid::from_raw((1 << 22) + 1).expect("not zero");
        assert_eq!(users(nobody).expect("normal"), None);
    }
}
