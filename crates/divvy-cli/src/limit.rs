//! Shares and limits on the command line and in files: `50%`, `1.5`, `none`; `NAME=50%` where there are several clients.

pub(crate) use divvy_api::limit::parse;
use divvy_api::types::{Client, SHARE_MAX};
use divvy_policy::CpuLimit;

use crate::tell;

/// A limit as it is asked for: `None` is `none`.
pub(crate) type Limit = Option<CpuLimit>;

/// `--limit` of several clients: one of them, or all that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    pub(crate) name: Option<String>,
    pub(crate) limit: Limit,
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
    if let Some((resource @ ("memory" | "disk"), _)) = limit.split_once(':') {
        return Err(format!(
            "'{limit}': share limits CPU time, as in 50%; a limit of {resource} has who is started by divvy run, or attached"
        ));
    }
    Ok(NamedLimit { name: name.map(str::to_owned), limit: parse(limit)? })
}

/// `, limit 50%` of a client that has one; `, no limit of CPU time` where that is worth a word.
pub(crate) fn shown_of(client: &Client, always: bool) -> String {
    match client.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok()) {
        Some(limit) => format!(", limit {limit}"),
        None if always => ", no limit of CPU time".to_owned(),
        None => String::new(),
    }
}

/// Says so where a limit of CPU time is more than the machine has.
pub(crate) fn warn(ppm: Option<u64>) {
    if let Some(text) = ppm.and_then(divvy_api::limit::warning) {
        tell(format_args!("divvy: warning: {text}"));
    }
}

/// Reads a share.
pub(crate) fn parse_share(text: &str) -> Result<u64, String> {
    let said = format!("a share is a whole number from 1 to {SHARE_MAX}");
    let text = text.trim();
    if text.starts_with('+') {
        return Err(format!("{said}, and no change of one: write what it is to be"));
    }
    text.parse().ok().filter(|share| (1..=SHARE_MAX).contains(share)).ok_or(said)
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
    fn a_limit_may_be_of_one_client() {
        let named = |text| parse_named(text).map(|n| (n.name, shown(n.limit)));
        assert_eq!(named("50%"), Ok((None, "50%".to_owned())));
        assert_eq!(named("a=b=12.5%"), Ok((Some("a=b".to_owned()), "12.5%".to_owned())));
        assert_eq!(named("build=none"), Ok((Some("build".to_owned()), "none".to_owned())));
        let told = named("a=memory:10M").unwrap_err();
        assert!(told.starts_with("'memory:10M': share limits CPU time, as in 50%"), "{told}");
        assert_eq!(named("=1%").unwrap_err(), "'=1%': the name is empty; write NAME=50%, or 50% for all");
    }
}
