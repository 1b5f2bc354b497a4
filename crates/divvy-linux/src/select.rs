//! Which processes a client is made of, in words: `pid:123`, `tree:123`, `user:alice`, `group:123`, `session:123`,
//! `cgroup:/a/b`, `name:make*`, `command:python3 train*`, `below:make:name:cc1*`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Pid;
use crate::members::Children;

/// The processes that an attached client is made of. Which of them run is looked at again and again: whoever comes to
/// match joins the client, and whoever ceases to leaves it.
///
/// A process is in one client at a time. Where several selectors match it, the one that comes first in this list has it,
/// of two trees the inner one, and of several of another kind the client that came first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// One process, without its children.
    Pid(Pid),
    /// A process and all its descendants, those included whose parents have ended since.
    Tree(Pid),
    /// The members of a process group.
    Group(Pid),
    /// The members of a session.
    Session(Pid),
    /// The processes of a cgroup and of those below it, by its path in its hierarchy.
    Cgroup(PathBuf),
    /// Processes whose name (the kernel's, of at most 15 characters, or the program's base name as it was called) matches
    /// a pattern of `*`, `?`, `[a-z]`, `[!a-z]` and `\`. Where it is attached for a user, the kernel's name only: the other
    /// is read from the process's memory, which the user can make slow.
    Name(String),
    /// Processes whose command line, its words joined by blanks, matches such a pattern. Of a user's own divvyd only: it is read
    /// from the process's memory.
    Command(String),
    /// Of the processes of a `name:` or `command:`, those with an ancestor whose name, as the kernel has it, matches a pattern.
    Below(String, Box<Selector>),
    /// All processes whose real user this is.
    User(u32),
}

/// Why a text is no [`Selector`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}; {fix}")]
pub struct SelectorError {
    text: String,
    what: String,
    fix: &'static str,
    unknown_user: bool,
}

impl SelectorError {
    /// Whether all that is wrong with it is that there is no user of that name.
    #[must_use]
    pub const fn is_of_an_unknown_user(&self) -> bool {
        self.unknown_user
    }
}

/// Characters in a pattern at most: it is matched with every process's name, over and over.
const PATTERN_MAX: usize = 128;

const KINDS: &str = "write pid:, tree:, user:, group:, session:, cgroup:, name:, command: or below: and then which, as in tree:123 or user:alice";

