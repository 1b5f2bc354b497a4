//! Going into the background, and telling the one who waits in the foreground how that went.
//!
//! The first process stays where it was, waits for one line from the other, and ends with what that says. The other has
//! no terminal, a session of its own, no parent that waits for it, and nothing open that somebody else handed down.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::error::{START, last_errno};
use crate::{Error, Result};

/// Which of the two processes goes on with the call's return.
#[derive(Debug)]
pub enum Side {
    /// The one that was there: to wait for the other's word and to end.
    Foreground(Waiting),
    /// The new one.
    Background(Notice),
}

/// The foreground's end.
#[derive(Debug)]
pub struct Waiting(File);

/// The background's end: dropped without a word, it says that there was a failure nobody foresaw.
#[derive(Debug)]
pub struct Notice(File);

/// How the background came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It serves.
    Ready,
    /// It could not, with the exit code and the reason that the foreground is to end with.
    Failed(u8, String),
    /// It ended without a word.
    Silent,
}

impl Waiting {
    /// Waits for the background's word.
    #[must_use]
    pub fn wait(mut self) -> Word {
        let mut text = String::new();
        // What was read before an error is judged as it is.
        let _ = self.0.read_to_string(&mut text);
        let Some((code, why)) = text.trim_end().split_once(' ') else { return Word::Silent };
        match code.parse() {
            Ok(0) => Word::Ready,
            Ok(code) => Word::Failed(code, why.to_owned()),
            Err(_) => Word::Silent,
        }
    }
}

impl Notice {
    /// Tells the foreground that all is well.
    pub fn ready(mut self) {
        // A foreground that is gone need not know.
        let _ = self.0.write_all(b"0 ready\n");
    }

    /// Tells the foreground why it cannot go on, and the code to end with (not 0).
    pub fn failed(mut self, code: u8, why: &str) {
        let _ = writeln!(self.0, "{code} {}", why.replace('\n', " "));
    }
}

/// Closes every descriptor beyond standard error: whatever a caller left open is not ours to keep open.
///
/// # Safety
/// No descriptor of this process but the three standard ones is owned by anybody: to be called first in `main`.
pub unsafe fn close_inherited() {
    // SAFETY: by this function's own condition. Where the kernel is too old for it, they stay open.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// Splits this process in two; see the module's text. The background's standard error goes to `log`, which is made anew;
/// its working directory is `/`, and nobody else can read what it creates.
///
/// # Errors
/// [`Error::System`] where the kernel gives no pipe or process, or the log cannot be made: in the foreground, before
/// there is a background.
///
/// # Safety
/// The process has one thread.
pub unsafe fn split(log: &Path) -> Result<Side> {
    let system = |what: &'static str| move |e| Error::system(what, "", e);
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(system("open a pipe"))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let log_fd = rustix::fs::open(log, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| Error::system("create", log.display(), e))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::system("open", "/dev/null", e))?;
    // SAFETY: there is one thread, by this function's own condition; the child may do what a process may.
    match unsafe { libc::fork() } {
        -1 => Err(Error::system(START, "a process in the background", last_errno())),
        0 => {
            drop(read);
            let notice = Notice(File::from(write));
            if let Err(e) = into_background(&null, &log_fd) {
                notice.failed(5, &e.to_string());
                // SAFETY: ends this process at once, without running what its parent is to run at its own end.
                unsafe { libc::_exit(5) };
            }
            Ok(Side::Background(notice))
        }
        child => {
            drop(write);
            // It ends at once, having made the one that stays.
            // SAFETY: waits for our own child; the status may be null.
            while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0 && last_errno() == Errno::INTR
            {
            }
            Ok(Side::Foreground(Waiting(File::from(read))))
        }
    }
}

/// In the child: a session without a terminal, then a second child that can never get one; only that returns.
fn into_background(null: &OwnedFd, log: &OwnedFd) -> Result<()> {
    // What else fails here leaves a scheduler that works, with a terminal that may hang up on it.
    let _ = rustix::process::setsid();
    // SAFETY: still one thread.
    match unsafe { libc::fork() } {
        // It must not stay itself: the foreground waits for its end.
        -1 => return Err(Error::system(START, "a process in the background", last_errno())),
        0 => {}
        // SAFETY: ends this process at once, without running what its parent is to run at its own end.
        _ => unsafe { libc::_exit(0) },
    }
    let _ = rustix::process::chdir("/");
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    for (fd, target) in [(null, 0), (null, 1), (log, 2)] {
        // SAFETY: replaces a standard descriptor, which nobody owns.
        unsafe { libc::dup2(fd.as_fd().as_raw_fd(), target) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Word {
        let (read, write) = rustix::pipe::pipe().unwrap();
        File::from(write).write_all(text.as_bytes()).unwrap();
        Waiting(File::from(read)).wait()
    }

    #[test]
    fn a_word_is_a_code_and_a_reason() {
        assert_eq!(said("0 ready\n"), Word::Ready);
        assert_eq!(
            said("5 runtime directory /x: gone\n"),
            Word::Failed(5, "runtime directory /x: gone".into())
        );
        assert_eq!(said(""), Word::Silent);
        assert_eq!(said("what"), Word::Silent);
        let (read, write) = rustix::pipe::pipe().unwrap();
        Notice(File::from(write)).failed(2, "two\nlines");
        assert_eq!(Waiting(File::from(read)).wait(), Word::Failed(2, "two lines".into()));
    }
}
