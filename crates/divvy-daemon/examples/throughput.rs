//! How many requests a second a system's divvyd answers over its socket, and how long each waits.
//!
//! ```text
//! divvyd --system --run-dir /tmp/t/run --state-dir /tmp/t/state &
//! cargo run --release -p divvy-daemon --example throughput -- /tmp/t/run/api.sock --rate 10000 --clients 500
//! ```
//!
//! As root, whom no limit holds. Connections are kept alive, and the kernel's word about who is there is asked once for
//! each. Requests are sent at a fixed rate, whether or not those before were answered in time: what is measured is the time
//! from when a request was due to its whole answer. Of each ten, three look at a currency and three at a ticket (the
//! market), two at a client and one at the whole (the scheduler), and one changes a ticket, which is on disk before it is
//! answered. With `--floor`, the same is asked of a server that does nothing, in the same run: what the machine itself leaves of
//! the time. With `--clients`, so many shells that compute are attached first, and ended afterwards.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
struct Args {
    /// The socket
    socket: PathBuf,
    /// Requests a second in all; 0 for as many as are answered
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Connections
    #[arg(long, default_value_t = 32)]
    connections: u64,
    /// For so long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Clients that compute meanwhile
    #[arg(long, default_value_t = 0)]
    clients: usize,
    /// One in so many requests changes something
    #[arg(long, default_value_t = 10)]
    change: u64,
    /// Ask a server that does nothing in the same way afterwards, beside the same clients: what is left is the machine's
    #[arg(long)]
    floor: bool,
    /// Be that server
    #[arg(long, hide = true)]
    serve_nothing: bool,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Currency,
    Ticket,
    Client,
    Status,
    Change,
}

impl Kind {
    fn of(n: u64, change: u64) -> Self {
        if n % change == change - 1 {
            return Self::Change;
        }
        match n % 9 {
            0..3 => Self::Currency,
            3..6 => Self::Ticket,
            6..8 => Self::Client,
            _ => Self::Status,
        }
    }
}

/// A connection that is kept.
struct Line(BufReader<UnixStream>);

impl Line {
    fn new(socket: &PathBuf) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(socket)?)))
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), Failed> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: divvyd\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(head.as_bytes())?;
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the connection was closed".into());
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or("0").parse()?;
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, body))
    }

    fn json(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, Failed> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.ask(method, path, &text)?;
        let value: Value = serde_json::from_slice(&answer)?;
        if status < 300 { Ok(value) } else { Err(format!("{method} {path}: {status} {value}").into()) }
    }
}

/// What one connection has seen.
#[derive(Default)]
struct Seen {
    times: Vec<(Kind, Duration)>,
    failures: u64,
}

/// A connection's share of the requests.
fn work(args: &Args, socket: &PathBuf, index: u64, ticket: &str, client: &str) -> Result<Seen, Failed> {
    let mut line = Line::new(socket)?;
    let mut seen = Seen::default();
    let pause = (args.rate > 0).then(|| Duration::from_nanos(1_000_000_000 * args.connections / args.rate));
    let begun = Instant::now();
    let end = begun + Duration::from_secs(args.seconds);
    // Not all of them at once.
    let mut due = begun + pause.unwrap_or_default() * index as u32 / args.connections as u32;
    for n in index.. {
        let now = Instant::now();
        if now >= end {
            break;
        }
        let from = match pause {
            Some(pause) => {
                std::thread::sleep(due.saturating_duration_since(now));
                let from = due;
                due += pause;
                from
            }
            None => now,
        };
        let kind = Kind::of(n, args.change.max(1));
        let (status, _) = match kind {
            Kind::Currency => line.ask("GET", "/v1/market/currencies/base", "")?,
            Kind::Ticket => line.ask("GET", &format!("/v1/market/tickets/{ticket}"), "")?,
            Kind::Client => line.ask("GET", &format!("/v1/clients/{client}?members=0"), "")?,
            Kind::Status => line.ask("GET", "/v1/status", "")?,
            Kind::Change => {
                let body = format!("{{\"amount\":{}}}", 1 + n % 100);
                line.ask("PATCH", &format!("/v1/market/tickets/{ticket}"), &body)?
            }
        };
        seen.failures +=
            u64::from(status != 200 && !(kind == Kind::Client && client == "none" && status == 404));
        seen.times.push((kind, from.elapsed()));
    }
    Ok(seen)
}

/// Asks over all connections at once.
fn ask_all(args: &Args, socket: &PathBuf, ticket: &str, client: &str) -> Result<Vec<Seen>, Failed> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.connections)
            .map(|index| scope.spawn(move || work(args, socket, index, ticket, client)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<_, Failed>>()
    })
}

