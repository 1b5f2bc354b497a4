//! `--group`, `--from`: the tasks are clients of the user's own divvyd, in a group, or of the system's, paid by a currency, which divides
//! them together with all others that it has.
//!
//! The run keeps its session. It starts the commands, keeps their accounts and ends them, under a policy that holds nobody; who is
//! held when is divvyd's to decide. A thread adds the tasks there, asks every [`LOOK`] how they stand, and where divvyd has ended
//! adds them at the next one. The scheduler waits for that thread at the start, and for a moment at the end: nothing that divvyd
//! does or fails to do keeps a signal or a command's end waiting.

mod accounts;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_api::client::{Api, ApiError, Asked, Choice};
use divvy_api::cpus::Keeper;
use divvy_api::launch::{LaunchError, with_choice};
use divvy_api::types::{Bounds, Change, Client, ClientState, Clients, ErrorCode, NewClient, Status};
use divvy_linux::{CpuMask, Pid, StartTime, Waker, clock, procfs};
use divvy_policy::Nanos;

use super::tasks::{Task, What};
use crate::args::ShareArgs;
use crate::remote::group::{self, GroupArg};
use crate::remote::of_its_currency;
use crate::remote::which::warn_of_own;
use crate::{Code, Failure, cpus};

pub(super) use accounts::Accounts;

/// How often divvyd is asked.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// After a divvyd that could not be had, the next attempt comes so much later.
const RETRY: Duration = Duration::from_secs(1);
/// A divvyd may end while tasks are added to it; so many are tried. If the last did too, the next look finds that out.
const ATTEMPTS: usize = 3;
/// At the end divvyd has so long to let the tasks go. Whoever is held by one that does not answer is ended by SIGKILL.
const END_WAIT: Nanos = Nanos::from_secs(2);

/// What the tasks are in, beside other clients.
#[derive(Clone, Debug)]
pub(crate) enum Among {
    /// A group of the user's own divvyd's.
    Group(GroupArg),
    /// What has this currency's tickets, at the system's divvyd.
    Currency(String),
}

impl Among {
    /// Puts a new client there.
    fn set(&self, new: &mut NewClient) {
        match self {
            Self::Group(group) => group::set(new, Some(group)),
            Self::Currency(currency) => new.from = Some(currency.clone()),
        }
    }

    fn currency(&self) -> Option<&str> {
        match self {
            Self::Group(_) => None,
            Self::Currency(currency) => Some(currency),
        }
    }

    /// Whether it is there, as far as can be known before there is a client; a group is checked with the plan. One's own currency
    /// is made at the first use.
    fn check(&self, api: &Api) -> Result<(), ApiError> {
        let Self::Currency(currency) = self else { return Ok(()) };
        let own = || divvy_linux::user_id(currency) == Some(rustix::process::geteuid().as_raw());
        match api.currency(currency) {
            Err(e) if e.code() == Some(ErrorCode::NoSuchCurrency) && own() => Ok(()),
            found => found.map(drop),
        }
    }
}

/// With whom the tasks are divided, known before anything runs.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    among: Among,
    /// The divvyd that is asked.
    choice: Choice,
    pub(super) status: Status,
}

impl Plan {
    /// Where `--group` was given: the user's divvyd, started if none runs, which would take these tasks; with `--from` the system's.
    ///
    /// # Errors
    /// [`Failure`] where it cannot be had, or has no such group or currency, or does not divide the CPUs that were asked for.
    pub(super) fn make(args: &ShareArgs, cpus: Option<&CpuMask>) -> Result<Option<Self>, Failure> {
        let (among, choice) = match (&args.group, &args.from) {
            (Some(group), _) => {
                if !args.quiet {
                    warn_of_own();
                }
                (Among::Group(group.clone()), Choice::new(None, None)?)
            }
            (None, Some(currency)) => {
                (Among::Currency(currency.clone()), Choice::new(Some(Asked::System), None)?)
            }
            (None, None) => return Ok(None),
        };
        if let (Among::Group(_), Choice::System(_)) = (&among, &choice) {
            let text = "--group: the system's divvyd has currencies in the place of groups: make one, and give --from CURRENCY in the \
                        place of --group; or set DIVVY_MODE=user to ask your own";
            return Err(Failure::new(Code::Usage, text));
        }
        // Whether a client of these terms would be taken: of nobody, most likely, which is no error.
        let mut probe = NewClient {
            selector: Some(format!("name:nobody-{}", std::process::id())),
            numbered: true,
            share: 1,
            ..NewClient::default()
        };
        among.set(&mut probe);
        let asked = with_choice(&choice, |api| {
            among.check(api)?;
            api.plan(&probe).and_then(|_| api.status())
        });
        let status = asked.map_err(|e| of_its_currency(args.from.as_deref(), e))?;
        if let Some(mask) = cpus {
            let what = format!("--cpus {mask}");
            cpus::check(&what, mask, Keeper::Starter, &status.cpus, &status.backend.used)?;
        }
        Ok(Some(Self { among, choice, status }))
    }

