//! The front end of a run: it keeps the terminal, and the scheduler is its child, in a session of its own.
//!
//! It draws the table and forwards what the commands print, passes signals on, stops and goes on with its job (Ctrl-Z,
//! `fg`), and ends as the scheduler does. If that is killed, it says so, and reads on what the commands print until
//! they have ended.

use divvy_linux::front::{Event, Front};
use divvy_linux::stand_in::end_by_signal;
use divvy_linux::{Asked, Exit};
use divvy_policy::Nanos;

use super::link::{Said, Told};
use super::screen::{Lost, Pipes, Screen};
use crate::{Code, Failure, is_deaf, tell_in_time};

/// Suspending thousands of commands takes some milliseconds. A scheduler that has not said by then that it did is stopped
/// itself, or hangs, and its guardian resumes what it holds.
const SUSPEND_WAIT: Nanos = Nanos::from_secs(1);
/// What Rust's runtime ends a process with that has panicked.
const PANICKED: i32 = 101;
/// Signals by which the terminal, a shell or a script asks for the end.
const ENDING: [Asked; 4] = [Asked::SIGINT, Asked::SIGTERM, Asked::SIGHUP, Asked::SIGQUIT];

struct FrontEnd {
    front: Front,
    screen: Option<Screen>,
    lost: Lost,
    /// It draws a table; else it only forwards.
    has_table: bool,
    /// Signals that asked for the end and were passed on.
    asked: Vec<Asked>,
    /// The commands are divvyd's clients, and stay so without the scheduler.
    together: bool,
}

/// Serves the scheduler until its end: the code that it ended with. `pipes` are those of the commands that are forwarded,
/// above a table if `has_table`; they are divided by divvyd if `together`.
///
/// # Errors
/// [`Failure`] where the scheduler was killed, or the screen cannot be had.
pub(super) fn run(
    front: Front,
    pipes: Option<Pipes>,
    has_table: bool,
    together: bool,
) -> Result<Code, Failure> {
    let (screen, failed) = match pipes.map(Screen::start).transpose() {
        Ok(screen) => (screen, None),
        Err(e) => (None, Some(Failure::new(Code::System, format!("start the screen: {e}")))),
    };
    let lost = screen.as_ref().map(Screen::lost).unwrap_or_default();
    let mut end = FrontEnd { front, screen, lost, has_table, asked: Vec::new(), together };
    if failed.is_some() {
        end.front.pass_on(Asked::SIGTERM);
    }
    let exit = loop {
        match end.front.next(None, None)? {
            Event::Asked(signal) => end.on_signal(signal)?,
            Event::Said(line) => drop(end.on_said(&line)),
            Event::Ended(exit) => break exit,
            Event::Ready | Event::Nothing => {}
        }
    };
    match (exit, failed) {
        (_, Some(failure)) => Err(failure),
        // It came before the scheduler could take signals, or when it did not any more.
        (Exit::Signal(signal), _) if end.asked.iter().any(|&asked| asked as i32 == signal) => {
            drop(end);
            end_by_signal(signal);
            Ok(Code::Signalled(signal))
        }
        (Exit::Signal(signal), _) => end.orphaned(&format!("signal {signal} ended the scheduler")),
        (Exit::Code(PANICKED), _) => end.orphaned("the scheduler has panicked"),
        (Exit::Code(code), _) => {
            end.wait_for_readers()?;
            end.with_lost(u8::try_from(code).unwrap_or(u8::MAX))
        }
    }
}

impl FrontEnd {
    fn on_signal(&mut self, signal: Asked) -> Result<(), Failure> {
        match signal {
            Asked::SIGTSTP => self.suspend()?,
            Asked::SIGUSR1 => self.front.tell(Told::Usr1.byte()),
            Asked::SIGUSR2 => self.front.tell(Told::Usr2.byte()),
            Asked::SIGWINCH => {
                if let Some(screen) = &mut self.screen {
                    screen.redraw();
                }
            }
            signal => {
                self.front.pass_on(signal);
                self.asked.push(signal);
            }
        }
        Ok(())
    }

