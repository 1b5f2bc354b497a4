//! `divvy explain` and `divvy doctor`: questions that change nothing, and for which no divvyd need be started.

use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::types::{BackendInfo, Explanation, Finding, FindingStatus, PolicyInForce};
use divvy_linux::{Pid, Protection};

use super::args::{DoctorArgs, ExplainArgs};
use super::json;
use super::table::Width;
use crate::strip::{plain, wrapped};
use crate::{Code, Failure, print};

pub(crate) fn explain(args: &ExplainArgs) -> Result<Code, Failure> {
    let number = args.pid.parse::<i32>().ok().filter(|&n| n > 0).and_then(Pid::from_raw);
    let pid = number.ok_or_else(|| {
        let text = format!("'{}' is no process number; give a positive number, as ps prints it", args.pid);
        Failure::new(Code::Usage, text)
    })?;
    // A divvyd knows what it was told never to touch; where none runs, the standard list says.
    let raw = pid.as_raw_nonzero().get();
    let asked = args.ask.of.choice()?.api().and_then(|api| Ok((api.explain(raw)?, whose(&api, raw))));
    let said = match asked {
        Ok((mut said, client)) => {
            said.would.splice(0..0, client);
            said
        }
        Err(e @ ApiError::Stranger { .. }) => return Err(e.into()),
        Err(_) => divvy_linux::explain(pid, &Protection::standard(), None)?,
    };
    print(if args.ask.json { json(&said)? } else { in_words(&said) })?;
    Ok(if said.found { Code::Done } else { Code::NoSuch })
}

/// As many members as divvyd lists.
pub(super) const MEMBERS_MAX: usize = 10_000;

/// The client that a process is in.
fn whose(api: &Api, pid: i32) -> Option<String> {
    let all = api.clients_with_members(MEMBERS_MAX).ok()?;
    let client = all.clients.iter().find(|client| client.members.iter().any(|member| member.pid == pid))?;
    Some(format!("It is in the client {}, which is {} now.", plain(&client.name), client.state.as_str()))
}

fn in_words(said: &Explanation) -> String {
    let mut lines = Vec::new();
    if said.found {
        let number = |n: Option<i32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        lines.push(format!(
            "{} {}: user {}, {}, {} thread{}, CPUs {}",
            said.pid,
            plain(&said.name),
            said.user,
            said.state,
            said.threads,
            if said.threads == 1 { "" } else { "s" },
            said.cpus
        ));
        lines.push(format!(
            "parent {}, group {}, session {}, cgroup {}",
            number(said.parent),
            number(said.group),
            number(said.session),
            plain(said.cgroups.first().map_or("-", String::as_str))
        ));
    }
    lines.extend(said.would.iter().cloned());
    lines.join("\n")
}

pub(crate) fn doctor(args: &DoctorArgs) -> Result<Code, Failure> {
    let mut findings = divvy_linux::doctor();
    findings.extend(who_answers(&args.ask.of.choice()?));
    if args.ask.json {
        print(json(&findings)?)?;
    } else {
        let columns = Width::of_output(false).columns();
        findings.iter().flat_map(|f| lines(f, columns)).try_for_each(print)?;
    }
    let missing = findings.iter().any(|f| f.status == FindingStatus::Missing);
    Ok(if missing { Code::Failed } else { Code::Done })
}

/// A finding in lines of at most so many columns, where its words fit.
fn lines(f: &Finding, columns: usize) -> Vec<String> {
    const INDENT: usize = 28;
    let words = |text: &str| wrapped(text, columns.saturating_sub(INDENT));
    let mut texts = words(&f.found);
    if let Some(fix) = f.fix.as_deref().filter(|_| f.status != FindingStatus::Good) {
        texts.extend(words(&format!("more: {fix}")));
    }
    let begin = format!("{:<8} {:<18}", f.status.as_str(), f.what);
    let line = |(i, text)| format!("{:<27} {text}", if i == 0 { begin.as_str() } else { "" });
    texts.into_iter().enumerate().map(line).collect()
}

