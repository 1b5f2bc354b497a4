//! Taking in clients: commands that are started here, and processes that run already.

use divvy_linux::{AttachFor, Command as HostCommand, Pid, Selector, SelectorError, StartTime, user_name};
use divvy_market::CurrencyId;
use divvy_policy::{ClientId, Share};

use super::book::Entry;
use super::groups::Asked;
use super::{Owner, Scheduler, internal, own, parse_limit, parse_share, system};
use crate::kernel::user_around;
use crate::market::message::{Admitted, Who};
use crate::message::{Answer, Prepared, Refusal};
use divvy_api::names::word;
use divvy_api::types::{Bounds, Client, ErrorCode, MEMBERS_SHOWN, NewClient, NewCommand, Plan, Planned};

/// Arguments of a command and their bytes, at most: what the system takes is more.
const ARGUMENTS_MAX: usize = 1024;

fn bad_request(message: impl ToString, fix: &str) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, message, fix)
}

/// Whose processes an attached client is of, and when the one began that its selector names by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    only: Option<u32>,
    start: Option<StartTime>,
    /// In whose cgroup its own is, if in any user's.
    user: Option<u32>,
}

/// Ancestors among whom a client is looked for.
const ANCESTORS_MAX: usize = 4096;

fn parse_selector(text: &str) -> Result<Selector, Refusal> {
    text.parse().map_err(|e: SelectorError| {
        let unknown = e.is_of_an_unknown_user();
        Refusal::new(if unknown { ErrorCode::NoSuchUser } else { ErrorCode::BadRequest }, e, "")
    })
}

/// The selector of a client of many users' divvyd, which starts no commands: it would start them as root.
fn selector_of(new: &NewClient) -> Result<Selector, Refusal> {
    match (&new.command, &new.selector) {
        (None, Some(text)) => parse_selector(text),
        (Some(_), None) => Err(bad_request(
            "the system's divvyd starts no commands: they would not run as you",
            "start it as yourself, with `divvy run`, which attaches what it has started",
        )),
        _ => Err(bad_request("neither or both of `command` and `selector` are given", "give one of them")),
    }
}

/// Refuses another user's processes as a whole to everybody but root; those named one by one are looked at.
fn check_selector(selector: &Selector, who: &Who) -> Result<(), Refusal> {
    match selector {
        Selector::User(uid) if *uid != who.uid && who.uid != 0 => {
            let whose = user_name(*uid).unwrap_or_else(|| uid.to_string());
            let text = format!("{selector}: these are {whose}'s processes");
            Err(Refusal::new(ErrorCode::NotPermitted, text, "attach your own, or ask root"))
        }
        selector if selector.reads_commands() => {
            let text = format!(
                "{selector}: command lines stand in processes' own memory, which is not read for users"
            );
            Err(bad_request(text, "go by the kernel's name of them (name:), or ask your own divvyd (--own)"))
        }
        _ => Ok(()),
    }
}

/// The refusal of a client nobody of whom may be suspended by us, and where nobody else can come: who is named by user or by number. By
/// name others may.
fn nobodys_to_suspend(client: &Client) -> Option<Refusal> {
    let (n, selector) = (client.nr_members, parse_selector(&client.selector).ok()?);
    let is_all = selector.ends() || matches!(selector, Selector::User(_));
    if n == 0 || client.not_permitted < n || !is_all {
        return None;
    }
    let those = if n == 1 { "its process is".to_owned() } else { format!("all of its {n} processes are") };
    let text =
        format!("{selector}: {those} another user's, which may not be suspended, and would not be divided");
    Some(Refusal::new(ErrorCode::NotPermitted, text, "attach your own, or ask root"))
}

/// Refuses what only a market has.
fn check_no_market(new: &NewClient) -> Result<(), Refusal> {
    let (option, what) = match (&new.from, &new.job) {
        (Some(currency), _) => (format!("--from {currency}"), "currencies"),
        (None, Some(job)) => (format!("--job {job}"), "jobs"),
        (None, None) => return Ok(()),
    };
    let option = option.escape_debug();
    let text = format!("{option}: only the system's divvyd has {what}, and this is a user's own");
    Err(bad_request(
        text,
        "leave it out, or ask the system's divvyd (--system), if its administrator runs one",
    ))
}

