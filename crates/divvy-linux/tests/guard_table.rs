//! The table and the rescue without anybody being suspended: a made-up world shows recycled pids, other boots and broken
//! files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use divvy_linux::guard::{
    Environment, Identity, Place, Processes, Reach, Report, RuntimeDir, SavedAffinity, Table, rescue,
    rescue_with,
};
use divvy_linux::{CpuMask, Delivery, Error, GroupDelivery, Pid, StartTime, State, clock, procfs};
use divvy_policy::Nanos;

fn pid(n: i32) -> Pid {
    Pid::from_raw(n).expect("not zero")
}

/// A world of processes that are only told of.
#[derive(Default)]
struct World {
    processes: BTreeMap<i32, Identity>,
    /// Whether a group can be signalled at once.
    groups: bool,
    /// Whether the kernel refuses every signal.
    refuses: bool,
    resumed: RefCell<Vec<i32>>,
    affinities: RefCell<Vec<(i32, CpuMask)>>,
    unmarked: RefCell<Vec<i32>>,
}

impl World {
    fn with(mut self, n: i32, start: u64, pgrp: i32, session: i32) -> Self {
        let identity = Identity {
            start: StartTime(start),
            state: State::Stopped,
            pgrp: Pid::from_raw(pgrp),
            session: Pid::from_raw(session),
        };
        self.processes.insert(n, identity);
        self
    }
}

impl Processes for World {
    type Handle = Pid;

    fn open(&self, pid: Pid) -> rustix::io::Result<Option<Pid>> {
        Ok(self.processes.contains_key(&pid.as_raw_pid()).then_some(pid))
    }

    fn identify(&self, pid: Pid) -> rustix::io::Result<Option<Identity>> {
        Ok(self.processes.get(&pid.as_raw_pid()).copied())
    }

    fn is_alive(&self, handle: &Pid) -> rustix::io::Result<bool> {
        Ok(!self.processes[&handle.as_raw_pid()].state.is_ended())
    }

    fn resume(&self, handle: &Pid) -> rustix::io::Result<Delivery> {
        if self.refuses {
            return Err(rustix::io::Errno::PERM);
        }
        self.resumed.borrow_mut().push(handle.as_raw_pid());
        Ok(Delivery::Sent)
    }

    fn resume_group(&self, handle: &Pid) -> rustix::io::Result<GroupDelivery> {
        if !self.groups {
            return Ok(GroupDelivery::Unsupported);
        }
        let members = self.processes.iter().filter(|(_, identity)| identity.pgrp == Some(*handle));
        self.resumed.borrow_mut().extend(members.map(|(pid, _)| *pid));
        Ok(GroupDelivery::Sent)
    }

    fn set_affinity(&self, tid: Pid, mask: &CpuMask) -> rustix::io::Result<Delivery> {
        self.affinities.borrow_mut().push((tid.as_raw_pid(), *mask));
        Ok(Delivery::Sent)
    }

    fn unmark(&self, tid: Pid) {
        self.unmarked.borrow_mut().push(tid.as_raw_pid());
    }

    fn each(&self, each: &mut dyn FnMut(Pid)) -> rustix::io::Result<()> {
        self.processes.keys().for_each(|&n| each(pid(n)));
        Ok(())
    }
}

fn runtime_dir() -> (tempfile::TempDir, RuntimeDir) {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = RuntimeDir::open_or_create(&parent.path().join("divvy")).expect("private");
    (parent, dir)
}

fn files(dir: &RuntimeDir) -> Vec<PathBuf> {
    std::fs::read_dir(dir.path()).expect("readable").map(|file| file.expect("entry").path()).collect()
}

/// The table of an owner that beat just now. It is our own, but no world here knows us, so we count as dead.
fn table(dir: &RuntimeDir) -> Table {
    let table = Table::create(dir, 1000).expect("table");
    table.beat(clock::now());
    table
}

fn hold(table: &mut Table, n: i32, start: u64, reach: Reach) {
    let slot = table.add(pid(n), StartTime(start), reach).expect("room");
    table.set_held(&slot, true);
}

fn check_rescue(dir: &RuntimeDir, world: &World) -> Report {
    rescue_with(dir, world, &Place::here().expect("here")).expect("readable")
}