    /// What cannot be read was said by another divvy than this one, which cannot be.
    fn on_said(&mut self, line: &[u8]) -> Option<Said> {
        let said = serde_json::from_slice(line).ok()?;
        match (&said, &mut self.screen) {
            (Said::Table(lines, more), Some(screen)) => screen.table(lines.clone(), *more),
            (Said::Print(lines), Some(screen)) => screen.print(lines.clone()),
            // Whoever reads it slowly (`| less`) shall have it to its end.
            (Said::Over, Some(screen)) if !self.has_table => {
                screen.finish();
                self.front.tell(Told::Erased.byte());
            }
            (Said::Over, _) => {
                self.screen = None;
                self.front.tell(if is_deaf() { Told::Deaf } else { Told::Erased }.byte());
            }
            (Said::Suspended, _) | (_, None) => {}
        }
        Some(said)
    }

    /// Ctrl-Z: first the commands, then ourselves; and the other way round when we are resumed.
    fn suspend(&mut self) -> Result<(), Failure> {
        if let Some(screen) = &mut self.screen {
            screen.pause();
        }
        self.front.tell(Told::Suspend.byte());
        let mut later = Vec::new();
        loop {
            match self.front.next(None, Some(SUSPEND_WAIT))? {
                Event::Said(line) => {
                    if self.on_said(&line) == Some(Said::Suspended) {
                        break;
                    }
                }
                Event::Asked(Asked::SIGTSTP) => {}
                Event::Asked(signal) => later.push(signal),
                // Its end is told once more, to whoever called us.
                Event::Ended(exit) => {
                    self.front.tell_again(exit);
                    break;
                }
                Event::Ready | Event::Nothing => break,
            }
        }
        // Whoever was asked to end meanwhile is not stopped before it did.
        if later.iter().all(|signal| !ENDING.contains(signal)) {
            self.front.stop_self();
        }
        self.front.tell(Told::Resume.byte());
        if let Some(screen) = &mut self.screen {
            screen.resume();
        }
        later.into_iter().try_for_each(|signal| self.on_signal(signal))
    }

    /// What has been printed and is tagged is read at its readers' pace, until they have it or we are asked to end.
    fn wait_for_readers(&mut self) -> Result<(), Failure> {
        let Some(mut screen) = self.screen.take().filter(|_| !self.has_table) else { return Ok(()) };
        screen.finish();
        loop {
            match self.front.next(Some(screen.ended()), None)? {
                Event::Asked(signal) if ENDING.contains(&signal) => return Ok(()),
                Event::Asked(Asked::SIGTSTP) => self.front.stop_self(),
                Event::Ready => return Ok(()),
                _ => {}
            }
        }
    }

    /// The end with the scheduler's `code`, where all that commands have printed is where it was to go; else it is said that it is
    /// not, which is no success.
    fn with_lost(self, code: u8) -> Result<Code, Failure> {
        drop(self.screen);
        let Some(why) = self.lost.get() else { return Ok(Code::Command(code)) };
        let text = format!("{why}; what commands printed there is not all there");
        if code == 0 {
            return Err(Failure::new(Code::File, text));
        }
        tell_in_time(format_args!("divvy: {text}"));
        Ok(Code::Command(code))
    }

    /// The scheduler is gone, its guardian has resumed the commands, and they go on. They must be able to print.
    fn orphaned(mut self, what: &str) -> Result<Code, Failure> {
        let how = if self.together { "as divvyd's clients" } else { "undivided" };
        let text = format!("{what}; its commands go on, {how}");
        let Some(mut screen) = self.screen.take() else {
            return Err(Failure::new(Code::Scheduler, text));
        };
        screen.print(vec![format!(
            "divvy: {text}; what they print is passed on until they end (Ctrl-C: no longer)"
        )]);
        screen.until_closed();
        loop {
            match self.front.next(Some(screen.ended()), None)? {
                Event::Asked(Asked::SIGTSTP) => {
                    screen.pause();
                    self.front.stop_self();
                    screen.resume();
                }
                Event::Asked(signal) if ENDING.contains(&signal) => {
                    drop(screen);
                    end_by_signal(signal as i32);
                    return Ok(Code::Signalled(signal as i32));
                }
                Event::Ready => return Ok(Code::Scheduler),
                _ => {}
            }
        }
    }
}
