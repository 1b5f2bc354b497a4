//! What a test needs and does not find.

#[path = "../../../crates/divvy-linux/tests/common/skip.rs"]
mod skip;

#[allow(unused_imports, reason = "not every test can be skipped for anything else")]
pub use skip::skip;

/// Says aloud why `test` is skipped: this machine lacks what it needs. In CI it fails, for there everything is installed.
#[expect(clippy::disallowed_methods, reason = "whether this is CI is said by the environment")]
pub fn lacks(test: &str, what: &str, why: &str) {
    let why = why.trim().replace('\n', " ");
    assert!(std::env::var_os("CI").is_none(), "no {what} in CI: {why}");
    skip(test, &why);
}