fn percentile(times: &[Duration], part: f64) -> f64 {
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

fn row(what: &str, mut times: Vec<Duration>, seconds: f64) {
    times.sort_unstable();
    let [median, p99, p999] = [0.5, 0.99, 0.999].map(|part| percentile(&times, part));
    let rate = times.len() as f64 / seconds;
    println!("| {what} | {rate:.0} | {median:.2} | {p99:.2} | {p999:.2} | {:.2} |", percentile(&times, 1.0));
}

/// A server that answers everything at once, with nothing: the same library, on one thread, as divvyd.
fn serve_nothing(socket: &PathBuf) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(socket)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let nothing = |_: hyper::Request<hyper::body::Incoming>| async {
                let body = http_body_util::Full::new(hyper::body::Bytes::from_static(b"{}"));
                Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
            };
            let io = hyper_util::rt::TokioIo::new(stream);
            let service = hyper::service::service_fn(nothing);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    })
}

/// Asks that server as divvyd was asked.
fn floor(args: &Args) -> Result<(), Failed> {
    let socket = std::env::temp_dir().join(format!("throughput-{}.sock", std::process::id()));
    let mut server = Command::new(std::env::current_exe()?);
    let server = server.arg(&socket).arg("--serve-nothing").stdin(Stdio::null()).spawn()?;
    let _ended = Computing(vec![server]);
    let until = Instant::now() + Duration::from_secs(30);
    while Line::new(&socket).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let begun = Instant::now();
    let seen = ask_all(args, &socket, "1", "none");
    let _ = std::fs::remove_file(&socket);
    let times = seen?.into_iter().flat_map(|seen| seen.times).map(|(_, time)| time).collect();
    row("a server that does nothing", times, begun.elapsed().as_secs_f64());
    Ok(())
}

/// Shells that compute, each a client. They are ended whatever happens.
struct Computing(Vec<Child>);

impl Drop for Computing {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn compute(line: &mut Line, clients: usize) -> Result<Computing, Failed> {
    let mut all = Computing(Vec::new());
    for n in 0..clients {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn()?;
        let selector = format!("pid:{}", child.id());
        all.0.push(child);
        line.json(
            "POST",
            "/v1/clients",
            &json!({ "name": format!("t{n}"), "share": 1 + n % 4, "selector": selector }),
        )?;
    }
    Ok(all)
}

fn main() -> Result<(), Failed> {
    let args = Args::parse();
    if args.serve_nothing {
        return serve_nothing(&args.socket);
    }
    let mut line = Line::new(&args.socket)?;
    let _ = line.ask("DELETE", "/v1/market/currencies/throughput", "")?; // Of a run that was cut off.
    let currency = line.json("POST", "/v1/market/currencies", &json!({ "name": "throughput" }))?;
    let name = &currency["result"]["id"];
    let ticket = json!({ "issuer": "base", "holder": name, "resource": "cpu", "amount": 5, "kind": "soft" });
    let ticket = line.json("POST", "/v1/market/tickets", &ticket)?;
    let ticket = ticket["result"]["id"].as_str().unwrap_or_default().to_owned();
    let computing = compute(&mut line, args.clients)?;
    let client = if args.clients > 0 { "t0" } else { "none" };
    let before = line.json("GET", "/v1/status", &Value::Null)?;
    let begun = Instant::now();
    let seen = ask_all(&args, &args.socket, &ticket, client)?;
    let seconds = begun.elapsed().as_secs_f64();
    // Ours has said nothing for too long.
    let mut line = Line::new(&args.socket)?;
    let after = line.json("GET", "/v1/status", &Value::Null)?;
    let failures: u64 = seen.iter().map(|seen| seen.failures).sum();
    let mut all: Vec<(Kind, Duration)> = seen.into_iter().flat_map(|seen| seen.times).collect();
    all.sort_unstable();
    println!("{} connections, {} clients that compute, {failures} failures", args.connections, args.clients);
    println!("| request | answered a second | median, ms | 99th percentile, ms | 99.9th, ms | longest, ms |");
    println!("|---|---|---|---|---|---|");
    for kind in [Kind::Currency, Kind::Ticket, Kind::Client, Kind::Status, Kind::Change] {
        row(&format!("{kind:?}"), all.iter().filter(|(k, _)| *k == kind).map(|(_, t)| *t).collect(), seconds);
    }
    row("all", all.iter().map(|(_, time)| *time).collect(), seconds);
    if args.floor {
        floor(&args)?;
    }
    let mut line = Line::new(&args.socket)?;
    let cpu = |status: &Value| status["self"]["cpu_ns"].as_u64().unwrap_or(0) as f64 / 1e9;
    println!("divvyd itself: {:.0} % of a CPU", (cpu(&after) - cpu(&before)) / seconds * 100.0);
    if args.clients > 0 {
        let list = line.json("GET", "/v1/clients?members=0", &Value::Null)?;
        let errors =
            list["clients"].as_array().into_iter().flatten().filter_map(|c| c["relative_error"].as_f64());
        let mut errors: Vec<f64> = errors.map(f64::abs).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let window = list["window_ns"].as_u64().unwrap_or(0) as f64 / 1e9;
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let worst = errors.last().copied().unwrap_or(0.0);
        println!("relative error of service over {window:.1} s: mean {mean:.3}, worst {worst:.3}");
    }
    drop(computing);
    line.json("DELETE", "/v1/market/currencies/throughput", &Value::Null)?;
    Ok(())
}
