//! On a terminal: the table is redrawn in place, and the commands' output stays readable above it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{SPIN, Sandbox, cpu, eventually, one_cpu};

const ROWS: u16 = 24;
const COLUMNS: u16 = 100;
/// How long nothing comes until a terminal that others have open counts as read to its end.
const OPEN_ELSEWHERE: Duration = Duration::from_secs(2);

/// divvy on a terminal of its own, and what that shows.
pub struct Session {
    pub child: Child,
    pub terminal: OwnedFd,
    /// Keeps the terminal there until what was written last was read.
    line: Option<File>,
    bytes: Receiver<Vec<u8>>,
    pub screen: vt100::Parser,
    pub raw: Vec<u8>,
}

impl Session {
    pub fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        Self::start_command(sandbox.divvy(args), COLUMNS)
    }

    /// Any command on a terminal of `columns` columns.
    pub fn start_command(mut command: Command, columns: u16) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("a pty");
        let name = ptsname(&terminal, Vec::new()).expect("a pty's name");
        let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let open =
            || File::options().read(true).write(true).open(name.to_str().expect("a path")).expect("the pty");
        command.stdin(open()).stdout(open()).stderr(open());
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().expect("start divvy");
        drop(command); // It holds the terminal open.
        let (sender, bytes) = channel();
        let mut reader = File::from(terminal.try_clone().expect("a second descriptor"));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The last one on the other side gone is an error here.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let size = |n| std::num::NonZero::new(n).expect("some");
        let parser = vt100::Parser::new(size(ROWS), size(columns), 1000);
        Self { child, terminal, line: Some(open()), bytes, screen: parser, raw: Vec::new() }
    }

    pub fn lines(&mut self) -> Vec<String> {
        for bytes in self.bytes.try_iter() {
            self.screen.process(&bytes);
            self.raw.extend(bytes);
        }
        let columns = self.screen.screen().size().1;
        let lines = self.screen.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }

    pub fn wait_for(&mut self, what: &str, found: impl Fn(&[String]) -> bool) -> Vec<String> {
        eventually(what, || Some(self.lines()).filter(|lines| found(lines)))
    }

    pub fn key(&mut self, byte: u8) {
        self.keys(&[byte]);
    }

    pub fn keys(&mut self, bytes: &[u8]) {
        File::from(self.terminal.try_clone().expect("a descriptor")).write_all(bytes).expect("press keys");
    }

    pub fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let status = eventually("divvy's end", || self.child.try_wait().expect("our child"));
        // What it wrote last may still be on its way: the terminal's other side is read to its end, which comes once nobody has it open.
        self.line = None;
        let mut rest = Vec::new();
        while let Ok(bytes) = self.bytes.recv_timeout(OPEN_ELSEWHERE) {
            rest.extend(bytes);
        }
        self.screen.process(&rest);
        self.raw.extend(rest);
        (status.code(), self.lines())
    }

    /// Asks divvy to end.
    pub fn terminate(&mut self) -> (Option<i32>, Vec<String>) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("our child");
        self.end()
    }
}

fn headers(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.starts_with("command") && line.contains("achieved %")).count()
}

fn numbered<'a>(lines: &'a [String], word: &str) -> Vec<&'a str> {
    lines.iter().filter(|line| line.starts_with(word)).map(String::as_str).collect()
}

#[test]
fn table_and_output_leave_each_other_alone() {
    let sandbox = Sandbox::own();
    let talker = format!("1:for i in 1 2 3 4 5 6; do echo out-$i; echo err-$i >&2; sleep 0.15; done; {SPIN}");
    let parts = format!("2:printf 'one '; sleep 0.5; echo line; {SPIN}");
    let mut session = Session::start(&sandbox, &["share", "--cpus", &one_cpu(), &talker, &parts]);
    let lines = session.wait_for("all output and a table", |lines| {
        headers(lines) == 1 && lines.iter().any(|l| l == "err-6") && lines.iter().any(|l| l == "one line")
    });
    let check = |lines: &[String]| {
        for word in ["out-", "err-"] {
            let all: Vec<String> = (1..=6).map(|i| format!("{word}{i}")).collect();
            assert_eq!(numbered(lines, word), all, "{lines:#?}");
        }
        assert_eq!(numbered(lines, "one line").len(), 1, "{lines:#?}");
        assert_eq!(headers(lines), 1, "{lines:#?}");
        for row in ["for ", "printf "] {
            assert_eq!(numbered(lines, row).len(), 1, "{lines:#?}");
        }
    };
    check(&lines);
    // The table is the last thing on the screen, and is drawn anew without moving: its numbers change.
    let header = lines.iter().position(|line| line.starts_with("command")).unwrap();
    assert_eq!(lines.len(), header + 3, "{lines:#?}");
    let now = session
        .wait_for("a redrawn table", |now| headers(now) == 1 && now.len() == lines.len() && now != lines);
    assert_eq!(now[..header], lines[..header]);
    let (code, lines) = session.terminate();
    assert_eq!(code, Some(143));
    check(&lines);
    assert!(lines.last().unwrap().starts_with("divvy itself:"), "the summary ends it: {lines:#?}");
}

