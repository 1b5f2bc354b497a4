//! scratch
use divvy_engine::policies::GateSpec;
use divvy_engine::*;
use divvy_linux::*;
use divvy_policy::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let secs: u64 = a[1].parse().unwrap();
    let policy = a[2].clone();
    let q: u64 = a[3].parse().unwrap();
    let mut mask = CpuMask::default();
    for c in a[4].split(',') { mask.insert(c.parse().unwrap()); }
    let n = mask.iter().count() as u32;
    let host = LinuxHost::new(&HostParams { cpus: Some(mask), capacity: 10000 }).unwrap();
    let gate = GateSpec { policy, quantum_ns: q * 1_000_000, cpus: n, scale_shares: false, ..Default::default() }.make().unwrap();
    let mut e = Engine::new(gate, host, n);
    for spec in &a[5..] {
        let (s, c) = spec.split_once(':').unwrap();
        e.host_mut().spawn(Command { argv: ["sh", "-c", c].iter().map(|s| s.into()).collect(), ..Default::default() }).unwrap();
        e.join(Share::new(s.parse().unwrap()).unwrap()).unwrap();
    }
    e.serve().unwrap();
    let start = clock::now();
    let c0 = e.self_cost();
    let end = start + Nanos::from_secs(secs);
    while clock::now() < end && e.nr_clients() > 0 { e.turn(Some(end)).unwrap(); }
    e.audit();
    let c1 = e.self_cost();
    let used: u64 = e.ledger().clients().iter().map(|c| c.service.0).sum();
    let tot: u64 = e.ledger().clients().iter().map(|c| c.share.get()).sum();
    let wall = clock::now().since(start).0;
    println!("used {:.2}% cycles {} err {:?} wakeups {} reads {} signals {} cpu {:.4}%", used as f64 / wall as f64 * 100., e.ledger().cycles().ended, e.ledger().cycles().errors(), e.wakeups(), c1.reads, c1.signals, (c1.cpu.0 - c0.cpu.0) as f64 / wall as f64 * 100.);
    for c in e.ledger().clients() { print!("{}:{:.3}%({:+.3}%) ", c.share, c.service.0 as f64 / used as f64 * 100., (c.service.0 as f64 / used as f64 / (c.share.get() as f64 / tot as f64) - 1.) * 100.); }
    println!();
    let ids: Vec<_> = (0..a.len() as u32 - 5).map(ClientId).collect();
    for id in &ids { let _ = e.host_mut().signal(*id, Signal::KILL); }
    while e.nr_clients() > 0 { e.turn(None).unwrap(); }
}
