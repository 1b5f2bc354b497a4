//! Loads on services, and what they found: Apache's `ab`, and `sysbench`.

use anyhow::{Context as _, Result};

use super::divided::Divided;
use super::service::{OLTP_ROWS, Service};

/// Requests, or transactions, that are under way at once with each service.
const CONNECTIONS: u32 = 8;

/// What a load found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Served {
    pub(super) per_second: f64,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) failed: u64,
}

/// Asks all web servers at once for `seconds`.
pub(super) fn pages(divided: &mut Divided<'_>, services: &[Service], seconds: u32) -> Result<Vec<Served>> {
    let args = |service: &Service| -> Vec<String> {
        // The time comes first: it sets a number of requests, too.
        let args = ["-q", "-k", "-l", "-c", &CONNECTIONS.to_string(), "-t", &seconds.to_string()];
        args.into_iter().chain(["-n", "10000000", &service.url()]).map(str::to_owned).collect()
    };
    all(divided, services, "ab", args, of_ab)
}

fn sysbench(service: &Service, rest: &[&str]) -> Vec<String> {
    let socket = format!("--mysql-socket={}", service.socket().display());
    let rows = format!("--table-size={OLTP_ROWS}");
    let args = ["oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--mysql-db=oltp", "--tables=1"];
    let args = args.into_iter().chain([socket.as_str(), rows.as_str()]).chain(rest.iter().copied());
    args.map(str::to_owned).collect()
}

/// Makes sysbench's table in each database.
pub(super) fn prepare_transactions(divided: &mut Divided<'_>, services: &[Service]) -> Result<()> {
    for service in services {
        let load = divided.load("sysbench", &sysbench(service, &["prepare"]))?;
        divided.loaded(load)?;
    }
    Ok(())
}

/// Has sysbench ask all databases at once for `seconds`.
pub(super) fn transactions(
    divided: &mut Divided<'_>,
    services: &[Service],
    seconds: u32,
) -> Result<Vec<Served>> {
    let (threads, time) = (format!("--threads={CONNECTIONS}"), format!("--time={seconds}"));
    let args = |service: &Service| sysbench(service, &[&threads, &time, "--percentile=99", "run"]);
    all(divided, services, "sysbench", args, of_sysbench)
}

fn all(
    divided: &mut Divided<'_>,
    services: &[Service],
    program: &str,
    args: impl Fn(&Service) -> Vec<String>,
    read: fn(&str) -> Option<Served>,
) -> Result<Vec<Served>> {
    let loads = services.iter().map(|service| divided.load(program, &args(service)));
    let loads: Vec<_> = loads.collect::<Result<_>>()?;
    let one = |load| {
        let said = divided.loaded(load)?;
        read(&said).with_context(|| format!("{program} printed {said}"))
    };
    loads.into_iter().map(one).collect()
}

fn after<'a>(said: &'a str, label: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.trim_start().strip_prefix(label))
}

fn number(said: &str, label: &str) -> Option<f64> {
    after(said, label)?.split_whitespace().next()?.parse().ok()
}

/// What ab prints.
fn of_ab(said: &str) -> Option<Served> {
    Some(Served {
        per_second: number(said, "Requests per second:")?,
        median_ms: number(said, "50%")?,
        p99_ms: number(said, "99%")?,
        failed: (number(said, "Failed requests:")? + number(said, "Non-2xx responses:").unwrap_or(0.0))
            as u64,
    })
}

/// What sysbench prints; it knows one percentile, and the mean in the median's place.
fn of_sysbench(said: &str) -> Option<Served> {
    let rate = after(said, "transactions:")?.split_once('(')?.1;
    Some(Served {
        per_second: rate.split_whitespace().next()?.parse().ok()?,
        median_ms: number(said, "avg:")?,
        p99_ms: number(said, "99th percentile:")?,
        failed: number(said, "ignored errors:")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ab_prints_is_read() {
        let said = "Failed requests:        2\nNon-2xx responses:      3\nRequests per second:    29.31 [#/sec] (mean)\n\
                    Percentage of the requests served within a certain time (ms)\n  50%    271\n  99%    533\n 100%    601 (longest request)\n";
        let served = Served { per_second: 29.31, median_ms: 271.0, p99_ms: 533.0, failed: 5 };
        assert_eq!(of_ab(said), Some(served));
        assert_eq!(of_ab("Complete requests: 0\n"), None);
    }

    #[test]
    fn what_sysbench_prints_is_read() {
        let said = "    transactions:                        1187   (118.43 per sec.)\n\
                    \x20   queries:                             23740  (2368.66 per sec.)\n    ignored errors:                      1      (0.10 per sec.)\n\
                    Latency (ms):\n         min:                                   23.83\n         avg:                                   33.71\n\
                    \x20        99th percentile:                       64.47\n";
        let served = Served { per_second: 118.43, median_ms: 33.71, p99_ms: 64.47, failed: 1 };
        assert_eq!(of_sysbench(said), Some(served));
        assert_eq!(of_sysbench("FATAL: no\n"), None);
    }
}
