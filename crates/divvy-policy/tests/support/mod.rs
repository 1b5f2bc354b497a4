//! A machine without time that drives dispatchers, and what the tests of this folder share.
#![allow(dead_code, reason = "each test binary uses its part")]

use divvy_policy::dispatch::{drr, lottery, rr, stride, vtrr, wf2q, wfq, wrr};
use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy, Share};

pub type Dispatcher = Box<dyn Policy<Decision = Grant>>;

/// FNV-1a over client ids, one step per id, as the golden files have it.
pub fn fnv1a64(ids: &[usize]) -> u64 {
    ids.iter().fold(0xcbf2_9ce4_8422_2325, |h, &id| (h ^ id as u64).wrapping_mul(0x100_0000_01b3))
}

pub fn golden(name: &str) -> serde_json::Value {
    let path = format!("{}/../../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("parse {path}: {e}"))
}

pub fn share(n: u64) -> Share {
    Share::new(n).expect("a share of the test")
}

pub fn send<P: Policy + ?Sized>(policy: &mut P, event: Event) {
    policy.on_event(Instant::ZERO, event).unwrap_or_else(|e| panic!("{event:?}: {e}"));
}

/// Joins and wakes clients 0, 1, .. with these shares.
pub fn populate<P: Policy + ?Sized>(policy: &mut P, shares: &[u64]) {
    for (id, &s) in shares.iter().enumerate() {
        let client = ClientId(id as u32);
        send(policy, Event::Join { client, share: share(s) });
        send(policy, Event::Wake { client });
    }
}

/// Who runs in each of the next quanta on CPU 0, every quantum used up.
pub fn run<P: Policy<Decision = Grant> + ?Sized>(policy: &mut P, quanta: usize) -> Vec<usize> {
    let cpu = CpuId(0);
    let mut schedule = Vec::new();
    for _ in 0..quanta {
        send(policy, Event::Free { cpu });
        let grant = policy.poll_decision(Instant::ZERO).expect("a client is runnable");
        assert_eq!(policy.poll_decision(Instant::ZERO), None);
        send(policy, Event::Charge { client: grant.client, used: grant.slice });
        schedule.push(grant.client.index());
    }
    schedule
}

pub const Q: Nanos = Nanos(1_000);

/// Every dispatcher whose slices are whole quanta and that takes no CPU from anybody, in every variant that decides
/// differently or has its own data structure.
pub fn dispatchers(cpus: u32) -> Vec<(&'static str, Dispatcher)> {
    let quantum = Q;
    let wfq = |tie, queue| Box::new(wfq::Wfq::new(wfq::WfqParams { cpus, quantum, tie, queue }).unwrap());
    let wf2q = |tie| Box::new(wf2q::Wf2q::new(wf2q::Wf2qParams { cpus, quantum, tie }).unwrap());
    let stride = |init, stride1, queue| {
        let params = stride::StrideParams { cpus, quantum, init, stride1, queue };
        Box::new(stride::Stride::new(params).unwrap())
    };
    let lottery = |search| {
        let params = lottery::LotteryParams { cpus, quantum, seed: 7, search, ..Default::default() };
        Box::new(lottery::Lottery::new(params).unwrap())
    };
    let vtrr = |reset, insert, rejoin| {
        Box::new(vtrr::Vtrr::new(vtrr::VtrrParams { cpus, quantum, reset, insert, rejoin }).unwrap())
    };
    let wrr = |order| Box::new(wrr::Wrr::new(wrr::WrrParams { cpus, quantum, order }).unwrap());
    let drr = |credit| Box::new(drr::Drr::new(drr::DrrParams { cpus, quantum, credit }).unwrap());
    let rr = Box::new(rr::Rr::new(rr::RrParams { quantum, cpus, ..Default::default() }).unwrap());
    vec![
        ("rr", rr),
        ("wrr", wrr(wrr::Order::LargestFirst)),
        ("wrr by id", wrr(wrr::Order::ById)),
        ("drr", drr(Q)),
        ("drr with a small credit", drr(Nanos(170))),
        ("wfq heap", wfq(wfq::Tie::LargerShare, wfq::Queue::Heap)),
        ("wfq list", wfq(wfq::Tie::SmallerShare, wfq::Queue::List)),
        ("wfq rr", wfq(wfq::Tie::RoundRobin, wfq::Queue::Heap)),
        ("wfq fifo", wfq(wfq::Tie::Fifo, wfq::Queue::Heap)),
        ("wf2q", wf2q(wf2q::Tie::LargerShare)),
        ("stride", stride(stride::Init::Stride, None, stride::Queue::Heap)),
        ("stride fixed", stride(stride::Init::Zero, Some(1 << 20), stride::Queue::List)),
        ("lottery list", lottery(lottery::Search::List)),
        ("lottery tree", lottery(lottery::Search::Tree)),
        ("vtrr whole", vtrr(vtrr::Reset::Whole, vtrr::Insert::Traverse, vtrr::Rejoin::Paper)),
        ("vtrr incremental", vtrr(vtrr::Reset::Incremental, vtrr::Insert::Traverse, vtrr::Rejoin::Paper)),
        ("vtrr strict", vtrr(vtrr::Reset::Incremental, vtrr::Insert::Traverse, vtrr::Rejoin::Strict)),
        (
            "vtrr classes",
            vtrr(vtrr::Reset::Incremental, vtrr::Insert::Classes { max_share: 10 }, vtrr::Rejoin::Strict),
        ),
    ]
}

/// One of them by name.
pub fn dispatcher(name: &str, cpus: u32) -> Dispatcher {
    let found = dispatchers(cpus).into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no dispatcher {name}")).1
}

/// One step of a random life.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A CPU's client has used this part (of 16) of the quantum and comes off; an idle CPU asks again.
    Finish {
        cpu: u32,
        used: u64,
    },
    /// As `Finish`, but the charge comes after the CPU was handed back.
    FinishLate {
        cpu: u32,
        used: u64,
    },
    Join {
        client: u32,
        share: u64,
    },
    Leave {
        client: u32,
    },
    Wake {
        client: u32,
    },
    Block {
        client: u32,
    },
    Reshare {
        client: u32,
        share: u64,
    },
}