    /// What `task` is at divvyd; a command's leader is `leader`.
    fn client(&self, task: &Task, leader: Option<Pid>) -> NewClient {
        let selector = match &task.what {
            What::Command(_) => format!("tree:{}", leader.map_or(0, |pid| pid.as_raw_nonzero().get())),
            What::Attach(selector) => selector.to_string(),
        };
        let by_itself = matches!(&task.what, What::Command(command) if command.cpus.is_some());
        let bounds = Bounds { cpus: task.cpus.filter(|_| !by_itself), ..Bounds::default() };
        let mut new = NewClient {
            name: Some(task.name.clone()),
            numbered: true,
            share: task.share.get(),
            limit_ppm: task.limit.map(|limit| limit.ppm()),
            selector: Some(selector),
            bounds,
            ..NewClient::default()
        };
        self.among.set(&mut new);
        new
    }
}

/// One task, as it is added.
struct Wanted {
    name: String,
    new: NewClient,
    /// A command's leader: while it lives, its number is nobody else's.
    leader: Option<(Pid, StartTime)>,
    is_command: bool,
}

impl Wanted {
    /// Whether there is somebody to be added. A zombie is nobody.
    fn lives(&self) -> bool {
        self.leader.is_none_or(|(pid, start)| {
            let stat = procfs::stat(pid).ok().flatten();
            stat.is_some_and(|stat| stat.start == start && !stat.state.is_ended())
        })
    }
}

/// What the scheduler asks of the thread.
enum Ask {
    Pause(bool),
    End,
}

