//! The engine over a host that answers what a script says.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use divvy_engine::policies::GateSpec;
use divvy_engine::{
    ClientState, Divergence, Engine, EngineError, Host, HostError, News, Observed, Recorder, SelfCost,
    Session, TRACE_VERSION, TraceHeader, TraceLine, replay, take_width,
};
use divvy_policy::{ClientId, CpuId, CpuLimit, Event, EventError, Gate, Instant, Nanos, Policy, Share};

/// What the engine asked of the host, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Release(u32),
    Hold(u32),
    Measure(u32),
    Observe(u32),
}

#[derive(Default)]
struct Script {
    now: u64,
    /// Time passed by each wait, if later than asked for.
    late: VecDeque<u64>,
    used: BTreeMap<u32, u64>,
    errors: BTreeMap<(u32, &'static str), HostError>,
    blocked: Vec<u32>,
    stopped: Vec<u32>,
    news: VecDeque<News>,
    calls: Vec<Call>,
    stood: Vec<u32>,
    broken: bool,
    punctual: bool,
    switch_cost: Nanos,
    /// Who is never held, each time that it was told.
    capped: Vec<Vec<ClientId>>,
}

impl Script {
    fn answer(&self, client: ClientId, call: &'static str) -> Result<(), HostError> {
        self.errors.get(&(client.0, call)).map_or(Ok(()), |e| Err(e.clone()))
    }
}

impl Host for Script {
    fn now(&mut self) -> Instant {
        Instant(self.now)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), HostError> {
        if self.broken {
            return Err(HostError::Broken("epoll_wait: EBADF".into()));
        }
        self.now = self.now.max(until.map_or(self.now, |t| t.0)) + self.late.pop_front().unwrap_or(0);
        Ok(())
    }

    fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn release(&mut self, client: ClientId, _: Option<CpuId>) -> Result<(), HostError> {
        self.calls.push(Call::Release(client.0));
        self.answer(client, "release")
    }

    fn hold(&mut self, client: ClientId) -> Result<(), HostError> {
        self.calls.push(Call::Hold(client.0));
        self.answer(client, "hold")
    }

    fn stand(&mut self, client: ClientId) -> Result<(), HostError> {
        self.stood.push(client.0);
        Ok(())
    }

    fn measure(&mut self, client: ClientId) -> Result<Nanos, HostError> {
        self.calls.push(Call::Measure(client.0));
        self.answer(client, "measure").map(|()| Nanos(self.used.get(&client.0).copied().unwrap_or(0)))
    }

    fn observe(&mut self, client: ClientId) -> Result<Observed, HostError> {
        self.calls.push(Call::Observe(client.0));
        let blocked = self.blocked.contains(&client.0);
        self.answer(client, "observe").map(|()| if blocked { Observed::Blocked } else { Observed::Runnable })
    }

    fn is_punctual(&self) -> bool {
        self.punctual
    }

    fn switch_cost(&self) -> Nanos {
        self.switch_cost
    }

    fn note_capped(&mut self, clients: &[ClientId]) {
        self.capped.push(clients.to_vec());
    }

    fn is_stopped(&self, client: ClientId) -> bool {
        self.stopped.contains(&client.0)
    }

    fn self_cost(&mut self) -> SelfCost {
        SelfCost::default()
    }
}

/// A policy that decides what it was told to, and keeps the events.
#[derive(Clone, Default)]
struct Told(Rc<RefCell<(VecDeque<Gate>, Vec<Event>)>>);

impl Told {
    fn decide(&self, decisions: &[Gate]) {
        self.0.borrow_mut().0.extend(decisions);
    }

    fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.borrow_mut().1)
    }
}

impl Policy for Told {
    type Decision = Gate;

    fn on_event(&mut self, _: Instant, event: Event) -> Result<(), EventError> {
        self.0.borrow_mut().1.push(event);
        Ok(())
    }

