//! What the scheduling thread shows of its clients: a view that it publishes now and then, and that everybody reads.
//!
//! Whoever asks how things stand is answered from the view by the API's own thread, however many ask and however much the
//! scheduling thread has to do. A view that is older than [`FRESH`] is asked to be made anew, and waited for a little; it is
//! answered from all the same after that, unless it is older than [`OLD`]. How old it is stands in the answer.
//!
//! **One's own changes show.** Once a user's change was answered, the same user is answered from a view that was made after
//! it only. What others did may show later, within the bounds above.
//!
//! Members are in the view by pid and start time; what they are called and do is read from `/proc` by whoever wants to know.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use divvy_linux::{KnownMember, clock, procfs};
use divvy_policy::{Instant, Nanos};
use tokio::sync::watch;

use super::book::{self, Entry};
use super::rows::member_state;
use crate::message::Refusal;
use crate::server::divvyd_leaves;
use divvy_api::types::{Client, Clients, ErrorCode, Group, Member, Pressure, Status};

/// A view of this age is answered from at once.
pub(crate) const FRESH: Nanos = Nanos::from_millis(20);
/// Half of it: whoever finds the view so old has the next one made, and does not wait for it.
const AGING: Nanos = Nanos::from_millis(10);
/// A newer view is waited for so long, where there is one that is not [`OLD`].
const WAIT: Duration = Duration::from_millis(20);
/// A view of this age is not answered from.
pub(crate) const OLD: Nanos = Nanos::from_millis(250);
/// A scheduler that has shown nothing by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Members of all clients in one list at most.
const MEMBERS_LISTED: usize = 512;
/// Users whose last change is remembered. Beyond, whoever changed something longest ago is taken for one of the others: such
/// a change is in every view that is still answered from.
const USERS: usize = 4096;

/// A client as it was.
#[derive(Debug)]
pub(crate) struct Row {
    /// All but its members.
    pub(super) client: Client,
    pub(super) entry: Arc<Entry>,
    pub(super) members: Vec<KnownMember>,
}

/// All clients and the scheduler itself, as they were at one moment.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) at: Instant,
    pub(super) status: Status,
    pub(super) window_ns: u64,
    /// By rising id.
    pub(super) rows: Vec<Row>,
    /// By path.
    pub(super) groups: Vec<Group>,
    pub(super) left: Arc<VecDeque<Client>>,
    /// Members that each row has of its client at most.
    pub(super) members: usize,
    /// Whether clients are users', and names each user's own.
    pub(super) of_users: bool,
}

fn told(known: &KnownMember) -> Member {
    // Whoever has its pid now may be another.
    let stat = procfs::stat(known.pid).ok().flatten().filter(|stat| stat.start == known.start);
    Member {
        pid: known.pid.as_raw_nonzero().get(),
        name: stat.map_or_else(String::new, |stat| stat.comm.to_string()),
        state: member_state(stat.map_or(divvy_linux::State::Dead, |stat| stat.state)),
        permitted: known.permitted,
    }
}

impl Row {
    /// The client with as many of its members. Cost: a look at each in `/proc`.
    fn told(&self, members: usize) -> Client {
        Client { members: self.members.iter().take(members).map(told).collect(), ..self.client.clone() }
    }
}

impl View {
    /// How long ago it was so.
    pub(crate) fn age(&self) -> Nanos {
        clock::now().since(self.at)
    }

    /// Of the scheduler itself.
    pub(crate) fn status(&self) -> Status {
        Status { age_ns: self.age().0, ..self.status.clone() }
    }

    /// Everybody, with so many members each at most, and 512 in all.
    pub(crate) fn clients(&self, members: usize) -> Clients {
        let mut left = MEMBERS_LISTED;
        let row = |row: &Row| {
            let client = row.told(members.min(left));
            left -= client.members.len();
            client
        };
        let clients = self.rows.iter().map(row).collect();
        let groups = self.groups.clone();
        Clients { window_ns: self.window_ns, age_ns: self.age().0, clients, groups }
    }

    /// Everybody without members, as they are in the view.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Client> {
        self.rows.iter().map(|row| &row.client)
    }

    /// The client that `key` stands for to user `asker`.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchClient`].
    pub(crate) fn client(&self, key: &str, asker: u32, members: usize) -> Result<Client, Refusal> {
        let asker = self.of_users.then_some(asker);
        let present = self.rows.iter().map(|row| (row.client.id, &*row.entry, row));
        match book::find(key, asker, present, &self.left)? {
            book::Found::Present(row) => {
                let pressure = Pressure::of(row.entry.cgroup.as_deref());
                Ok(Client { pressure, ..row.told(members) })
            }
            book::Found::Left(client) => Ok(client.clone()),
        }
    }

    /// Members of a client that would be looked at to tell of so many.
    pub(crate) fn looks(&self, members: usize) -> usize {
        self.rows.iter().map(|row| row.members.len().min(members)).sum::<usize>().min(MEMBERS_LISTED)
    }
}

