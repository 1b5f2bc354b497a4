//! Programs that nap, make threads, and are counted wrong, as real ones do, and what holds for them whoever decides.

use divvy_policy::{ClientId, Event, Gate, Policy, Share};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{MS, World};

/// Nobody waits for so long, ms: some cycles of the shares in question.
const LONGEST: u64 = 3_000;

/// What changes; clients are numbers modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// It computes for so many ms, sleeps for so many, and so on.
    Naps(usize, u64, u64),
    Computes(usize),
    /// It has so many threads, and these are counted.
    Threads(usize, u32),
    /// So many are counted, though it has as many as before.
    Counted(usize, u32),
    Share(usize, u64),
}

/// A change, and for how many ms none follows; clients have up to so many threads.
pub fn turn(threads: u32) -> impl Strategy<Value = (u64, Turn)> {
    let client = 0_usize..6;
    let turn = prop_oneof![
        3 => (client.clone(), 1_u64..20, 1_u64..300).prop_map(|(i, on, off)| Turn::Naps(i, on, off)),
        1 => client.clone().prop_map(Turn::Computes),
        2 => (client.clone(), 1..=threads).prop_map(|(i, n)| Turn::Threads(i, n)),
        3 => (client.clone(), 1..=threads).prop_map(|(i, n)| Turn::Counted(i, n)),
        1 => (client, 1_u64..10).prop_map(|(i, share)| Turn::Share(i, share)),
    ];
    (1_u64..300, turn)
}

fn take<P: Policy<Decision = Gate>>(w: &mut World<P>, turn: Turn) {
    let clients = w.clients.len();
    let client = |i: usize| ClientId((i % clients) as u32);
    match turn {
        Turn::Naps(i, on, off) => w.naps(client(i), Some((on * MS, off * MS))),
        Turn::Computes(i) => w.naps(client(i), None),
        Turn::Threads(i, n) | Turn::Counted(i, n) => {
            if matches!(turn, Turn::Threads(..)) {
                w.clients[i % clients].threads = u64::from(n);
            }
            w.event(Event::Width { client: client(i), cpus: n }).unwrap();
        }
        Turn::Share(i, share) => {
            let share = Share::new(share).unwrap();
            w.event(Event::Reshare { client: client(i), share }).unwrap();
        }
    }
    w.poll();
}

/// Whatever programs do, nobody who is awake waits for longer than some cycles; and as soon as they go on as they are, and their threads
/// are counted right, whoever computes has some of what its share says.
pub fn nobody_waits<P: Policy<Decision = Gate>>(
    mut w: World<P>,
    shares: &[u64],
    turns: Vec<(u64, Turn)>,
) -> Result<(), TestCaseError> {
    let (mut used, mut since) = (w.used(), vec![0; shares.len()]);
    let mut shares = shares.to_vec();
    let mut turns: Vec<_> = turns.into_iter().rev().collect();
    let (mut next, mut ms) = (0, 0);
    let (mut end, mut before) = (u64::MAX, Vec::new());
    while ms < end {
        if ms >= next {
            match turns.pop() {
                Some((after, turn)) => {
                    take(&mut w, turn);
                    if let Turn::Share(i, share) = turn {
                        let i = i % shares.len();
                        shares[i] = share;
                    }
                    next = ms + after;
                }
                None if end == u64::MAX => {
                    for i in 0..shares.len() {
                        let threads = w.clients[i].threads as u32;
                        take(&mut w, Turn::Threads(i, threads));
                    }
                    (next, end) = (ms + 1_000, ms + 1_000 + 2 * LONGEST);
                }
                None => (next, before) = (u64::MAX, w.used()),
            }
        }
        ms += 10;
        w.run_until(ms * MS);
        for (i, &now) in w.used().iter().enumerate() {
            if std::mem::replace(&mut used[i], now) != now || w.clients[i].asleep_until.is_some() {
                since[i] = ms;
            }
            prop_assert!(ms - since[i] <= LONGEST, "client {} has waited since {} ms", i, since[i]);
        }
    }
    let all: u64 = shares.iter().sum();
    for (i, c) in w.clients.iter().enumerate().filter(|(_, c)| c.computes()) {
        let due = (w.cpus * 2 * LONGEST * MS * shares[i] / all).min(c.threads * 2 * LONGEST * MS);
        let used = c.used - before[i];
        // This machine gives each thread as much as any other, wherever it was sent to.
        prop_assert!(used >= due / 4, "client {} had {} ms of {}", i, used / MS, due / MS);
    }
    Ok(())
}