    fn poll_decision(&mut self, _: Instant) -> Option<Gate> {
        self.0.borrow_mut().0.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

const A: ClientId = ClientId(0);
const B: ClientId = ClientId(1);

const RELEASE_A: Gate = Gate::Release { client: A, cpu: None };
const HOLD_A: Gate = Gate::Hold { client: A };
const MEASURE_A: Gate = Gate::Measure { client: A };

/// Two clients that have joined; what that told the policy is forgotten.
fn engine() -> (Engine<Told, Script>, Told) {
    let told = Told::default();
    let mut engine = Engine::new(told.clone(), Script::default(), 1);
    for share in [1, 2] {
        engine.join(Share::new(share).unwrap()).unwrap();
    }
    let events = told.take_events();
    assert_eq!(events[..2], [Event::Join { client: A, share: Share::ONE }, Event::Wake { client: A }]);
    (engine, told)
}

fn used(client: ClientId, ns: u64) -> Event {
    Event::Charge { client, used: Nanos(ns) }
}

#[test]
fn clients_that_joined_are_served_before_the_first_wait() {
    let told = Told::default();
    let mut engine = Engine::new(told.clone(), Script::default(), 1);
    engine.join(Share::ONE).unwrap();
    told.decide(&[RELEASE_A]);
    engine.host_mut().broken = true; // The wait fails, but what was to be done before it is done.
    assert!(engine.turn(None).is_err());
    assert_eq!(engine.host().calls, [Call::Release(0)]);
    assert!(engine.is_released(A));
}

#[test]
fn a_client_that_is_gone_is_charged_and_leaves_at_any_call() {
    let questions = [
        ("release", RELEASE_A),
        ("hold", HOLD_A),
        ("measure", MEASURE_A),
        ("observe", Gate::Observe { client: A }),
    ];
    for (call, decision) in questions {
        let (mut engine, told) = engine();
        engine.host_mut().errors.insert((0, call), HostError::Gone);
        engine.host_mut().used.insert(0, 77);
        told.decide(&[decision, RELEASE_A, HOLD_A, MEASURE_A]);
        engine.serve().unwrap();
        let leave = Event::Leave { client: A };
        let events = if call == "measure" { vec![leave] } else { vec![used(A, 77), leave] };
        assert_eq!(told.take_events(), events, "{call}: once, and nothing after it");
        assert_eq!(engine.take_lost().len(), 1, "{call}");
        assert!(!engine.is_released(A) && engine.nr_clients() == 1);
        // Late news of it changes nothing.
        engine.host_mut().news.extend([News::Gone(A), News::Resumed(A), News::Stopped(A), News::Width(A, 2)]);
        engine.serve().unwrap();
        assert!(told.take_events().is_empty() && engine.take_lost().is_empty());
    }
}

#[test]
fn a_refusal_is_kept_with_its_reason() {
    let (mut engine, told) = engine();
    let why = HostError::NotPermitted("signal 4711: EPERM".into());
    engine.host_mut().errors.insert((0, "hold"), why.clone());
    told.decide(&[RELEASE_A, HOLD_A]);
    engine.serve().unwrap();
    let lost = engine.take_lost();
    assert_eq!((lost.len(), lost[0].client, &lost[0].why), (1, A, &why));
    // It lives, and must not be left held in part.
    let released = |c: &&Call| **c == Call::Release(A.0);
    assert_eq!(engine.host_mut().calls.iter().filter(released).count(), 2);
    assert_eq!(engine.host_mut().calls.last(), Some(&Call::Release(A.0)));
}

#[test]
fn who_has_ended_is_not_released() {
    let (mut engine, told) = engine();
    engine.host_mut().errors.insert((0, "hold"), HostError::Gone);
    told.decide(&[RELEASE_A, HOLD_A]);
    engine.serve().unwrap();
    assert_eq!(engine.take_lost().len(), 1);
    assert_eq!(engine.host_mut().calls.iter().filter(|c| **c == Call::Release(A.0)).count(), 1);
}

#[test]
fn a_broken_host_ends_the_loop_at_any_call() {
    for (call, decision) in [("release", RELEASE_A), ("hold", HOLD_A), ("measure", MEASURE_A)] {
        let (mut engine, told) = engine();
        engine.host_mut().errors.insert((0, call), HostError::Broken("kaput".into()));
        told.decide(&[decision]);
        let error = engine.serve().unwrap_err();
        assert!(matches!(&error, EngineError::Host(HostError::Broken(what)) if what == "kaput"), "{error}");
    }
}

#[test]
fn a_held_client_that_ran_is_held_again_and_charged() {
    let (mut engine, told) = engine();
    engine.host_mut().used.insert(0, 5);
    engine.host_mut().news.push_back(News::Resumed(A));
    engine.serve().unwrap();
    assert_eq!(engine.host().calls, [Call::Hold(0), Call::Measure(0)]);
    assert_eq!(told.take_events(), [used(A, 5)]);
    // One that may run may also be resumed: nothing to do.
    told.decide(&[RELEASE_A]);
    engine.host_mut().news.push_back(News::Resumed(A));
    engine.serve().unwrap();
    engine.host_mut().calls.clear();
    engine.host_mut().news.push_back(News::Resumed(A));
    engine.serve().unwrap();
    assert!(engine.host().calls.is_empty());
}

#[test]
fn a_released_client_that_somebody_stopped_is_blocked() {
    let (mut engine, told) = engine();
    engine.host_mut().news.push_back(News::Stopped(A));
    engine.serve().unwrap();
    assert!(told.take_events().is_empty(), "it was held: nobody can tell who stopped it");
    told.decide(&[RELEASE_A]);
    engine.serve().unwrap();
    engine.host_mut().news.push_back(News::Stopped(A));
    engine.serve().unwrap();
    assert_eq!(told.take_events(), [Event::Block { client: A }]);
    assert!(engine.ledger().clients()[0].blocked);
}

#[test]
fn all_that_are_held_are_held_again_after_a_rescue() {
    let (mut engine, told) = engine();
    told.decide(&[RELEASE_A]);
    engine.serve().unwrap();
    engine.host_mut().calls.clear();
    engine.host_mut().news.push_back(News::AllResumed);
    engine.serve().unwrap();
    assert_eq!(engine.host().calls, [Call::Hold(1)]);
    // One of them is gone by then.
    engine.host_mut().errors.insert((1, "hold"), HostError::Gone);
    engine.host_mut().news.push_back(News::AllResumed);
    engine.serve().unwrap();
    assert_eq!(engine.take_lost()[0].client, B);
}

#[test]
fn a_clock_that_goes_back_is_no_credit() {
    let (mut engine, told) = engine();
    for (total, told_of) in [(100, 100), (90, 0), (95, 0), (130, 30)] {
        engine.host_mut().used.insert(0, total);
        told.decide(&[MEASURE_A]);
        engine.serve().unwrap();
        assert_eq!(told.take_events(), [used(A, told_of)]);
    }
    assert_eq!(engine.ledger().clients()[0].service, Nanos(130));
}

#[test]
fn a_width_is_at_least_one() {
    let (mut engine, told) = engine();
    engine.host_mut().news.extend([News::Width(A, 0), News::Width(A, 3)]);
    engine.serve().unwrap();
    assert_eq!(told.take_events(), [1, 3].map(|cpus| Event::Width { client: A, cpus }));
}

#[test]
fn a_width_that_was_counted_before_the_last_is_told_no_more() {
    let mut news =
        VecDeque::from([News::Width(A, 2), News::Resumed(A), News::Width(B, 4), News::Width(A, 1)]);
    assert_eq!(take_width(&mut news, A), Some(1));
    assert_eq!(news, [News::Resumed(A), News::Width(B, 4)]);
    assert_eq!(take_width(&mut news, A), None);
}

#[test]
fn what_a_cycles_end_audits_the_policy_is_told_once() {
    let (mut engine, told) = engine();
    told.decide(&[RELEASE_A]);
    engine.host_mut().used.insert(0, 40);
    told.decide(&[Gate::CycleEnd { cycles: 1 }]);
    engine.serve().unwrap();
    assert!(told.take_events().is_empty());
    assert_eq!(engine.ledger().clients()[0].service, Nanos(40));
    engine.host_mut().used.insert(0, 50);
    told.decide(&[MEASURE_A]);
    engine.serve().unwrap();
    assert_eq!(told.take_events(), [used(A, 50)]);
    assert_eq!(engine.ledger().clients()[0].service, Nanos(50));
}

#[test]
fn wake_ups_that_come_late_are_charged_for_what_they_cost() {
    let gate = GateSpec::default().make().unwrap();
    let mut engine = Engine::new(gate, Script::default(), 1);
    for _ in 0..2 {
        engine.join(Share::ONE).unwrap();
    }
    engine.turn(Some(Instant(0))).unwrap();
    assert!(engine.is_released(A) && !engine.is_released(B));
    // A has 10 ms; the look at 5 ms comes 12 ms late, and A ran all the time: 17 ms, 7 of them owed.
    engine.host_mut().late.push_back(12_000_000);
    engine.host_mut().used.insert(0, 17_000_000);
    engine.turn(None).unwrap();
    assert!(!engine.is_released(A) && engine.is_released(B));
    // B is through after its 10 ms, in two looks; then A has 3 ms, and its next look is for that moment.
    for ns in [5_000_000, 10_000_000] {
        engine.host_mut().used.insert(1, ns);
        engine.turn(None).unwrap();
    }
    assert!(engine.is_released(A) && !engine.is_released(B));
    let from = engine.host().now;
    engine.host_mut().used.insert(0, 20_000_000);
    engine.turn(None).unwrap();
    assert_eq!(engine.host().now - from, 3_000_000);
    assert!(engine.is_released(B));
}

/// Keeps the lines of a trace.
struct Lines(Rc<RefCell<Vec<String>>>);

impl Recorder for Lines {
    fn record(&mut self, line: &TraceLine) {
        self.0.borrow_mut().push(serde_json::to_string(line).unwrap());
    }
}

/// Whether the host wakes in time the policy is told when that changes, and a trace: with 80 us left it is looked at once more, or is through.
#[test]
fn a_policy_hears_whether_its_host_is_punctual() {
    let spec = GateSpec::default();
    let header =
        TraceHeader { divvy_trace: TRACE_VERSION, gate: spec.clone(), clients: vec!["a".into(), "b".into()] };
    let lines = Rc::new(RefCell::new(vec![serde_json::to_string(&header).unwrap()]));
    let mut engine = Engine::new(spec.make().unwrap(), Script::default(), 1);
    engine.record_to(Box::new(Lines(Rc::clone(&lines))));
    for _ in 0..2 {
        engine.join(Share::ONE).unwrap();
    }
    engine.host_mut().punctual = true;
    engine.turn(Some(Instant(0))).unwrap();
    for ns in [5_000_000, 9_920_000] {
        engine.host_mut().used.insert(0, ns);
        engine.turn(None).unwrap();
    }
    assert!(engine.is_released(A) && !engine.is_released(B), "80 us are left");
    engine.host_mut().used.insert(0, 10_000_000);
    engine.turn(None).unwrap();
    assert!(!engine.is_released(A) && engine.is_released(B));
    engine.host_mut().punctual = false;
    for ns in [5_000_000, 9_920_000] {
        engine.host_mut().used.insert(1, ns);
        engine.turn(None).unwrap();
    }
    assert!(engine.is_released(A) && !engine.is_released(B), "80 us are not waited for");
    let lines = lines.take();
    let told = lines.iter().filter(|line| line.contains("punctual")).map(|line| line.contains("true"));
    assert_eq!(told.collect::<Vec<_>>(), [true, false]);
    assert!(replay(lines.iter().cloned()).unwrap() > 0);
    let untold = lines.iter().filter(|line| !line.contains("punctual")).cloned();
    assert!(matches!(replay(untold), Err(Divergence::Decision { .. })), "other decisions without");
}

#[test]
fn release_all_releases_whoever_is_left() {
    let (mut engine, told) = engine();
    told.decide(&[RELEASE_A]);
    engine.serve().unwrap();
    engine.host_mut().calls.clear();
    engine.host_mut().errors.insert((1, "release"), HostError::Gone);
    engine.release_all();
    assert_eq!(engine.host().calls, [Call::Release(1)]);
    assert!(engine.is_released(A) && !engine.is_released(B));
}

fn blocked(client: ClientId) -> Event {
    Event::Block { client }
}

#[test]
fn a_paused_client_is_held_whatever_the_policy_decides() {
    let (mut engine, told) = engine();
    told.decide(&[RELEASE_A]);
    engine.serve().unwrap();
    engine.host_mut().used.insert(0, 700);
    engine.host_mut().calls.clear();
    engine.pause(A).unwrap();
    engine.pause(A).unwrap(); // Twice is once.
    assert_eq!(engine.host().calls, [Call::Hold(0), Call::Measure(0)]);
    assert_eq!(told.take_events(), [used(A, 700), blocked(A)], "what it used until now is charged");
    assert!(engine.is_paused(A) && !engine.is_released(A) && engine.ledger().clients()[0].paused);
    // The policy goes on deciding; nothing of it reaches the host, and it sees a client that sleeps.
    engine.host_mut().calls.clear();
    told.decide(&[HOLD_A, RELEASE_A, Gate::Observe { client: A }, HOLD_A, RELEASE_A]);
    engine.serve().unwrap();
    assert_eq!((engine.host().calls.as_slice(), told.take_events()), (&[][..], vec![blocked(A)]));
    // Whoever resumes it from outside, or all of them, is undone.
    engine.host_mut().news.extend([News::Resumed(A), News::AllResumed]);
    engine.serve().unwrap();
    assert_eq!(engine.host().calls, [Call::Hold(0), Call::Measure(0), Call::Hold(0), Call::Hold(1)]);
    told.take_events();
    // The last wish holds.
    engine.host_mut().calls.clear();
    engine.resume(A).unwrap();
    engine.resume(A).unwrap();
    assert_eq!(engine.host().calls, [Call::Release(0)]);
    assert_eq!(told.take_events(), [Event::Wake { client: A }]);
    assert!(!engine.is_paused(A) && engine.is_released(A) && !engine.ledger().clients()[0].paused);
}

#[test]
fn a_held_client_that_was_paused_stays_held_until_the_policy_releases_it() {
    let (mut engine, told) = engine();
    engine.pause(A).unwrap();
    assert_eq!((engine.host().calls.as_slice(), told.take_events()), (&[][..], vec![blocked(A)]));
    assert_eq!(engine.host().stood, [0], "it has no more of what others leave");
    engine.resume(A).unwrap();
    assert_eq!(
        (engine.host().calls.as_slice(), told.take_events()),
        (&[][..], vec![Event::Wake { client: A }])
    );
    told.decide(&[RELEASE_A]);
    engine.serve().unwrap();
    assert_eq!(engine.host().calls, [Call::Release(0)]);
}

#[test]
fn a_paused_client_may_end_and_a_client_may_end_at_being_paused() {
    let (mut engine, told) = engine();
    engine.pause(A).unwrap();
    engine.host_mut().news.push_back(News::Gone(A));
    engine.serve().unwrap();
    assert_eq!(engine.take_lost().len(), 1);
    assert!(!engine.is_paused(A));
    told.decide(&[Gate::Release { client: B, cpu: None }]);
    engine.serve().unwrap();
    engine.host_mut().errors.insert((1, "hold"), HostError::Gone);
    engine.pause(B).unwrap();
    assert_eq!(engine.nr_clients(), 0);
    for client in [A, B, ClientId(2)] {
        let unknown = EventError::UnknownClient(client);
        assert!(matches!(engine.pause(client), Err(EngineError::Policy(e)) if e == unknown));
        assert!(matches!(engine.resume(client), Err(EngineError::Policy(e)) if e == unknown));
    }
}

/// The machine stood for an hour and the clock went on, or somebody set it: what counts is what was used.
#[test]
fn a_clock_that_leaps_charges_nobody() {
    const HOUR: u64 = 3_600_000_000_000;
    for cpus in [1, 2] {
        let gate = GateSpec { cpus, ..GateSpec::default() }.make().unwrap();
        let mut engine = Engine::new(gate, Script::default(), cpus);
        let clients: Vec<ClientId> = (0..=cpus).map(|_| engine.join(Share::ONE).unwrap()).collect();
        engine.turn(Some(Instant(0))).unwrap();
        let first: Vec<ClientId> = clients.iter().copied().filter(|&c| engine.is_released(c)).collect();
        assert_eq!(first.len(), cpus as usize);
        // Each has used half of its 10 ms when an hour passes in which nobody ran.
        engine.host_mut().used.extend(first.iter().map(|c| (c.0, 5_000_000)));
        engine.host_mut().late.push_back(HOUR);
        engine.turn(None).unwrap();
        // On one CPU it goes on with its other half; on two, the third, which needs 10 of the 10 ms left, has a lane now.
        let released = clients.iter().filter(|&&c| engine.is_released(c)).count();
        assert_eq!((released, engine.is_released(clients[0])), (cpus as usize, cpus == 1));
        assert!(first.iter().all(|c| engine.ledger().clients()[c.index()].service == Nanos(5_000_000)));
        // The next decision is a matter of ms again, not of another hour.
        let from = engine.host().now;
        engine.host_mut().used.extend(clients.iter().map(|c| (c.0, 10_000_000)));
        engine.turn(None).unwrap();
        assert!(engine.host().now - from <= 10_000_000, "{}", engine.host().now - from);
        assert_eq!(engine.nr_clients(), clients.len());
    }
}

/// What a client is shown to do: what its user wished for goes before what others did to it, and that before what it does.
#[test]
fn a_client_has_one_state() {
    let mut run = Session::new(&GateSpec::default(), Script::default()).unwrap();
    for _ in 0..3 {
        run.join(Share::ONE).unwrap();
    }
    run.turn(Some(Instant(0))).unwrap();
    assert_eq!([A, B].map(|client| run.state(client)), [ClientState::Running, ClientState::Held]);
    run.set_limit(A, Some(CpuLimit::new(10_000).unwrap())).unwrap();
    // 1 ms of each 100: that is used up, and more.
    run.host_mut().used.insert(0, 5_000_000);
    run.turn(None).unwrap();
    assert_eq!(run.state(A), ClientState::Limited);
    assert_eq!(run.state(B), ClientState::Running);
    run.host_mut().stopped.push(1);
    run.host_mut().news.push_back(News::Stopped(B));
    run.serve().unwrap();
    assert_eq!(run.state(B), ClientState::Stopped);
    run.host_mut().stopped.clear();
    assert_eq!(run.state(B), ClientState::Asleep, "seen blocked, and not stopped any more");
    run.pause(B).unwrap();
    run.host_mut().stopped.push(1);
    assert_eq!(run.state(B), ClientState::Paused);
    run.host_mut().news.push_back(News::Gone(B));
    run.serve().unwrap();
    assert_eq!(run.state(B), ClientState::Left);
}

/// The published gates leave a CPU idle where a share is infeasible: what each is due is by its share alone, in every
/// program that runs them.
#[test]
fn dues_are_what_the_policy_promises() {
    for (policy, due) in [("exact", [0.5, 0.5]), ("alps", [0.25, 0.75]), ("las", [0.5, 0.5])] {
        let spec = GateSpec { policy: policy.into(), cpus: 2, ..GateSpec::default() };
        let mut run = Session::new(&spec, Script::default()).unwrap();
        run.join(Share::ONE).unwrap();
        run.join(Share::new(3).unwrap()).unwrap();
        let standings = run.ledger().standings(|_, _| true, |i, _| Nanos([10, 30][i]));
        assert_eq!([0, 1].map(|i| standings[i].effective_fraction), due, "{policy}");
        assert_eq!([0, 1].map(|i| standings[i].achieved_fraction), [0.25, 0.75]);
        assert_eq!(standings[1].relative_error, 0.75 / due[1] - 1.0, "{policy}");
        assert_eq!(standings[0].requested_fraction, 0.25);
        assert_eq!(run.header(vec!["a".into()]).gate, spec);
    }
    let none = GateSpec { policy: "gps".into(), ..GateSpec::default() };
    assert!(Session::new(&none, Script::default()).is_err());
}

#[test]
fn ends_are_counted_when_nobody_is_scheduled_any_more() {
    let mut run = Session::new(&GateSpec::default(), Script::default()).unwrap();
    run.join(Share::ONE).unwrap();
    run.host_mut().news.extend([News::Woke(A), News::Gone(A)]);
    assert_eq!(run.wait_for_ends(Instant(7)), Ok(1));
    assert_eq!(run.wait_for_ends(Instant(9)), Ok(0));
    assert_eq!((run.host().now, run.nr_clients()), (9, 1), "the policy hears of nothing");
    run.host_mut().broken = true;
    assert!(run.wait_for_ends(Instant(9)).is_err());
}

/// Holds nobody; who has more than one share is due all that it can use.
#[derive(Default)]
struct Idle(Vec<ClientId>);

impl Policy for Idle {
    type Decision = Gate;

    fn on_event(&mut self, _: Instant, event: Event) -> Result<(), EventError> {
        if let Event::Join { client, share } | Event::Reshare { client, share } = event {
            self.0.retain(|of| *of != client);
            self.0.extend((share > Share::ONE).then_some(client));
        }
        Ok(())
    }

    fn poll_decision(&mut self, _: Instant) -> Option<Gate> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn capped(&self) -> &[ClientId] {
        &self.0
    }
}

#[test]
fn a_host_hears_who_is_never_held_when_that_changes() {
    let mut engine = Engine::new(Idle::default(), Script::default(), 1);
    let two = Share::new(2).unwrap();
    for share in [two, two, Share::ONE] {
        engine.join(share).unwrap();
    }
    for (at, client, share) in [(1, A, two), (2, A, Share::ONE), (3, B, two)] {
        engine.reshare(client, share).unwrap();
        engine.turn(Some(Instant(at))).unwrap();
    }
    assert_eq!(engine.host().capped, [vec![B, A], vec![B]]);
}

/// What it takes to hold clients the policy is told when that changes, and a trace: cycles are as long as that is worth from the next on.
#[test]
fn a_policy_hears_what_it_takes_to_hold_clients() {
    let spec = GateSpec { cycle_ns_max: Some(1_000_000_000), ..GateSpec::default() };
    let header = TraceHeader { divvy_trace: TRACE_VERSION, gate: spec.clone(), clients: vec!["a".into()] };
    let lines = Rc::new(RefCell::new(vec![serde_json::to_string(&header).unwrap()]));
    let mut engine = Engine::new(spec.make().unwrap(), Script::default(), 1);
    engine.record_to(Box::new(Lines(Rc::clone(&lines))));
    engine.join(Share::ONE).unwrap();
    let mut cycles = Vec::new();
    for ms in [0, 2, 2, 0] {
        engine.host_mut().switch_cost = Nanos::from_millis(ms);
        let (before, end) = (engine.ledger().cycles().ended, engine.host().now + 1_280_000_000);
        while engine.host().now < end {
            let now = engine.host().now;
            engine.host_mut().used.insert(0, now);
            engine.turn(Some(Instant(end))).unwrap();
        }
        cycles.push(engine.ledger().cycles().ended - before);
    }
    assert!(cycles[0] >= 120 && cycles[3] >= 120 && (9..=11).contains(&cycles[2]), "{cycles:?}");
    let lines = lines.take();
    assert_eq!(lines.iter().filter(|line| line.contains("switchcost")).count(), 2);
    assert!(replay(lines.iter().cloned()).unwrap() > 0);
    let untold = lines.iter().filter(|line| !line.contains("switchcost")).cloned();
    assert!(matches!(replay(untold), Err(Divergence::Decision { .. })), "other decisions without");
}