#[track_caller]
fn check_pids(what: &str, found: &[Pid], expected: &[i32]) {
    assert_eq!(found.iter().map(|pid| pid.as_raw_pid()).collect::<Vec<_>>(), expected, "{what}");
}

#[test]
fn a_recycled_pid_is_not_touched() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    hold(&mut table, 12, 100, Reach::Process);
    hold(&mut table, 13, 100, Reach::Process);
    let _released = table.add(pid(14), StartTime(100), Reach::Process).expect("room");
    // 11 is who it was, 12 is somebody who got the pid later, 13 has gone, 14 was not held, 15 was never entered.
    let world =
        World::default().with(11, 100, 1, 1).with(12, 101, 1, 1).with(14, 100, 1, 1).with(15, 100, 1, 1);
    let report = check_rescue(&dir, &world);
    check_pids("resumed", &report.resumed, &[11]);
    check_pids("foreign", &report.foreign, &[12]);
    check_pids("gone", &report.gone, &[13]);
    assert_eq!(*world.resumed.borrow(), [11]);
    assert!(report.is_clean() && report.repaired == 1 && files(&dir).is_empty(), "{report}");
}

#[test]
fn a_zombie_is_gone() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    let mut world = World::default().with(11, 100, 1, 1);
    world.processes.get_mut(&11).expect("there").state = State::Zombie;
    let report = check_rescue(&dir, &world);
    check_pids("gone", &report.gone, &[11]);
    assert!(world.resumed.borrow().is_empty());
}

#[test]
fn a_group_is_its_members_in_its_session_and_nobody_else() {
    // 0 is what a session is called whose leader is in no pid namespace that we see into.
    let cases = [5, 0].into_iter().flat_map(|session| {
        [(true, true), (false, true), (true, false), (false, false)]
            .map(|(groups, led)| (session, groups, led))
    });
    for (session, groups, led) in cases {
        let (_parent, dir) = runtime_dir();
        let mut table = table(&dir);
        hold(&mut table, 20, 100, Reach::Group { session: Pid::from_raw(session) });
        let now = clock::since_boot().0 / 10_000_000;
        let mut world = World { groups, ..World::default() }
            .with(21, 100, 20, session)
            .with(22, 150, 20, session)
            .with(30, 150, 30, session)
            .with(31, 150, 5, session);
        if led {
            world = world.with(20, 100, 20, session);
        } else {
            // The number may be another group's by now: one of another session, one that is older than the leader
            // was, and one that came long after the owner's last heartbeat (here an hour) are no members.
            world = world.with(23, 150, 20, 6).with(24, 99, 20, session).with(25, now + 360_000, 20, session);
        }
        let report = check_rescue(&dir, &world);
        let mut resumed = world.resumed.borrow().clone();
        resumed.sort_unstable();
        resumed.dedup();
        let expected: &[i32] = if led { &[20, 21, 22] } else { &[21, 22] };
        assert_eq!(resumed, expected, "session {session}, groups {groups}, led {led}");
        check_pids("gone", &report.gone, if led { &[] } else { &[20] });
        assert!(report.is_clean(), "{report:?}");
    }
}

#[test]
fn a_recycled_leader_means_that_the_whole_group_is_gone() {
    for groups in [true, false] {
        let (_parent, dir) = runtime_dir();
        let mut table = table(&dir);
        hold(&mut table, 20, 100, Reach::Group { session: Some(pid(5)) });
        let world = World { groups, ..World::default() }.with(20, 170, 20, 5).with(21, 171, 20, 5);
        let report = check_rescue(&dir, &world);
        check_pids("foreign", &report.foreign, &[20]);
        assert!(world.resumed.borrow().is_empty() && report.resumed.is_empty(), "{report:?}");
    }
}

#[test]
fn a_leader_that_left_its_group_is_resumed_by_itself() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 20, 100, Reach::Group { session: Some(pid(5)) });
    let world = World { groups: true, ..World::default() }.with(20, 100, 7, 5).with(21, 120, 20, 5);
    check_pids("resumed", &check_rescue(&dir, &world).resumed, &[20]);
    assert_eq!(*world.resumed.borrow(), [21, 20]);
}

