//! A test that proves nothing on this machine says so.

/// Says why a test proves nothing here. `scripts/test.sh` lists and counts these.
#[allow(clippy::disallowed_methods, reason = "the one place where the tests' environment is read")]
pub fn skip(test: &str, reason: &str) {
    use std::io::Write as _;
    eprintln!("SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("DIVVY_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{test}: {reason}"));
    }
}
