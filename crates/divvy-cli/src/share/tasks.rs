//! What is to be divided among: `SHARE:COMMAND` and `SHARE:@SELECTOR` words, and task files.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use divvy_api::names;
use divvy_linux::{CpuMask, Selector, SelectorError};
use divvy_policy::{CpuLimit, Share};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::shell;
use crate::limit::{self, NamedLimit};
use crate::strip::plain;
use crate::{Code, Failure, cpus, nearest};

/// The largest share on the command line: more only makes cycles too long to come to an end.
const SHARE_MAX: u64 = 1_000_000;

/// A task file of more bytes was not meant.
const FILE_MAX: u64 = 16 << 20;

/// One client with its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) share: Share,
    /// The most CPU time that it may have, where there is a most.
    pub(crate) limit: Option<CpuLimit>,
    /// The CPUs that it may use, where they are not all that are divided.
    pub(crate) cpus: Option<CpuMask>,
    pub(crate) what: What,
}

/// What a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A command, started by divvy and ended with it.
    Command(Command),
    /// Processes that run already, left alone at the end.
    Attach(Selector),
}

/// A command to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) argv: Vec<OsString>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The CPUs that it is started on, where nobody else keeps it to them.
    pub(crate) cpus: Option<CpuMask>,
}

impl Task {
    /// A command is started on its CPUs, or those `divided` if it has none of its own, as taskset does: nobody else will keep it to
    /// them.
    pub(crate) fn keep_by_itself(&mut self, divided: Option<CpuMask>) {
        if let What::Command(command) = &mut self.what {
            command.cpus = self.cpus.or(divided);
        }
    }

    /// Whether the client comes to an end by itself.
    pub(crate) fn ends(&self) -> bool {
        match &self.what {
            What::Command(_) => true,
            What::Attach(selector) => selector.ends(),
        }
    }

    /// What it was attached by; `None` for a command.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        match &self.what {
            What::Command(_) => None,
            What::Attach(selector) => Some(selector),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    task: Vec<FileTask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTask {
    name: Option<String>,
    #[serde(deserialize_with = "whole")]
    share: i128,
    limit: Option<String>,
    cpus: Option<String>,
    command: Option<FileCommand>,
    attach: Option<String>,
    dir: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// A share as a file has it. What is outside its range is refused with the task's name.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<i128, D::Error> {
    struct Whole;

    impl de::Visitor<'_> for Whole {
        type Value = i128;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number from 1 to {SHARE_MAX} without quotes, as in share = 2")
        }

        fn visit_i64<E: de::Error>(self, n: i64) -> Result<i128, E> {
            Ok(n.into())
        }

        fn visit_i128<E: de::Error>(self, n: i128) -> Result<i128, E> {
            Ok(n)
        }

        fn visit_u64<E: de::Error>(self, n: u64) -> Result<i128, E> {
            Ok(n.into())
        }
    }

    from.deserialize_i64(Whole)
}

/// What the reader of TOML says, in words of who writes a task file.
fn in_words(message: &str) -> String {
    const ABOVE: &str = "write [[task]], in two brackets, above the lines of each task";
    let message = message.trim_end();
    if message == "missing field `task`" {
        return format!("it has no task; {ABOVE} (docs/tasks.md)");
    }
    if message.ends_with("expected `task`") || message == "invalid type: map, expected a sequence" {
        let what = message.split_once(',').map_or(message, |(what, _)| what);
        let what = if what.starts_with("unknown") { what } else { "[task] is one table" };
        return format!("{what}; {ABOVE}");
    }
    if message == "missing field `share`" {
        return "this task has no share; write one, as in share = 2".to_owned();
    }
    if let Some(what) = message.strip_suffix(", expected a string") {
        return format!("{what}, expected a text in quotes");
    }
    if let Some(what) = message.strip_suffix(", expected a map") {
        return format!("{what}, expected a table, as in env = {{ NAME = \"value\" }}");
    }
    match message {
        "expected a string for the shell or a list of arguments" => {
            "command: expected a text in quotes, for the shell, or a list of such, as in [\"make\", \"-j4\"]"
                .to_owned()
        }
        "key with no value, expected `=`" => "there is no =; write it as in share = 2".to_owned(),
        "string values must be quoted, expected literal string" => {
            "a text has to stand in quotes, as in command = \"make -j4\"".to_owned()
        }
        _ if message.starts_with("invalid basic string") || message.starts_with("invalid literal string") => {
            "a text does not end; close its quotes in this line".to_owned()
        }
        _ => message.to_owned(),
    }
}