/// What the thread has to say.
#[derive(Default)]
struct Told {
    accounts: Accounts,
    words: Vec<String>,
    /// All commands are paused, as was asked.
    paused: bool,
    /// Why no divvyd divides the tasks just now.
    lost: Option<String>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Told>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of a run at divvyd. Dropping it lets them go.
pub(super) struct Together {
    shared: Shared,
    asks: Sender<Ask>,
    thread: Option<JoinHandle<()>>,
    pub(super) status: Status,
    among: Among,
}

impl Together {
    /// Adds `tasks`, whose commands have these leaders, to divvyd. `waker` ends the scheduler's wait when there is something to say.
    ///
    /// # Errors
    /// [`Failure`] where divvyd does not take one; then it has none of them.
    pub(super) fn join(
        plan: Plan,
        tasks: &[Task],
        leaders: impl Iterator<Item = Option<Pid>>,
        waker: Waker,
    ) -> Result<Self, Failure> {
        let wanted = tasks.iter().zip(leaders).map(|(task, leader)| {
            let start = |pid| Some((pid, procfs::stat(pid).ok().flatten()?.start));
            Wanted {
                name: task.name.clone(),
                new: plan.client(task, leader),
                leader: leader.and_then(start),
                is_command: task.selector().is_none(),
            }
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let shared = Shared(Arc::default());
        shared.lock().accounts = Accounts::new(tasks.iter().map(|task| task.share.get()));
        let mut worker = Worker {
            ids: vec![None; wanted.len()],
            let_go: vec![false; wanted.len()],
            wanted,
            divvyd: plan.status.pid,
            choice: plan.choice,
            paused: Vec::new(),
            holds: false,
            rejoins: false,
            shared: shared.clone(),
            waker,
        };
        if let Err(e) = worker.add_all() {
            worker.let_all_go();
            return Err(of_its_currency(plan.among.currency(), e));
        }
        let (asks, asked) = channel();
        let thread = std::thread::Builder::new().name("divvy-together".into());
        let thread = thread
            .spawn(move || worker.run(&asked))
            .map_err(|e| Failure::new(Code::System, format!("start a thread: {e}")))?;
        Ok(Self { shared, asks, thread: Some(thread), status: plan.status, among: plan.among })
    }

    /// What the tasks are in.
    pub(super) fn among(&self) -> &Among {
        &self.among
    }

    /// What the tasks were to get and got by now, as divvyd told.
    pub(super) fn accounts(&self) -> Accounts {
        self.shared.lock().accounts.clone()
    }

    /// What `task` does, as divvyd told last; nothing where it is none of its clients.
    pub(super) fn state(&self, task: usize) -> Option<ClientState> {
        self.shared.lock().accounts.state(task)
    }

    /// What the user should know since the last call.
    pub(super) fn take_words(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().words)
    }

    /// Asks divvyd to hold the commands, or to let them go on.
    pub(super) fn pause(&self, paused: bool) {
        let _ = self.asks.send(Ask::Pause(paused)); // A thread that is gone has let everybody go.
    }

    /// Whether they are held, as was asked; once.
    pub(super) fn take_paused(&self) -> bool {
        std::mem::take(&mut self.shared.lock().paused)
    }

    /// Why no divvyd divides the tasks just now.
    pub(super) fn lost(&self) -> Option<String> {
        self.shared.lock().lost.clone()
    }

    /// Has divvyd let the tasks go, and waits for that, but not for long.
    pub(super) fn end(&mut self) {
        let _ = self.asks.send(Ask::End);
        let Some(thread) = self.thread.take() else { return };
        let limit = clock::now() + END_WAIT;
        while !thread.is_finished() && clock::now() < limit {
            clock::sleep(Nanos::from_millis(1));
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the thread works with.
struct Worker {
    wanted: Vec<Wanted>,
    /// The task's number at divvyd.
    ids: Vec<Option<u32>>,
    /// Tasks that somebody else has detached: they stay so.
    let_go: Vec<bool>,
    /// The process whose clients they are, and how it is found.
    divvyd: i32,
    choice: Choice,
    /// Clients that Ctrl-Z has paused.
    paused: Vec<usize>,
    /// Ctrl-Z holds.
    holds: bool,
    /// A divvyd whose clients the tasks were has ended.
    rejoins: bool,
    shared: Shared,
    waker: Waker,
}

impl Worker {
    fn run(mut self, asked: &Receiver<Ask>) {
        let mut next = Duration::ZERO;
        loop {
            match asked.recv_timeout(next) {
                Ok(Ask::Pause(paused)) => {
                    self.set_paused(paused);
                    next = Duration::ZERO;
                }
                Err(RecvTimeoutError::Timeout) => next = if self.look() { LOOK } else { RETRY },
                Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => return self.let_all_go(),
            }
        }
    }

    fn say(&self, text: String) {
        self.shared.lock().words.push(text);
        self.waker.wake();
    }

    /// Adds everybody who is not there, to one divvyd.
    fn add_all(&mut self) -> Result<(), LaunchError> {
        for _ in 0..ATTEMPTS {
            self.divvyd = with_choice(&self.choice, Api::status)?.pid;
            self.add_each()?;
            // The numbers are that one's, unless it has ended meanwhile.
            if self.choice.api().and_then(|api| api.status()).is_ok_and(|status| status.pid == self.divvyd) {
                break;
            }
            self.ids.fill(None);
        }
        Ok(())
    }

    fn is_to_be_added(&self, task: usize) -> bool {
        !self.let_go[task] && self.wanted[task].lives()
    }

    /// Whom there is nobody to be added of is left out.
    fn add_each(&mut self) -> Result<(), LaunchError> {
        for i in 0..self.wanted.len() {
            let wanted = &self.wanted[i];
            if self.ids[i].is_some() || !self.is_to_be_added(i) {
                continue;
            }
            match with_choice(&self.choice, |api| api.add(&wanted.new)) {
                Ok(client) => {
                    self.ids[i] = Some(client.id);
                    if let Some(text) = another_name(&wanted.name, &client.name) {
                        self.say(text);
                    }
                }
                // It has ended since: a command before it could be added, a process that was there once before it could be again.
                Err(LaunchError::Api(e))
                    if e.code() == Some(ErrorCode::NoSuchProcess) && (wanted.is_command || self.rejoins) => {}
                Err(LaunchError::Api(e)) if self.rejoins && e.code() == Some(ErrorCode::ProcessTaken) => {
                    self.ids[i] = Some(self.found_again(i).ok_or(e)?);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The client that a task was before its divvyd ended: the system's next one finds its clients again by itself.
    fn found_again(&self, task: usize) -> Option<u32> {
        let Choice::System(_) = self.choice else { return None };
        let all = self.choice.api().and_then(|api| api.clients_with_members(0)).ok()?;
        own_client(&all, rustix::process::geteuid().as_raw(), self.wanted[task].new.selector.as_deref()?)
    }

    /// How everybody stands; whether divvyd could be had.
    fn look(&mut self) -> bool {
        let all = self.choice.api().and_then(|api| Ok((api.status()?, api.clients_with_members(0)?)));
        match all {
            Ok((status, all)) if status.pid == self.divvyd => {
                self.note_missing(&all);
                self.shared.lock().accounts.take_in(&self.ids, &all);
                true
            }
            // It, or the one that was ours, has ended.
            Ok(_) => self.join_again("another runs"),
            Err(e) if is_gone(&e) => self.join_again(&e.to_string()),
            // One that does not answer in time holds nobody for long: its guardian sees to that.
            Err(_) => true,
        }
    }

    /// Tasks whose clients are gone while their processes live: somebody has detached them, or divvyd had to.
    fn note_missing(&mut self, all: &Clients) {
        for i in 0..self.wanted.len() {
            let Some(id) = self.ids[i].filter(|id| all.clients.iter().all(|client| client.id != *id)) else {
                continue;
            };
            self.ids[i] = None;
            if !self.wanted[i].lives() {
                continue;
            }
            self.let_go[i] = true;
            self.shared.lock().accounts.let_go(i);
            let why =
                self.choice.api().and_then(|api| api.client(&id.to_string())).ok().and_then(|left| left.why);
            let why = why.unwrap_or_else(|| "it was detached".to_owned());
            self.say(format!("{}: {why}; it runs on, undivided", self.wanted[i].name));
        }
    }

    /// The divvyd whose clients the tasks were has ended, and has resumed them.
    fn join_again(&mut self, why: &str) -> bool {
        self.ids.fill(None);
        // One that has no client of ours leaves sooner or later, and nobody needs another.
        if !(0..self.wanted.len()).any(|task| self.is_to_be_added(task)) {
            return true;
        }
        self.rejoins = true;
        let lost = match self.add_all() {
            Ok(()) => {
                self.paused.clear();
                self.set_paused(self.holds);
                let next = self.divvyd;
                let text = format!("the tasks are clients of the next one (pid {next}) now");
                self.say(format!("divvyd has ended ({why}); {text}"));
                None
            }
            Err(e) => Some(e.to_string()),
        };
        let mut told = self.shared.lock();
        told.accounts.begin_again();
        let before = std::mem::replace(&mut told.lost, lost.clone());
        drop(told);
        if let (None, Some(e)) = (before, &lost) {
            self.say(format!("divvyd has ended and there is no other ({e}); the tasks run on, undivided"));
        }
        lost.is_none()
    }

    /// For Ctrl-Z and `fg`. What was paused before, by whomever, stays so.
    fn set_paused(&mut self, paused: bool) {
        self.holds = paused;
        let change = Change { paused: Some(paused), ..Change::default() };
        let choice = self.choice.clone();
        let change = |id: u32| choice.api().and_then(|api| api.change(&id.to_string(), change));
        let is_paused = |id: u32| {
            let client = choice.api().and_then(|api| api.client(&id.to_string()));
            client.is_ok_and(|client| client.state == ClientState::Paused)
        };
        if paused {
            for i in 0..self.wanted.len() {
                let Some(id) = self.ids[i].filter(|_| self.wanted[i].is_command) else { continue };
                if !is_paused(id) && change(id).is_ok() {
                    self.paused.push(i);
                }
            }
            self.shared.lock().paused = true;
            self.waker.wake();
        } else {
            for id in std::mem::take(&mut self.paused).into_iter().filter_map(|i| self.ids[i]) {
                let _ = change(id); // One that has ended meanwhile need not go on.
            }
        }
    }

    fn let_all_go(&mut self) {
        let Ok(api) = self.choice.api() else { return };
        for id in self.ids.iter_mut().filter_map(Option::take) {
            let _ = api.detach(&id.to_string()); // It has ended, or divvyd has: nobody is held by it.
        }
    }
}

/// The client of user `uid` that has this selector: others may have the same one, of their own processes.
fn own_client(all: &Clients, uid: u32, selector: &str) -> Option<u32> {
    let user = divvy_linux::user_name(uid).unwrap_or_else(|| uid.to_string());
    let is_it = |client: &&Client| client.selector == selector && client.user.as_ref() == Some(&user);
    all.clients.iter().find(is_it).map(|client| client.id)
}

/// What is said of a task that divvyd lists by another name: a client of the same user had that one already.
fn another_name(task: &str, client: &str) -> Option<String> {
    let own = client.rsplit_once('/').map_or(client, |(_, name)| name); // The system's has USER/NAME.
    (own != task).then(|| {
        format!("{task}: divvyd has a client of that name already; this one is called {client} there")
    })
}

fn is_gone(e: &ApiError) -> bool {
    matches!(e, ApiError::NotRunning(_)) || e.code() == Some(ErrorCode::Leaving)
}

/// For a run that divides its tasks by itself: what is to be said where the user's divvyd has clients on the same CPUs that want
/// them. Nothing is started for it.
pub(super) fn neighbours(cpus: &[u32]) -> Option<String> {
    let api = Api::of_user().ok()?;
    if !api.status().ok()?.cpus.iter().any(|cpu| cpus.contains(cpu)) {
        return None;
    }
    let wants = |state| matches!(state, ClientState::Running | ClientState::Held | ClientState::Limited);
    let all = api.clients_with_members(0).ok()?;
    let n = all.clients.iter().filter(|client| client.nr_members > 0 && wants(client.state)).count();
    let whom = if n == 1 { "a client that wants".to_owned() } else { format!("{n} clients that want") };
    (n > 0).then(|| {
        format!(
            "your divvyd divides these CPUs as well, among {whom} them: they compete with this run as strangers do; --group NAME \
             divides all of them together"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_taken_is_told_with_the_one_in_its_place() {
        assert_eq!([another_name("a", "a"), another_name("a", "alice/a")], [None, None]);
        let said = another_name("a", "alice/a#2").expect("another");
        assert!(said.starts_with("a: ") && said.ends_with("this one is called alice/a#2 there"), "{said}");
    }

    #[test]
    fn a_client_is_found_again_by_whose_it_is_too() {
        let client = |id: u32, user: &str, selector: &str| {
            format!(
                r#"{{"id":{id},"name":"c","selector":"{selector}","user":"{user}","share":1,"effective_share":1.0,
                    "requested_fraction":0.0,"effective_fraction":0.0,"achieved_fraction":0.0,
                    "relative_error":0.0,"service_ns":0,"state":"running","width":1,"nr_members":1,
                    "not_permitted":0,"members":[]}}"#
            )
        };
        let list = [client(3, "1234568", "name:make"), client(5, "1234567", "name:make")].join(",");
        let all: Clients =
            serde_json::from_str(&format!(r#"{{"window_ns":0,"clients":[{list}]}}"#)).expect("clients");
        assert_eq!(own_client(&all, 1_234_567, "name:make"), Some(5));
        assert_eq!(own_client(&all, 1_234_567, "name:cc"), None);
        assert_eq!(own_client(&all, 1_234_569, "name:make"), None);
    }
}
