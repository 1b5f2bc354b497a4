//! Limits as people write them, on the command line and in files: `50%`, `1.5`, `none`.

use divvy_linux::CpuMask;
use divvy_policy::{CpuLimit, LimitError};

/// CPUs of the machine, whichever of them this process may use: divvyd may divide others.
fn online() -> u64 {
    CpuMask::online().map_or(u64::MAX, |cpus| cpus.iter().count() as u64)
}

/// Reads `50%` (of one CPU), `1.5` (CPUs) or `none`. A number of CPUs that the machine does not have was meant as a percentage.
///
/// # Errors
/// What is wrong with it, and what to write.
pub fn parse(text: &str) -> Result<Option<CpuLimit>, String> {
    read(text, online())
}

/// What whoever asks for a limit of so many millionths of one CPU should know: that it is more than the whole machine has.
#[must_use]
pub fn warning(ppm: u64) -> Option<String> {
    warning_among(ppm, online())
}

fn warning_among(ppm: u64, online: u64) -> Option<String> {
    let limit = CpuLimit::new(ppm).ok().filter(|_| ppm > online.saturating_mul(1_000_000))?;
    Some(format!("limit {limit} is more than the {} there are, and so limits nothing", counted(online)))
}

fn counted(cpus: u64) -> String {
    if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") }
}

fn read(text: &str, online: u64) -> Result<Option<CpuLimit>, String> {
    let text = text.trim();
    if text == "none" {
        return Ok(None);
    }
    let limit: CpuLimit = text.parse().map_err(|e| match e {
        LimitError::Form => format!("'{text}' is no limit; write 50% (of one CPU), 1.5 (CPUs) or none"),
        e => format!("'{text}': {e}"),
    })?;
    if !text.ends_with('%') && limit.ppm() > online.saturating_mul(1_000_000) {
        return Err(format!(
            "'{text}' is more than the {} there are; for a percentage of one CPU write {text}%",
            counted(online)
        ));
    }
    Ok(Some(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_above_all_cpus_is_told_of() {
        assert_eq!([warning_among(2_000_000, 2), warning_among(500_000, 1)], [None, None]);
        let said = warning_among(10_000_000, 2).expect("more than two");
        assert_eq!(said, "limit 1000% is more than the 2 CPUs there are, and so limits nothing");
    }

    #[test]
    fn limits_are_read_or_it_is_said_what_to_write() {
        let ppm = |text| read(text, 2).map(|limit| limit.map(CpuLimit::ppm));
        assert_eq!(ppm("50%"), Ok(Some(500_000)));
        assert_eq!(ppm("1.5"), Ok(Some(1_500_000)));
        assert_eq!(ppm("400%"), Ok(Some(4_000_000)));
        assert_eq!(ppm("none"), Ok(None));
        for (text, error) in [
            ("half", "'half' is no limit; write 50% (of one CPU), 1.5 (CPUs) or none"),
            ("50", "'50' is more than the 2 CPUs there are; for a percentage of one CPU write 50%"),
            ("0", "'0': a limit is at least 1% of one CPU, that is 0.01"),
        ] {
            assert_eq!(ppm(text), Err(error.to_owned()));
        }
    }
}