/// What is wanted of the next view.
#[derive(Debug, Default)]
struct Wish {
    wanted: AtomicBool,
    members: AtomicUsize,
}

/// The scheduling thread's end.
#[derive(Debug)]
pub(crate) struct Publisher {
    wish: Arc<Wish>,
    views: watch::Sender<Option<Arc<View>>>,
}

/// The reading end. Clones read the same views.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    wish: Arc<Wish>,
    views: watch::Receiver<Option<Arc<View>>>,
    /// When each user was last answered that something was changed.
    changed: Arc<Mutex<BTreeMap<u32, Instant>>>,
    wake: Wake,
}

/// What wakes the scheduling thread.
#[derive(Clone)]
struct Wake(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}

/// Both ends; `wake` wakes the scheduling thread and must not wait.
pub(crate) fn channel(wake: impl Fn() + Send + Sync + 'static) -> (Views, Publisher) {
    let wake = Wake(Arc::new(wake));
    let wish = Arc::new(Wish::default());
    let (sender, views) = watch::channel(None);
    (
        Views { wish: Arc::clone(&wish), views, changed: Arc::default(), wake },
        Publisher { wish, views: sender },
    )
}

impl Publisher {
    /// How many members of each client the next view is to have, where somebody wants one.
    pub(super) fn wanted(&self) -> Option<usize> {
        // First the flag: who asks for more members from here on asks for another view.
        let wanted = self.wish.wanted.swap(false, Ordering::AcqRel);
        wanted.then(|| self.wish.members.swap(0, Ordering::AcqRel))
    }

    pub(super) fn publish(&self, view: View) {
        self.views.send_replace(Some(Arc::new(view)));
    }
}

impl Views {
    /// A user was answered that something was changed: from now on it sees nothing older.
    pub(crate) fn note_change(&self, uid: u32) {
        let now = clock::now();
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(uid, now);
        if changed.len() > USERS {
            let oldest = changed.iter().min_by_key(|&(_, at)| *at).map(|(&uid, _)| uid);
            oldest.and_then(|uid| changed.remove(&uid));
        }
    }

    /// A view for user `uid`, with so many members of each client at least.
    ///
    /// # Errors
    /// [`ErrorCode::Leaving`] where there is no scheduling thread any more, [`ErrorCode::Busy`] where it shows nothing.
    pub(crate) async fn get(&self, uid: u32, members: usize) -> Result<Arc<View>, Refusal> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).copied();
        let after = changed.unwrap_or(Instant::ZERO);
        let now = clock::now();
        let does = |view: &Option<Arc<View>>, age: Nanos| {
            let view = view.as_ref()?;
            let fits = view.members >= members && view.at >= after && clock::now().since(view.at) <= age;
            fits.then(|| Arc::clone(view))
        };
        let last = self.views.borrow().clone();
        if self.views.has_changed().is_err() {
            return Err(divvyd_leaves());
        }
        if let Some(view) = does(&last, FRESH) {
            if now.since(view.at) > AGING {
                self.ask(view.members);
            }
            return Ok(view);
        }
        self.ask(members);
        let mut views = self.views.clone();
        let mut newer = async |wait: Duration| {
            let found = async {
                loop {
                    views.changed().await.map_err(|_| divvyd_leaves())?;
                    let view = views.borrow_and_update().clone();
                    if let Some(view) = does(&view, OLD) {
                        return Ok(view);
                    }
                    // It was being made when we asked.
                    self.ask(members);
                }
            };
            tokio::time::timeout(wait, found).await
        };
        if let Some(view) = does(&last, OLD) {
            return newer(WAIT).await.unwrap_or(Ok(view));
        }
        newer(PATIENCE).await.unwrap_or_else(|_| {
            let text = format!("the scheduler gave no answer within {} s", PATIENCE.as_secs());
            Err(Refusal::new(ErrorCode::Busy, text, "ask again"))
        })
    }

    fn ask(&self, members: usize) {
        self.wish.members.fetch_max(members, Ordering::AcqRel);
        if !self.wish.wanted.swap(true, Ordering::AcqRel) {
            (self.wake.0)();
        }
    }
}

#[cfg(test)]
mod tests {
    use divvy_market::Market;

    use super::super::system::Owner;
    use super::*;
    use divvy_api::types::OwnCost;

    const MS: u64 = 1_000_000;

    fn client(id: u32, name: &str) -> Client {
        Client {
            id,
            name: name.into(),
            selector: "pid:1".into(),
            share: 1,
            width: 1,
            nr_members: 1,
            ..Client::default()
        }
    }

    fn row(id: u32, uid: u32, name: &str) -> Row {
        let owner = Owner { uid, user: format!("u{uid}"), currency: Market::new().base(), amount: 1 };
        let bounds = divvy_api::types::Bounds::default();
        let entry =
            Entry { name: name.into(), selector: "pid:1".into(), owner: Some(owner), bounds, cgroup: None };
        Row { client: client(id, &entry.shown()), entry: Arc::new(entry), members: vec![] }
    }

