//! The host's code itself among a kernel and a stranger that do something at random between any two of its calls: nobody
//! may be to stand by its doing alone whom a guardian would not find, and nobody may be left when all were released.

use super::*;
use crate::guard::View;
use crate::world::script;

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Processes beyond this number are not forked.
const LAST: i32 = 16;

/// What the kernel and the stranger do, and what has to be true before and after each call.
pub struct Meanwhile {
    random: Random,
    table: View,
    /// What is wrong, the first time.
    fault: Option<String>,
    steps: u64,
}

impl Meanwhile {
    pub fn happen(&mut self, processes: &mut BTreeMap<i32, Process>) {
        self.check(processes);
        while self.random.below(3) == 0 {
            self.step(processes);
            self.steps += 1;
        }
    }

    /// Whoever stands, or is about to, by our doing alone is marked.
    fn check(&mut self, processes: &BTreeMap<i32, Process>) {
        let held = || (0..self.table.len()).filter_map(|i| self.table.image(i)).filter(|slot| slot.held);
        for (&n, p) in processes {
            let is_covered = |slot: &crate::guard::SlotImage| match slot.reach {
                Reach::Process => slot.pid == pid(n) && slot.start.0 == p.start,
                Reach::Group { .. } => slot.pid == pid(p.group),
            };
            let to_stand = p.state == State::Stopped || p.pending_stop;
            if to_stand && !p.wanted && !held().any(|slot| is_covered(&slot)) {
                self.fault.get_or_insert(format!("after {} steps {n} is not marked: {p:?}", self.steps));
            }
        }
    }

    fn step(&mut self, processes: &mut BTreeMap<i32, Process>) {
        let (last, first) =
            (*processes.keys().last().expect("some"), *processes.keys().next().expect("some"));
        let n = first + self.random.below((last - first + 1) as u64) as i32;
        let what = self.random.below(16);
        let Some(p) = processes.get_mut(&n) else { return };
        let stands = p.state == State::Stopped;
        match what {
            0..=4 if p.pending_stop && !stands => (p.pending_stop, p.state) = (false, State::Stopped),
            5..=7 if !stands => p.cpu += Nanos(MS),
            // A signal wakes whoever sleeps.
            8 if !stands && !p.pending_stop => p.state = State::Sleeping,
            9 if !stands => p.state = State::Running,
            10 => {
                (p.pending_stop, p.wanted) = (true, true);
                p.wakes();
            }
            11 | 12 => {
                (p.pending_stop, p.wanted) = (false, false);
                p.state = State::Running;
            }
            // A fork that has begun goes on with a signal waiting; the child has none.
            13 if !stands && last < LAST => {
                let child = Process {
                    parent: n,
                    cpu: Nanos::ZERO,
                    children: 0,
                    pending_stop: false,
                    wanted: false,
                    ..p.clone()
                };
                processes.insert(last + 1, child);
            }
            14 if !stands && n != first => p.group = n,
            15 if !stands && n != first && self.random.below(4) == 0 => {
                processes.remove(&n);
                processes.values_mut().filter(|p| p.parent == n).for_each(|p| p.parent = first);
            }
            _ => {}
        }
    }
}

/// One life of a client; what was wrong.
fn live(seed: u64, is_command: bool) -> (u64, Option<String>) {
    let mut random = Random(seed);
    let all: Vec<i32> = (10..14).collect();
    let script = all.iter().fold(Script::default(), |script, &n| script.with(n, State::Running, 0));
    for &n in &all {
        script.change(n, |p| (p.slow, p.group) = (true, if is_command { 10 } else { n }));
        if n > 10 {
            script.change(n, |p| p.parent = 10);
        }
    }
    let mut stage = Stage::new(script.clone(), 64);
    let mut members = match is_command {
        true => Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap(),
        false => stage.attached(Children::Counted, &all),
    };
    let view = stage.table.view();
    let meanwhile = Meanwhile { random: Random(!seed), table: view, fault: None, steps: 0 };
    let meanwhile = Rc::new(RefCell::new(meanwhile));
    let happens = Rc::clone(&meanwhile);
    script.0.borrow_mut().meanwhile =
        Some(script::Meanwhile(Box::new(move |processes| happens.borrow_mut().happen(processes))));
    let mut held = false;
    for _ in 0..40 {
        match random.below(8) {
            0..=2 if !held => {
                held = true;
                members.suspend(&mut stage.look(true)).unwrap();
            }
            0..=2 => drop(members.suspend_the_others(&mut stage.look(true)).unwrap()),
            3 | 4 => {
                members.resume(&mut stage.look(held)).unwrap();
                held = false;
            }
            5 => drop(members.scan(&mut stage.look(held), true, 8).unwrap()),
            6 => drop(members.total(&mut stage.look(held)).unwrap()),
            _ => stage.pass(300),
        }
    }
    members.resume(&mut stage.look(held)).unwrap();
    // Everything has settled, and all that there is was looked at.
    script.0.borrow_mut().meanwhile = None;
    let mut meanwhile = meanwhile.borrow_mut();
    let settle = || {
        for p in script.0.borrow_mut().processes.values_mut() {
            if std::mem::take(&mut p.pending_stop) {
                p.state = State::Stopped;
            }
        }
    };
    settle();
    for _ in 0..2 {
        members.scan(&mut stage.look(false), true, 8).unwrap();
    }
    settle();
    meanwhile.check(&script.0.borrow().processes);
    if meanwhile.fault.is_none() && stage.table.nr_held() > 0 {
        let marked: Vec<_> = (0..view.len()).filter_map(|i| view.image(i)).filter(|slot| slot.held).collect();
        meanwhile.fault = Some(format!("marked after all were released: {marked:?} of {:?}", members.active));
    }
    (meanwhile.steps, meanwhile.fault.take())
}

#[test]
fn among_a_kernel_and_a_stranger_nobody_is_left_behind() {
    const LIVES: u64 = 300;
    let mut steps = 0;
    for seed in 0..LIVES {
        for is_command in [true, false] {
            let (took, fault) = live(seed, is_command);
            steps += took;
            assert_eq!(fault, None, "seed {seed}, a command: {is_command}");
        }
    }
    println!("{steps} steps of others");
    assert!(steps > 100 * LIVES);
}
