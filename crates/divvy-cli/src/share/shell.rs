//! What the shell makes of a line, as far as that must be known before it runs.
//!
//! `sh -c 'sha256sum file'` leaves a shell that waits beside the program: one more process to hold, to look at and to wait for.
//! A line that is one simple command, of a program and not of the shell's own, is given to the shell behind `exec`, which does
//! the same and leaves the program alone.

use std::process::Stdio;

use super::tasks::Command;

/// Has the shell replace itself by a simple command's program. No effect on anything else.
pub(super) fn spare(command: &mut Command) {
    let [sh, flag, line] = command.argv.as_mut_slice() else { return };
    if sh != "/bin/sh" || flag != "-c" {
        return;
    }
    let simple = line.to_str().filter(|line| is_simple(line)).and_then(|line| line.split_whitespace().next());
    if simple.is_some_and(|word| word.contains('/') || meaning(word).starts_with('/')) {
        let replaced = format!("exec {}", line.to_string_lossy());
        *line = replaced.into();
    }
}

/// Whether a line is a program and its arguments and nothing more: the shell would expand, redirect and join nothing in it, and
/// its first word is a plain name.
fn is_simple(line: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/,:@%=".contains(c);
    let mut quote = None;
    for c in line.trim().chars() {
        match quote {
            Some('\'') if c != '\'' => {}
            Some('"') if !"\"$`\\!".contains(c) => {}
            Some(open) if c == open => quote = None,
            Some(_) => return false,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if plain(c) || c == ' ' || c == '\t' => {}
            None => return false,
        }
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    let name = |c: char| plain(c) && c != '=' && c != '%';
    quote.is_none() && !first.is_empty() && first.chars().all(name)
}

/// Whether the shell knows a word that is no file: builtins and keywords.
pub(super) fn knows(word: &str) -> bool {
    !meaning(word).is_empty()
}

/// What `command -v` says of a word: the path of a program, the name of what is the shell's own, or nothing.
fn meaning(word: &str) -> String {
    let mut asked = std::process::Command::new("/bin/sh");
    asked.args(["-c", "command -v -- \"$1\"", "sh", word]);
    asked.stdin(Stdio::null()).stderr(Stdio::null());
    let said = asked.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spared(line: &str) -> String {
        let argv = ["/bin/sh", "-c", line].map(Into::into).to_vec();
        let mut command = Command { argv, ..Command::default() };
        spare(&mut command);
        command.argv[2].to_string_lossy().into_owned()
    }

    #[test]
    fn one_program_needs_no_shell_beside_it() {
        assert_eq!(spared("sleep 10"), "exec sleep 10");
        assert_eq!(spared("  /bin/sleep 1"), "exec   /bin/sleep 1");
        assert_eq!(spared("env -i 'a b' \"c;d\""), "exec env -i 'a b' \"c;d\"");
        assert_eq!(spared("sh -c 'while :; do :; done'"), "exec sh -c 'while :; do :; done'");
    }

    #[test]
    fn whatever_is_the_shells_business_is_left_to_it() {
        let lines = [
            "sleep 1; true",
            "sleep 1 &",
            "a | b",
            "echo x",
            "cd /",
            "true",
            ":",
            "X=1 sleep 1",
            "sleep $X",
            "ls *",
            "sleep 1 > f",
            "sleep \"$X\"",
            "sleep `x`",
            "! true",
            "( sleep 1 )",
            "{ sleep 1; }",
            "while :; do :; done",
            "sleep 'open",
            "~/x",
            "sleep 1\nsleep 2",
            "sleep \\ 1",
            "# sleep",
            "no-such-program-at-all",
            "",
        ];
        for line in lines {
            assert_eq!(spared(line), line);
        }
    }
}