pub const CLIENTS: u32 = 7;

#[derive(Clone, Copy, Default)]
struct Model {
    in_: bool,
    gone: bool,
    runnable: bool,
    cpu: Option<u32>,
    share: u64,
}

/// Drives one dispatcher through `Op`s and checks what any driver may rely on.
pub struct Machine {
    pub policy: Dispatcher,
    pub name: &'static str,
    models: Vec<Model>,
    lanes: Vec<Option<u32>>,
    asking: Vec<bool>,
    /// Client (before renaming) of every grant.
    pub log: Vec<(u32, u32)>,
    /// Service of each client, in ns.
    pub service: Vec<u64>,
    /// Charges are split into so many parts.
    pub split: u64,
    /// Client `c` is known to the policy as `rename(c)`.
    pub rename: fn(u32) -> u32,
    /// Sends an impossible event after every possible one.
    pub noise: bool,
}

impl Machine {
    pub fn new(name: &'static str, policy: Dispatcher, cpus: u32) -> Self {
        let mut machine = Self {
            policy,
            name,
            models: vec![Model::default(); CLIENTS as usize],
            lanes: vec![None; cpus as usize],
            asking: vec![false; cpus as usize],
            log: Vec::new(),
            service: vec![0; CLIENTS as usize],
            split: 1,
            rename: |c| c,
            noise: false,
        };
        for cpu in 0..cpus {
            machine.send(Event::Free { cpu: CpuId(cpu) });
            machine.asking[cpu as usize] = true;
        }
        machine
    }

    fn id(&self, client: u32) -> ClientId {
        ClientId((self.rename)(client))
    }

    fn send(&mut self, event: Event) {
        let name = self.name;
        self.policy.on_event(Instant::ZERO, event).unwrap_or_else(|e| panic!("{name}: {event:?}: {e}"));
    }

    fn refuse(&mut self, event: Event, want: EventError) {
        assert_eq!(self.policy.on_event(Instant::ZERO, event), Err(want), "{}", self.name);
    }

    fn charge(&mut self, client: u32, used: u64) {
        self.service[client as usize] += used;
        let parts = self.split.min(used).max(1);
        for part in 0..parts {
            // Parts that differ by at most one, and sum up to the whole.
            let used = Nanos(used * (part + 1) / parts - used * part / parts);
            self.send(Event::Charge { client: self.id(client), used });
        }
    }