impl Scheduler {
    /// Starts or attaches a client for `who`, or says what attaching would do.
    pub(super) fn add(
        &mut self,
        new: &NewClient,
        who: &Who,
        admitted: Option<&Admitted>,
    ) -> Result<Answer, Refusal> {
        let share = parse_share(new.share)?;
        let limit = new.limit_ppm.map(parse_limit).transpose()?.flatten();
        self.mend_cgroups(None);
        self.check_bounds(None, limit, new.bounds)?;
        let added = self.add_unlimited(new, share, who, admitted)?;
        let Answer::Added(client) = &added else { return Ok(added) };
        if let Some(refusal) = nobodys_to_suspend(client) {
            let _ = self.detach(ClientId(client.id));
            return Err(refusal);
        }
        if limit.is_none() && new.bounds.is_empty() {
            return Ok(added);
        }
        let client = ClientId(client.id);
        let limited = limit.map_or(Ok(()), |limit| self.set_limit(client, Some(limit)));
        if let Err(refusal) = limited.and_then(|()| self.set_bounds(client, new.bounds)) {
            let _ = self.detach(client);
            return Err(refusal);
        }
        self.let_limit_hold(limit);
        Ok(Answer::Added(Box::new(self.client(client, MEMBERS_SHOWN)?)))
    }

    /// The same, without the limit.
    fn add_unlimited(
        &mut self,
        new: &NewClient,
        share: Share,
        who: &Who,
        admitted: Option<&Admitted>,
    ) -> Result<Answer, Refusal> {
        if self.system.is_some() {
            return self.add_for(new, share, who, admitted);
        }
        check_no_market(new)?;
        let group = own::asked(new)?;
        self.check_cycle(share, None)?;
        match (&new.command, &new.selector) {
            (Some(_), None) if new.dry_run => Err(bad_request(
                "a command has no dry run: nobody knows what it will do",
                "leave out `dry_run`",
            )),
            (Some(command), None) => self.start(new, share, command, group.as_ref()),
            (None, Some(text)) => {
                let selector = parse_selector(text)?;
                self.shelter_caller(&selector, who);
                if new.dry_run {
                    self.plan(new, share, &selector, None)
                } else {
                    let name =
                        self.book.name(new.name.as_deref(), new.numbered, &made_name(&selector), None)?;
                    self.attach((share, group.as_ref()), &selector, name, None, None)
                }
            }
            _ => {
                Err(bad_request("neither or both of `command` and `selector` are given", "give one of them"))
            }
        }
    }

    /// The caller's shell and its ancestors are never touched. Who makes a client of itself names nobody else, and may
    /// be a part of another client: its ancestors stay what they are.
    fn shelter_caller(&mut self, selector: &Selector, who: &Who) {
        let Some(caller) = who.process() else { return };
        if *selector == Selector::Tree(caller) {
            return;
        }
        self.shelter.add_caller(caller);
        let protection = self.shelter.protection();
        self.engine.host_mut().protect(protection);
    }

    fn start(
        &mut self,
        new: &NewClient,
        share: Share,
        command: &NewCommand,
        group: Option<&Asked>,
    ) -> Result<Answer, Refusal> {
        let program = command.argv.first().filter(|word| !word.is_empty());
        let Some(program) = program else { return Err(bad_request("the command is empty", "give `argv`")) };
        let (nul, blank) =
            (|s: &String| s.contains('\0'), |k: &String| k.is_empty() || k.contains(['=', '\0']));
        if command.argv.len() > ARGUMENTS_MAX
            || command.argv.iter().any(nul)
            || command.env.keys().any(blank)
            || command.env.values().any(nul)
        {
            let text =
                "an argument or variable cannot be passed on: too many, or NUL in it, or '=' in a name";
            return Err(bad_request(text, "start it by a script"));
        }
        let base = program.rsplit('/').next().unwrap_or(program);
        let name = self.book.name(new.name.as_deref(), new.numbered, base, None)?;
        let host = self.engine.host_mut();
        let client = host.spawn(HostCommand {
            argv: command.argv.iter().map(Into::into).collect(),
            dir: command.dir.as_ref().map(Into::into),
            env: command.env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            own_session: true,
            ..HostCommand::default()
        });
        let client = client.map_err(system)?;
        let leader = self.engine.host().leader(client).map_or(0, |pid| pid.as_raw_nonzero().get());
        let (selector, bounds) = (format!("tree:{leader}"), Bounds::default());
        let entry = Entry { name, selector, owner: None, bounds, cgroup: None };
        self.join(client, (share, group), entry)
    }

