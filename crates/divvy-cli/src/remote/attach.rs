//! `divvy attach`: processes that run already become a client.

use divvy_api::names::word;
use divvy_api::types::{Client, NewClient, Plan};
use divvy_linux::{Pid, Selector, procfs};

use super::args::AttachArgs;
use super::which::whole_selector;
use super::{group, json, of_its_currency};
use crate::strip::plain;
use crate::{Code, Failure, bounds, limit, print, tell};

/// What all processes descend from.
const WHOLE_MACHINE: &str = "tree:1";

/// The selector that the arguments name.
fn selector(args: &AttachArgs) -> Option<String> {
    let of = |kind: &str, which: Option<String>| which.map(|which| format!("{kind}:{which}"));
    args.selector
        .clone()
        .or_else(|| of("tree", args.tree.map(|pid| pid.to_string())))
        .or_else(|| of("session", args.session.map(|sid| sid.to_string())))
        .or_else(|| of("user", args.user.clone()))
        .or_else(|| of("cgroup", args.cgroup.as_ref().map(|path| path.display().to_string())))
}

pub(crate) fn attach(args: &AttachArgs) -> Result<Code, Failure> {
    let system = args.ask.of.is_system()?;
    let mut new = NewClient {
        name: args.name.clone(),
        selector: selector(args),
        plugin: args.plugin,
        ..args.terms.client(system)?
    };
    group::set(&mut new, args.group.as_ref());
    check_is_of_no_run(new.selector.as_deref().unwrap_or_default())?;
    if args.dry_run {
        let plan = args.ask.of.ask(|api| api.plan(&new))?;
        if plan.members.iter().all(|member| !member.scheduled) {
            tell(nobody_yet(&plan.selector));
        }
        print(if args.ask.json { json(&plan)? } else { planned(&plan) })?;
    } else {
        args.ask.of.warn_of_own();
        let added = args.ask.of.try_ask(|api| api.add(&new))?;
        let client = added.map_err(|e| of_its_currency(args.terms.from.as_deref(), e))?;
        args.terms.warn_of_no_effect(&args.ask.of);
        if client.nr_members == 0 {
            tell(nobody_yet(&client.selector));
        } else if client.selector == WHOLE_MACHINE {
            tell(format_args!(
                "divvy: {WHOLE_MACHINE}: every process of this machine is in this one client, whoever's it is, but those in others and what \
                 is never touched; to let it go: divvy detach {}; to divide it among its users: everything = true (docs/admin.md)",
                word(&client.name)
            ));
        }
        if let Some(said) = leaves_children(&client.selector) {
            tell(said);
        }
        print(if args.ask.json { json(&client)? } else { attached(&client) })?;
    }
    Ok(Code::Done)
}

/// Refuses what a `divvy share` of this user divides already: two would suspend and resume it.
fn check_is_of_no_run(selector: &str) -> Result<(), Failure> {
    // A directory that cannot be trusted has no runs that one could ask.
    let (Ok(Selector::Pid(pid) | Selector::Tree(pid)), Ok(runs)) =
        (whole_selector(selector).parse(), divvy_api::runs::all())
    else {
        return Ok(());
    };
    let line = if runs.is_empty() { Vec::new() } else { super::line_of(pid.as_raw_nonzero().get()) };
    let divides = |task: &str| match task.parse() {
        Ok(Selector::Tree(root)) => line.contains(&root.as_raw_nonzero().get()),
        Ok(Selector::Pid(one)) => one == pid,
        _ => false,
    };
    let of_run = runs.iter().find(|run| run.clients.iter().any(|client| divides(&client.selector)));
    match of_run {
        None => Ok(()),
        Some(run) => {
            let text = format!(
                "{selector}: a divvy share (pid {}) divides it already; end that first, or start what is to be changed as it runs by \
                 divvy run",
                run.pid
            );
            Err(Failure::new(Code::Usage, text))
        }
    }
}

/// What is said to whoever has attached one process that has children, as a shell with a program has: they are not in its client.
fn leaves_children(selector: &str) -> Option<String> {
    let pid = Pid::from_raw(selector.strip_prefix("pid:")?.parse().ok()?)?;
    let mut children = Vec::new();
    procfs::children(pid, pid, &mut children).ok()??;
    let those = match children.len() {
        0 => return None,
        1 => format!("its child, process {}, is", children[0]),
        n => format!("its {n} children are"),
    };
    Some(format!(
        "divvy: warning: {selector} is this one process, and {those} not divided or limited with it: for all of them, detach it, and \
         divvy attach tree:{pid}"
    ))
}

/// What is said to whoever has attached what nobody matches.
pub(crate) fn nobody_yet(selector: &str) -> String {
    let selector = plain(selector);
    format!(
        "divvy: {selector}: nobody joins it just now: no process matches (ps -e -o pid,comm,args), or those that do are in another client or \
         never touched (divvy explain PID); those that come later join it"
    )
}

fn processes(n: usize) -> String {
    if n == 1 { "1 process".to_owned() } else { format!("{n} processes") }
}

fn attached(c: &Client) -> String {
    let refused = if c.not_permitted > 0 {
        format!("; {} of them may not be signalled and run undivided", c.not_permitted)
    } else {
        String::new()
    };
    let members = processes(c.nr_members);
    let limit = limit::shown_of(c, false) + &bounds::shown(c.bounds);
    format!("{}: {} attached, {members}, share {}{limit}{refused}", c.name, plain(&c.selector), c.share)
}

fn planned(plan: &Plan) -> String {
    let scheduled = plan.members.iter().filter(|m| m.scheduled).count();
    let mut lines = vec![format!(
        "{}: {} would be attached, {}, share {}; nothing was changed",
        plan.name,
        plain(&plan.selector),
        processes(scheduled),
        plan.share
    )];
    lines.extend(plan.members.iter().map(|m| {
        let what = m.why.as_deref().map_or_else(|| "divided".to_owned(), |why| format!("left alone: {why}"));
        format!("{:>8}  {:<15}  {what}", m.pid, plain(&m.name))
    }));
    lines.join("\n")
}