/// A string goes through the shell, a list is an argument vector.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string for the shell or a list of arguments")]
enum FileCommand {
    Shell(String),
    Argv(Vec<String>),
}

fn usage(text: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Usage, text)
}

fn parse_share(n: i128, whose: &str) -> Result<Share, Failure> {
    let share =
        u64::try_from(n).ok().filter(|n| (1..=SHARE_MAX).contains(n)).and_then(|n| Share::new(n).ok());
    share.ok_or_else(|| usage(format!("{whose}: share {n}: a share is a whole number from 1 to {SHARE_MAX}")))
}

/// All tasks of the command line and the file, named, and looked up before anything is started.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`], [`Code::File`] or [`Code::NotStarted`], and one line that says what to change.
pub(crate) fn all(words: &[String], file: Option<&Path>) -> Result<Vec<Task>, Failure> {
    let mut tasks = Vec::new();
    for word in words {
        tasks.push(from_word(word)?);
    }
    if let Some(file) = file {
        tasks.extend(from_file(file)?);
    }
    for task in &mut tasks {
        if let What::Command(command) = &mut task.what {
            check_program(Some(&plain(&task.name)), command)?;
            shell::spare(command);
        }
    }
    // Names are for people and programs to read, in tables and reports: one line each.
    tasks.iter_mut().for_each(|task| task.name = plain(&task.name));
    name_apart(&mut tasks);
    Ok(tasks)
}

/// Calls tasks as divvyd calls its clients, whose names are words of a command: one name in its lists and in the run's own table.
/// What names a task on the command line has been read before.
pub(crate) fn name_as_clients(tasks: &mut [Task]) {
    tasks.iter_mut().for_each(|task| task.name = names::made_of(&task.name));
    name_apart(tasks);
}

/// Gives tasks the limits of the command line: one that names a task goes before the file's, and that before one for all.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`] for a name that no task has, and for two limits of one task.
pub(crate) fn limit(tasks: &mut [Task], limits: &[NamedLimit]) -> Result<(), Failure> {
    let mut given: Vec<Option<&str>> = Vec::new();
    let (named, all): (Vec<_>, Vec<_>) = limits.iter().partition(|one| one.name.is_some());
    for one in all.into_iter().chain(named) {
        let name = one.name.as_deref();
        if given.contains(&name) {
            let whose = name.map_or_else(|| "all".to_owned(), |name| format!("'{name}'"));
            return Err(usage(format!("--limit: two limits for {whose}; give one")));
        }
        given.push(name);
        let Some(name) = name else {
            tasks.iter_mut().for_each(|task| task.limit = task.limit.or(one.limit));
            continue;
        };
        find(tasks, "--limit", name)?.limit = one.limit;
    }
    Ok(())
}

/// Gives tasks the CPUs of the command line, which go before the file's, and returns those of all together.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`] for what is no list, a name that no task has, and two lists of one task or for all.
pub(crate) fn keep_to(tasks: &mut [Task], lists: &[String]) -> Result<Option<CpuMask>, Failure> {
    let (mut all, mut given) = (None, Vec::new());
    for list in lists {
        let (name, mask) = cpus::parse_named(list)?;
        if given.contains(&name) {
            let whose = name.map_or_else(|| "all".to_owned(), |name| format!("'{name}'"));
            return Err(usage(format!("--cpus: two lists for {whose}; give one")));
        }
        given.push(name);
        match name {
            Some(name) => find(tasks, "--cpus", name)?.cpus = Some(mask),
            None => all = Some(mask),
        }
    }
    Ok(all)
}

