//! The workload of a scenario: programs, users, open sources, single jobs and a script, in any mixture.

use divvy_policy::{ClientId, Instant, Nanos, Share};

use super::Dist;
use crate::machine::{Control, Next, Response, Token, Workload};
use crate::rng::{Concern, SplitMix64, stream};

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Use this much CPU time.
    Run(Nanos),
    /// Then sleep this long.
    Sleep(Nanos),
    /// Sleep until the next multiple of this period since the start; go on at once where that is past.
    Period(Nanos),
}

/// A client that runs a list of steps. Each round counts as a request, from its start to the end of its last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its group in the responses.
    pub group: u32,
    /// Its share.
    pub share: Share,
    /// When it joins.
    pub start: Instant,
    /// What it does.
    pub steps: Vec<Step>,
    /// How often; `None` for ever.
    pub repeat: Option<u64>,
}

/// A client that never stops asking for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless {
    /// Its share.
    pub share: Share,
    /// When it joins; `None` if a script creates it.
    pub start: Option<Instant>,
}

/// Closed users: each thinks, then asks for something and waits for the answer, for ever.
#[derive(Clone, Debug, PartialEq)]
pub struct Users {
    /// The group in the responses.
    pub group: u32,
    /// How many.
    pub count: u32,
    /// The share of each.
    pub share: Share,
    /// Time between an answer and the next request; also before the first.
    pub think: Dist,
    /// Stretches of CPU time in a request.
    pub segments: u32,
    /// CPU time of each stretch.
    pub work: Dist,
    /// Inactive period between two stretches.
    pub gap: Dist,
}

/// An open source: a new client for each job, which leaves when it is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The group in the responses.
    pub group: u32,
    /// The share of each job.
    pub share: Share,
    /// Time from one arrival to the next; also before the first.
    pub between: Dist,
    /// CPU time of each job.
    pub size: Dist,
    /// How many jobs; `None` without end.
    pub jobs: Option<u64>,
}

/// One job of a trace: a client that joins, runs and leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The group in the responses.
    pub group: u32,
    /// When it arrives.
    pub arrival: Instant,
    /// CPU time.
    pub size: Nanos,
    /// Its share.
    pub share: Share,
}

/// What a script does to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It joins, blocked.
    Create(Share),
    /// It joins and wakes.
    New(Share),
    /// It goes on.
    Wake,
    /// It is stopped.
    Block,
    /// It leaves.
    Exit,
    /// Its share changes.
    Reshare(Share),
}

/// One line of a script. Lines of one instant act in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// When.
    pub at: Instant,
    /// To whom: an index into the clients of the population (see [`Population`]).
    pub client: u32,
    /// What.
    pub action: Action,
}

/// Everybody in a scenario. Clients are numbered: first `endless`, then `programs`, then users, each in order; jobs of
/// traces and sources have the numbers after that, by arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Population {
    /// CPU-bound clients.
    pub endless: Vec<Endless>,
    /// Clients with programs.
    pub programs: Vec<Program>,
    /// Groups of closed users.
    pub users: Vec<Users>,
    /// Open sources.
    pub sources: Vec<Source>,
    /// Jobs by arrival.
    pub jobs: Vec<Job>,
    /// What is done from outside, by time.
    pub script: Vec<Script>,
    /// Random times are multiples of this.
    pub resolution: Nanos,
}

impl Population {
    /// Clients that are known from the start: all but jobs.
    #[must_use]
    pub fn nr_static(&self) -> usize {
        let users: usize = self.users.iter().map(|users| users.count as usize).sum();
        self.endless.len() + self.programs.len() + users
    }
}

/// What there is to know about a client while it is there. The machine hands back the index as a tag.
#[derive(Clone, Debug)]
enum Actor {
    Gone,
    Endless { share: Share },
    Program { program: u32, next: u32, done: u64, began: Instant, work: Nanos, period: Instant },
    User(Box<User>),
    Job { group: u32, arrival: Instant, size: Nanos },
}

#[derive(Clone, Debug)]
struct User {
    /// Index into the population's users.
    spec: u32,
    think: SplitMix64,
    work: SplitMix64,
    gap: SplitMix64,
    /// Stretches still to come in this request; 0 while thinking.
    segments: u32,
    asked: Instant,
    received: Nanos,
    burst: Nanos,
}

