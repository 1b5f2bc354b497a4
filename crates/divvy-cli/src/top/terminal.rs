//! The terminal, the threads around it, and how it is given back.

use std::io::stdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use divvy_linux::clock;
use divvy_policy::Nanos;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{cursor, event, execute};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::app::{App, Key, Request};
use super::render::{self, Look};
use super::source::{Change, Snapshot, Source};
use crate::{Code, Failure};

/// What the threads tell the one that draws.
enum Message {
    Key(Key),
    Resized,
    Snapshot(Result<Snapshot, String>),
    Answer(Result<String, String>),
    Signal(i32),
    /// Nothing can be read from the terminal any more.
    Closed,
}

/// What the one that draws tells the source's thread.
enum Order {
    Change { client: u32, change: Change },
    Freeze(bool),
}

/// The screen in raw mode. Dropping it gives the terminal back as it was; so does a panic, on any thread.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let opened = ratatui::try_init();
        opened.map(Self).map_err(|e| Failure::new(Code::System, format!("set the terminal up: {e}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
        let _ = execute!(stdout(), cursor::Show);
    }
}

/// Shows `source` until the user has seen enough.
///
/// # Errors
/// [`Failure`] with [`Code::System`] where the terminal cannot be used.
pub(super) fn show(source: Box<dyn Source>, interval: Duration, look: Look) -> Result<Code, Failure> {
    let system = |what: &str, e: std::io::Error| Failure::new(Code::System, format!("{what}: {e}"));
    let (messages, inbox) = channel();
    // Before the screen is touched, so that there is no moment at which a signal would leave it as it is.
    let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
    let mut signals = signals.map_err(|e| system("watch for signals", e))?;
    let mut screen = Screen::open()?;
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        thread.map(drop).map_err(|e| system("start a thread", e))
    };
    let (orders, order_box) = channel();
    let sender = messages.clone();
    spawn("divvy-source", Box::new(move || feed(source, interval, &order_box, &sender)))?;
    let sender = messages.clone();
    let (more, wanted) = channel();
    spawn("divvy-keys", Box::new(move || read_keys(event::read, &sender, &wanted)))?;
    spawn(
        "divvy-signals",
        Box::new(move || {
            for signal in &mut signals {
                if messages.send(Message::Signal(signal)).is_err() {
                    return;
                }
            }
        }),
    )?;
    run(&mut screen, &inbox, &orders, &more, look)
}

fn run(
    screen: &mut Screen,
    inbox: &Receiver<Message>,
    orders: &Sender<Order>,
    more: &Sender<()>,
    look: Look,
) -> Result<Code, Failure> {
    let mut app = App::new();
    let broken = |e: std::io::Error| Failure::new(Code::System, format!("draw on the terminal: {e}"));
    screen.0.draw(|frame| render::draw(frame, &app, look)).map_err(broken)?;
    while let Ok(first) = inbox.recv() {
        for message in std::iter::once(first).chain(inbox.try_iter()) {
            let is_key = matches!(message, Message::Key(_));
            let request = match message {
                Message::Key(key) => app.on_key(key),
                Message::Resized => None,
                Message::Snapshot(answer) => {
                    app.on_snapshot(answer);
                    None
                }
                Message::Answer(answer) => {
                    app.on_answer(answer);
                    None
                }
                Message::Signal(signal) => return Ok(Code::Signalled(signal)),
                Message::Closed => return Ok(Code::Signalled(SIGHUP)),
            };
            match request {
                None => {}
                Some(Request::Quit) => return Ok(Code::Done),
                Some(Request::Interrupt) => return Ok(Code::Signalled(SIGINT)),
                Some(Request::Redraw) => screen.0.clear().map_err(broken)?,
                Some(Request::Suspend) => suspend(screen)?,
                // A source's thread that has ended is missed below, as snapshots are.
                Some(Request::Freeze(frozen)) => drop(orders.send(Order::Freeze(frozen))),
                Some(Request::Change { client, change }) => {
                    drop(orders.send(Order::Change { client, change }));
                }
            }
            if is_key {
                let _ = more.send(()); // A thread of keys that has ended says so itself.
            }
        }
        screen.0.draw(|frame| render::draw(frame, &app, look)).map_err(broken)?;
    }
    Err(Failure::new(Code::System, "the threads of divvy top have ended"))
}

/// Gives the terminal back, stops as Ctrl-Z asks, and takes it again.
fn suspend(screen: &mut Screen) -> Result<(), Failure> {
    ratatui::restore();
    let _ = execute!(stdout(), cursor::Show);
    let stopped = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP);
    screen.0 = ratatui::try_init()
        .map_err(|e| Failure::new(Code::System, format!("set the terminal up again: {e}")))?;
    stopped.map_err(|e| Failure::new(Code::System, format!("stop: {e}")))
}