/// The task that is called `name`, as `option` has it.
fn find<'a>(tasks: &'a mut [Task], option: &str, name: &str) -> Result<&'a mut Task, Failure> {
    let Some(i) = tasks.iter().position(|task| task.name == name) else {
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        let hint = nearest::hint(name, names.iter().copied());
        let there = names.join(", ");
        let text = format!("{option} {name}=...: no task is called '{name}'; there are {there}{hint}");
        return Err(usage(text));
    };
    Ok(&mut tasks[i])
}

fn from_word(word: &str) -> Result<Task, Failure> {
    let quoted = format!("'{}'", first_line(word));
    let Some((share, command)) = word.split_once(':') else {
        let lacks = if word.trim().parse::<u64>().is_ok() { "a share and no command" } else { "no share" };
        return Err(usage(format!("{quoted}: {lacks}; write SHARE:COMMAND, as in 2:'make -j4'")));
    };
    let (name, share) = match share.rsplit_once('=') {
        Some((name, share)) => (Some(name.trim()), share),
        None => (None, share),
    };
    if name.is_some_and(str::is_empty) {
        let text = format!("{quoted}: the name is empty; write NAME=SHARE:COMMAND, as in build=2:'make -j4'");
        return Err(usage(text));
    }
    let named = |otherwise: String| name.map_or(otherwise, str::to_owned);
    let number = share.trim().parse::<i128>();
    let number = number.map_err(|_| {
        // As it is written elsewhere: the other way round.
        let number = name.and_then(|name| name.parse::<u64>().ok()).filter(|_| !share.trim().is_empty());
        let fix = match number.filter(|n| (1..=SHARE_MAX).contains(n)) {
            Some(n) => format!("write {}={n}:COMMAND: the name comes first", plain(share.trim())),
            None => nearest::named_by_a_colon(name.is_none(), share, command)
                .unwrap_or_else(|| format!("a share is a whole number from 1 to {SHARE_MAX}")),
        };
        usage(format!("{quoted}: '{}' is no share; {fix}", plain(share)))
    })?;
    let share = parse_share(number, &quoted)?;
    if command.trim().is_empty() {
        return Err(usage(format!(
            "{quoted}: the command is empty; write SHARE:COMMAND, as in 2:'make -j4'"
        )));
    }
    if let Some(selector) = command.trim().strip_prefix('@') {
        let selector = parse_selector(selector, &quoted)?;
        return Ok(Task {
            name: named(selector.to_string()),
            share,
            limit: None,
            cpus: None,
            what: What::Attach(selector),
        });
    }
    let what = What::Command(Command { argv: by_shell(command), ..Command::default() });
    Ok(Task { name: named(shell_name(command)), share, limit: None, cpus: None, what })
}

fn parse_selector(text: &str, whose: &str) -> Result<Selector, Failure> {
    crate::remote::which::whole_selector(text).parse().map_err(|e: SelectorError| {
        // As a process that is not there.
        let code = if e.is_of_an_unknown_user() { Code::NotStarted } else { Code::Usage };
        Failure::new(code, format!("{whose}: {e}{}", nearest::selector_hint(text)))
    })
}

fn by_shell(command: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", command].map(OsString::from).to_vec()
}

fn first_word(command: &str) -> String {
    base_name(command.split_whitespace().next().unwrap_or_default())
}

