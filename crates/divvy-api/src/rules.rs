//! A user's rules: which processes become clients by themselves, with which share and limit. Kept in a file, `config.toml`.
//!
//! ```toml
//! [[rule]]
//! name = "cc1*"            # processes of this name; or `command = "python3 train*"`, by the whole command line
//! below = "make"           # of these, those that descend from one of this name
//! share = 1
//! limit = "80%"
//! cpus = "0,2-3"           # of the CPUs that divvyd divides, these only
//! group = "build"
//!
//! [groups]
//! build = 3
//! ```

mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use divvy_linux::{CpuMask, Selector};
use divvy_policy::CpuLimit;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeTable;

use crate::names;
use crate::types::SHARE_MAX;

/// Rules in a file at most: each is matched with every process.
const RULES_MAX: usize = 256;
/// Bytes in a file at most.
const FILE_MAX: u64 = 1 << 20;

/// Where the rules of this process's user are: what `DIVVY_CONFIG` names, else `divvy/config.toml` in `$XDG_CONFIG_HOME` or
/// `~/.config`. `None` where there is no home, or `DIVVY_CONFIG` is empty: there are no rules then.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the edge that reads the environment")]
pub fn path() -> Option<PathBuf> {
    path_by(|name| std::env::var_os(name).map(PathBuf::from))
}

fn path_by(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(named) = variable("DIVVY_CONFIG") {
        return (!named.as_os_str().is_empty()).then_some(named);
    }
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("divvy/config.toml"))
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The line of the file that it begins in.
    pub line: usize,
    /// What its client is called.
    pub name: String,
    /// Whom it is about.
    pub selector: Selector,
    /// The client's share, within its group.
    pub share: u64,
    /// Its limit, in millionths of one CPU.
    pub limit_ppm: Option<u64>,
    /// The CPUs that it is kept to.
    pub cpus: Option<CpuMask>,
    /// The group that it is in.
    pub group: Option<String>,
}

/// All that a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the order of the file; no two have one name or one selector.
    pub rules: Vec<Rule>,
    /// Shares of groups.
    pub groups: BTreeMap<String, u64>,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError {
    /// The line, from 1 on; 0 where it is none's.
    pub line: usize,
    what: String,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for RulesError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<FileRule>>,
    #[serde(default)]
    groups: BTreeMap<String, Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    name: Option<Spanned<String>>,
    command: Option<Spanned<String>>,
    below: Option<Spanned<String>>,
    share: Option<Spanned<u64>>,
    limit: Option<Spanned<String>>,
    cpus: Option<Spanned<String>>,
    group: Option<Spanned<String>>,
    r#as: Option<Spanned<String>>,
}

/// The file at `path`; `None` where there is none.
///
/// # Errors
/// [`RulesError`]: it cannot be read, or [`parse`] refuses it.
pub fn read(path: &Path) -> Result<Option<Rules>, RulesError> {
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

    let failed = |what: String| RulesError { line: 0, what };
    // A pipe in the place of the file would keep divvyd, and all that it schedules, waiting for who writes it.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(format!("open it: {e}"))),
    };
    match file.metadata().map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_dir() => {
            return Err(failed("it is a directory; name the file of rules in it".to_owned()));
        }
        Ok(kind) if kind.is_fifo() => {
            return Err(failed("it is a pipe; write the rules into a file".to_owned()));
        }
        _ => {}
    }
    let mut text = String::new();
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| failed(format!("read it: {e}")))?;
    if text.len() as u64 > FILE_MAX {
        return Err(failed(format!("it is longer than {FILE_MAX} bytes")));
    }
    parse(&text).map(Some)
}

/// What a file of this text says.
///
/// # Errors
/// [`RulesError`] for the first thing that is wrong.
pub fn parse(text: &str) -> Result<Rules, RulesError> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let wrong = |at: Range<usize>, what: String| RulesError { line: line_of(at.start), what };
    let unread = |e: toml::de::Error| wrong(e.span().unwrap_or_default(), e.message().trim_end().to_owned());
    let found = DeTable::parse(text).map_err(unread)?;
    if let Some((at, what)) = shape::first_wrong(found.get_ref()) {
        return Err(wrong(at, what));
    }
    let file: File = toml::from_str(text).map_err(unread)?;
    if file.rule.len() > RULES_MAX {
        return Err(wrong(file.rule[RULES_MAX].span(), format!("more than {RULES_MAX} rules")));
    }
    let mut all = Rules::default();
    let (mut names, mut selectors) = (BTreeSet::new(), BTreeSet::new());
    for rule in file.rule {
        let at = rule.span();
        let rule = one(rule.into_inner(), &at, &wrong)?;
        let rule = Rule { line: line_of(at.start), ..rule };
        if !selectors.insert(rule.selector.to_string()) {
            return Err(wrong(
                at,
                format!("a rule before is about {} already; leave one of them out", rule.selector),
            ));
        }
        if !names.insert(rule.name.clone()) {
            let what =
                format!("a rule before is called '{}' already; give this one another with `as`", rule.name);
            return Err(wrong(at, what));
        }
        all.rules.push(rule);
    }
    for (group, share) in file.groups {
        check_share(*share.get_ref()).map_err(|what| wrong(share.span(), what))?;
        names::check_group(&group)
            .map_err(|why| wrong(share.span(), format!("group '{}': {why}", group.escape_default())))?;
        all.groups.insert(group, share.into_inner());
    }
    Ok(all)
}