impl Selector {
    /// The kind of selector, as it is written.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pid(_) => "pid",
            Self::Tree(_) => "tree",
            Self::Group(_) => "group",
            Self::Session(_) => "session",
            Self::Cgroup(_) => "cgroup",
            Self::Name(_) => "name",
            Self::Command(_) => "command",
            Self::Below(..) => "below",
            Self::User(_) => "user",
        }
    }

    /// Who has a process that several selectors match: the least.
    pub(crate) const fn rank(&self) -> u8 {
        match self {
            Self::Pid(_) => 0,
            Self::Tree(_) => 1,
            Self::Group(_) => 2,
            Self::Session(_) => 3,
            Self::Cgroup(_) => 4,
            Self::Below(..) => 5,
            Self::Command(_) => 6,
            Self::Name(_) => 7,
            Self::User(_) => 8,
        }
    }

    /// Whether children of members, as a rule, match too.
    pub(crate) const fn children(&self) -> Children {
        match self {
            Self::Pid(_) | Self::Name(_) | Self::Command(_) | Self::Below(..) => Children::NotOurs,
            _ => Children::Counted,
        }
    }

    /// Whether a process's command line is read for it.
    #[must_use]
    pub fn reads_commands(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Below(_, of) => of.reads_commands(),
            _ => false,
        }
    }

    /// Whether nobody can come to match once nobody does: the client has ended then.
    #[must_use]
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Pid(_) | Self::Tree(_) | Self::Group(_) | Self::Session(_))
    }

    /// Whether it is an error that nobody matches at the start.
    pub(crate) const fn must_match(&self) -> bool {
        matches!(self, Self::Pid(_) | Self::Tree(_))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            Self::Pid(pid) | Self::Tree(pid) | Self::Group(pid) | Self::Session(pid) => write!(f, "{pid}"),
            Self::Cgroup(path) => write!(f, "{}", path.display()),
            Self::Name(pattern) | Self::Command(pattern) => f.write_str(pattern),
            Self::Below(above, of) => write!(f, "{above}:{of}"),
            Self::User(uid) => match user_name(*uid) {
                Some(name) => f.write_str(&name),
                None => write!(f, "{uid}"),
            },
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let bad = |what: String, fix| SelectorError { text: text.to_owned(), what, fix, unknown_user: false };
        let Some((kind, which)) = text.split_once(':') else {
            return Err(bad("it does not say what kind of selector it is".into(), KINDS));
        };
        if which.is_empty() {
            return Err(bad(format!("nothing stands after '{kind}:'"), KINDS));
        }
        let pid = || {
            let number = which.parse::<i32>().ok().filter(|&n| n > 0).and_then(Pid::from_raw);
            number.ok_or_else(|| {
                bad(format!("'{which}' is no process number"), "give a positive number, as ps prints it")
            })
        };
        Ok(match kind {
            "pid" => Self::Pid(pid()?),
            "tree" => Self::Tree(pid()?),
            "group" => Self::Group(pid()?),
            "session" => Self::Session(pid()?),
            "user" => Self::User(which.parse().ok().or_else(|| user_id(which)).ok_or_else(|| {
                let fix = "give a name or a number that id(1) knows";
                SelectorError { unknown_user: true, ..bad(format!("there is no user '{which}'"), fix) }
            })?),
            "cgroup" => Self::Cgroup(cgroup_path(which).ok_or_else(|| {
                let fix = "give it as /proc/PID/cgroup does, as in cgroup:/user.slice";
                bad(format!("'{which}' is no absolute path"), fix)
            })?),
            "name" | "command" if which.chars().count() > PATTERN_MAX => {
                let what = format!("the pattern is longer than {PATTERN_MAX} characters");
                let text = format!("{kind}:{}...", which.chars().take(16).collect::<String>());
                let fix = "write * for what comes after";
                return Err(SelectorError { text, what, fix, unknown_user: false });
            }
            "name" => Self::Name(which.to_owned()),
            "command" => Self::Command(which.to_owned()),
            "below" => {
                let fix = "write below:NAME:name:PATTERN or below:NAME:command:PATTERN";
                let parts = which.split_once(':').filter(|(above, _)| !above.is_empty());
                let Some((above, of)) = parts else {
                    return Err(bad("it does not say below whom which processes are meant".into(), fix));
                };
                if above.chars().count() > PATTERN_MAX {
                    return Err(bad(format!("the name is longer than {PATTERN_MAX} characters"), fix));
                }
                // Asked before it is parsed: one below another, over and over, would be a stack as deep as the text is long.
                if !(of.starts_with("name:") || of.starts_with("command:")) {
                    return Err(bad("only processes of a name or command can be meant".into(), fix));
                }
                Self::Below(above.to_owned(), Box::new(of.parse()?))
            }
            other => return Err(bad(format!("'{other}' is no kind of selector"), KINDS)),
        })
    }
}

/// The name of user `uid`; `None` for one without.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.name)
}

/// The number of the user called `name`; `None` where there is none.
#[must_use]
pub fn user_id(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// The group that user `uid` has when it logs in; `None` where there is no such user.
#[must_use]
pub fn user_group(uid: u32) -> Option<u32> {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.gid.as_raw())
}

/// The name of group `gid`; `None` for one without.
#[must_use]
pub fn group_name(gid: u32) -> Option<String> {
    nix::unistd::Group::from_gid(gid.into()).ok().flatten().map(|group| group.name)
}

/// The number of the group called `name`; `None` where there is none.
#[must_use]
pub fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// A cgroup's path in its hierarchy, without the place where that is mounted and without a slash at its end.
fn cgroup_path(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return None;
    }
    let inside =
        path.strip_prefix("/sys/fs/cgroup").map_or_else(|_| path.to_owned(), |p| Path::new("/").join(p));
    // Collecting the components drops repeated slashes and the last one.
    Some(inside.components().collect())
}

/// Whether cgroup `path` is `ancestor` or below it.
pub(crate) fn is_below(path: &str, ancestor: &Path) -> bool {
    Path::new(path).starts_with(ancestor)
}

/// Whether `text` is what the shell's `pattern` stands for: `*` any number of characters, `?` one, `[a-z]` one of a set,
/// `[!a-z]` one outside of it, `\` takes the next as it is. A `[` without its end stands for itself.
#[must_use]
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on when a match fails: after the last star, one character further.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == '*' {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        let step = if t < text.len() { one(&pattern[p..], text[t]) } else { None };
        match (step, retry) {
            (Some(used), _) => (p, t) = (p + used, t + 1),
            (None, _) if p == pattern.len() && t == text.len() => return true,
            (None, Some((star, from))) if from < text.len() => {
                (p, t) = (star, from + 1);
                retry = Some((star, from + 1));
            }
            (None, _) => return false,
        }
    }
}

/// How much of `pattern` stands for the one character `c`; `None` if its beginning does not.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match *pattern.first()? {
        '?' => Some(1),
        '\\' if pattern.len() > 1 => (pattern[1] == c).then_some(2),
        '[' => match set(pattern, c) {
            Some((used, is_in)) => is_in.then_some(used),
            None => (c == '[').then_some(1),
        },
        plain => (plain == c).then_some(1),
    }
}