/// Which divvyd `divvy run` and the others talk to, and to which rights it gives effect beside those to CPU time.
fn who_answers(choice: &Choice) -> Vec<Finding> {
    let asked = choice.api().and_then(|api| api.status());
    let enforced = asked.as_ref().map_or_else(|_| Vec::new(), |status| status.backend.enforced.clone());
    let policy_file = asked.as_ref().ok().and_then(|status| status.policy_file.as_ref()).map(policy_in_force);
    let (status, found, fix) = match (choice, asked) {
        (Choice::System(path), Ok(status)) => {
            let found = format!(
                "the system's serves at {} (pid {}){}",
                path.display(),
                status.pid,
                by(&status.backend)
            );
            (FindingStatus::Good, found, None)
        }
        (Choice::Own, Ok(status)) => (
            FindingStatus::Good,
            format!("your own serves (pid {}){}", status.pid, by(&status.backend)),
            None,
        ),
        (Choice::Own, Err(ApiError::NotRunning(_))) if crate::rescue::left_behind() > 0 => {
            let found = "an earlier divvy was killed, or stands still, and had left processes suspended: they run again now";
            (FindingStatus::Good, found.to_owned(), None)
        }
        (Choice::Own, Err(ApiError::NotRunning(_))) => match Choice::instead_of_system() {
            Some(set_up) => {
                let set_up = set_up.display();
                let found = format!("the system's does not run, though it is set up here ({set_up})");
                let fix = "its administrator starts it (divvyd --system); until then your own divides what you start";
                (FindingStatus::Limited, found, Some(fix.to_owned()))
            }
            None => {
                let found = "no system's divvyd here; your own is started when it is needed".to_owned();
                (FindingStatus::Good, found, None)
            }
        },
        (_, Err(ApiError::NoSystem(path))) => {
            let found = format!("the system's does not run: nobody listens at {}", path.display());
            let fix = "its administrator starts it (divvyd --system), and --own asks your own; who is still suspended then runs again by \
                       `divvy rescue`, as root";
            (FindingStatus::Limited, found, Some(fix.to_owned()))
        }
        (_, Err(e)) => (FindingStatus::Limited, e.to_string(), Some("--own asks your own divvyd".to_owned())),
    };
    let mut findings = vec![Finding { what: "divvyd".to_owned(), found, status, fix }];
    findings.extend(policy_file);
    let kept = enforced.iter().filter(|told| told.resource != "cpu");
    findings.extend(kept.map(|told| Finding {
        what: format!("rights to {}", told.resource),
        status: if told.by.is_some() { FindingStatus::Good } else { FindingStatus::Limited },
        found: told.to_string(),
        fix: None,
    }));
    findings
}

/// Whether what the system's policy file says holds.
fn policy_in_force(file: &PolicyInForce) -> Finding {
    let PolicyInForce { path, is_default, changed, gone, from_next_start, refused } = file;
    let held = if *is_default { "the defaults hold" } else { "what it said before holds" };
    let after = |then: &str| Some(format!("{then}`systemctl reload divvyd`, or SIGHUP to divvyd"));
    let (status, found, fix) = match (changed, refused) {
        (true, _) if *gone && !is_default => {
            let fix = "put it back: a reload and the next start go by the defaults, or, where --policy-file named it, are refused";
            (FindingStatus::Limited, format!("{path} is gone: {held}"), Some(fix.to_owned()))
        }
        (true, _) => {
            (FindingStatus::Limited, format!("{path} has changed since it was read: {held}"), after(""))
        }
        (false, Some(why)) => {
            (FindingStatus::Limited, format!("{held}; {path} was not taken: {why}"), after("mend it, then "))
        }
        (false, None) if *from_next_start && *is_default => {
            let found = format!(
                "there is no {path}: the defaults hold, those of [scheduler] and [presence] from the next start on"
            );
            (
                FindingStatus::Limited,
                found,
                Some("`systemctl restart divvyd`: programs run on meanwhile".to_owned()),
            )
        }
        (false, None) if *from_next_start => {
            let found = format!("what {path} says in [scheduler] or [presence] holds from the next start on");
            (
                FindingStatus::Limited,
                found,
                Some("`systemctl restart divvyd`: programs run on meanwhile".to_owned()),
            )
        }
        (false, None) if *is_default => {
            (FindingStatus::Good, format!("there is no {path}: the defaults hold"), None)
        }
        (false, None) => (FindingStatus::Good, format!("{path} holds as it is"), None),
    };
    Finding { what: "policy file".to_owned(), found, status, fix }
}

