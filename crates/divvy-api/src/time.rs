//! Times on command lines, as people write them: `30s`, `2m`, `500ms`.

use std::time::Duration;

/// Reads a time.
///
/// # Errors
/// What is wrong with it, and what to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    let example = "write a number and its unit, as in 30s, 2m or 500ms";
    if text.trim_start().starts_with('-') {
        return Err(format!("a time is not negative; {example}"));
    }
    // humantime's month, which nobody means who divides CPU time.
    if text.split(|c: char| !c.is_alphabetic()).any(|unit| unit == "M") {
        let (short, long) = (text.replace('M', "m"), text.replace('M', "min"));
        return Err(format!("M would be months; for minutes write {short} or {long}"));
    }
    humantime::parse_duration(text).map_err(|e| match e {
        humantime::DurationError::NumberOverflow => format!("that is longer than can be counted; {example}"),
        _ => format!("that is no time; {example}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_or_it_is_said_what_to_write() {
        assert_eq!(parse("1m 30s"), Ok(Duration::from_secs(90)));
        for (text, why) in [
            ("-1s", "a time is not negative; write "),
            ("5", "that is no time; write a number and its unit, as in 30s, 2m or 500ms"),
            ("1M", "M would be months; for minutes write 1m or 1min"),
            ("1h 30M", "for minutes write 1h 30m or 1h 30min"),
            ("1MB", "that is no time; write "),
            ("abc", "that is no time; write "),
            ("99999999999999999999s", "longer than can be counted; write "),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