fn check_share(share: u64) -> Result<u64, String> {
    let fits = (1..=SHARE_MAX).contains(&share);
    if fits { Ok(share) } else { Err(share_text(share)) }
}

/// What is wrong with a share, whatever stands there.
fn share_text(share: impl fmt::Display) -> String {
    format!("share {share}: a share is a whole number from 1 to {SHARE_MAX}")
}

fn one(
    rule: FileRule,
    at: &Range<usize>,
    wrong: &impl Fn(Range<usize>, String) -> RulesError,
) -> Result<Rule, RulesError> {
    let (kind, pattern) = match (rule.name, rule.command) {
        (Some(name), None) => ("name", name),
        (None, Some(command)) => ("command", command),
        (None, None) => {
            let what = "neither `name` nor `command`: whom is it about? write name = \"cc1*\"";
            return Err(wrong(at.clone(), what.to_owned()));
        }
        (Some(_), Some(command)) => {
            let what = "both `name` and `command`; give one of them (a command begins with its name)";
            return Err(wrong(command.span(), what.to_owned()));
        }
    };
    let place = pattern.span();
    let pattern = pattern.into_inner();
    let text = match &rule.below {
        None => format!("{kind}:{pattern}"),
        Some(below) if below.get_ref().contains(':') => {
            let what = "`below` is a name, and none has a colon".to_owned();
            return Err(wrong(below.span(), what));
        }
        Some(below) => format!("below:{}:{kind}:{pattern}", below.get_ref()),
    };
    let selector: Selector = text.parse().map_err(|e| wrong(place, format!("{e}")))?;
    let share = rule
        .share
        .map_or(Ok(1), |share| check_share(*share.get_ref()).map_err(|what| wrong(share.span(), what)))?;
    let limit = rule
        .limit
        .map(|limit| crate::limit::parse(limit.get_ref()).map_err(|what| wrong(limit.span(), what)))
        .transpose()?
        .flatten();
    let cpus = rule.cpus.map(|cpus| {
        let read: Result<CpuMask, _> = cpus.get_ref().parse();
        read.map_err(|e| wrong(cpus.span(), format!("cpus: {e}; write numbers and ranges, as in \"0,2-3\"")))
    });
    let cpus = cpus.transpose()?;
    // As a client that nobody has named: by whom it is about.
    let made =
        || pattern.chars().map(|c| if c.is_whitespace() || c == '/' { '-' } else { c }).take(56).collect();
    let checked = |name: Spanned<String>, check: fn(&str) -> Result<(), &'static str>| {
        let what = |why| format!("'{}': {why}", name.get_ref().escape_default());
        check(name.get_ref()).map_err(|why| wrong(name.span(), what(why)))?;
        Ok(name.into_inner())
    };
    let name = rule.r#as.map_or_else(|| Ok(made()), |name| checked(name, names::check_client))?;
    let group = rule.group.map(|group| checked(group, names::check_group)).transpose()?;
    Ok(Rule { line: 0, name, selector, share, limit_ppm: limit.map(CpuLimit::ppm), cpus, group })
}

/// What divvyd makes of the rules: the answer to `GET /v1/rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Rules"))]
pub struct RulesState {
    /// The file; not there where a divvyd has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What is wrong with it. The rules of before hold until it is mended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The rules that hold, in the order of the file.
    pub rules: Vec<RuleState>,
}