/// Asks the source at every interval, and at once after a change.
fn feed(mut source: Box<dyn Source>, interval: Duration, orders: &Receiver<Order>, sender: &Sender<Message>) {
    let interval = Nanos(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
    let (mut elapsed, mut since, mut frozen) = (Nanos::ZERO, clock::now(), false);
    let mut due = since;
    loop {
        let now = clock::now();
        if now >= due {
            if !frozen {
                elapsed += now.since(since);
                if sender.send(Message::Snapshot(source.snapshot(elapsed))).is_err() {
                    return;
                }
            }
            since = now;
            due = now + interval;
        }
        let wait = Duration::from_nanos(due.since(clock::now()).0);
        match orders.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(Order::Freeze(wanted)) => {
                let now = clock::now();
                if !frozen {
                    elapsed += now.since(since);
                }
                (frozen, since, due) = (wanted, now, now);
            }
            Ok(Order::Change { client, change }) => {
                if sender.send(Message::Answer(source.change(client, change))).is_err() {
                    return;
                }
                due = clock::now(); // What it did is to be seen at once.
            }
        }
    }
}

/// Tells the keys one by one: nothing is read from the terminal until what the last one asked for was done. What is typed after the
/// key that ends or suspends us is for the shell.
fn read_keys(
    mut read: impl FnMut() -> std::io::Result<Event>,
    sender: &Sender<Message>,
    wanted: &Receiver<()>,
) {
    loop {
        let message = match read() {
            Ok(Event::Key(key)) => key_of(key).map(Message::Key),
            Ok(Event::Resize(..)) => Some(Message::Resized),
            Ok(_) => None,
            Err(_) => Some(Message::Closed),
        };
        let Some(message) = message else { continue };
        let (key, last) = (matches!(message, Message::Key(_)), matches!(message, Message::Closed));
        if sender.send(message).is_err() || last || (key && wanted.recv().is_err()) {
            return;
        }
    }
}

fn key_of(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Ctrl(c.to_ascii_lowercase())
        }
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let plain = |code| key_of(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Char('q')));
        assert_eq!(plain(KeyCode::Esc), Some(Key::Escape));
        assert_eq!(plain(KeyCode::F(1)), None);
        let control = KeyEvent::new(KeyCode::Char('C'), KeyModifiers::CONTROL);
        assert_eq!(key_of(control), Some(Key::Ctrl('c')));
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(key_of(released), None);
    }

    #[test]
    fn what_is_typed_after_the_last_key_stays_with_the_terminal() {
        let (sender, messages) = channel();
        let (more, wanted) = channel();
        let (told, reads) = channel();
        let mut typed = "ab".chars();
        let reader = std::thread::spawn(move || {
            let read = move || {
                told.send(()).expect("the test");
                let key = typed.next().map(|c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
                key.map(Event::Key).ok_or_else(|| std::io::Error::other("the end"))
            };
            read_keys(read, &sender, &wanted);
        });
        let key = |message| match message {
            Ok(Message::Key(Key::Char(c))) => c,
            _ => panic!("a key"),
        };
        assert_eq!(key(messages.recv()), 'a');
        // Nobody has said yet what becomes of it.
        assert!(messages.recv_timeout(Duration::from_millis(50)).is_err());
        assert_eq!(reads.try_iter().count(), 1);
        more.send(()).expect("the reader");
        assert_eq!(key(messages.recv()), 'b');
        drop(more); // As where it ends us.
        reader.join().expect("the reader");
        assert_eq!(reads.iter().count(), 1);
    }

    /// This test runs itself once more, on a terminal of its own, and there panics with the screen open.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test tells its own child by the environment what it is")]
    fn a_panic_gives_the_terminal_back() {
        use std::io::Read as _;
        use std::process::Command;

        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

        const CHILD: &str = "DIVVY_TEST_PANIC";
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::open().unwrap_or_else(|e| panic!("{}", e.text));
            let other = std::thread::spawn(|| panic!("on another thread"));
            assert!(other.join().is_err());
            panic!("and on this one");
        }
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let line = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size).unwrap();
        let before = rustix::termios::tcgetattr(&line).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "top::terminal::tests::a_panic_gives_the_terminal_back", "--nocapture"]);
        command.env(CHILD, "1").env("TERM", "xterm-256color");
        let end = || line.try_clone().unwrap();
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        let reader = std::thread::spawn({
            let mut terminal = std::fs::File::from(terminal.try_clone().unwrap());
            move || {
                let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = terminal.read(&mut bytes) {
                    all.extend_from_slice(&bytes[..n]);
                }
                String::from_utf8_lossy(&all).into_owned()
            }
        });
        assert!(!child.wait().unwrap().success());
        let after = rustix::termios::tcgetattr(&line).unwrap();
        assert_eq!(
            (after.local_modes, after.input_modes, after.output_modes),
            (before.local_modes, before.input_modes, before.output_modes)
        );
        drop(line); // Nobody is left on the other side: the reader ends.
        let text = reader.join().unwrap();
        let (enter, leave) = ("\x1b[?1049h", "\x1b[?1049l");
        assert!(text.contains(enter), "the screen was open: {text:?}");
        assert!(text.rfind(leave) > text.rfind(enter), "{text:?}");
        assert!(text.contains("on another thread") && text.contains("and on this one"), "{text:?}");
    }
}
