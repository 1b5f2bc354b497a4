//! Whether what a process runs is the administrator's: whose name means something to whoever is to be fair to all users.
//!
//! The kernel's name of a process is what the process says it is (`prctl(PR_SET_NAME)`), or the name of a file of the user's own.
//! The name of its program's file is believed where only root can have put that there: file and directory are root's and nobody
//! else's to write to, in a file system on which set-user-id bits count (what users may mount has `nosuid`), and the process is in
//! our user namespace (in another, a user mounts what it likes under any name).

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::{Pid, users};

/// What the kernel writes behind the path of a program whose file has been replaced meanwhile: an upgrade.
const DELETED: &[u8] = b" (deleted)";

/// The name of the program that `pid` runs, where root has put that there; `None` where anybody may have.
///
/// `Err` where that may not be looked at (`CAP_SYS_PTRACE` is missing).
pub(crate) fn program(pid: Pid) -> std::io::Result<Option<String>> {
    let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", pid.as_raw_pid()));
    let exe = of("exe");
    let path = fs::read_link(&exe)?;
    if fs::read_link(of("ns/user"))? != fs::read_link("/proc/self/ns/user")? {
        return Ok(None);
    }
    // Through the link: the file itself, whatever is at its path by now.
    let Ok(file) = fs::metadata(&exe) else { return Ok(None) };
    let Ok(mounted) = statvfs(&exe) else { return Ok(None) };
    let dir = path.parent().map(fs::metadata).and_then(Result::ok);
    if !is_roots(&file)
        || !dir.is_some_and(|dir| is_roots(&dir))
        || mounted.f_flag.contains(StatVfsMountFlags::NOSUID)
    {
        return Ok(None);
    }
    Ok(Some(name(&path)))
}

/// Whether `pid` runs as root in every way: nobody else says what it is called.
pub(crate) fn runs_as_root(pid: Pid) -> bool {
    users(pid).ok().flatten().is_some_and(|users| users.is_owned_by(0))
}

/// Whether nobody but root may write to it.
fn is_roots(what: &Metadata) -> bool {
    what.uid() == 0 && what.mode() & 0o022 == 0
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().as_bytes();
    String::from_utf8_lossy(name.strip_suffix(DELETED).unwrap_or(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Running(Child);

    impl Running {
        fn start(program: &Path) -> Self {
            Self(Command::new(program).arg("60").spawn().expect("sleep"))
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    #[test]
    fn a_program_is_known_by_its_file_if_that_is_roots() {
        let dir = tempfile::tempdir().expect("a directory");
        let copy = dir.path().join("sshd-mine");
        fs::copy("/bin/sleep", &copy).expect("a copy");
        let (system, own) = (Running::start(Path::new("/bin/sleep")), Running::start(&copy));
        assert_eq!(program(system.pid()).expect("ours"), Some("sleep".to_owned()));
        assert_eq!(runs_as_root(system.pid()), rustix::process::geteuid().is_root());
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(program(own.pid()).expect("ours"), is_root.then(|| "sshd-mine".to_owned()));
        // Anybody's directory, though the file is root's: a hard link, say.
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our directory");
        assert_eq!(program(own.pid()).expect("ours"), None);
    }

    #[test]
    fn an_upgraded_program_keeps_its_name() {
        assert_eq!(name(Path::new("/usr/sbin/sshd (deleted)")), "sshd");
        assert_eq!(name(Path::new("/usr/sbin/sshd")), "sshd");
    }
}
