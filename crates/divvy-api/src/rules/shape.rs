//! What a file of rules may have, and as what, before any value is looked at: told by what to write, where the parser would tell of
//! its own types.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::share_text;

/// The keys of a rule, and how each is written.
const KEYS: [(&str, &str); 8] = [
    ("name", "name = \"cc1*\""),
    ("command", "command = \"python3 train*\""),
    ("below", "below = \"make\""),
    ("share", "share = 3"),
    ("limit", "limit = \"50%\" (of one CPU) or limit = \"1.5\" (CPUs)"),
    ("cpus", "cpus = \"0,2-3\""),
    ("group", "group = \"build\""),
    ("as", "as = \"train\""),
];

/// Where something is wrong in the text, and what.
type Wrong = (Range<usize>, String);

/// What is wrong first in a file that is TOML, if anything is.
pub(super) fn first_wrong(file: &DeTable<'_>) -> Option<Wrong> {
    let mut all = Vec::new();
    for (key, value) in file {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rule", DeValue::Array(rules)) => rules.iter().for_each(|one| rule(one, &mut all)),
            ("rule", _) => all.push((key.span(), RULE.to_owned())),
            ("groups", DeValue::Table(groups)) => {
                groups.iter().for_each(|(name, share)| group(name.get_ref(), share, &mut all));
            }
            ("groups", _) => {
                let what = "`groups` is a table: write [groups], and below it build = 3";
                all.push((key.span(), what.to_owned()));
            }
            (other, _) => {
                let what = format!(
                    "unknown key `{}`; there are [[rule]] for each rule, and [groups]",
                    other.escape_default()
                );
                all.push((key.span(), what));
            }
        }
    }
    all.into_iter().min_by_key(|(at, _)| at.start)
}

const RULE: &str = "`rule` is one of a list: write [[rule]], in two pairs of brackets";

fn rule(one: &Spanned<DeValue<'_>>, all: &mut Vec<Wrong>) {
    let DeValue::Table(rule) = one.get_ref() else {
        all.push((one.span(), RULE.to_owned()));
        return;
    };
    for (key, value) in rule {
        let name = key.get_ref().as_ref();
        let Some((_, example)) = KEYS.into_iter().find(|(known, _)| *known == name) else {
            let known = KEYS.map(|(known, _)| format!("`{known}`")).join(", ");
            let what = format!("unknown key `{}`; a rule has {known}", name.escape_default());
            all.push((key.span(), what));
            continue;
        };
        match (name, value.get_ref()) {
            ("share", _) => share("`share`", value, example, all),
            ("name" | "command" | "below", DeValue::String(text)) if text.is_empty() => {
                all.push((value.span(), format!("`{name}` is empty; write {example}")));
            }
            (_, DeValue::String(_)) => {}
            (_, other) => {
                all.push((value.span(), format!("`{name}` cannot be {}; write {example}", kind(other))));
            }
        }
    }
}

fn group(name: &str, value: &Spanned<DeValue<'_>>, all: &mut Vec<Wrong>) {
    let name = name.escape_default();
    share(&format!("the share of group `{name}`"), value, &format!("{name} = 3"), all);
}

/// That a share is a number; whether it is in its range is seen later, where it can be read at all.
fn share(what: &str, value: &Spanned<DeValue<'_>>, example: &str, all: &mut Vec<Wrong>) {
    match value.get_ref() {
        DeValue::Integer(number) if u64::from_str_radix(number.as_str(), number.radix()).is_ok() => {}
        DeValue::Integer(number) => all.push((value.span(), share_text(number))),
        DeValue::Float(number) => all.push((value.span(), share_text(number.as_str()))),
        other => all.push((value.span(), format!("{what} cannot be {}; write {example}", kind(other)))),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn what_is_expected_is_said_for_each_key() {
        for (text, error) in [
            (
                "[rule]\nname = 'a'\n",
                "line 1: `rule` is one of a list: write [[rule]], in two pairs of brackets",
            ),
            ("rule = [3]\n", "line 1: `rule` is one of a list: write [[rule]], in two pairs of brackets"),
            ("groups = 3\n", "line 1: `groups` is a table: write [groups], and below it build = 3"),
            (
                "[[rules]]\nname = 'a'\n",
                "line 1: unknown key `rules`; there are [[rule]] for each rule, and [groups]",
            ),
            (
                "[[rule]]\nnmae = 'a'\n",
                "line 2: unknown key `nmae`; a rule has `name`, `command`, `below`, `share`, `limit`, `cpus`, `group`, `as`",
            ),
            ("[[rule]]\nname = ''\n", "line 2: `name` is empty; write name = \"cc1*\""),
            ("[[rule]]\nname = 3\n", "line 2: `name` cannot be a number; write name = \"cc1*\""),
            ("[[rule]]\nname = 'a'\nshare = '3'\n", "line 3: `share` cannot be a string; write share = 3"),
            (
                "[[rule]]\nname = 'a'\nshare = -1\n",
                "line 3: share -1: a share is a whole number from 1 to 1000000",
            ),
            (
                "[[rule]]\nname = 'a'\nshare = 1.5\n",
                "line 3: share 1.5: a share is a whole number from 1 to 1000000",
            ),
            (
                "[[rule]]\nname = 'a'\nlimit = 50\n",
                "line 3: `limit` cannot be a number; write limit = \"50%\" (of one CPU) or limit = \"1.5\" (CPUs)",
            ),
            ("[[rule]]\nname = 'a'\ncpus = [0]\n", "line 3: `cpus` cannot be a list; write cpus = \"0,2-3\""),
            (
                "[groups]\nbuild = '3'\n",
                "line 2: the share of group `build` cannot be a string; write build = 3",
            ),
            // The first line goes first, whatever the keys are called.
            (
                "[[rule]]\nname = 3\n[[rule]]\nas = 4\n",
                "line 2: `name` cannot be a number; write name = \"cc1*\"",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }
}