/// One rule, and its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Rule"))]
pub struct RuleState {
    /// The line of the file that it begins in.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub line: usize,
    /// What its client is called.
    pub name: String,
    /// Whom it is about: `name:`, `command:` or `below:`.
    pub selector: String,
    /// Its client's id; not there where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// Why it has none, or why that is still what the rule was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether it has none because its user let that go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_who_gets_what() {
        let text = "# what compiles\n[[rule]]\nname = \"cc1*\"\nbelow = \"make\"\nshare = 1\nlimit = \"80%\"\ncpus = \"0,2-3\"\ngroup = \"build\"\n\n\
                    [[rule]]\ncommand = \"python3 */train.py*\"\nas = \"train\"\nshare = 5\n\n[groups]\nbuild = 3\n";
        let rules = parse(text).unwrap();
        let selectors: Vec<String> = rules.rules.iter().map(|rule| rule.selector.to_string()).collect();
        assert_eq!(selectors, ["below:make:name:cc1*", "command:python3 */train.py*"]);
        let [first, second] = &rules.rules[..] else { panic!("{rules:?}") };
        assert_eq!(
            (first.line, first.name.as_str(), first.share, first.limit_ppm),
            (2, "cc1*", 1, Some(800_000))
        );
        assert_eq!(
            (second.line, second.name.as_str(), second.share, second.limit_ppm),
            (10, "train", 5, None)
        );
        assert_eq!((first.cpus.map(|cpus| cpus.to_string()), second.cpus), (Some("0,2-3".into()), None));
        assert_eq!((first.group.as_deref(), rules.groups["build"]), (Some("build"), 3));
        assert_eq!(parse("").unwrap(), Rules::default());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, error) in [
            ("[[rule]]\nshare = 1\n", "line 1: neither `name` nor `command`: whom is it about?"),
            ("[[rule]]\nname = 'a'\ncommand = 'b'\n", "line 3: both `name` and `command`; give one of them"),
            (
                "[[rule]]\nname = 'a'\nshare = 0\n",
                "line 3: share 0: a share is a whole number from 1 to 1000000",
            ),
            ("[[rule]]\nname = 'a'\nlimit = 'much'\n", "line 3: 'much' is no limit; write 50% (of one CPU)"),
            ("[[rule]]\nname = 'a'\nlimit = '4000'\n", "line 3: '4000' is more than the "),
            ("[[rule]]\nname = 'a'\nas = '7'\n", "line 3: '7': it may not be a number: ids are"),
            ("[[rule]]\nname = 'a'\ngroup = 'a b'\n", "line 3: 'a b': it may have no blanks"),
            ("[[rule]]\nname = 'a'\ncpus = '2-1'\n", "line 3: cpus: the range 2-1 is empty; write numbers"),
            (
                "[[rule]]\nname = 'a'\nlimt = '50%'\n",
                "line 3: unknown key `limt`; a rule has `name`, `command`",
            ),
            ("[[rule]]\nname = ''\n", "line 2: `name` is empty; write name = "),
            ("[[rule]]\nname = 'a'\nbelow = 'a:b'\n", "line 3: `below` is a name, and none has a colon"),
            (
                "[[rule]]\nname = 'a'\n\n[[rule]]\nname = 'a'\n",
                "line 4: a rule before is about name:a already",
            ),
            (
                "[[rule]]\nname = 'a'\n[[rule]]\nname = 'b'\nas = 'a'\n",
                "line 3: a rule before is called 'a' already",
            ),
            ("[groups]\nbuild = 0\n", "line 2: share 0"),
            ("[[rule]\n", "line 1: "),
            ("\n[rules]\n", "line 2: unknown key `rules`"),
        ] {
            let found = parse(text).unwrap_err().to_string();
            assert!(found.starts_with(error), "{text:?}: {found}");
            assert!(!found.contains('\n'), "{found}");
        }
        let many = "[[rule]]\nname = 'a'\n".repeat(RULES_MAX + 1);
        assert_eq!(parse(&many).unwrap_err().line, 2 * RULES_MAX + 1);
    }

    #[test]
    fn nobody_is_waited_for_who_might_write_a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("config.toml");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&pipe).unwrap_err().to_string(), "it is a pipe; write the rules into a file");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), Some(Rules::default()));
    }

    #[test]
    fn the_file_is_where_configurations_are() {
        let at = |vars: &[(&str, &str)]| {
            path_by(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
        };
        let home = ("HOME", "/home/alice");
        assert_eq!(at(&[home]).unwrap(), Path::new("/home/alice/.config/divvy/config.toml"));
        assert_eq!(at(&[home, ("XDG_CONFIG_HOME", "/cfg")]).unwrap(), Path::new("/cfg/divvy/config.toml"));
        assert_eq!(at(&[home, ("XDG_CONFIG_HOME", "cfg")]), at(&[home]), "a relative one is none");
        assert_eq!(at(&[home, ("DIVVY_CONFIG", "/x.toml")]).unwrap(), Path::new("/x.toml"));
        assert_eq!(at(&[home, ("DIVVY_CONFIG", "")]), None);
        assert_eq!(at(&[]), None);
        assert_eq!(read(Path::new("/no/such/file")), Ok(None));
        assert!(read(Path::new("/")).unwrap_err().to_string().starts_with("it is a directory; "));
    }
}