/// What a client does next.
enum Move {
    Run(Nanos),
    SleepUntil(Instant),
    Exit,
}

/// Timers carry a kind in the top byte and an index below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    Begin,
    Resume,
    Arrive,
    Job,
    Script,
}

const KIND_SHIFT: u32 = 56;

const fn token(kind: Timer, index: usize) -> Token {
    ((kind as u64) << KIND_SHIFT) | index as u64
}

/// A [`Population`] at work.
#[derive(Clone, Debug)]
pub struct Mix {
    population: Population,
    /// The static clients at their own numbers, then jobs.
    actors: Vec<Actor>,
    unused: Vec<u32>,
    arrivals: Vec<(SplitMix64, SplitMix64, u64)>,
}

impl Mix {
    /// The workload that `population` makes in a run seeded with `seed`.
    #[must_use]
    pub fn new(population: Population, seed: u64) -> Self {
        let arrivals = (0..population.sources.len() as u64)
            .map(|i| (stream(seed, Concern::Arrival, i), stream(seed, Concern::Work, (1 << 32) + i), 0))
            .collect();
        let mut actors = Vec::with_capacity(population.nr_static());
        actors.extend(population.endless.iter().map(|endless| Actor::Endless { share: endless.share }));
        actors.extend((0..population.programs.len()).map(|program| Actor::Program {
            program: program as u32,
            next: 0,
            done: 0,
            began: Instant::ZERO,
            work: Nanos::ZERO,
            period: Instant::ZERO,
        }));
        let mut nr_users = 0;
        for (spec, users) in population.users.iter().enumerate() {
            for _ in 0..users.count {
                actors.push(Actor::User(Box::new(User {
                    spec: spec as u32,
                    think: stream(seed, Concern::Think, nr_users),
                    work: stream(seed, Concern::Work, nr_users),
                    gap: stream(seed, Concern::Gap, nr_users),
                    segments: 0,
                    asked: Instant::ZERO,
                    received: Nanos::ZERO,
                    burst: Nanos::ZERO,
                })));
                nr_users += 1;
            }
        }
        Self { population, actors, unused: Vec::new(), arrivals }
    }

    /// A static client's id is its number.
    const fn id(index: usize) -> ClientId {
        ClientId(index as u32)
    }

    fn share_of(&self, index: usize) -> Share {
        match &self.actors[index] {
            Actor::Program { program, .. } => self.population.programs[*program as usize].share,
            Actor::User(user) => self.population.users[user.spec as usize].share,
            Actor::Endless { share } => *share,
            Actor::Gone | Actor::Job { .. } => Share::ONE,
        }
    }

    /// A static client begins: it joins, and does its first step.
    fn begin(&mut self, now: Instant, index: usize, control: &mut Control) {
        let client = Self::id(index);
        control.join(client, self.share_of(index), index as u32);
        if let Actor::Program { began, period, .. } = &mut self.actors[index] {
            *began = now;
            *period = now;
        }
        self.resume(now, index, control);
    }

    /// A static client goes on after a pause.
    fn resume(&mut self, now: Instant, index: usize, control: &mut Control) {
        if matches!(self.actors[index], Actor::Gone) {
            return;
        }
        let client = Self::id(index);
        match self.next_move(now, index, control) {
            Move::Run(burst) => control.start(client, burst),
            Move::SleepUntil(at) => control.timer(at, token(Timer::Resume, index)),
            Move::Exit => {
                self.actors[index] = Actor::Gone;
                control.leave(client);
            }
        }
    }

    fn next_move(&mut self, now: Instant, index: usize, control: &mut Control) -> Move {
        match &self.actors[index] {
            Actor::Program { .. } => self.next_step(now, index, control),
            Actor::User(_) => self.next_of_user(now, index),
            Actor::Endless { .. } => Move::Run(Nanos::MAX),
            Actor::Gone | Actor::Job { .. } => Move::Exit,
        }
    }