#[test]
fn an_affinity_goes_back_to_its_own_thread_only() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    let mask = |cpu| CpuMask::only(cpu);
    for (n, start, cpu) in [(40, 100, 3), (41, 100, 1023), (42, 100, 5), (43, 100, 6)] {
        let slot = table.add(pid(n), StartTime(start), Reach::Process).expect("room");
        let saved = SavedAffinity { tid: pid(n), start: StartTime(start), mask: mask(cpu), marked: n != 40 };
        table.set_affinity(&slot, &saved);
        if n == 43 {
            table.clear_affinity(&slot);
        }
    }
    let world =
        World::default().with(40, 100, 1, 1).with(41, 100, 1, 1).with(42, 101, 1, 1).with(43, 100, 1, 1);
    let report = check_rescue(&dir, &world);
    assert_eq!(*world.affinities.borrow(), [(40, mask(3)), (41, mask(1023))]);
    assert_eq!(*world.unmarked.borrow(), [41]);
    assert!(world.resumed.borrow().is_empty() && report.is_clean(), "nobody was held: {report:?}");
}

#[test]
fn a_table_with_a_failure_is_kept_for_another_try() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    let mut world = World { refuses: true, ..World::default() }.with(11, 100, 1, 1);
    let report = check_rescue(&dir, &world);
    assert_eq!((report.failed.len(), report.repaired, files(&dir).len()), (1, 0, 1), "{report:?}");
    world.refuses = false;
    check_pids("resumed", &check_rescue(&dir, &world).resumed, &[11]);
    assert!(files(&dir).is_empty());
}

#[test]
fn a_living_owners_table_is_left_alone() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    // Here the world is the real one, and the owner is this very test.
    let report = rescue(&dir).expect("readable");
    assert_eq!(report.still_owned, [rustix::process::getpid()]);
    // Somebody else who got the owner's pid is not the owner.
    let own = rustix::process::getpid();
    let start = procfs::stat(own).expect("readable").expect("alive").start.0;
    let world = World::default().with(own.as_raw_pid(), start + 1, 1, 1).with(11, 100, 1, 1);
    check_pids("resumed", &check_rescue(&dir, &world).resumed, &[11]);
}

#[test]
fn a_table_of_another_boot_is_deleted_and_one_of_another_namespace_left_alone() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    let world = World::default().with(11, 100, 1, 1);
    let here = Place::here().expect("here");

    let elsewhere = Place { pid_namespace: here.pid_namespace + 1, ..here };
    let report = rescue_with(&dir, &world, &elsewhere).expect("readable");
    assert_eq!((report.elsewhere, files(&dir).len()), (1, 1));

    let later = Place { boot_id: [7; 16], ..here };
    let report = rescue_with(&dir, &world, &later).expect("readable");
    assert_eq!((report.stale_boot, report.repaired, files(&dir).len()), (1, 0, 0));
    assert!(world.resumed.borrow().is_empty() && report.is_clean());
}

/// Where the high-water mark and the first slot's pid are in a table's file.
const HIGH_WATER_AT: u64 = 256 + 32;
const FIRST_PID_AT: u64 = 4096 + 4;

#[test]
fn a_broken_table_is_told_of_and_left_as_it_is() {
    type Break = fn(&std::fs::File);
    let breaks: [(&str, Break); 8] = [
        ("it is cut short", |f| f.set_len(0).expect("ours")),
        ("it is cut short", |f| f.set_len(100).expect("ours")),
        ("bytes and should have", |f| f.set_len(5000).expect("ours")),
        ("bytes and should have", |f| f.set_len(10_000_000).expect("ours")),
        ("it does not begin as a table does", |f| f.write_all_at(b"X", 0).expect("ours")),
        ("another version", |f| f.write_all_at(&9_u32.to_ne_bytes(), 8).expect("ours")),
        ("checksum", |f| f.write_all_at(b"\xff", 40).expect("ours")),
        ("more slots than it has", |f| f.write_all_at(&2000_u32.to_ne_bytes(), HIGH_WATER_AT).expect("ours")),
    ];
    for (expected, break_it) in breaks {
        check_broken(expected, break_it);
    }
    check_broken("a slot in use names no pid", |f| f.write_all_at(&[0; 4], FIRST_PID_AT).expect("ours"));
}