#[test]
fn a_flood_of_output_comes_through_whole() {
    let sandbox = Sandbox::own();
    let mut session = Session::start(&sandbox, &["share", "1:seq -f flood-%.0f-doolf 5000", "1:sleep 0.6"]);
    let (code, _) = session.end();
    assert_eq!(code, Some(0));
    let text = String::from_utf8_lossy(&session.raw).into_owned();
    for i in 1..=5000 {
        assert!(text.contains(&format!("flood-{i}-doolf\r\n")), "line {i} is missing or was cut");
    }
}

#[test]
fn control_c_on_the_terminal_ends_politely() {
    let sandbox = Sandbox::own();
    let polite = "1:trap 'echo was-asked; exit 0' TERM; echo ready; while :; do :; done";
    let mut session = Session::start(&sandbox, &["share", polite]);
    session.wait_for("the command", |lines| lines.iter().any(|l| l == "ready") && headers(lines) == 1);
    session.key(3);
    let (code, lines) = session.end();
    assert_eq!(code, Some(130));
    assert!(lines.iter().any(|line| line == "was-asked"), "{lines:#?}");
    assert_eq!(sandbox.processes(), []);
}

/// Ctrl-S: the terminal takes nothing any more, and whoever scheduled must end all the same.
#[test]
fn a_stopped_terminal_keeps_nobody_from_ending() {
    let sandbox = Sandbox::own();
    let mut session = Session::start(&sandbox, &["share", &format!("1:{SPIN}")]);
    session.wait_for("a table", |lines| headers(lines) == 1);
    session.key(0x13);
    // For as long as a table or two take.
    let before = cpu(&sandbox.with("while"));
    eventually("it to go on", || (cpu(&sandbox.with("while")) > before + 100).then_some(()));
    let (code, _) = session.terminate();
    assert_eq!(code, Some(143));
    assert_eq!(sandbox.processes(), []);
}

/// More commands than lines: the table never scrolls.
#[test]
fn a_table_longer_than_the_screen_is_cut() {
    let sandbox = Sandbox::own();
    let words: Vec<String> = (0..40).map(|_| "1:sleep 600".to_owned()).collect();
    let mut args = vec!["share"];
    args.extend(words.iter().map(String::as_str));
    let mut session = Session::start(&sandbox, &args);
    let lines =
        session.wait_for("a cut table", |lines| lines.last().is_some_and(|l| l.starts_with("... and ")));
    assert_eq!(headers(&lines), 1, "{lines:#?}");
    assert!(lines.len() < usize::from(ROWS));
    let (code, _) = session.terminate();
    assert_eq!(code, Some(143));
}

/// A terminal that only writes line after line gets the output and the summary, and nothing is drawn anew.
#[test]
fn a_dumb_terminal_gets_lines_only() {
    let sandbox = Sandbox::own();
    let mut command = sandbox.divvy(&["share", "--for", "1s", &format!("1:echo said; {SPIN}")]);
    command.env("TERM", "dumb");
    let mut session = Session::start_command(command, COLUMNS);
    let (code, lines) = session.end();
    assert_eq!(code, Some(0));
    assert_eq!((headers(&lines), numbered(&lines, "said").len()), (1, 1), "{lines:#?}");
    assert!(!session.raw.contains(&0x1b), "{:?}", String::from_utf8_lossy(&session.raw));
    let mut command = sandbox.divvy(&["top"]);
    command.env("TERM", "dumb").env("DIVVY_RUNTIME_DIR", sandbox.path("run"));
    let mut daemon = sandbox.start(&["run", "--name", "sleeper", "--", "sleep", "60"]);
    eventually("a divvyd", || {
        String::from_utf8_lossy(&sandbox.run(&["ls"]).stdout).contains("sleeper").then_some(())
    });
    let mut session = Session::start_command(command, COLUMNS);
    let (code, lines) = session.end();
    assert_eq!(code, Some(2), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("TERM is dumb")), "{lines:#?}");
    sandbox.kill_clients();
    daemon.wait();
}

/// `NO_COLOR` takes the bright and dim away, not the drawing.
#[test]
fn no_color_is_respected() {
    for (no_color, bright) in [(None, true), (Some("1"), false)] {
        let sandbox = Sandbox::own();
        let mut command = sandbox.divvy(&["share", "--for", "1s", &format!("1:{SPIN}")]);
        command.env("TERM", "xterm").env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
        let mut session = Session::start_command(command, COLUMNS);
        let (code, lines) = session.end();
        assert_eq!((code, headers(&lines)), (Some(0), 1), "{lines:#?}");
        let has = |sequence: &str| session.raw.windows(sequence.len()).any(|w| w == sequence.as_bytes());
        assert_eq!(has("\x1b[1m"), bright);
        assert!(has("\x1b[J"), "it was drawn anew");
    }
}