    /// The next step of a program that takes time. Steps of no time are passed over.
    fn next_step(&mut self, now: Instant, index: usize, control: &mut Control) -> Move {
        let Actor::Program { program, next, done, began, work, period } = &mut self.actors[index] else {
            return Move::Exit;
        };
        let spec = &self.population.programs[*program as usize];
        let runs = |step: &Step| matches!(step, Step::Run(burst) if *burst > Nanos::ZERO);
        let (past, coming) = spec.steps.split_at(*next as usize);
        if past.last().is_some_and(runs) && !coming.iter().any(runs) {
            // The last run of this round is over: that is the answer, whatever sleep follows it.
            control.respond(Response {
                client: Self::id(index),
                group: spec.group,
                arrived: *began,
                finished: now,
                work: *work,
            });
        }
        loop {
            let Some(&step) = spec.steps.get(*next as usize) else {
                *done += 1;
                if spec.repeat.is_some_and(|times| *done >= times) {
                    return Move::Exit;
                }
                (*next, *began, *work) = (0, now, Nanos::ZERO);
                continue;
            };
            *next += 1;
            match step {
                Step::Run(burst) if burst > Nanos::ZERO => {
                    *work += burst;
                    return Move::Run(burst);
                }
                Step::Sleep(span) if span > Nanos::ZERO => return Move::SleepUntil(now + span),
                Step::Period(span) => {
                    *period = *period + span;
                    if *period > now {
                        return Move::SleepUntil(*period);
                    }
                }
                Step::Run(_) | Step::Sleep(_) => {}
            }
        }
    }

    /// What a user does whose pause is over: the next stretch, the first one of a new request after thinking.
    fn next_of_user(&mut self, now: Instant, index: usize) -> Move {
        let resolution = self.population.resolution;
        let Actor::User(user) = &mut self.actors[index] else { return Move::Exit };
        let spec = &self.population.users[user.spec as usize];
        if user.segments == 0 {
            user.segments = spec.segments;
            user.asked = now;
            user.received = Nanos::ZERO;
        }
        user.burst = spec.work.sample(&mut user.work, resolution).max(Nanos(1));
        Move::Run(user.burst)
    }

    /// A user's stretch is over: a pause follows, or the answer and a time to think.
    fn end_of_stretch(&mut self, now: Instant, index: usize, control: &mut Control) -> Next {
        let resolution = self.population.resolution;
        let Actor::User(user) = &mut self.actors[index] else { return Next::Exit };
        let spec = &self.population.users[user.spec as usize];
        user.segments -= 1;
        user.received += user.burst;
        let pause = if user.segments > 0 {
            spec.gap.sample(&mut user.gap, resolution)
        } else {
            control.respond(Response {
                client: Self::id(index),
                group: spec.group,
                arrived: user.asked,
                finished: now,
                work: user.received,
            });
            spec.think.sample(&mut user.think, resolution)
        };
        if pause == Nanos::ZERO {
            return match self.next_of_user(now, index) {
                Move::Run(burst) => Next::Run(burst),
                Move::SleepUntil(_) | Move::Exit => Next::Exit,
            };
        }
        control.timer(now + pause, token(Timer::Resume, index));
        Next::Sleep
    }

    /// The next job of source `index` arrives, and sets the timer for the one after it.
    fn arrive(&mut self, now: Instant, index: usize, control: &mut Control) {
        let source = &self.population.sources[index];
        let (between, work, count) = &mut self.arrivals[index];
        *count += 1;
        let size = source.size.sample(work, self.population.resolution).max(Nanos(1));
        let (group, share) = (source.group, source.share);
        if source.jobs.is_none_or(|jobs| *count < jobs) {
            let pause = source.between.sample(between, self.population.resolution).max(Nanos(1));
            control.timer(now + pause, token(Timer::Arrive, index));
        }
        self.add_job(Job { group, arrival: now, size, share }, control);
    }

    fn add_job(&mut self, job: Job, control: &mut Control) {
        let actor = Actor::Job { group: job.group, arrival: job.arrival, size: job.size };
        let tag = if let Some(tag) = self.unused.pop() {
            self.actors[tag as usize] = actor;
            tag
        } else {
            self.actors.push(actor);
            (self.actors.len() - 1) as u32
        };
        let client = control.reserve();
        control.join(client, job.share, tag);
        control.start(client, job.size);
    }

    /// All jobs of the trace that arrive now, and a timer for the next.
    fn arrive_from_trace(&mut self, now: Instant, mut index: usize, control: &mut Control) {
        while let Some(&job) = self.population.jobs.get(index) {
            if job.arrival > now {
                control.timer(job.arrival, token(Timer::Job, index));
                return;
            }
            self.add_job(job, control);
            index += 1;
        }
    }