fn check_broken(expected: &str, break_it: impl Fn(&std::fs::File)) {
    let (_parent, dir) = runtime_dir();
    let mut broken = table(&dir);
    hold(&mut broken, 11, 100, Reach::Process);
    // Away from the mapping of the living table, which a shorter file would pull the ground from.
    let copy = dir.path().join("held-1-1-0.table");
    std::fs::copy(broken.path(), &copy).expect("ours");
    std::fs::remove_file(broken.path()).expect("ours");
    break_it(&std::fs::File::options().write(true).open(&copy).expect("ours"));
    let before = std::fs::read(&copy).expect("ours");

    let mut sound = table(&dir);
    hold(&mut sound, 12, 100, Reach::Process);
    let world = World::default().with(11, 100, 1, 1).with(12, 100, 1, 1);
    let report = check_rescue(&dir, &world);
    let [error @ Error::CorruptTable { path, .. }] = report.errors.as_slice() else { panic!("{report:?}") };
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!((path, &std::fs::read(&copy).expect("still there")), (&copy, &before));
    // The sound table beside it is worked off all the same.
    check_pids("resumed", &report.resumed, &[12]);
    assert_eq!(files(&dir), [copy]);
}

#[test]
fn only_regular_files_are_tables() {
    let (_parent, dir) = runtime_dir();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("held-1-1-0.table")).expect("ours");
    std::fs::create_dir(dir.path().join("held-1-1-1.table")).expect("ours");
    std::fs::write(dir.path().join("notes.txt"), "not ours").expect("ours");
    let report = check_rescue(&dir, &World::default());
    let told: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("symbolic link") && told[1].contains("regular file"), "{told:?}");
    assert_eq!((told.len(), files(&dir).len()), (2, 3));
}

#[test]
fn an_unfinished_table_is_removed_once_its_owner_is_dead() {
    let (_parent, dir) = runtime_dir();
    for name in ["held-50-100-0.tmp", "held-51-100-0.tmp", "held-52-100-0.tmp", "held-what.tmp"] {
        std::fs::write(dir.path().join(name), "half").expect("ours");
    }
    // 50 lives and is still at it; 51 is somebody else by now; 52 has gone.
    let world = World::default().with(50, 100, 1, 1).with(51, 101, 1, 1);
    assert!(check_rescue(&dir, &world).is_clean());
    let mut left = files(&dir);
    left.sort();
    assert_eq!(left, ["held-50-100-0.tmp", "held-what.tmp"].map(|name| dir.path().join(name)));
}

#[test]
fn a_table_grows_is_full_and_gives_slots_out_again() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    let mut slots: Vec<_> =
        (1..=1000).map(|n| table.add(pid(n), StartTime(7), Reach::Process).expect("room")).collect();
    assert!(matches!(
        table.add(pid(1001), StartTime(7), Reach::Process),
        Err(Error::TableFull { capacity: 1000, .. })
    ));
    // Disk space for the slots that were used, and private to us.
    let file = std::fs::metadata(table.path()).expect("there");
    assert_eq!((file.len(), file.permissions().mode() & 0o7777), (4096 + 1000 * 192, 0o600));
    assert!(file.blocks() * 512 >= 1000 * 192, "{} blocks", file.blocks());

    slots.iter().for_each(|slot| table.set_held(slot, true));
    assert_eq!(table.nr_held(), 1000);
    for slot in slots.drain(..999) {
        table.remove(slot);
    }
    assert_eq!(table.nr_held(), 1);
    let again = table.add(pid(2000), StartTime(8), Reach::Process).expect("room again");
    assert!(!table.is_held(&again), "a slot starts released, whatever it was before");
    table.set_held(&again, true);
    let world = World::default().with(1000, 7, 1, 1).with(2000, 8, 1, 1).with(999, 7, 1, 1);
    check_pids("resumed", &check_rescue(&dir, &world).resumed, &[1000, 2000]);
}

#[test]
fn a_dropped_table_leaves_its_file_only_while_somebody_is_held() {
    let (_parent, dir) = runtime_dir();
    let mut first = table(&dir);
    let slot = first.add(pid(11), StartTime(100), Reach::Process).expect("room");
    first.set_held(&slot, true);
    first.set_held(&slot, false);
    drop(first);
    assert!(files(&dir).is_empty());
    let mut second = table(&dir);
    hold(&mut second, 11, 100, Reach::Process);
    drop(second);
    assert_eq!(files(&dir).len(), 1);
    check_pids("resumed", &check_rescue(&dir, &World::default().with(11, 100, 1, 1)).resumed, &[11]);
}

