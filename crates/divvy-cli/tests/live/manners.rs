//! What people expect of a command-line program, because every other one does it.

use std::process::Stdio;

use crate::harness::Sandbox;

/// `| head` has had enough: that is no failure, and nothing is said of it. What cannot be written otherwise is one.
#[test]
fn a_closed_pipe_ends_quietly() {
    let sandbox = Sandbox::own();
    let task = "1:sleep 60";
    for args in [
        &["policies"][..],
        &["ls"],
        &["doctor"],
        &["sim", "--shares", "2,1"],
        &["completions", "bash"],
        &["share", "--for", "50ms", "--json", task],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = sandbox.divvy(args).stdout(writer).stderr(Stdio::piped()).output().expect("run divvy");
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let full = sandbox.divvy(args).stdout(full).stderr(Stdio::piped()).output().expect("run divvy");
        let said = String::from_utf8_lossy(&closed.stderr).into_owned();
        assert_eq!(said, "", "{args:?}");
        assert!(matches!(closed.status.code(), Some(0 | 1)), "{args:?}: {}", closed.status);
        assert_eq!(full.status.code(), Some(4), "{args:?}: {}", String::from_utf8_lossy(&full.stderr));
    }
}
