//! Where the threads of a client run that has several.

use divvy_policy::{ClientId, Instant, Nanos};

use crate::host::LinuxHost;
use crate::members::{Look, Members};
use crate::procfs::StartTime;
use crate::steer::{Heirs, THREADS_MAX, move_one, spread};
use crate::{Pid, Result};

/// How long the list of the threads of a client's processes is good for, where any of these has several.
const THREADS_INTERVAL: Nanos = Nanos::from_millis(100);
/// They are not sent again before: the kernel seldom moves whoever runs within a tick, and each takes 6 us.
const PLACE_INTERVAL: Nanos = Nanos::from_millis(4);

/// Threads of which none was found to run are not all looked at again before.
const ASLEEP_INTERVAL: Nanos = Nanos::from_millis(25);

/// Over no less than this is told whether it had its CPU.
const SEEN_INTERVAL: Nanos = Nanos::from_millis(1);
/// No look at whoever runs alone takes more of its CPU.
const LOOK_TIME: Nanos = Nanos::from_micros(200);

/// The CPUs of a client of several threads, which are sent there at every look: in between the kernel may move them.
#[derive(Debug, Default)]
pub struct Lanes {
    /// The kernel's numbers of the CPUs; none for wherever there is room.
    pub cpus: Vec<u32>,
    threads: Vec<(Pid, StartTime)>,
    /// When the threads were last listed.
    listed: Instant,
    /// When they were last sent.
    placed: Instant,
    /// When none of them was last found to run, if that is so.
    asleep: Option<Instant>,
    /// When the only thread was last let run or looked at, and what it had used by then.
    seen: Option<(Instant, Nanos)>,
    /// What they, or the only thread, have made meanwhile.
    pub heirs: Heirs,
}

impl Lanes {
    /// Sends the threads of `members` to the CPUs once more, unless that was done lately.
    ///
    /// # Errors
    /// As [`Lanes::place`].
    pub fn place_again(&mut self, members: &Members, look: &mut Look<'_>) -> Result<()> {
        if look.now.since(self.placed) < PLACE_INTERVAL { Ok(()) } else { self.place(members, look) }
    }

    /// The only thread, which has used `total`, is let run.
    pub fn begin(&mut self, now: Instant, total: Nanos) {
        self.seen = Some((now, total));
    }

    /// Whether the only thread has had less than a CPU since it was last seen: others are on its CPU, or it is on theirs.
    pub fn had_less(&mut self, now: Instant, total: Nanos) -> bool {
        let (then, before) = *self.seen.get_or_insert((now, total));
        let elapsed = now.since(then);
        if elapsed < SEEN_INTERVAL {
            return false; // Too little to tell.
        }
        self.seen = Some((now, total));
        total.saturating_sub(before) + LOOK_TIME + Nanos(elapsed.0 / 8) < elapsed
    }

    /// Sends the threads of `members` to the CPUs.
    ///
    /// # Errors
    /// As [`Members::threads`], [`spread`].
    pub fn place(&mut self, members: &Members, look: &mut Look<'_>) -> Result<()> {
        if self.cpus.is_empty() {
            return Ok(());
        }
        self.placed = look.now;
        let metered = members.is_metered();
        let cpus = self.cpus.clone();
        // Those that were found to run, as far as any of them still does.
        if metered && self.even_out(members, &cpus, look)? > 0 {
            return Ok(());
        }
        // Who runs of a build may be younger than any list.
        if members.have_one_thread_each() || look.now.since(self.listed) >= THREADS_INTERVAL {
            self.listed = look.now;
            self.threads = members.threads(THREADS_MAX, look)?.unwrap_or_default();
        }
        if !metered {
            return spread(members, look.table, &self.threads, &self.cpus, &mut self.heirs);
        }
        // Of many that sleep not all are looked at each time: who of them wakes is found to run.
        let asleep = self.asleep.is_some_and(|at| look.now.since(at) < ASLEEP_INTERVAL);
        if asleep && !members.have_one_thread_each() {
            return Ok(());
        }
        // Nobody's clock has to be brought up to date, and who sleeps is not moved by being sent.
        look.tally.reads += self.threads.len() as u64;
        let there = members.running_of(&self.threads);
        self.asleep = there.is_empty().then_some(look.now);
        self.move_apart(members, &there, &cpus, look)
    }
}

/// Which of the threads that run `at` these CPUs are to be moved, and where, so that as many run on each of `cpus` and none elsewhere: no
/// more of them than have to be.
fn moves(at: &[u32], cpus: &[u32]) -> Vec<(usize, u32)> {
    let mut moves = Vec::new();
    let on = |cpu: u32| at.iter().filter(|&&there| there == cpu).count();
    let mut crowds: Vec<(usize, u32)> = cpus.iter().map(|&cpu| (on(cpu), cpu)).collect();
    let mut at = at.to_vec();
    while moves.len() < at.len() {
        crowds.sort_unstable();
        let (Some(&(few, least)), Some(&(many, most))) = (crowds.first(), crowds.last()) else { break };
        let stray = at.iter().position(|cpu| !cpus.contains(cpu));
        let crowded = || at.iter().rposition(|&cpu| cpu == most && many > few + 1);
        let Some(moved) = stray.or_else(crowded) else { break };
        crowds[0].0 += 1;
        if let Some(left) = crowds.iter_mut().find(|(_, cpu)| *cpu == at[moved]) {
            left.0 -= 1;
        }
        at[moved] = least;
        moves.push((moved, least));
    }
    moves
}

