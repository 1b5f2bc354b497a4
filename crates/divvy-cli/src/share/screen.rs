//! Standard error as a live screen: a table that is redrawn in place, and the commands' output above it.
//!
//! A thread of its own draws and forwards, so that neither a slow terminal nor a talkative command holds up whoever
//! takes signals. A command's output is forwarded where it would otherwise be written over the table, for it goes to the
//! same terminal, and where its lines are tagged with its name, wherever it goes. Whole lines are kept whole.

use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tag::{Tag, tagged};
use crate::{END_WAIT, capable, give_up_on_stderr};

/// A line longer than this is forwarded in parts.
const LINE_MAX: usize = 64 * 1024;

/// Where a stream of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Out,
    Err,
}

impl To {
    fn as_str(self) -> &'static str {
        match self {
            Self::Out => "standard output",
            Self::Err => "standard error",
        }
    }

    fn is_terminal(self) -> bool {
        match self {
            Self::Out => std::io::stdout().is_terminal(),
            Self::Err => std::io::stderr().is_terminal(),
        }
    }
}

/// More lines that nobody has taken than this are left out.
const PRINT_MAX: usize = 1000;

/// A terminal that takes nothing keeps nobody from being suspended for longer than this.
const PAUSE_WAIT: Duration = Duration::from_millis(500);

/// What the drawing thread has not taken yet. It has an end: a terminal that is stopped takes nothing for hours.
#[derive(Default)]
struct Inbox {
    /// The table's lines from now on, and how many more there would be.
    table: Option<(Vec<String>, usize)>,
    /// These stay where they are, above the table.
    print: Vec<String>,
    redraw: bool,
    pause: Option<bool>,
    /// It ends when all pipes are closed on the other side, and there is no table until then.
    until_closed: bool,
    end: bool,
    /// A byte is in the pipe.
    woken: bool,
}

/// Why something that commands have printed could not be written where it was to go, the first time that this was so.
pub(super) type Lost = Arc<OnceLock<String>>;

/// What the drawing thread shares with its handle.
#[derive(Default)]
struct Shared {
    lost: Lost,
    inbox: Mutex<Inbox>,
    /// Nothing is drawn for now.
    paused: Mutex<bool>,
    changed: Condvar,
}

/// The drawing thread's handle. Dropping it takes the table off the screen.
pub(crate) struct Screen {
    shared: Arc<Shared>,
    wake: std::io::PipeWriter,
    /// Nothing comes through it; it is closed when the drawing thread has ended.
    ended: std::io::PipeReader,
}

/// Pipes that commands write into, collected before the drawing thread starts.
#[derive(Default)]
pub(crate) struct Pipes {
    ends: Vec<Stream>,
}

impl Pipes {
    /// Descriptors for a command's standard output, which goes to `out`, and standard error: pipes to the screen where they
    /// are tagged or would go to a terminal, `None` (as they are) elsewhere.
    ///
    /// # Errors
    /// Where no pipe can be had.
    pub(super) fn for_command(
        &mut self,
        out: To,
        tag: Option<Tag>,
    ) -> std::io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        let mut end = |to: To| -> std::io::Result<Option<OwnedFd>> {
            let is_terminal = to.is_terminal();
            if !is_terminal && tag.is_none() {
                return Ok(None);
            }
            let (reader, writer) = std::io::pipe()?;
            let prefix = tag.as_ref().map(|tag| tag.prefix(is_terminal && capable::has_color()));
            self.ends.push(Stream { reader: Some(reader), to, prefix, partial: Vec::new() });
            Ok(Some(writer.into()))
        };
        Ok((end(out)?, end(To::Err)?))
    }
}