fn base_name(word: &str) -> String {
    Path::new(word).file_name().map_or_else(|| word.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What a line of the shell's is called by: its first word, without the shell's quotes, brackets and separators.
fn shell_name(line: &str) -> String {
    let bare = |word: &str| {
        let word: String = word.chars().filter(|c| !"'\"`\\".contains(*c)).collect();
        let word = word.trim_start_matches(['(', '{', '!']);
        let end = word.find([';', '&', '|', '<', '>', '(', ')']).unwrap_or(word.len());
        base_name(&word[..end])
    };
    let named = line.split_whitespace().map(bare).find(|name| !name.is_empty());
    named.unwrap_or_else(|| first_word(line))
}

/// The first line of what may be a whole script, for people: nothing in it moves the cursor.
fn first_line(text: &str) -> String {
    let text = text.trim_matches('\n');
    let line = text.lines().next().unwrap_or_default();
    let more = if line.len() < text.len() { " ..." } else { "" };
    plain(line) + more
}

fn from_file(path: &Path) -> Result<Vec<Task>, Failure> {
    let failed = |text: String| Failure::new(Code::File, format!("{}: {text}", path.display()));
    let text = crate::trace_file::read_text(path, FILE_MAX).map_err(|e| {
        failed(match e.kind() {
            ErrorKind::NotFound => {
                "there is no such file; docs/tasks.md says what to write into it".to_owned()
            }
            _ => format!("read: {}", crate::files::cause(&e)),
        })
    })?;
    let file: TaskFile = toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        failed(format!("line {line}: {}", in_words(e.message())))
    })?;
    let mut tasks = Vec::new();
    for (index, task) in file.task.into_iter().enumerate() {
        let whose = format!(
            "{}: task {} ({})",
            path.display(),
            index + 1,
            task.name.as_deref().map_or("unnamed".into(), plain)
        );
        if task.name.as_deref().is_some_and(|name| name.trim().is_empty()) {
            return Err(usage(format!("{whose}: the name is empty; write one, or leave it out")));
        }
        let share = parse_share(task.share, &whose)?;
        let limit = task.limit.as_deref().map(limit::parse).transpose();
        let limit = limit.map_err(|e| usage(format!("{whose}: limit {e}")))?.flatten();
        let cpus =
            task.cpus.as_deref().map(str::parse::<CpuMask>).transpose().map_err(|e| {
                usage(format!("{whose}: cpus: {e}; write numbers and ranges, as in \"0,2-3\""))
            })?;
        let (name, what) = match (task.command, task.attach) {
            (Some(command), None) => from_command(command, task.dir, task.env, &whose)?,
            (None, Some(selector)) => {
                if task.dir.is_some() || !task.env.is_empty() {
                    let fix = "leave them out, or give a command instead";
                    return Err(usage(format!("{whose}: dir and env are for commands; {fix}")));
                }
                let selector = parse_selector(&selector, &whose)?;
                (selector.to_string(), What::Attach(selector))
            }
            (Some(_), Some(_)) => {
                return Err(usage(format!("{whose}: both command and attach; give one of them")));
            }
            (None, None) => {
                return Err(usage(format!("{whose}: neither command nor attach; give one of them")));
            }
        };
        tasks.push(Task { name: task.name.unwrap_or(name), share, limit, cpus, what });
    }
    if tasks.is_empty() {
        return Err(usage(format!("{}: no task; write at least one [[task]]", path.display())));
    }
    Ok(tasks)
}

