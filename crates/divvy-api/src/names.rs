//! What clients and groups may be called.

use std::borrow::Cow;

/// Characters in a name at most.
pub const NAME_MAX: usize = 64;
/// Groups within groups at most.
pub const DEPTH_MAX: usize = 4;

/// Whether a client's name may have this character.
#[must_use]
pub fn is_of_names(c: char) -> bool {
    c.is_alphanumeric() || (c.is_ascii_graphic() && c != '/')
}

/// A name as a word of a command that is to be copied into a shell: quoted where that would take it for something else.
#[must_use]
pub fn word(name: &str) -> Cow<'_, str> {
    // Only a NUL cannot be quoted, and no name has one.
    shlex::try_quote(name).unwrap_or(Cow::Borrowed(name))
}

/// The name of a client that is to be called after `text`, whatever that is: with '-' for what no name has, and not too long to
/// be told apart by a number. It is `text` where that can be a name.
#[must_use]
pub fn made_of(text: &str) -> String {
    let name: String = text.chars().map(|c| if is_of_names(c) { c } else { '-' }).collect();
    let mut name: String = name.trim_start_matches('-').chars().take(NAME_MAX - 8).collect();
    if name.chars().all(|c| c.is_ascii_digit()) {
        name.insert_str(0, "client");
    }
    name
}

/// Whether a client may be called so.
///
/// # Errors
/// Why not.
pub fn check_client(name: &str) -> Result<(), &'static str> {
    let count = name.chars().count();
    if name.is_empty() || count > NAME_MAX {
        Err("it has to have 1 to 64 characters")
    } else if name.chars().any(|c| !is_of_names(c)) {
        Err("it may have no blanks, slashes and control characters")
    } else if name.chars().all(|c| c.is_ascii_digit()) {
        Err("it may not be a number: ids are")
    } else if name.starts_with('-') {
        Err("it may not begin with '-'")
    } else {
        Ok(())
    }
}

/// Whether a group may be called so: the names on its way, as `build/tests`, or as a directory may be written (`build/`).
///
/// # Errors
/// Why not.
pub fn check_group(path: &str) -> Result<(), &'static str> {
    let mut depth = 0;
    for name in path.strip_suffix('/').unwrap_or(path).split('/') {
        depth += 1;
        if name.is_empty() || name.chars().count() > NAME_MAX {
            return Err("a name in it has to have 1 to 64 characters");
        } else if name.chars().any(|c| !(c.is_alphanumeric() || c.is_ascii_graphic()) || c == '=') {
            return Err("it may have no blanks, control characters and '='");
        } else if name.starts_with('-') {
            return Err("a name in it may not begin with '-'");
        }
    }
    if depth > DEPTH_MAX { Err("groups go 4 deep at most") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_of_a_command() {
        for plain in ["build", "alice/job.1", "uid:1000", "a-b_c+d@e"] {
            assert_eq!(word(plain), plain);
        }
        assert_eq!([word("*"), word("a;b"), word("$x")], ["'*'", "'a;b'", "'$x'"]);
        assert_eq!(word("it's"), "\"it's\"");
    }
}