impl Screen {
    /// Starts drawing and forwarding.
    ///
    /// # Errors
    /// Where neither pipe nor thread can be had.
    pub(crate) fn start(pipes: Pipes) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (ended, ending) = std::io::pipe()?;
        let (woken, wake) = std::io::pipe()?;
        let messages = Arc::clone(&shared);
        std::thread::Builder::new().name("divvy-screen".into()).spawn(move || {
            let drawing = Drawing {
                pipes: pipes.ends,
                lost: Arc::clone(&messages.lost),
                table: Vec::new(),
                more: 0,
                drawn: 0,
                paused: false,
                until_closed: false,
            };
            drawing.run(&messages, woken);
            drop(ending);
        })?;
        Ok(Self { shared, wake, ended })
    }

    fn send(&mut self, put: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        put(&mut inbox);
        // One byte at a time, so that the pipe is never full. A drawing thread that has ended shows nothing any more.
        if !std::mem::replace(&mut inbox.woken, true) {
            let _ = self.wake.write_all(b"!");
        }
    }

    /// Where it is said that something was lost; what is there when the drawing has ended is all.
    pub(super) fn lost(&self) -> Lost {
        Arc::clone(&self.shared.lost)
    }

    /// Shows `lines` as the table, which has so many `more`.
    pub(crate) fn table(&mut self, lines: Vec<String>, more: usize) {
        self.send(|inbox| inbox.table = Some((lines, more)));
    }

    /// Draws the table anew: the terminal's size has changed.
    pub(crate) fn redraw(&mut self) {
        self.send(|inbox| inbox.redraw = true);
    }

    /// Leaves what is drawn as it is, and draws nothing until [`resume`](Self::resume). Waits until that is so, unless the
    /// terminal takes nothing.
    pub(crate) fn pause(&mut self) {
        self.send(|inbox| inbox.pause = Some(true));
        let paused = self.shared.paused.lock().unwrap_or_else(PoisonError::into_inner);
        // A terminal that takes nothing shows nothing either.
        let _ = self.shared.changed.wait_timeout_while(paused, PAUSE_WAIT, |paused| !*paused);
    }

    /// Draws again, below what has been written meanwhile.
    pub(crate) fn resume(&mut self) {
        self.send(|inbox| inbox.pause = Some(false));
    }

    /// Takes the table away and goes on forwarding until all pipes have been closed on their other side;
    /// [`ended`](Self::ended) tells when.
    pub(crate) fn until_closed(&mut self) {
        self.send(|inbox| inbox.until_closed = true);
    }

    /// Forwards what has been printed, and ends. Waits until that is so, unless whoever reads it takes too long: then
    /// [`ended`](Self::ended) tells.
    pub(crate) fn finish(&mut self) {
        self.send(|inbox| inbox.end = true);
        self.is_ended_in_time();
    }

    /// Whether it has ended, or does soon.
    fn is_ended_in_time(&self) -> bool {
        let limit = Timespec { tv_sec: END_WAIT.as_secs() as i64, tv_nsec: 0 };
        let mut polled = [PollFd::from_borrowed_fd(self.ended.as_fd(), PollFlags::IN)];
        // Every signal is blocked that could interrupt this.
        poll(&mut polled, Some(&limit)) != Ok(0)
    }

    /// Readable once the drawing has ended.
    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Leaves `lines` on the screen for good.
    pub(crate) fn print(&mut self, lines: Vec<String>) {
        self.send(|inbox| {
            inbox.print.extend(lines);
            inbox.print.truncate(PRINT_MAX);
        });
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.send(|inbox| inbox.end = true);
        // A terminal that takes nothing keeps nobody from ending.
        if !self.is_ended_in_time() {
            give_up_on_stderr();
        }
    }
}

struct Stream {
    /// `None` once it is closed.
    reader: Option<std::io::PipeReader>,
    to: To,
    /// What each line begins with.
    prefix: Option<String>,
    partial: Vec<u8>,
}

struct Drawing {
    pipes: Vec<Stream>,
    lost: Lost,
    table: Vec<String>,
    /// Lines of the table that were left out.
    more: usize,
    /// Lines of the table that are on the screen.
    drawn: usize,
    paused: bool,
    until_closed: bool,
}

