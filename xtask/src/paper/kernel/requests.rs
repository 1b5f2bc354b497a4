//! Users of a web server in the machine: busybox's, whose answers a script computes in the cgroup of the user who asks.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::{Spec, Work};

const DIR: &str = "/tmp/www";
/// What answers are made of: a file with a hole alone, which takes no memory.
const FILE: &str = "/tmp/www/file";
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// `/cgi-bin/answer?USER+BYTES`: as in the paper, a summary whose cost is proportional to what is read.
const SCRIPT: &str = "#!/bin/sh\n\
                      echo $$ >/sys/fs/cgroup/c${QUERY_STRING%%+*}/cgroup.procs || exit 1\n\
                      printf 'Content-Type: text/plain\\r\\n\\r\\n'\n\
                      head -c ${QUERY_STRING##*+} /tmp/www/file | md5sum\n";

const SUM_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// Ended with this value.
pub(super) struct Server(Child);

impl Server {
    /// A server for a run's users, if it has any.
    pub(super) fn start_for(spec: &Spec) -> Result<Option<Self>> {
        let largest = spec.clients.iter().filter_map(|client| match client.work {
            Work::Requests { high, .. } => Some(high),
            _ => None,
        });
        largest.max().map(Self::start).transpose()
    }

    /// A server that can answer up to `largest` bytes.
    fn start(largest: u64) -> Result<Self> {
        let script = Path::new(DIR).join("cgi-bin/answer");
        fs::create_dir_all(script.parent().context("a directory")?)
            .with_context(|| format!("create {DIR}"))?;
        fs::write(&script, SCRIPT).context("write the script")?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context("make it a program")?;
        File::create(FILE).and_then(|file| file.set_len(largest)).with_context(|| format!("make {FILE}"))?;
        let up = Command::new("ifconfig").args(["lo", "up"]).status().context("start ifconfig")?;
        ensure!(up.success(), "ifconfig lo up: {up}");
        let mut server = Command::new("httpd");
        server.args(["-f", "-p", &ADDRESS.to_string(), "-h", DIR]).stdin(Stdio::null());
        let server = Self(server.spawn().context("start httpd")?);
        for _ in 0..100 {
            if TcpStream::connect(ADDRESS).is_ok() {
                return Ok(server);
            }
            clock::sleep(Nanos::from_millis(50));
        }
        bail!("httpd does not serve at {ADDRESS}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks for so many bytes, and takes the answer.
///
/// # Errors
/// A server that does not answer, or answers something else.
pub(super) fn ask(user: u64, bytes: u64) -> Result<()> {
    let mut server = TcpStream::connect(ADDRESS).context("connect")?;
    write!(server, "GET /cgi-bin/answer?{user}+{bytes} HTTP/1.0\r\n\r\n").context("ask")?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).context("take the answer")?;
    let summed = answer.trim_end().ends_with("  -") && !answer.contains(SUM_OF_NOTHING);
    ensure!(summed, "an answer without a sum: {answer}");
    Ok(())
}
