//! Lists of CPUs on the command line, and who can keep a client to some of them.

use divvy_api::cpus::Keeper;
use divvy_api::types::BackendInfo;
use divvy_linux::CpuMask;

use crate::{Code, Failure};

/// `0,2-3` as a set of CPUs.
pub(crate) fn parse(list: &str) -> Result<CpuMask, Failure> {
    list.parse().map_err(|e| {
        let text = format!("--cpus {list}: {e}; write numbers and ranges, as in 0,2-3");
        Failure::new(Code::Usage, text)
    })
}

/// `0,2-3`, or `build=0,2-3` for one of several, whose name comes with it.
pub(crate) fn parse_named(text: &str) -> Result<(Option<&str>, CpuMask), Failure> {
    let Some((name, list)) = text.rsplit_once('=') else { return Ok((None, parse(text)?)) };
    let name = name.trim();
    if name.is_empty() {
        let text = format!("--cpus {text}: the name is empty; write NAME=0,2-3, or 0,2-3 for all");
        return Err(Failure::new(Code::Usage, text));
    }
    Ok((Some(name), parse(list)?))
}

/// The same of a client that may have some already: `all` for no bound, which is the empty set.
pub(crate) fn parse_change(list: &str) -> Result<CpuMask, Failure> {
    if list == "all" { Ok(CpuMask::default()) } else { parse(list) }
}

/// Whether a client of one that divides the CPUs `all` by the back end `used` can be kept to `cpus`. `what` was asked for.
///
/// # Errors
/// [`Failure`] with [`Code::Usage`], and what would help.
pub(crate) fn check(what: &str, cpus: &CpuMask, by: Keeper, all: &[u32], used: &str) -> Result<(), Failure> {
    let divided = all.iter().copied().collect();
    divvy_api::cpus::check(cpus, &divided, used, by)
        .map_err(|e| Failure::new(Code::Usage, format!("{what}: {e}")))
}

/// The CPUs to which we, or whom we start, have to be kept for a divvyd with this back end: of those that are divided the ones that we
/// may use, or all if we may use none of them. `None` where we use no others.
///
/// # Errors
/// The kernel does not say which we may use.
pub(crate) fn to_start_on(backend: &BackendInfo) -> Result<Option<CpuMask>, Failure> {
    let Some(divided) = backend.starts_on else { return Ok(None) };
    let own = CpuMask::of_thread(rustix::process::getpid())?.unwrap_or_default();
    Ok(narrowed(&own, &divided))
}

fn narrowed(own: &CpuMask, divided: &CpuMask) -> Option<CpuMask> {
    let both: CpuMask = own.iter().filter(|&cpu| divided.contains(cpu)).collect();
    let to = if both.is_empty() { *divided } else { both };
    (to != *own).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_starts_keeps_to_what_is_divided() {
        let narrowed = |own: &str, divided: &str| {
            let to = super::narrowed(&own.parse().expect("CPUs"), &divided.parse().expect("CPUs"));
            to.map(|to| to.to_string())
        };
        assert_eq!(narrowed("0-3", "0-1").as_deref(), Some("0-1"));
        assert_eq!(narrowed("1-3", "0-1").as_deref(), Some("1"));
        assert_eq!(narrowed("1", "0-1"), None, "what the user has said stays");
        assert_eq!(narrowed("2-3", "0-1").as_deref(), Some("0-1"), "it would be divided with nobody");
    }

    #[test]
    fn lists_of_cpus() {
        let cpus = |list| parse(list).map(|mask| mask.iter().collect::<Vec<_>>()).map_err(|f| f.text);
        assert_eq!(cpus("0,2-3"), Ok(vec![0, 2, 3]));
        assert_eq!(cpus("1"), Ok(vec![1]));
        let fix = "; write numbers and ranges, as in 0,2-3";
        assert_eq!(cpus("x"), Err(format!("--cpus x: 'x' is no CPU{fix}")));
        assert_eq!(cpus("3-2"), Err(format!("--cpus 3-2: the range 3-2 is empty{fix}")));
        assert_eq!(cpus("1,"), Err(format!("--cpus 1,: '' is no CPU{fix}")));
        assert_eq!(cpus("5000"), Err(format!("--cpus 5000: there is no CPU 5000{fix}")));
    }

    #[test]
    fn a_list_may_be_of_one_task() {
        let named = |text| parse_named(text).map(|(name, mask)| (name, mask.to_string())).map_err(|f| f.text);
        assert_eq!(named("0,2"), Ok((None, "0,2".to_owned())));
        assert_eq!(named("a=b=1-2"), Ok((Some("a=b"), "1-2".to_owned())));
        assert_eq!(
            named("a="),
            Err("--cpus : '' is no CPU; write numbers and ranges, as in 0,2-3".to_owned())
        );
        let e = "--cpus =1: the name is empty; write NAME=0,2-3, or 0,2-3 for all".to_owned();
        assert_eq!(named("=1"), Err(e));
    }
}