impl Drawing {
    fn run(mut self, shared: &Shared, mut woken: std::io::PipeReader) {
        loop {
            let open = || self.pipes.iter().enumerate().filter_map(|(i, s)| Some((i, s.reader.as_ref()?)));
            let (numbers, readers): (Vec<usize>, Vec<_>) = open().unzip();
            if self.until_closed && readers.is_empty() {
                return;
            }
            let mut polled = vec![PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN)];
            polled
                .extend(readers.iter().map(|reader| PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)));
            if poll(&mut polled, None).is_err() {
                continue; // Interrupted.
            }
            let ready: Vec<bool> = polled.iter().map(|p| !p.revents().is_empty()).collect();
            drop(polled);
            for (i, _) in numbers.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                self.forward(i);
            }
            if ready[0] {
                let mut bytes = [0; 64];
                let _ = woken.read(&mut bytes);
                if self.take(shared) {
                    return;
                }
            }
            self.draw();
        }
    }

    /// Takes all messages; says whether it is the end.
    fn take(&mut self, shared: &Shared) -> bool {
        let taken = std::mem::take(&mut *shared.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        let Inbox { table, print, redraw, pause, until_closed, end, .. } = taken;
        if !print.is_empty() {
            self.erase();
            let mut err = std::io::stderr().lock();
            for line in print {
                let _ = writeln!(err, "{line}");
            }
        }
        if let Some((lines, more)) = table {
            (self.table, self.more) = (lines, more);
            self.erase();
        }
        if redraw {
            self.erase();
        }
        if let Some(pause) = pause {
            // What others write meanwhile stands below it: it can be erased no more.
            (self.paused, self.drawn) = (pause, 0);
            *shared.paused.lock().unwrap_or_else(PoisonError::into_inner) = pause;
            shared.changed.notify_all();
        }
        if until_closed {
            self.until_closed = true;
            self.table.clear();
            self.erase();
        }
        if end {
            self.table.clear();
            self.erase();
            self.flush();
        }
        end
    }

    fn forward(&mut self, i: usize) {
        let mut bytes = [0; 16 * 1024];
        let stream = &mut self.pipes[i];
        // One of the same turn may have closed it.
        let Some(reader) = &mut stream.reader else { return };
        match reader.read(&mut bytes) {
            Ok(0) | Err(_) => stream.reader = None,
            Ok(n) => stream.partial.extend_from_slice(&bytes[..n]),
        }
        let whole = match stream.partial.iter().rposition(|&b| b == b'\n') {
            _ if stream.reader.is_none() || stream.partial.len() > LINE_MAX => stream.partial.len(),
            Some(end) => end + 1,
            None => return,
        };
        let mut text: Vec<u8> = stream.partial.drain(..whole).collect();
        if text.last().is_some_and(|&b| b != b'\n') {
            text.push(b'\n'); // The table begins on a line of its own.
        }
        if let Some(prefix) = &stream.prefix {
            text = tagged(&text, prefix);
        }
        let to = stream.to;
        self.erase();
        let written = match to {
            To::Out => std::io::stdout().lock().write_all(&text).and_then(|()| std::io::stdout().flush()),
            To::Err => std::io::stderr().lock().write_all(&text),
        };
        match written {
            // Who prints to a reader that is gone (`| head`) gets SIGPIPE, as without us.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                let same = self.pipes.iter_mut().filter(|stream| stream.to == to);
                same.for_each(|stream| (stream.reader, stream.partial) = (None, Vec::new()));
            }
            // A terminal that is gone has nobody to read it; scheduling goes on. So it does where a disk is full: there may be
            // room again.
            Err(e) if !to.is_terminal() => {
                self.lost.get_or_init(|| format!("write to {}: {}", to.as_str(), crate::files::cause(&e)));
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// At the end: what commands have written and nobody has read, without waiting for those that go on.
    fn flush(&mut self) {
        for i in 0..self.pipes.len() {
            for _ in 0..64 {
                let ready = {
                    let Some(reader) = &self.pipes[i].reader else { break };
                    let mut polled = [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)];
                    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                    poll(&mut polled, Some(&now)).is_ok_and(|n| n > 0)
                };
                if !ready {
                    break;
                }
                self.forward(i);
            }
        }
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            let _ = write!(std::io::stderr().lock(), "\x1b[{}A\r\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }

    fn draw(&mut self) {
        if self.drawn > 0 || self.paused || self.table.is_empty() {
            return;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        let (columns, rows) = size.map_or((80, 24), |s| (usize::from(s.ws_col), usize::from(s.ws_row)));
        let mut text = String::new();
        let room = rows.saturating_sub(2).max(1);
        let shown = if self.table.len() + self.more.min(1) > room {
            room.saturating_sub(1)
        } else {
            self.table.len()
        };
        for line in &self.table[..shown] {
            text.push_str(&cut(line, columns.max(20)));
            text.push('\n');
        }
        let hidden = self.table.len() - shown + self.more;
        if hidden > 0 {
            text.push_str(&format!("... and {hidden} more\n"));
        }
        self.drawn = text.matches('\n').count();
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

/// The first `columns` characters of a line; escape sequences take no room.
fn cut(line: &str, columns: usize) -> String {
    let (mut room, mut escape, mut text) = (columns, false, String::new());
    for c in line.chars() {
        if c == '\x1b' {
            escape = true;
        } else if !escape {
            if room == 0 {
                continue;
            }
            room -= 1;
        }
        text.push(c);
        escape &= c != 'm';
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_keep_their_colours() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\x1b[1mabcdef\x1b[0m", 3), "\x1b[1mabc\x1b[0m");
        assert_eq!(cut("ab", 3), "ab");
    }
}