#[track_caller]
fn check_refused(path: &std::path::Path, expected: &str) {
    match RuntimeDir::open_or_create(path) {
        Err(error @ Error::UnsafeDirectory { .. }) => {
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains("DIVVY_RUNTIME_DIR"), "names the fix: {error}");
        }
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn an_unsafe_directory_is_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    let make = |name: &str, mode| {
        let path = parent.path().join(name);
        std::fs::create_dir(&path).expect("ours");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
        path
    };
    check_refused(&make("world", 0o707), "others can write to it (mode 707)");
    check_refused(&make("group", 0o770), "others can write to it (mode 770)");
    check_refused(&make("sticky", 0o1777), "others can write to it (mode 1777)");
    assert!(RuntimeDir::open_or_create(&make("readable", 0o755)).is_ok());

    let link = parent.path().join("link");
    std::os::unix::fs::symlink(make("target", 0o700), &link).expect("ours");
    check_refused(&link, "it is a symbolic link");
    let file = parent.path().join("file");
    std::fs::write(&file, "").expect("ours");
    check_refused(&file, "it is not a directory");

    // Root can make one that is somebody else's; to everybody else root's own is.
    let foreign = match rustix::process::geteuid().is_root() {
        true => make("foreign", 0o700),
        false => PathBuf::from("/usr"),
    };
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&foreign, Some(65534), None).expect("permitted");
    }
    check_refused(&foreign, "it belongs to user");
}

#[test]
fn a_directory_is_made_private_and_its_parent_must_be_there() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("new");
    assert!(RuntimeDir::open(&path).expect("normal").is_none());
    RuntimeDir::open_or_create(&path).expect("private");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o700);
    let error = RuntimeDir::open_or_create(&parent.path().join("no/such")).expect_err("no parent");
    assert!(
        error.to_string().contains("create directory") && error.to_string().contains("no/such"),
        "{error}"
    );
}

#[test]
fn a_directory_of_the_environment_that_cannot_be_had_names_the_variable() {
    let parent = tempfile::tempdir().expect("a directory");
    for (name, fix) in [
        ("no/such", "; make the directory around it, or set DIVVY_RUNTIME_DIR to"),
        (&*"x".repeat(300), "; set DIVVY_RUNTIME_DIR to"),
    ] {
        let environment = Environment {
            divvy_runtime_dir: Some(parent.path().join(name)),
            xdg_runtime_dir: None,
            uid: rustix::process::geteuid().as_raw(),
        };
        let error = environment.open_or_create().expect_err("cannot be made");
        assert!(error.to_string().starts_with("create directory "), "{error}");
        assert!(error.to_string().contains(fix) && error.errno().is_some(), "{error}");
    }
}

#[test]
fn the_environment_is_followed_in_order() {
    let uid = rustix::process::geteuid().as_raw();
    let xdg = tempfile::tempdir().expect("a directory");
    let env = |divvy: Option<&str>, xdg: Option<&std::path::Path>| Environment {
        divvy_runtime_dir: divvy.map(PathBuf::from),
        xdg_runtime_dir: xdg.map(PathBuf::from),
        uid,
    };
    let all = env(Some("/named"), Some(xdg.path())).candidates();
    assert_eq!(all[..2], [PathBuf::from("/named"), xdg.path().join("divvy")]);
    // Root's rescue also looks where the system's divvyd has its table, and last there.
    let own: Vec<_> = all.iter().filter(|path| uid != 0 || *path != Path::new("/run/divvy")).collect();
    assert_eq!(own.last(), Some(&&PathBuf::from(format!("/tmp/divvy-{uid}"))));
    assert_eq!(all.last() == Some(&PathBuf::from("/run/divvy")), uid == 0);
    // A parent that is missing or somebody else's is passed over: nothing of ours can be in it.
    let gone = xdg.path().join("gone");
    assert!(!env(None, Some(&gone)).candidates().contains(&gone.join("divvy")));
    let other = Environment { uid: uid + 1, ..env(None, Some(xdg.path())) };
    assert!(!other.candidates().contains(&xdg.path().join("divvy")));

    let named = xdg.path().join("mine");
    let env = env(named.to_str(), None);
    assert_eq!(env.open_or_create().expect("private").path(), named);
    assert!(env.open_all().iter().any(|dir| dir.as_ref().is_ok_and(|dir| dir.path() == named)));
}