    fn finish(&mut self, cpu: u32, used: u64, late: bool) {
        let cpu = cpu % self.lanes.len() as u32;
        let client = self.lanes[cpu as usize].take();
        let used = Q.0 * used / 16;
        match client {
            Some(client) if !late => self.charge(client, used),
            _ => {}
        }
        self.send(Event::Free { cpu: CpuId(cpu) });
        self.asking[cpu as usize] = true;
        if let Some(client) = client {
            self.models[client as usize].cpu = None;
            if late {
                self.charge(client, used);
            }
        }
    }

    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Finish { cpu, used } => self.finish(cpu, used, false),
            Op::FinishLate { cpu, used } => self.finish(cpu, used, true),
            Op::Join { client, share: s } => {
                let event = Event::Join { client: self.id(client), share: share(s) };
                let model = &mut self.models[client as usize];
                if model.in_ || model.gone {
                    return self.refuse(event, EventError::DuplicateClient(self.id(client)));
                }
                *model = Model { in_: true, share: s, ..Model::default() };
                self.send(event);
            }
            Op::Leave { client } => {
                let Some(event) = self.known(client, |client| Event::Leave { client }) else { return };
                self.send(event);
                let model = std::mem::replace(
                    &mut self.models[client as usize],
                    Model { gone: true, ..Model::default() },
                );
                if let Some(cpu) = model.cpu {
                    self.lanes[cpu as usize] = None;
                }
            }
            Op::Wake { client } => {
                let Some(event) = self.known(client, |client| Event::Wake { client }) else { return };
                self.send(event);
                self.models[client as usize].runnable = true;
            }
            Op::Block { client } => {
                let Some(event) = self.known(client, |client| Event::Block { client }) else { return };
                self.send(event);
                self.models[client as usize].runnable = false;
            }
            Op::Reshare { client, share: s } => {
                let Some(event) = self.known(client, |client| Event::Reshare { client, share: share(s) })
                else {
                    return;
                };
                self.send(event);
                self.models[client as usize].share = s;
            }
        }
        if self.noise {
            self.make_noise();
        }
        self.poll();
    }

    /// The event, if the client is in; else sees it refused.
    fn known(&mut self, client: u32, event: impl Fn(ClientId) -> Event) -> Option<Event> {
        let event = event(self.id(client));
        if self.models[client as usize].in_ {
            return Some(event);
        }
        self.refuse(event, EventError::UnknownClient(self.id(client)));
        None
    }

    fn make_noise(&mut self) {
        let stranger = ClientId(100_000);
        let unknown = EventError::UnknownClient(stranger);
        self.refuse(Event::Charge { client: stranger, used: Nanos(5) }, unknown);
        self.refuse(Event::Wake { client: stranger }, unknown);
        self.refuse(Event::Reshare { client: stranger, share: share(9) }, unknown);
        self.refuse(Event::Width { client: stranger, cpus: 0 }, unknown);
        let cpu = CpuId(self.lanes.len() as u32);
        self.refuse(Event::Free { cpu }, EventError::UnknownCpu(cpu));
        for client in 0..CLIENTS {
            let id = self.id(client);
            if self.models[client as usize].in_ {
                self.refuse(Event::Join { client: id, share: share(3) }, EventError::DuplicateClient(id));
                self.refuse(Event::Width { client: id, cpus: 0 }, EventError::ZeroWidth(id));
            } else {
                self.refuse(Event::Charge { client: id, used: Nanos(77) }, EventError::UnknownClient(id));
            }
        }
    }

    fn poll(&mut self) {
        while let Some(grant) = self.policy.poll_decision(Instant::ZERO) {
            let name = self.name;
            let client = (0..CLIENTS).find(|&c| self.id(c) == grant.client).expect("a client of the test");
            let model = &mut self.models[client as usize];
            assert!(model.in_ && model.runnable, "{name}: granted {client}, which is not runnable");
            assert_eq!(model.cpu, None, "{name}: granted {client} twice");
            assert!(
                std::mem::take(&mut self.asking[grant.cpu.index()]),
                "{name}: {:?} did not ask",
                grant.cpu
            );
            assert_eq!(grant.slice, Q);
            model.cpu = Some(grant.cpu.0);
            self.lanes[grant.cpu.index()] = Some(client);
            self.log.push((grant.cpu.0, client));
        }
        let waiting = self.models.iter().any(|m| m.runnable && m.cpu.is_none());
        let idle = self.asking.iter().any(|&asks| asks);
        assert!(!(waiting && idle), "{}: a CPU idles while a client waits", self.name);
    }
}