    /// Where there is a market: processes of `who`, or of anybody where that is root.
    fn add_for(
        &mut self,
        new: &NewClient,
        share: Share,
        who: &Who,
        admitted: Option<&Admitted>,
    ) -> Result<Answer, Refusal> {
        let selector = selector_of(new)?;
        check_selector(&selector, who)?;
        let only = (who.uid != 0).then_some(who.uid);
        let Some(admitted) = admitted else {
            if new.dry_run {
                return self.plan(new, share, &selector, Some(who));
            }
            return Err(super::internal_text("a client that the market has not admitted"));
        };
        let uid = admitted.uid;
        let owner = Owner {
            uid,
            user: user_name(uid).unwrap_or_else(|| uid.to_string()),
            currency: admitted.currency,
            amount: admitted.amount,
        };
        let start = admitted.identity.process.map(|(_, start)| StartTime(start));
        let limited = new.limit_ppm.is_some_and(|ppm| ppm > 0);
        let user = user_around(self.kernel.as_ref(), uid, limited);
        let share = (self.newcomers_share(), None);
        self.attach(share, &selector, admitted.name.clone(), Some(owner), Some(Of { only, start, user }))
    }

    /// What a client of `new` would be called, and whose child its process is.
    pub(super) fn prepare(&mut self, new: &NewClient, who: &Who) -> Result<Answer, Refusal> {
        parse_share(new.share)?;
        let limit = new.limit_ppm.map(parse_limit).transpose()?.flatten();
        self.check_bounds(None, limit, new.bounds)?;
        if new.group.is_some() || new.group_share.is_some() {
            let text = "the system's divvyd has currencies in the place of groups";
            return Err(bad_request(
                text,
                "make one (divvy currency create build; divvy fund build --from YOU 3) and name it with --from build",
            ));
        }
        let selector = selector_of(new)?;
        check_selector(&selector, who)?;
        self.check_free(&selector, Some(who.uid))?;
        let made = made_name(&selector);
        let name = self.book.name(new.name.as_deref(), new.numbered, &made, Some(who.uid))?;
        let parent = match selector {
            Selector::Pid(pid) | Selector::Tree(pid) => self.parent_of(pid, who.uid),
            _ => None,
        };
        Ok(Answer::Prepared(Prepared { name, selector, parent }))
    }

    /// The market's client of user `uid` that process `pid` or an ancestor of it is in.
    fn parent_of(&self, pid: Pid, uid: u32) -> Option<CurrencyId> {
        let host = self.engine.host();
        ancestry(pid).find_map(|pid| {
            let owner = self.book.entry(host.client_of(pid)?)?.owner.as_ref()?;
            (owner.uid == uid).then_some(owner.currency)
        })
    }

    /// Refuses what a client of the same user is already. Another user's is in nobody's way: it has only processes of that
    /// user.
    fn check_free(&self, selector: &Selector, uid: Option<u32>) -> Result<(), Refusal> {
        let text = selector.to_string();
        if let Some((_, entry)) = self.book.present().find(|(_, e)| e.selector == text && e.is_of(uid)) {
            let text = format!("client '{}' is {text} already", entry.shown());
            let fix = format!("change its share: divvy set {} -s N", word(&entry.shown()));
            return Err(Refusal::new(ErrorCode::ProcessTaken, text, fix));
        }
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        share: (Share, Option<&Asked>),
        selector: &Selector,
        name: String,
        owner: Option<Owner>,
        of: Option<Of>,
    ) -> Result<Answer, Refusal> {
        self.check_free(selector, owner.as_ref().map(|owner| owner.uid))?;
        let host = self.engine.host_mut();
        let client = match of {
            Some(Of { only, start, user }) => {
                host.attach_for(selector, AttachFor { owner: only, start, user })
            }
            None => host.attach(selector),
        };
        let (selector, bounds) = (selector.to_string(), Bounds::default());
        let client = client.map_err(|e| self.not_attached(e, owner.as_ref().map(|owner| owner.uid)))?;
        self.join(client, share, Entry { name, selector, owner, bounds, cgroup: None })
    }

    /// The refusal for what was not attached; who has it is told by name.
    fn not_attached(&self, e: divvy_linux::Error, uid: Option<u32>) -> Refusal {
        match e {
            divvy_linux::Error::Taken { selector, of } => {
                let entry = self.book.entry(of);
                let whose = entry.map_or_else(|| of.0.to_string(), |entry| entry.shown());
                let by = entry.map_or_else(String::new, |entry| format!(", which is {}", entry.selector));
                let text = format!("{selector}: its processes belong to client '{whose}' already{by}");
                let is_own = entry.is_none_or(|entry| entry.is_of(uid)) || uid == Some(0);
                let whose = word(&whose);
                let fix = if is_own {
                    format!(
                        "change its share: divvy set {whose} -s N; or let it go first: divvy detach {whose}"
                    )
                } else {
                    "ask whose that is, or an administrator, to let it go".to_owned()
                };
                Refusal::new(ErrorCode::ProcessTaken, text, fix)
            }
            e => select(e),
        }
    }

