//! What the two processes of a run say to each other.
//!
//! The scheduler says lines of JSON ([`Said`]), through a queue that has an end: a front end that does not read holds
//! nobody up. The front end tells words of one byte ([`Told`]), which a thread of the scheduler's waits for.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use divvy_linux::Waker;
use divvy_linux::front::Link;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::outlet::Outlet;
use crate::{END_WAIT, give_up_on_stderr};

/// Bytes that may wait for the front end.
const ROOM: usize = 256 * 1024;
/// Lines of a table that are said: more fit no screen.
const TABLE_MAX: usize = 400;

/// What the scheduler says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Said {
    /// The table from now on, and how many of its lines were left out.
    Table(Vec<String>, usize),
    /// Lines that stay above the table.
    Print(Vec<String>),
    /// The commands are suspended, as was asked.
    Suspended,
    /// There will be no table any more.
    Over,
}

/// What the front end tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Ctrl-Z: suspend the commands.
    Suspend,
    /// `fg` or `bg`: they go on.
    Resume,
    /// SIGUSR1, for the commands.
    Usr1,
    /// SIGUSR2, for the commands.
    Usr2,
    /// The table is off the screen.
    Erased,
    /// The same, from one whose standard error has taken nothing for as long as one waits.
    Deaf,
    /// The front end is gone.
    Gone,
}

impl Told {
    const ALL: [Self; 6] = [Self::Suspend, Self::Resume, Self::Usr1, Self::Usr2, Self::Erased, Self::Deaf];

    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Suspend => b'z',
            Self::Resume => b'c',
            Self::Usr1 => b'1',
            Self::Usr2 => b'2',
            Self::Erased => b'e',
            Self::Deaf => b'd',
            Self::Gone => 0, // Nobody is there to tell it.
        }
    }
}

#[derive(Default)]
struct Heard {
    words: Mutex<VecDeque<Told>>,
    changed: Condvar,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Told>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, word: Told) {
        self.lock().push_back(word);
        self.changed.notify_all();
    }

    fn listen(&self, mut from: UnixStream, waker: &Waker) {
        let mut bytes = [0; 64];
        loop {
            match from.read(&mut bytes) {
                Ok(n @ 1..) => {
                    let words =
                        bytes[..n].iter().filter_map(|b| Told::ALL.into_iter().find(|w| w.byte() == *b));
                    words.for_each(|word| self.put(word));
                    waker.wake();
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.put(Told::Gone);
                    return waker.wake();
                }
            }
        }
    }
}

/// The scheduler's handle of its front end.
pub(super) struct FrontEnd {
    link: Link,
    outlet: Outlet,
    heard: Arc<Heard>,
    gone: bool,
    /// There is no table any more, and what was printed is forwarded.
    over: bool,
}

impl FrontEnd {
    /// Starts to listen; `waker` ends the scheduler's wait when something was told. `has_screen`: it draws or forwards.
    ///
    /// # Errors
    /// Where no thread or descriptor can be had.
    pub(super) fn new(link: Link, waker: Waker, has_screen: bool) -> std::io::Result<Self> {
        let outlet = Outlet::start("divvy-link-out", link.stream()?, ROOM)?;
        let heard = Arc::new(Heard::default());
        let (from, to) = (link.stream()?, Arc::clone(&heard));
        std::thread::Builder::new().name("divvy-link-in".into()).spawn(move || to.listen(from, &waker))?;
        Ok(Self { link, outlet, heard, gone: false, over: !has_screen })
    }

    /// All commands have been started: leaves their session.
    ///
    /// # Errors
    /// As [`Link::leave_commands`].
    pub(super) fn leave_commands(&mut self) -> divvy_linux::Result<()> {
        self.link.leave_commands()
    }

    /// What was told since the last call.
    pub(super) fn take(&mut self) -> Vec<Told> {
        let words: Vec<Told> = self.heard.lock().drain(..).collect();
        self.gone |= words.contains(&Told::Gone);
        words
    }

    /// CPU time of the front end since there are two.
    pub(super) fn cpu(&self) -> Nanos {
        self.link.front_cpu()
    }

    /// Says something, if there is room; whether there was.
    fn say(&mut self, said: &Said) -> bool {
        let Ok(mut line) = serde_json::to_string(said) else { return false };
        line.push('\n');
        self.outlet.write_all(line.as_bytes()).is_ok()
    }

    /// Shows `lines` as the table. What does not fit is left out: the next one comes soon.
    pub(super) fn table(&mut self, mut lines: Vec<String>) {
        let more = lines.len().saturating_sub(TABLE_MAX);
        lines.truncate(TABLE_MAX);
        self.say(&Said::Table(lines, more));
    }

    /// Leaves `lines` on the screen for good; whether they could be said.
    pub(super) fn print(&mut self, lines: Vec<String>) -> bool {
        self.say(&Said::Print(lines))
    }

    /// Says that the commands are suspended.
    pub(super) fn suspended(&mut self) {
        self.say(&Said::Suspended);
    }

    /// Has the table taken off the screen, and waits until it is, but not for ever. Whether the front end's standard error
    /// takes what is written to it.
    pub(super) fn end_table(&mut self) -> bool {
        self.take();
        if std::mem::replace(&mut self.over, true) || self.gone || !self.say(&Said::Over) {
            return true;
        }
        // The front end waits for its terminal itself, and tells if that was in vain.
        let limit = END_WAIT + Duration::from_secs(1);
        let is_done = |word: &Told| matches!(word, Told::Erased | Told::Deaf | Told::Gone);
        let words = self.heard.lock();
        let waited = self.heard.changed.wait_timeout_while(words, limit, |words| !words.iter().any(is_done));
        let (words, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out() && !words.contains(&Told::Deaf)
    }
}

impl Drop for FrontEnd {
    /// Whatever is told after this is told below the table's place.
    fn drop(&mut self) {
        if !self.end_table() {
            give_up_on_stderr();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        for (i, a) in Told::ALL.into_iter().enumerate() {
            assert!(a.byte() != 0 && Told::ALL[..i].iter().all(|b| b.byte() != a.byte()), "{a:?}");
        }
    }

    #[test]
    fn what_is_said_is_one_line() {
        let rows = [
            Said::Table(vec!["a\nb".into(), "\x1b[1mc".into()], 3),
            Said::Print(vec!["d".into()]),
            Said::Suspended,
            Said::Over,
        ];
        for said in rows {
            let line = serde_json::to_string(&said).expect("JSON");
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Said>(&line).expect("as it was"), said);
        }
    }
}