impl Lanes {
    /// Looks where those threads run that were found to, and sends whichever of them is in another's way to another of `cpus`, or is on
    /// none of them. Says how many still run.
    ///
    /// # Errors
    /// As [`spread`].
    pub fn even_out(&mut self, members: &Members, cpus: &[u32], look: &mut Look<'_>) -> Result<usize> {
        let busy = members.busy(THREADS_MAX.min(4 * cpus.len()));
        look.tally.reads += busy.len() as u64;
        let there = members.running_of(&busy);
        self.move_apart(members, &there, cpus, look)?;
        Ok(there.len())
    }

    fn move_apart(
        &mut self,
        members: &Members,
        there: &[((Pid, StartTime), u32)],
        cpus: &[u32],
        look: &mut Look<'_>,
    ) -> Result<()> {
        let Some(slot) = members.any_slot() else { return Ok(()) };
        let at: Vec<u32> = there.iter().map(|&(_, cpu)| cpu).collect();
        for (i, cpu) in moves(&at, cpus) {
            move_one(there[i].0, cpu, look.table, slot, &mut self.heirs)?;
        }
        Ok(())
    }
}

impl LinuxHost {
    /// Notes where a client of several threads is to run. Each release names one more CPU, the first after a hold, or
    /// after one that names none, the first of them. Says whether that is all that is to be done: it runs already.
    pub(crate) fn gives_lane(&mut self, i: usize, cpu: Option<u32>) -> bool {
        let c = &mut self.clients[i];
        if c.is_held() || cpu.is_none() {
            c.lanes.cpus.clear();
        }
        if self.cpus.len() == 1 || c.members.only_thread().is_some() {
            c.lanes.cpus.clear();
            return false;
        }
        let Some(cpu) = cpu else { return false };
        c.lanes.cpus.push(cpu);
        c.lanes.asleep = None; // Elsewhere, or released just now.
        self.unplaced.push(ClientId(i as u32));
        !c.is_held()
    }

    /// The threads of client `i`, which was released just now, run side by side where they can. The kernel lets them wake where another
    /// is about to run as often as not, and leaves them there for milliseconds.
    fn even_out(&mut self, i: usize) {
        let cpus = std::mem::take(&mut self.cpus);
        let c = &mut self.clients[i];
        // One alone is in nobody's way.
        if !c.is_held() && !c.is_gone() && c.lanes.cpus.is_empty() && c.members.busy(2).len() > 1 {
            let look = &mut Look::new(&mut self.table, &mut self.tally, crate::clock::now(), false);
            let _ = c.lanes.even_out(&c.members, &cpus, look);
        }
        self.cpus = cpus;
    }

    /// Those who were released since we slept.
    pub(crate) fn even_out_released(&mut self) {
        for client in std::mem::take(&mut self.wakened) {
            self.even_out(client.index());
        }
    }

    /// Sends threads to their clients' CPUs where these have changed. Twice if they are of several clients: a CPU that one
    /// has left takes its threads back until the next one's are there.
    pub(crate) fn place_threads(&mut self) {
        if self.unplaced.is_empty() {
            return;
        }
        let mut clients = std::mem::take(&mut self.unplaced);
        clients.sort_unstable();
        clients.dedup();
        let now = crate::clock::now();
        for _ in 0..clients.len().min(2) {
            for client in &clients {
                let c = &mut self.clients[client.index()];
                if !c.is_held() && !c.is_gone() {
                    let look = &mut Look::new(&mut self.table, &mut self.tally, now, false);
                    // What cannot be sent now is sent, or fails, at the next look.
                    let _ = c.lanes.place(&c.members, look);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_moved_where_they_are_in_each_others_way_and_no_more() {
        assert!(moves(&[0, 1], &[0, 1]).is_empty());
        assert_eq!(moves(&[1, 1], &[0, 1]), [(1, 0)]);
        assert!(moves(&[1, 1, 0], &[0, 1]).is_empty());
        assert_eq!(moves(&[1, 1, 1, 1], &[0, 1]), [(3, 0), (2, 0)]);
        // Who is where it must not be goes where fewest are.
        assert_eq!(moves(&[0, 1], &[1]), [(0, 1)]);
        assert_eq!(moves(&[7, 2, 7], &[2, 3]), [(0, 3), (2, 2)]);
        assert_eq!((moves(&[], &[0, 1]), moves(&[5], &[])), (vec![], vec![]));
    }

    #[test]
    fn who_had_less_than_its_cpu_is_told_from_who_was_looked_at() {
        let ms = Nanos::from_millis;
        let at = |n| Instant::ZERO + ms(n);
        let mut lanes = Lanes::default();
        lanes.begin(at(0), ms(5));
        // All of it but for a look; then half of it; then all again, counted from there.
        assert!(!lanes.had_less(at(10), ms(15).saturating_sub(Nanos::from_micros(150))));
        assert!(lanes.had_less(at(20), ms(20)));
        assert!(!lanes.had_less(at(30), ms(30)));
        // However often it is looked at within a moment.
        for us in [300, 600, 900] {
            assert!(!lanes.had_less(at(30) + Nanos::from_micros(us), ms(30) + Nanos::from_micros(us / 2)));
        }
        assert!(lanes.had_less(at(32), ms(31)));
    }
}