#[test]
fn heartbeats_do_not_touch_the_generation() {
    let (_parent, dir) = runtime_dir();
    let table = table(&dir);
    for i in 0..10 {
        table.beat(clock::now() + Nanos(i));
    }
    assert_eq!((table.generation(), table.guardian_beats(), table.nr_held()), (0, 0, 0));
}

#[test]
fn a_stopped_owners_clients_are_resumed_and_its_table_stays() {
    let (_parent, dir) = runtime_dir();
    let mut table = table(&dir);
    hold(&mut table, 11, 100, Reach::Process);
    let owner = rustix::process::getpid();
    let start = procfs::stat(owner).expect("readable").expect("this is us").start;
    let n = owner.as_raw_pid();
    let mut world = World::default().with(n, start.0, n, n).with(11, 100, 11, 11);
    for _ in 0..2 {
        let report = rescue_with(&dir, &world, &Place::here().expect("readable")).expect("readable");
        check_pids("resumed", &report.resumed, &[11]);
        assert_eq!((&report.still_owned, &report.stopped_owners), (&vec![owner], &vec![owner]));
        assert_eq!((report.repaired, files(&dir).len()), (0, 1), "it is the owner's still");
    }
    // One that runs looks after its own.
    for state in [State::Running, State::Sleeping, State::Traced] {
        world.processes.get_mut(&n).expect("there").state = state;
        let report = rescue_with(&dir, &world, &Place::here().expect("readable")).expect("readable");
        assert!(report.resumed.is_empty() && report.stopped_owners.is_empty(), "{report:?}");
    }
}

/// The header as another program would write it.
fn header_of(capacity: u32) -> Vec<u8> {
    let place = Place::here().expect("readable");
    let mut bytes = b"DIVVYTBL".to_vec();
    for word in [1, 4096, 192, capacity, 1, 0] {
        bytes.extend(u32::to_ne_bytes(word));
    }
    bytes.extend(u64::MAX.to_ne_bytes()); // Nobody began then.
    bytes.extend(place.boot_id);
    bytes.extend(place.pid_namespace.to_ne_bytes());
    let step = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    bytes.extend(sum.to_ne_bytes());
    bytes
}

#[test]
fn a_sparse_file_of_very_many_slots_is_refused_before_it_is_read() {
    for (capacity, refused) in [(1000, false), (1 << 20, false), ((1 << 20) + 1, true), (u32::MAX, true)] {
        let (_parent, dir) = runtime_dir();
        let file = std::fs::File::create(dir.path().join("held-1-1-0.table")).expect("ours");
        file.write_all_at(&header_of(capacity), 0).expect("ours");
        // The high-water mark follows the four words of 64 bits that begin at 256.
        let high_water = if refused { capacity } else { 0 };
        file.write_all_at(&high_water.to_ne_bytes(), 256 + 32).expect("ours");
        file.set_len(4096 + u64::from(capacity) * 192).expect("sparse");
        let report = rescue(&dir).expect("readable");
        let told: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
        match refused {
            true => assert!(told.len() == 1 && told[0].contains("more slots than any table"), "{told:?}"),
            false => assert_eq!((report.repaired, told.len()), (1, 0), "{told:?}"),
        }
    }
}

#[test]
fn a_table_of_another_user_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a file away");
        return;
    }
    let (_parent, dir) = runtime_dir();
    let path = dir.path().join("held-1-1-0.table");
    std::fs::write(&path, vec![0; 8192]).expect("ours");
    std::os::unix::fs::chown(&path, Some(12345), None).expect("root may");
    let report = rescue(&dir).expect("readable");
    let told: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
    assert!(told.len() == 1 && told[0].contains("belongs to user 12345"), "{told:?}");
    assert_eq!(files(&dir), [path]);
}

#[test]
fn a_table_knows_when_its_file_was_removed() {
    let (_parent, dir) = runtime_dir();
    let table = table(&dir);
    assert!(!table.is_unlinked());
    std::fs::remove_file(table.path()).expect("ours");
    assert!(table.is_unlinked());
}
