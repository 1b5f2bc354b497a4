//! What the terminal can show, by the usual variables.

#[expect(clippy::disallowed_methods, reason = "what a terminal can show is told by the environment")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Whether the terminal only writes line after line: nothing can be drawn anew in its place.
pub(crate) fn is_dumb() -> bool {
    variable("TERM").as_deref() == Some("dumb")
}

/// Whether text may be bright, dim or coloured (`NO_COLOR` says no, whatever its value).
pub(crate) fn has_color() -> bool {
    variable("NO_COLOR").is_none() && !is_dumb()
}