/// By what it holds or weighs its clients, and why.
fn by(backend: &BackendInfo) -> String {
    match (backend.asked.as_str(), backend.used.as_str()) {
        // The default needs no word, and an older one has none.
        ("" | "signals", _) => String::new(),
        (_, used) => format!(", by {used} ({})", backend.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_file_is_told_with_what_holds() {
        let file = PolicyInForce { path: "/etc/divvy/divvyd.toml".to_owned(), ..PolicyInForce::default() };
        let told = |file: &PolicyInForce| {
            let found = policy_in_force(file);
            format!("{} {} {:?}", found.status.as_str(), found.found, found.fix)
        };
        assert_eq!(told(&file), "good /etc/divvy/divvyd.toml holds as it is None");
        let none = PolicyInForce { is_default: true, ..file.clone() };
        assert_eq!(told(&none), "good there is no /etc/divvy/divvyd.toml: the defaults hold None");
        let changed = PolicyInForce { changed: true, ..file.clone() };
        let said = told(&changed);
        assert!(
            said.starts_with("limited /etc/divvy/divvyd.toml has changed since it was read: what it"),
            "{said}"
        );
        assert!(said.contains("`systemctl reload divvyd`"), "{said}");
        let gone = PolicyInForce { changed: true, gone: true, ..file.clone() };
        let said = told(&gone);
        assert!(
            said.starts_with("limited /etc/divvy/divvyd.toml is gone: what it said before holds "),
            "{said}"
        );
        assert!(said.contains("put it back"), "{said}");
        let later = PolicyInForce { from_next_start: true, ..file.clone() };
        let said = told(&later);
        assert!(
            said.contains("holds from the next start on") && said.contains("systemctl restart"),
            "{said}"
        );
        let refused = PolicyInForce { refused: Some("line 3: -1 is no number".to_owned()), ..file };
        let said = told(&refused);
        assert!(
            said.contains("what it said before holds; /etc/divvy/divvyd.toml was not taken: line 3: -1"),
            "{said}"
        );
        assert!(said.contains("mend it, then `systemctl"), "{said}");
    }

    #[test]
    fn findings_fit_the_terminal_and_are_whole_for_programs() {
        let found =
            "Linux 6.18.44 takes no schedulers from programs: it was built without CONFIG_SCHED_CLASS_EXT"
                .to_owned();
        let fix = Some("not needed for divvy's other back ends".to_owned());
        let finding = Finding { what: "sched_ext".to_owned(), status: FindingStatus::Limited, found, fix };
        let narrow = lines(&finding, 76);
        assert_eq!(narrow[0], "limited  sched_ext          Linux 6.18.44 takes no schedulers from programs:");
        assert_eq!(narrow[1], format!("{:28}it was built without CONFIG_SCHED_CLASS_EXT", ""));
        assert_eq!(narrow[2], format!("{:28}more: not needed for divvy's other back ends", ""));
        assert!(narrow.len() == 3 && narrow.iter().all(|line| line.len() <= 76), "{narrow:#?}");
        assert_eq!(lines(&finding, usize::MAX).len(), 2);
        // A good one needs no more, and one word alone may be as long as it is.
        let good = Finding { status: FindingStatus::Good, found: "x".repeat(90), ..finding };
        assert_eq!(lines(&good, 80), [format!("good     sched_ext          {}", "x".repeat(90))]);
    }
}