/// The length of the set at the beginning of `pattern`, and whether `c` is in it; `None` if it has no end.
fn set(pattern: &[char], c: char) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    // A bracket that comes first is a member.
    let end = first + 1 + pattern.get(first + 1..)?.iter().position(|&p| p == ']')?;
    let members = &pattern[first..end];
    let (mut i, mut found) = (0, false);
    while i < members.len() {
        if i + 2 < members.len() && members[i + 1] == '-' {
            found |= (members[i]..=members[i + 2]).contains(&c);
            i += 3;
        } else {
            found |= members[i] == c;
            i += 1;
        }
    }
    Some((end + 1, found != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(n: i32) -> Pid {
        Pid::from_raw(n).expect("not zero")
    }

    #[test]
    fn selectors_read_as_they_are_written() {
        let rows = [
            ("pid:1", Selector::Pid(pid(1)), "pid:1"),
            ("tree:4194304", Selector::Tree(pid(4_194_304)), "tree:4194304"),
            ("group:7", Selector::Group(pid(7)), "group:7"),
            ("session:7", Selector::Session(pid(7)), "session:7"),
            ("cgroup:/a/b", Selector::Cgroup("/a/b".into()), "cgroup:/a/b"),
            ("cgroup:/sys/fs/cgroup/a//b/", Selector::Cgroup("/a/b".into()), "cgroup:/a/b"),
            ("cgroup:/", Selector::Cgroup("/".into()), "cgroup:/"),
            ("name:make*", Selector::Name("make*".into()), "name:make*"),
            ("name:a:b", Selector::Name("a:b".into()), "name:a:b"),
            ("command:cc1 *-O2*", Selector::Command("cc1 *-O2*".into()), "command:cc1 *-O2*"),
            (
                "below:make:name:cc1*",
                Selector::Below("make".into(), Box::new(Selector::Name("cc1*".into()))),
                "below:make:name:cc1*",
            ),
            ("user:root", Selector::User(0), "user:root"),
            ("user:0", Selector::User(0), "user:root"),
            ("user:3999999999", Selector::User(3_999_999_999), "user:3999999999"),
        ];
        for (text, selector, shown) in rows {
            assert_eq!(text.parse(), Ok(selector.clone()), "{text}");
            assert_eq!(selector.to_string(), shown);
            assert_eq!(shown.parse(), Ok(selector), "{shown}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_fix() {
        let rows = [
            ("123", "'123': it does not say what kind of selector it is; write pid:"),
            ("pid:", "'pid:': nothing stands after 'pid:'; write pid:"),
            ("pid:x", "'pid:x': 'x' is no process number; give a positive number"),
            ("pid:0", "'pid:0': '0' is no process number"),
            ("tree:-5", "'tree:-5': '-5' is no process number"),
            ("tree:99999999999", "'tree:99999999999': '99999999999' is no process number"),
            ("user:no-such-user", "'user:no-such-user': there is no user 'no-such-user'; give a name"),
            ("cgroup:a/b", "'cgroup:a/b': 'a/b' is no absolute path; give it as /proc/PID/cgroup does"),
            (
                "below:make",
                "'below:make': it does not say below whom which processes are meant; write below:",
            ),
            ("below::name:a", "'below::name:a': it does not say below whom"),
            ("below:make:pid:1", "'below:make:pid:1': only processes of a name or command can be meant"),
            ("below:make:below:a:name:b", "'below:make:below:a:name:b': only processes"),
            ("slice:a", "'slice:a': 'slice' is no kind of selector; write pid:"),
        ];
        for (text, expected) in rows {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn a_pattern_is_no_longer_than_names_are() {
        let selector = |n| format!("name:{}", "?".repeat(n)).parse::<Selector>();
        assert_eq!(selector(PATTERN_MAX), Ok(Selector::Name("?".repeat(PATTERN_MAX))));
        let error = selector(PATTERN_MAX + 1).unwrap_err().to_string();
        let expected = "'name:????????????????...': the pattern is longer than 128 characters; write * for";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn patterns_are_the_shells() {
        let rows = [
            ("make", "make", true),
            ("make", "makes", false),
            ("make*", "make", true),
            ("make*", "makes", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("?a?", "bab", true),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xaybz", false),
            ("*.so*", "ld.so.2", true),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[^a-c]x", "ax", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
            ("*ä?", "xäö", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(matches_glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn cgroups_are_below_by_whole_names() {
        let below = |path, ancestor: &str| is_below(path, Path::new(ancestor));
        assert!(below("/a/b", "/a") && below("/a", "/a") && below("/a", "/"));
        assert!(!below("/ab", "/a") && !below("/", "/a"));
    }
}
