//! Names before the lines that commands print, as `build | ok`.

use unicode_width::UnicodeWidthStr as _;

use crate::strip::fit;

/// Columns of the longest name that is not cut.
const NAME_MAX: usize = 24;
/// Colours of names, in the order of the tasks: cyan, yellow, green, magenta, blue, then the bright ones.
const COLORS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];

/// What a command's lines begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// The name and what divides it from the line, as wide as that of every other command.
    text: String,
    color: u8,
}

/// One for each name, all of them as wide as the longest.
pub(super) fn tags<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<Tag> {
    let width = names.clone().map(|name| name.width()).max().unwrap_or(0).min(NAME_MAX);
    let colors = COLORS.into_iter().cycle();
    names.zip(colors).map(|(name, color)| Tag { text: format!("{} | ", fit(name, width)), color }).collect()
}

impl Tag {
    /// What stands before each line; in colour, if that can be shown.
    pub(super) fn prefix(&self, color: bool) -> String {
        if color { format!("\x1b[{}m{}\x1b[0m", self.color, self.text) } else { self.text.clone() }
    }
}

/// `text`, each line of it behind `prefix`.
pub(super) fn tagged(text: &[u8], prefix: &str) -> Vec<u8> {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    lines.flat_map(|line| [prefix.as_bytes(), line]).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_wide_as_the_longest() {
        let prefixes = |names: &[&str], color| -> Vec<String> {
            tags(names.iter().copied()).iter().map(|tag| tag.prefix(color)).collect()
        };
        assert_eq!(prefixes(&["a", "build", "日本"], false), ["a     | ", "build | ", "日本  | "]);
        assert_eq!(prefixes(&["a", "b"], true), ["\x1b[36ma | \x1b[0m", "\x1b[33mb | \x1b[0m"]);
        let long = prefixes(&["a", "a-name-that-is-far-too-long-for-it"], false);
        assert_eq!(long, [format!("a{} | ", " ".repeat(23)), "a-name-that-is-far-too-… | ".to_owned()]);
        let many = tags((0..11).map(|_| "a"));
        assert_eq!(many[0], many[10], "colours begin anew");
        assert!((1..10).all(|i| many[i] != many[0]));
    }

    #[test]
    fn every_line_is_tagged() {
        let lines = |text: &[u8]| String::from_utf8(tagged(text, "a | ")).unwrap();
        assert_eq!(lines(b"one\n\ntwo\n"), "a | one\na | \na | two\n");
        assert_eq!(lines(b""), "");
        assert_eq!(tagged(b"\xff\n", "a | "), b"a | \xff\n", "bytes stay as they are");
    }
}