    /// Takes a client of the host into the engine and the book.
    fn join(
        &mut self,
        client: ClientId,
        (share, group): (Share, Option<&Asked>),
        entry: Entry,
    ) -> Result<Answer, Refusal> {
        match self.engine.join(share) {
            Ok(joined) if joined == client => {}
            Ok(_) => {
                return Err(super::internal_text("the host and the engine disagree about a client's number"));
            }
            Err(e) => {
                let _ = self.engine.host_mut().detach(client);
                return Err(internal(e));
            }
        }
        let cgroup = self.engine.host().cgroup(Some(client));
        self.book.join(client, Entry { cgroup, ..entry });
        self.owe(client);
        self.enter_market(client);
        self.enter_group(client, share, group);
        self.sample_use(client);
        self.rebase();
        Ok(Answer::Added(Box::new(self.client(client, MEMBERS_SHOWN)?)))
    }

    fn plan(
        &mut self,
        new: &NewClient,
        share: Share,
        selector: &Selector,
        who: Option<&Who>,
    ) -> Result<Answer, Refusal> {
        let uid = who.map(|who| who.uid);
        self.check_free(selector, uid)?;
        let name = self.book.name(new.name.as_deref(), new.numbered, &made_name(selector), uid)?;
        let matches = self.engine.host_mut().plan(selector, uid.filter(|&uid| uid != 0));
        let matches = matches.map_err(|e| self.not_attached(e, uid))?;
        let members = matches.into_iter().map(|m| {
            let owner = m.owner.and_then(|owner| self.book.entry(owner));
            let taken = || owner.map(|entry| format!("it belongs to client '{}'", entry.shown()));
            let why = m.why.map(|why| why.to_string()).or_else(taken).or_else(|| {
                let why = match uid {
                    None => "it may not be signalled: it is charged, and never held",
                    Some(_) => "it is not all yours: it is neither charged nor held",
                };
                (!m.permitted).then(|| why.to_owned())
            });
            Planned { pid: m.pid.as_raw_nonzero().get(), name: m.name, scheduled: why.is_none(), why }
        });
        Ok(Answer::Plan(Plan {
            name,
            selector: selector.to_string(),
            share: share.get(),
            members: members.collect(),
        }))
    }
}

/// A process, its parent, and so on.
pub(super) fn ancestry(pid: Pid) -> impl Iterator<Item = Pid> {
    let above = |pid: &Pid| divvy_linux::procfs::stat(*pid).ok().flatten()?.ppid;
    std::iter::successors(Some(pid), above).take(ANCESTORS_MAX)
}

/// What a client is called that nobody has named.
fn made_name(selector: &Selector) -> String {
    match selector {
        Selector::Pid(pid) | Selector::Tree(pid) | Selector::Group(pid) | Selector::Session(pid) => {
            let stat = divvy_linux::procfs::stat(*pid).ok().flatten();
            stat.map_or_else(|| format!("{}-{pid}", selector.kind()), |s| s.comm.to_string())
        }
        Selector::User(uid) => user_name(*uid).unwrap_or_else(|| format!("user-{uid}")),
        Selector::Cgroup(path) => {
            path.file_name().map_or_else(|| "cgroup".to_owned(), |name| name.to_string_lossy().into_owned())
        }
        Selector::Name(pattern) | Selector::Command(pattern) => pattern.clone(),
        Selector::Below(_, of) => made_name(of),
    }
}

/// The refusal for what cannot be selected.
fn select(e: divvy_linux::Error) -> Refusal {
    use divvy_linux::Error;
    match e {
        Error::Select { selector, what, fix } => {
            let code = if what.contains("never touched") {
                ErrorCode::Protected
            } else if what.contains("has it already") || what.contains("belongs to") {
                ErrorCode::ProcessTaken
            } else {
                ErrorCode::NoSuchProcess
            };
            Refusal::new(code, format!("{selector}: {what}"), fix)
        }
        e => system(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_market_has_is_refused_by_its_option() {
        let (from, job) = (Some("alice".to_owned()), Some("j1".to_owned()));
        for (new, option) in [
            (
                NewClient { from, ..NewClient::default() },
                "--from alice: only the system's divvyd has currencies",
            ),
            (NewClient { job, ..NewClient::default() }, "--job j1: only the system's divvyd has jobs"),
        ] {
            let refusal = check_no_market(&new).unwrap_err();
            assert!(refusal.message.starts_with(option), "{}", refusal.message);
            assert!(refusal.fix.contains("--system"), "{}", refusal.fix);
        }
        assert!(check_no_market(&NewClient::default()).is_ok());
    }
}