    /// All lines of the script for now, and a timer for the next.
    fn play(&mut self, now: Instant, mut index: usize, control: &mut Control) {
        while let Some(&Script { at, client, action }) = self.population.script.get(index) {
            if at > now {
                control.timer(at, token(Timer::Script, index));
                return;
            }
            self.act(client as usize, action, control);
            index += 1;
        }
    }

    fn act(&mut self, index: usize, action: Action, control: &mut Control) {
        let client = Self::id(index);
        if matches!(self.actors[index], Actor::Gone) {
            return;
        }
        match action {
            Action::Create(share) | Action::New(share) => {
                control.join(client, share, index as u32);
                if matches!(action, Action::Create(_)) {
                    control.stop(client);
                }
                control.start(client, Nanos::MAX);
            }
            Action::Wake => control.resume(client),
            Action::Block => control.stop(client),
            Action::Exit => {
                self.actors[index] = Actor::Gone;
                control.leave(client);
            }
            Action::Reshare(share) => control.reshare(client, share),
        }
    }
}

impl Workload for Mix {
    fn on_start(&mut self, control: &mut Control) {
        let resolution = self.population.resolution;
        for _ in 0..self.actors.len() {
            control.reserve();
        }
        for index in 0..self.actors.len() {
            match &mut self.actors[index] {
                Actor::User(user) => {
                    let spec = &self.population.users[user.spec as usize];
                    let pause = spec.think.sample(&mut user.think, resolution);
                    control.join(Self::id(index), spec.share, index as u32);
                    control.timer(Instant::ZERO + pause, token(Timer::Resume, index));
                }
                Actor::Program { program, .. } => {
                    let start = self.population.programs[*program as usize].start;
                    control.timer(start, token(Timer::Begin, index));
                }
                Actor::Endless { .. } => {
                    if let Some(start) = self.population.endless[index].start {
                        control.timer(start, token(Timer::Begin, index));
                    }
                }
                Actor::Gone | Actor::Job { .. } => {}
            }
        }
        self.arrive_from_trace(Instant::ZERO, 0, control);
        for (index, (between, ..)) in self.arrivals.iter_mut().enumerate() {
            let pause = self.population.sources[index].between.sample(between, resolution);
            control.timer(Instant::ZERO + pause, token(Timer::Arrive, index));
        }
        self.play_from_start(control);
    }

    fn on_timer(&mut self, now: Instant, token: Token, control: &mut Control) {
        let index = (token & ((1 << KIND_SHIFT) - 1)) as usize;
        match token >> KIND_SHIFT {
            kind if kind == Timer::Begin as u64 => self.begin(now, index, control),
            kind if kind == Timer::Resume as u64 => self.resume(now, index, control),
            kind if kind == Timer::Arrive as u64 => self.arrive(now, index, control),
            kind if kind == Timer::Job as u64 => self.arrive_from_trace(now, index, control),
            _ => self.play(now, index, control),
        }
    }

    fn on_burst_end(&mut self, now: Instant, client: ClientId, tag: u32, control: &mut Control) -> Next {
        let index = tag as usize;
        match self.actors[index] {
            Actor::User(_) => self.end_of_stretch(now, index, control),
            Actor::Job { group, arrival, size } => {
                control.respond(Response { client, group, arrived: arrival, finished: now, work: size });
                self.actors[index] = Actor::Gone;
                self.unused.push(tag);
                Next::Exit
            }
            Actor::Program { .. } => match self.next_step(now, index, control) {
                Move::Run(burst) => Next::Run(burst),
                Move::SleepUntil(at) => {
                    control.timer(at, token(Timer::Resume, index));
                    Next::Sleep
                }
                Move::Exit => {
                    self.actors[index] = Actor::Gone;
                    Next::Exit
                }
            },
            Actor::Endless { .. } => Next::Run(Nanos::MAX),
            Actor::Gone => Next::Exit,
        }
    }
}

impl Mix {
    /// The script's first timer, so that its lines at zero come after the clients that are there from the start.
    fn play_from_start(&self, control: &mut Control) {
        if let Some(first) = self.population.script.first() {
            control.timer(first.at, token(Timer::Script, 0));
        }
    }
}