    fn view(at: Instant, rows: Vec<Row>, members: usize) -> View {
        let status = Status {
            version: "1".into(),
            pid: 1,
            host: "n1".into(),
            instance: "a".into(),
            backend: divvy_api::types::BackendInfo::default(),
            policy: "exact".into(),
            options: None,
            policy_file: None,
            quantum_ns: 1,
            cpus: vec![0],
            uptime_ns: 1,
            age_ns: 0,
            own: OwnCost::default(),
            clients: rows.len(),
            pressure: Vec::new(),
        };
        View { at, status, window_ns: 1, rows, groups: vec![], left: Arc::default(), members, of_users: true }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    fn ends() -> (Views, Publisher) {
        channel(|| ())
    }

    #[test]
    fn who_looks_is_answered_at_once_and_has_the_next_made_in_time() {
        let (views, publisher) = ends();
        publisher.publish(view(clock::now(), vec![], 0));
        // Nobody publishes meanwhile: an answer that waited for that would not come.
        let seen = run(views.get(1, 0)).expect("a view");
        assert!(seen.age() <= OLD && seen.status().age_ns <= OLD.0);
        // One that is a little old is answered from too, and another is wanted; one that is not, is not.
        publisher.wanted();
        publisher.publish(view(Instant(clock::now().0 - 15 * MS), vec![], 3));
        run(views.get(1, 0)).expect("a view");
        assert_eq!(publisher.wanted(), Some(3), "with as many members as it had");
        assert_eq!(publisher.wanted(), None);
    }

    #[test]
    fn one_that_is_stale_is_waited_for_a_little_and_one_that_is_old_is_not_answered_from() {
        let (views, publisher) = ends();
        publisher.publish(view(Instant(clock::now().0 - 100 * MS), vec![], 0));
        let seen = run(views.get(1, 0)).expect("the one that there is");
        assert!(seen.age() >= Nanos(100 * MS), "nothing came while it was waited for");
        publisher.publish(view(Instant(clock::now().0 - OLD.0 - MS), vec![], 0));
        let asked = std::thread::spawn({
            let views = views.clone();
            move || run(views.get(1, 2)).expect("a view")
        });
        while publisher.wanted() != Some(2) {
            std::thread::yield_now();
        }
        publisher.publish(view(clock::now(), vec![row(7, 1, "a")], 2));
        assert_eq!(asked.join().expect("a thread").rows.len(), 1);
        drop(publisher);
        assert_eq!(run(views.get(1, 0)).unwrap_err().code, ErrorCode::Leaving);
    }

    #[test]
    fn ones_own_change_shows_in_what_one_sees_next() {
        let (views, publisher) = ends();
        let before = clock::now();
        publisher.publish(view(before, vec![], 0));
        views.note_change(5);
        // Another user is answered from what there is.
        assert_eq!(run(views.get(6, 0)).expect("a view").at, before);
        let asked = std::thread::spawn({
            let views = views.clone();
            move || run(views.get(5, 0)).expect("a view")
        });
        while publisher.wanted().is_none() {
            std::thread::yield_now();
        }
        // What was being made when the change was made is not it.
        publisher.publish(view(before, vec![], 0));
        while publisher.wanted().is_none() {
            std::thread::yield_now();
        }
        publisher.publish(view(clock::now(), vec![row(7, 5, "new")], 0));
        assert_eq!(asked.join().expect("a thread").rows.len(), 1);
        for uid in 0..2 * USERS as u32 {
            views.note_change(uid);
        }
        assert!(views.changed.lock().unwrap().len() <= USERS);
    }

    #[test]
    fn a_client_is_found_as_the_scheduler_finds_it() {
        let seen = view(clock::now(), vec![row(3, 1000, "build"), row(8, 1001, "build")], 0);
        for (key, asker, expected) in [
            ("build", 1000, Some(3)),
            ("build", 1001, Some(8)),
            ("build", 1002, None),
            ("u1000/build", 1001, Some(3)),
            ("8", 1000, Some(8)),
            ("u1000", 1000, None),
            ("u1000/", 1000, None),
        ] {
            assert_eq!(seen.client(key, asker, 0).ok().map(|c| c.id), expected, "{key} of {asker}");
        }
        let pid = rustix::process::getpid();
        let start = procfs::stat(pid).expect("readable").expect("we are").start;
        let own = KnownMember { pid, start, permitted: true };
        let mut seen = seen;
        seen.rows[0].members = vec![own, KnownMember { start: divvy_linux::StartTime(1), ..own }];
        let told = seen.client("3", 0, 64).expect("it is there").members;
        assert_eq!((told.len(), told[0].pid), (2, std::process::id() as i32));
        assert!(!told[0].name.is_empty() && told[1].name.is_empty(), "another of that pid: {told:?}");
        assert_eq!((seen.clients(1).clients[0].members.len(), seen.looks(1), seen.looks(64)), (1, 1, 2));
    }
}
