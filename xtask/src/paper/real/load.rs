//! The load of a server: connections that ask, wait for the answer and ask again, on a CPU that is not divided.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::work::record;
use crate::client::{die_with_parent, number};

/// A server that does not answer by then does not come.
const START_WITHIN: Nanos = Nanos::from_secs(20);
/// Numbers in the list that redis sorts for each request.
const LIST: u64 = 500;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// A file over HTTP/1.0: a connection for each request.
    Http,
    /// Redis sorts a list of numbers, over connections that stay.
    Redis,
}

impl Load {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Redis => "redis",
        }
    }
}

/// `load KIND PORT FILE CONNECTIONS`: asks until it is killed, and writes down each request that was answered.
pub(super) fn load(mut args: impl Iterator<Item = String>) -> Result<()> {
    die_with_parent(libc::SIGKILL);
    let kind = match args.next().context("KIND is missing")?.as_str() {
        "http" => Load::Http,
        "redis" => Load::Redis,
        other => bail!("there is no load called {other}"),
    };
    let port = u16::try_from(number(&mut args, "PORT")?)?;
    let path = args.next().context("the file is missing")?;
    let open = || OpenOptions::new().append(true).create(true).open(&path);
    let connections = number(&mut args, "CONNECTIONS")?;
    if kind == Load::Redis {
        fill(&mut Connection::patient(port)?)?;
    } else {
        Connection::patient(port)?;
    }
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..connections)
            .map(|_| Ok(scope.spawn(|| ask(kind, port, open().context("open the file of requests")?))))
            .collect::<Result<_>>()?;
        for one in all {
            if let Ok(done) = one.join() {
                done?;
            }
        }
        Ok(())
    })
}

struct Connection {
    read: BufReader<TcpStream>,
    write: TcpStream,
}

impl Connection {
    fn new(port: u16) -> std::io::Result<Self> {
        let write = TcpStream::connect(("127.0.0.1", port))?;
        write.set_nodelay(true)?;
        Ok(Self { read: BufReader::new(write.try_clone()?), write })
    }

    /// Waits for a server that is only just starting.
    fn patient(port: u16) -> Result<Self> {
        let begun = clock::now();
        loop {
            match Self::new(port) {
                Ok(connection) => return Ok(connection),
                Err(e) => ensure!(clock::now().since(begun) < START_WITHIN, "connect to port {port}: {e}"),
            }
            clock::sleep(Nanos::from_millis(10));
        }
    }

    fn lines(&mut self, n: usize) -> Result<String> {
        let mut text = String::new();
        for _ in 0..n {
            ensure!(self.read.read_line(&mut text)? > 0, "the server has closed the connection");
        }
        Ok(text)
    }
}

/// Numbers in no order, the same each time.
fn fill(redis: &mut Connection) -> Result<()> {
    let mut x = 1_u64;
    let mut list = String::from("RPUSH list");
    for _ in 0..LIST {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list += &format!(" {}", x >> 40);
    }
    redis.write.write_all((list + "\r\n").as_bytes())?;
    let answer = redis.lines(1)?;
    ensure!(answer.starts_with(':'), "redis answered {answer:?}");
    Ok(())
}

fn ask(kind: Load, port: u16, mut file: File) -> Result<()> {
    let mut kept = if kind == Load::Redis { Some(Connection::patient(port)?) } else { None };
    loop {
        let begun = clock::now();
        match &mut kept {
            Some(redis) => {
                redis.write.write_all(b"SORT list LIMIT 0 1\r\n")?;
                let answer = redis.lines(3)?; // *1, $n, the number.
                ensure!(answer.starts_with("*1"), "redis answered {answer:?}");
            }
            None => {
                let mut http = Connection::patient(port)?; // The wait for a place counts.
                http.write.write_all(b"GET /page.txt HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")?;
                let mut answer = Vec::new();
                http.read.read_to_end(&mut answer)?;
                let head = answer.get(..15).unwrap_or_default();
                ensure!(
                    head.ends_with(b" 200 OK"),
                    "the server answered {:?}",
                    String::from_utf8_lossy(head)
                );
            }
        }
        let now = clock::now();
        record(&mut file, now, now.since(begun))?;
    }
}
