//! A page of the documentation, followed as its reader would: each block of commands, and what stands below it.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;

use crate::harness::{ENOUGH_TICKS, Running, Sandbox, eventually, on_our_cpu};
use crate::page::{Block, blocks, check};

/// How a reader who has not installed divvy calls it; here it is the one under test.
pub const CALL: &str = "cargo run --release --bin divvy --";
/// How many times a block is run that fails, or whose output is not the page's: on a busy machine a look may come too soon.
const ATTEMPTS: u32 = 3;

/// Where a shell finds the programs under test.
pub fn search_path(sandbox: &Sandbox) -> OsString {
    let mut path = sandbox.program().parent().expect("a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// The blocks of commands of a page, and what it shows below each.
pub fn commands(page: &str) -> Vec<(Block<'_>, Option<&str>)> {
    let all = blocks(page);
    let shown = all.iter().skip(1).map(|next| (next.kind == "text").then_some(next.text)).chain([None]);
    all.iter().copied().zip(shown).filter(|(block, _)| block.kind.split(' ').next() == Some("sh")).collect()
}

/// Runs the blocks of a page that are marked `sh`, or `sh ctrl-c` where the last command goes on until Ctrl-C, in a directory. There
/// are so many at least. What stands below a block is what it prints.
pub fn follow(page: &str, least: usize) {
    let sandbox = Sandbox::own();
    let mut followed = 0;
    for (block, shown) in commands(page) {
        let endless = match block.kind {
            "sh" => false,
            "sh ctrl-c" => true,
            _ => continue,
        };
        // Where nothing stands below, nothing is promised.
        run_block(&sandbox, block.text, endless, shown.unwrap_or("..."));
        followed += 1;
    }
    assert!(followed >= least, "{followed} blocks of commands are no page");
}

/// Runs one block, until what it prints is what is shown.
fn run_block(sandbox: &Sandbox, text: &str, endless: bool, shown: &str) {
    for attempt in 1..=ATTEMPTS {
        let (status, printed) = run(sandbox, text, endless);
        let fine = if endless { status.code() == Some(130) } else { status.success() };
        eprintln!("{status}:\n{text}{printed}");
        // What it has left in the background.
        sandbox.kill_clients();
        // Only what a busy machine makes of numbers may be tried again.
        assert!(fine, "{status}:\n{text}{printed}");
        match check(shown, &printed) {
            Ok(()) => return,
            Err(why) => assert!(attempt < ATTEMPTS, "after\n{text}{why}"),
        }
    }
}

/// How the commands end as a script, and what they print on both streams. Those without an end get Ctrl-C when they have worked for a
/// while.
fn run(sandbox: &Sandbox, text: &str, endless: bool) -> (ExitStatus, String) {
    let printed = sandbox.path("printed");
    // What an earlier one may have left running writes into its own.
    let _ = std::fs::remove_file(&printed);
    let file = std::fs::File::create(&printed).expect("a file");
    let errors = file.try_clone().expect("the same file");
    let home = sandbox.path("home");
    std::fs::create_dir_all(&home).expect("a directory");
    let mut script = on_our_cpu(text).replace(CALL, "divvy");
    if endless {
        // The last command takes the shell's place, and so the signal.
        let last = script.trim_end().rfind('\n').map_or(0, |end| end + 1);
        script.insert_str(last, "exec ");
    }
    let mut shell = sandbox.command("sh");
    shell.args(["-euc", &script]).env("PATH", search_path(sandbox)).env("HOME", home);
    let running = Running { child: shell.stdout(Stdio::from(file)).stderr(errors).spawn().expect("a shell") };
    if endless {
        eventually("the commands to have worked", || (sandbox.worked() >= ENOUGH_TICKS).then_some(()));
        running.signal(Signal::INT);
    }
    let mut child = running.child;
    let status = eventually(&format!("the end of:\n{text}"), || child.try_wait().expect("our child"));
    (status, std::fs::read_to_string(&printed).expect("what was printed"))
}
