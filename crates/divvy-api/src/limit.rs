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
        let have = if online == 1 { "1 CPU".to_owned() } else { format!("{online} CPUs") };
        return Err(format!(
            "'{text}' is more than the {have} there are; for a percentage of one CPU write {text}%"
        ));
    }
    Ok(Some(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

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
