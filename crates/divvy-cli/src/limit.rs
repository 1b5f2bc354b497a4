//! Shares and limits on the command line and in files: `50%`, `1.5`, `none`; `NAME=50%` where there are several clients.

use divvy_api::types::{Client, SHARE_MAX};
use divvy_linux::CpuMask;
use divvy_policy::CpuLimit;

/// A limit as it is asked for: `None` is `none`.
pub(crate) type Limit = Option<CpuLimit>;

/// `--limit` of several clients: one of them, or all that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    pub(crate) name: Option<String>,
    pub(crate) limit: Limit,
}

/// CPUs of the machine, whichever of them this process may use: divvyd may divide others.
fn online() -> u64 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    list.trim().parse::<CpuMask>().map_or(u64::MAX, |cpus| cpus.iter().count() as u64)
}

/// Reads `50%`, `1.5` or `none`. A number of CPUs that the machine does not have was meant as a percentage.
pub(crate) fn parse(text: &str) -> Result<Limit, String> {
    read(text, online())
}

fn read(text: &str, online: u64) -> Result<Limit, String> {
    let text = text.trim();
    if text == "none" {
        return Ok(None);
    }
    let limit: CpuLimit = text.parse().map_err(|e| match e {
        divvy_policy::LimitError::Form => {
            format!("'{text}' is no limit; write 50% (of one CPU), 1.5 (CPUs) or none")
        }
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

/// Reads `LIMIT` or `NAME=LIMIT`.
pub(crate) fn parse_named(text: &str) -> Result<NamedLimit, String> {
    let (name, limit) = match text.rsplit_once('=') {
        Some((name, limit)) => (Some(name.trim()), limit),
        None => (None, text),
    };
    if name.is_some_and(str::is_empty) {
        return Err(format!("'{text}': the name is empty; write NAME=50%, or 50% for all"));
    }
    Ok(NamedLimit { name: name.map(str::to_owned), limit: parse(limit)? })
}

/// `, limit 50%` of a client that has one; `, no limit` where that is worth a word.
pub(crate) fn shown_of(client: &Client, always: bool) -> String {
    match client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok()) {
        Some(limit) => format!(", limit {limit}"),
        None if always => ", no limit".to_owned(),
        None => String::new(),
    }
}

/// Reads a share.
pub(crate) fn parse_share(text: &str) -> Result<u64, String> {
    let share = text.trim().parse().ok().filter(|share| (1..=SHARE_MAX).contains(share));
    share.ok_or_else(|| format!("a share is a whole number from 1 to {SHARE_MAX}"))
}

#[cfg(test)]
/// `50%`, or `none`.
pub(crate) fn shown(limit: Limit) -> String {
    limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
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
        let named = |text| parse_named(text).map(|n| (n.name, shown(n.limit)));
        assert_eq!(named("50%"), Ok((None, "50%".to_owned())));
        assert_eq!(named("a=b=12.5%"), Ok((Some("a=b".to_owned()), "12.5%".to_owned())));
        assert_eq!(named("build=none"), Ok((Some("build".to_owned()), "none".to_owned())));
        assert_eq!(named("=1%").unwrap_err(), "'=1%': the name is empty; write NAME=50%, or 50% for all");
    }
}