/// A command of a task file, and its program's name.
fn from_command(
    command: FileCommand,
    dir: Option<PathBuf>,
    env: BTreeMap<String, String>,
    whose: &str,
) -> Result<(String, What), Failure> {
    let (first, argv) = match command {
        FileCommand::Shell(line) => (shell_name(&line), by_shell(&line)),
        FileCommand::Argv(argv) => (
            argv.first().map(|a| first_word(a)).unwrap_or_default(),
            argv.into_iter().map(OsString::from).collect(),
        ),
    };
    if first.is_empty() {
        return Err(usage(format!("{whose}: the command is empty")));
    }
    if let Some(dir) = dir.as_deref().filter(|dir| !dir.is_dir()) {
        let fix = if dir.starts_with("~") { "; ~ is only the shell's: write the whole path" } else { "" };
        let text = format!("{whose}: dir {}: no such directory{fix}", dir.display());
        return Err(Failure::new(Code::NotStarted, text));
    }
    if let Some(key) = env.keys().find(|key| key.is_empty() || key.contains(['=', '\0'])) {
        return Err(usage(format!(
            "{whose}: env: {key:?} is no variable's name; a name has no '=' and is not empty"
        )));
    }
    if let Some((key, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(usage(format!("{whose}: env: the value of {key} has a NUL in it; leave it out")));
    }
    let env = env.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    Ok((first, What::Command(Command { argv, dir, env, cpus: None })))
}

/// Several tasks of one name become `name#1`, `name#2`, ...
fn name_apart(tasks: &mut [Task]) {
    let mut count: HashMap<String, u32> = HashMap::new();
    for task in tasks.iter() {
        *count.entry(task.name.clone()).or_default() += 1;
    }
    let mut next: HashMap<String, u32> = HashMap::new();
    for task in tasks {
        if count[&task.name] > 1 {
            let n = next.entry(task.name.clone()).or_default();
            *n += 1;
            task.name = format!("{}#{n}", task.name);
        }
    }
}

/// Finds a program that is not there before anything is started: an argument vector's first word, or the first word
/// of a shell command where that is a plain name.
///
/// `task` is what it is called, of several.
fn check_program(task: Option<&str>, command: &Command) -> Result<(), Failure> {
    let dir = command.dir.as_deref();
    let (program, by_shell) = match command.argv.as_slice() {
        [sh, flag, line] if sh == "/bin/sh" && flag == "-c" => {
            let line = line.to_string_lossy();
            let word = line.split_whitespace().next().unwrap_or_default().to_owned();
            // Anything that the shell would read as more than a name is the shell's business.
            let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
            if !word.chars().all(plain) {
                return Ok(());
            }
            (word, true)
        }
        [program, ..] => (program.to_string_lossy().into_owned(), false),
        [] => return Ok(()),
    };
    if in_path(&program, dir) || (by_shell && !program.contains('/') && shell::knows(&program)) {
        return Ok(());
    }
    let text = if paths(&program, dir).iter().any(|path| path.exists()) {
        format!("'{program}' cannot be executed; check what it is, and its permissions")
    } else {
        format!("command not found: '{program}'; check the name or give its full path")
    };
    let text = task.map_or_else(|| text.clone(), |task| format!("{task}: {text}"));
    Err(Failure::new(Code::NotStarted, text))
}

/// Finds out before anything is started whether a program of that name could be.
///
/// # Errors
/// [`Failure`] with [`Code::NotFound`] where there is none, or [`Code::NotExecutable`].
pub(crate) fn check_command(program: &OsStr) -> Result<(), Failure> {
    if program.is_empty() {
        let text = "the command's first word is empty; give the name of a program";
        return Err(Failure::new(Code::Usage, text));
    }
    let name = program.to_string_lossy();
    let command = Command { argv: vec![program.to_owned()], ..Command::default() };
    check_program(None, &command).map_err(|failure| {
        let exists = paths(&name, None).iter().any(|path| path.exists());
        Failure { code: if exists { Code::NotExecutable } else { Code::NotFound }, ..failure }
    })
}

fn in_path(program: &str, dir: Option<&Path>) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let executable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    paths(program, dir).iter().any(executable)
}

