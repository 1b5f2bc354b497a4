//! What is mounted where, by `/proc/self/mountinfo`.

use std::path::PathBuf;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// What of the file system is shown: a directory of it.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
    /// The file system's type.
    pub(crate) kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// The options of the file system.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'a str> {
        self.options.split(',')
    }

    /// Whether it is the hierarchy of cgroups of version 1 with `controller`.
    pub(crate) fn is_v1_with(&self, controller: &str) -> bool {
        self.kind == "cgroup" && self.options().any(|option| option == controller)
    }
}

/// The text of what this process sees mounted; empty where `/proc` does not tell.
pub(crate) fn own() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The lines of such a text; those that are none are left out.
pub(crate) fn parse(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (unescape(left.next()?), unescape(left.next()?));
        let mut right = right.split(' ');
        let (kind, _device) = (right.next()?, right.next());
        Some(Mount { root, point, kind, options: right.next().unwrap_or_default() })
    })
}

/// A path: blanks and the like are written in octal.
fn unescape(text: &str) -> PathBuf {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let byte = after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                plain.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    PathBuf::from(plain + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_proc_5_has_them() {
        let text = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                    nothing - that\n\
                    24 20 0:22 / /proc rw - proc proc rw,hidepid=2\n\
                    30 20 0:26 /docker/x /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let found: Vec<Mount<'_>> = parse(text).collect();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].root.to_str(), found[0].point.to_str()), (Some("/mnt1"), Some("/mnt 2")));
        assert_eq!((found[1].kind, found[1].options().last()), ("proc", Some("hidepid=2")));
        assert!(found[2].is_v1_with("cpu") && !found[2].is_v1_with("freezer") && !found[0].is_v1_with("cpu"));
    }

    #[test]
    fn blanks_in_mounts_are_written_in_octal() {
        assert_eq!(unescape(r"/a\040b\134c"), PathBuf::from(r"/a b\c"));
        assert_eq!(unescape(r"/a\9"), PathBuf::from(r"/a\9"));
    }
}
