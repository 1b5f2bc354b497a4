//! What was meant by a word that was misspelt.

pub(crate) use divvy_api::nearest::hint;
use divvy_api::types::SHARE_MAX;

use crate::strip::plain;

/// What a selector can be.
const SELECTORS: [&str; 9] =
    ["pid", "tree", "group", "session", "cgroup", "name", "command", "below", "user"];

/// The same, for the kind of a selector that was refused; a word alone may be a name.
pub(crate) fn selector_hint(selector: &str) -> String {
    match selector.split_once(':').map_or((selector, false), |(kind, _)| (kind, true)) {
        (kind, _) if SELECTORS.contains(&kind) => String::new(),
        (kind, true) => hint(kind, SELECTORS),
        (name, false) if name.is_empty() || name.contains(char::is_whitespace) => String::new(),
        (name, false) => format!("; processes called {0} are name:{0}", plain(name)),
    }
}

/// What to write where a task was named as in `build:2:COMMAND`.
pub(crate) fn named_by_a_colon(unnamed: bool, name: &str, rest: &str) -> Option<String> {
    let (share, _) = rest.split_once(':')?;
    let n: u64 = share.trim().parse().ok()?;
    let is_so = unnamed && !name.trim().is_empty() && (1..=SHARE_MAX).contains(&n);
    is_so.then(|| format!("write {}={n}:COMMAND: an equals sign after the name", plain(name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_selector_finds_its_kind() {
        for (selector, meant) in [
            ("usr:root", "; did you mean 'user'?"),
            ("user:nobody-there", ""),
            ("tree", ""),
            ("", ""),
            ("make -j", ""),
            ("make", "; processes called make are name:make"),
        ] {
            assert_eq!(selector_hint(selector), meant, "{selector}");
        }
    }
}