/// Where a program of that name is looked for.
#[expect(clippy::disallowed_methods, reason = "programs are looked up where the commands will be")]
fn paths(program: &str, dir: Option<&Path>) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![dir.map_or_else(|| PathBuf::from(program), |dir| dir.join(program))];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|dir| dir.join(program)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &[&str]) -> (Code, String) {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let failure = all(&words, None).unwrap_err();
        (failure.code, failure.text)
    }

    #[test]
    fn words_that_cannot_be_used_are_named_with_their_fix() {
        let rows = [
            ("2", "'2': a share and no command; write SHARE:COMMAND, as in 2:'make -j4'"),
            ("sleep 1", "'sleep 1': no share; write SHARE:COMMAND, as in 2:'make -j4'"),
            ("0:true", "'0:true': share 0: a share is a whole number from 1 to 1000000"),
            ("-3:true", "'-3:true': share -3: a share is a whole number from 1 to 1000000"),
            ("1000001:true", "'1000001:true': share 1000001: a share is a whole number from 1 to 1000000"),
            (":true", "':true': '' is no share; a share is a whole number from 1 to 1000000"),
            ("1.5:true", "'1.5:true': '1.5' is no share; a share is a whole number from 1 to 1000000"),
            ("1: ", "'1: ': the command is empty; write SHARE:COMMAND, as in 2:'make -j4'"),
        ];
        for (word, text) in rows {
            assert_eq!(error(&[word]), (Code::Usage, text.to_owned()));
        }
        let (code, text) = error(&["1:true", "2:no-such-program-here --now"]);
        assert_eq!(code, Code::NotStarted);
        assert!(text.contains("command not found: 'no-such-program-here'"), "{text}");
    }

    #[test]
    fn scripts_and_names_stay_on_one_line() {
        let (code, text) = error(&["0:echo one\necho two"]);
        assert_eq!(code, Code::Usage);
        assert!(text.starts_with("'0:echo one ...': share 0:") && !text.contains("two"), "{text}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            all(&[], Some(&file))
        };
        let tasks = read("[[task]]\nname = \"a\\nb\\u001b[2J\"\nshare = 1\ncommand = 'true'\n").unwrap();
        assert_eq!(tasks[0].name, "a\\nb\\u{1b}[2J");
        for key in ["\"\"", "\"A=B\""] {
            let text = format!("[[task]]\nshare = 1\ncommand = 'true'\nenv = {{ {key} = 'x' }}\n");
            let failure = read(&text).unwrap_err();
            assert_eq!(failure.code, Code::Usage);
            assert!(failure.text.contains(&format!("env: {key} is no variable's name")), "{}", failure.text);
        }
    }

    #[test]
    fn what_only_the_shell_knows_is_left_to_it() {
        for word in ["1:while :; do :; done", "1:X=1 env", "1:cd /", "1:(true)", "1:\"$HOME\"/x"] {
            assert!(all(&[word.to_owned()], None).is_ok(), "{word}");
        }
    }

    #[test]
    fn words_may_name_what_runs_already() {
        let words = ["2:@tree:77", "3:sleep 1", "1:@user:0"].map(str::to_owned);
        let tasks = all(&words, None).unwrap();
        let seen: Vec<_> =
            tasks.iter().map(|t| (t.name.as_str(), t.selector().is_some(), t.ends())).collect();
        assert_eq!(seen, [("tree:77", true, true), ("sleep", false, true), ("user:root", true, false)]);
        // A number alone is a pid, as for `attach`.
        let alone = all(&["1:@77".to_owned()], None).unwrap();
        assert_eq!(alone[0].selector().map(ToString::to_string).as_deref(), Some("pid:77"));
        let (code, text) = error(&["1:@user:no-such-user"]);
        assert_eq!(code, Code::NotStarted, "{text}");
        let (code, text) = error(&["1:@pid:none"]);
        assert_eq!(code, Code::Usage);
        assert_eq!(
            text,
            "'1:@pid:none': 'pid:none': 'none' is no process number; give a positive number, as ps prints it"
        );
    }

    #[test]
    fn words_may_have_names() {
        let words = ["build=2:make=1 true", "a = b=1:@tree:77", "3:x=1:2 true"].map(str::to_owned);
        let tasks = all(&words, None).unwrap();
        let seen: Vec<_> = tasks.iter().map(|t| (t.name.as_str(), t.share.get())).collect();
        assert_eq!(seen, [("build", 2), ("a = b", 1), ("x=1:2", 3)]);
        let What::Command(command) = &tasks[0].what else { panic!("{tasks:?}") };
        assert_eq!(command.argv[2], "make=1 true");
        for (word, text) in [
            ("=2:true", "'=2:true': the name is empty; write NAME=SHARE:COMMAND, as in build=2:'make -j4'"),
            (
                "3=build:true",
                "'3=build:true': 'build' is no share; write build=3:COMMAND: the name comes first",
            ),
            (
                "0=build:true",
                "'0=build:true': 'build' is no share; a share is a whole number from 1 to 1000000",
            ),
            (
                "1000001=build:true",
                "'1000001=build:true': 'build' is no share; a share is a whole number from 1 to 1000000",
            ),
            ("3=:true", "'3=:true': '' is no share; a share is a whole number from 1 to 1000000"),
            ("a=:true", "'a=:true': '' is no share; a share is a whole number from 1 to 1000000"),
            ("a=0:true", "'a=0:true': share 0: a share is a whole number from 1 to 1000000"),
        ] {
            assert_eq!(error(&[word]), (Code::Usage, text.to_owned()));
        }
    }

    #[test]
    fn lists_of_cpus_go_to_who_is_named() {
        let words = ["a=1:true", "b=1:true"].map(str::to_owned);
        let given = |lists: &[&str]| {
            let mut tasks = all(&words, None).unwrap();
            tasks[0].cpus = "0".parse().ok();
            let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
            let of_all = keep_to(&mut tasks, &lists).map_err(|failure| failure.text)?;
            Ok([of_all, tasks[0].cpus, tasks[1].cpus].map(|cpus| cpus.map(|cpus| cpus.to_string())))
        };
        let some = |list: &str| Some(list.to_owned());
        assert_eq!(given(&[]), Ok([None, some("0"), None]));
        assert_eq!(given(&["b=1", "0-1", "a=2"]), Ok([some("0-1"), some("2"), some("1")]));
        for (lists, text) in [
            (["0", "1"], "--cpus: two lists for all; give one"),
            (["a=0", "a=0"], "--cpus: two lists for 'a'; give one"),
            (["c=0", "1"], "--cpus c=...: no task is called 'c'; there are a, b"),
            (["x", "1"], "--cpus x: 'x' is no CPU; write numbers and ranges, as in 0,2-3"),
        ] {
            let text: Result<[Option<String>; 3], String> = Err(text.to_owned());
            assert_eq!(given(&lists), text);
        }
    }

    #[test]
    fn a_name_has_nothing_of_the_shells_punctuation() {
        for (line, name) in [
            ("make -j4", "make"),
            ("nosuch; sleep 1", "nosuch"),
            ("(sleep 1)", "sleep"),
            ("{ sleep 1; }", "sleep"),
            ("! true", "true"),
            ("sleep 1&", "sleep"),
            ("/bin/sleep|cat", "sleep"),
            ("\"$HOME\"/bin/x y", "x"),
            ("'a b' c", "a"),
            ("X=1 env", "X=1"),
            (":; true", ":"),
            ("f() { true; }", "f"),
            (">out echo", "echo"),
            (";", ";"),
        ] {
            assert_eq!(shell_name(line), name, "{line}");
        }
    }

    #[test]
    fn tasks_of_a_group_are_called_as_divvyd_calls_them() {
        let words = ["a b=1:true", "a-b=1:true", "7=1:true", "c=1:true"].map(str::to_owned);
        let mut tasks = all(&words, None).unwrap();
        name_as_clients(&mut tasks);
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["a-b#1", "a-b#2", "client7", "c"]);
        for name in names {
            assert_eq!((names::check_client(name), names::made_of(name)), (Ok(()), name.to_owned()));
        }
    }

    #[test]
    fn names_are_told_apart() {
        let words = ["1:/bin/sleep 1", "2:sleep 2", "3:true"].map(str::to_owned);
        let names: Vec<String> = all(&words, None).unwrap().into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["sleep#1", "sleep#2", "true"]);
    }

    #[test]
    fn files_are_refused_with_their_line() {
        let dir = std::env::temp_dir().join(format!("divvy-tasks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let check = |text: &str, expected: &str| {
            let path = dir.join("tasks.toml");
            std::fs::write(&path, text).unwrap();
            let failure = from_file(&path).unwrap_err();
            let text = failure.text.replace(&path.display().to_string(), "FILE");
            assert!(text.starts_with(expected), "{text}");
        };
        check("[[task]]\nshare = 1\ncomand = 'true'\n", "FILE: line 3: unknown field `comand`");
        check(
            "[[task]]\nshare = '2'\ncommand = 'true'\n",
            "FILE: line 2: invalid type: string \"2\", expected a whole number from 1 to 1000000 without quotes, as in share = 2",
        );
        check(
            "[[task]]\nshare = 2.5\n",
            "FILE: line 2: invalid type: floating point `2.5`, expected a whole number",
        );
        check(
            "[[task]]\nshare = 99999999999999999999\ncommand = 'true'\n",
            "FILE: task 1 (unnamed): share 99999999999999999999: a share is a whole number from 1 to 1000000",
        );
        let above = "; write [[task]], in two brackets, above the lines of each task";
        for (text, what) in [
            ("", "line 1: it has no task"),
            ("share = 1\n", "line 1: unknown field `share`"),
            ("[task]\nshare = 1\ncommand = 'true'\n", "line 1: [task] is one table"),
            ("[[tasks]]\nshare = 1\n", "line 1: unknown field `tasks`"),
        ] {
            check(text, &format!("FILE: {what}{above}"));
        }
        check(
            "[[task]]\ncommand = 'true'\n",
            "FILE: line 1: this task has no share; write one, as in share = 2",
        );
        for (line, what) in [
            ("command = true", "command: expected a text in quotes, for the shell, or a list of such"),
            ("command = make -j4", "a text has to stand in quotes, as in command = \"make -j4\""),
            ("command = \"true", "a text does not end; close its quotes in this line"),
            ("command: true", "there is no =; write it as in share = 2"),
            ("limit = 50", "invalid type: integer `50`, expected a text in quotes"),
            ("env = ['A=1']", "invalid type: sequence, expected a table, as in env = { NAME = \"value\" }"),
            ("env = { A = 1 }", "invalid type: integer `1`, expected a text in quotes"),
        ] {
            check(&format!("[[task]]\nshare = 2\n{line}\n"), &format!("FILE: line 3: {what}"));
        }
        check(
            "[[task]]\nshare = 2\ncommand = 'true'\ndir = '~/x'\n",
            "FILE: task 1 (unnamed): dir ~/x: no such directory; ~ is only the shell's: write the whole path",
        );
        check("[[task]]\nshare = 0\ncommand = 'true'\n", "FILE: task 1 (unnamed): share 0: a share is");
        check(
            "[[task]]\nshare = 1\ncpus = '3-2'\ncommand = 'true'\n",
            "FILE: task 1 (unnamed): cpus: the range 3-2 is empty; write numbers and ranges, as in \"0,2-3\"",
        );
        check("[[task]]\nshare = 1\ncommand = []\n", "FILE: task 1 (unnamed): the command is empty");
        check(
            "[[task]]\nshare = 1\ncommand = 7\n",
            "FILE: line 3: command: expected a text in quotes, for the shell, or a list",
        );
        check("[[task]]\nshare = 1\n", "FILE: task 1 (unnamed): neither command nor attach;");
        check(
            "[[task]]\nname = ' '\nshare = 1\ncommand = 'true'\n",
            "FILE: task 1 ( ): the name is empty; write one",
        );
        check(
            "[[task]]\nshare = 1\ncommand = 'true'\nattach = 'pid:1'\n",
            "FILE: task 1 (unnamed): both command and attach;",
        );
        check("[[task]]\nshare = 1\nattach = 'pid'\n", "FILE: task 1 (unnamed): 'pid': it does not say");
        check(
            "[[task]]\nshare = 1\nattach = 'pid:1'\ndir = '/'\n",
            "FILE: task 1 (unnamed): dir and env are for commands;",
        );
        check("task = []\n", "FILE: no task;");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_of_tasks_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ok.toml");
        let text =
            "[[task]]\nname = 'a'\nshare = 2\ncommand = ['echo', 'a b']\ndir = '/'\nenv = { K = 'V' }\n";
        std::fs::write(&path, text).unwrap();
        let tasks = from_file(&path).unwrap();
        assert_eq!((tasks[0].name.as_str(), tasks[0].share.get()), ("a", 2));
        let What::Command(command) = &tasks[0].what else { panic!("{tasks:?}") };
        assert_eq!(command.argv, ["echo", "a b"]);
        assert_eq!(command.env, [("K".into(), "V".into())]);
    }
}
