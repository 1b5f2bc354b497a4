//! One user's service: Apache with PHP and MariaDB, or MariaDB alone; all of it the user's own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::divided::Divided;

/// Users who are nobody else's: no account is needed.
const UIDS: [u32; 3] = [61_101, 61_102, 61_103];
const PATIENCE: Nanos = Nanos::from_secs(30);
const PAGE: &str = include_str!("page.php");
const TABLES: &str = include_str!("tables.sql");
/// Rows of sysbench's one table.
pub(super) const OLTP_ROWS: u32 = 20_000;

/// What a user runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Web,
    Database,
}

/// A database's files as every service begins with them, in memory until dropped.
pub(super) struct Template(tempfile::TempDir);

#[derive(Debug)]
pub(super) struct Service {
    kind: Kind,
    uid: u32,
    port: u16,
    dir: PathBuf,
}

fn done(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// PHP as a module of Apache's.
fn php() -> Result<PathBuf> {
    let modules = std::fs::read_dir("/usr/lib/apache2/modules").context("look for Apache's modules")?;
    let mut paths = modules.flatten().map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().contains("/libphp")).context("Apache has no module for PHP")
}

impl Template {
    /// Made by MariaDB's own programs, with the pages' tables, and an empty database for sysbench.
    pub(super) fn new(within: &Path) -> Result<Self> {
        let dir =
            tempfile::Builder::new().prefix("template-").tempdir_in(within).context("make a directory")?;
        let data = dir.path().join("data");
        let datadir = format!("--datadir={}", data.display());
        let mut install = Command::new("mariadb-install-db");
        done(install.args([
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
            &datadir,
        ]))?;
        let tables = dir.path().join("tables.sql");
        write(&tables, TABLES)?;
        let mut bootstrap = Command::new("mariadbd");
        bootstrap.args([
            "--no-defaults",
            "--user=root",
            "--bootstrap",
            "--innodb-log-file-size=8M",
            &datadir,
        ]);
        let input = std::fs::File::open(&tables).context("read the tables")?;
        let output = bootstrap.stdin(input).output().context("start mariadbd")?;
        ensure!(output.status.success(), "{bootstrap:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self(dir))
    }
}

impl Service {
    /// The services of three users, with the same pages and tables.
    pub(super) fn three(kind: Kind, template: &Template, divided: &Divided<'_>) -> Result<Vec<Self>> {
        let mut services = Vec::new();
        for uid in UIDS {
            let dir = divided.memory().join(uid.to_string());
            let service = Self { kind, uid, port: free_port()?, dir };
            service.make(template)?;
            services.push(service);
        }
        Ok(services)
    }

    fn make(&self, template: &Template) -> Result<()> {
        let dir = &self.dir;
        std::fs::create_dir_all(dir.join("pages")).context("create a service's directory")?;
        done(Command::new("cp").arg("-a").arg(template.0.path().join("data")).arg(dir))?;
        write(
            &dir.join("pages/index.php"),
            &PAGE.replace("SOCKET", &dir.join("sock").display().to_string()),
        )?;
        if self.kind == Kind::Web {
            write(&dir.join("httpd.conf"), &self.httpd(&php()?))?;
        }
        write(&dir.join("serve"), &self.script())?;
        done(Command::new("chown").arg("-R").arg(format!("{0}:{0}", self.uid)).arg(dir)).map(drop)
    }

    fn httpd(&self, php: &Path) -> String {
        let mut conf = String::new();
        for module in ["mpm_prefork", "authz_core", "dir", "mime"] {
            let _ = writeln!(conf, "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so");
        }
        let _ = writeln!(conf, "LoadModule php_module {}", php.display());
        let dir = self.dir.display();
        let _ = write!(
            conf,
            "ServerName localhost\nListen 127.0.0.1:{}\nPidFile {dir}/httpd.pid\nErrorLog {dir}/httpd.log\n\
             DefaultRuntimeDir {dir}\nMutex posixsem\nDocumentRoot {dir}/pages\nDirectoryIndex index.php\n\
             TypesConfig /dev/null\nKeepAlive On\nMaxKeepAliveRequests 0\nStartServers 12\nMinSpareServers 4\nMaxSpareServers 16\n\
             MaxRequestWorkers 16\nMaxConnectionsPerChild 0\n<FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>\n",
            self.port
        );
        conf
    }

    /// The servers, until this is ended.
    fn script(&self) -> String {
        let dir = self.dir.display();
        let web = if self.kind == Kind::Web {
            format!("apache2 -f {dir}/httpd.conf -DFOREGROUND &\n")
        } else {
            String::new()
        };
        format!(
            "cd {dir}\n\
             mariadbd --no-defaults --datadir={dir}/data --socket={dir}/sock --skip-networking --skip-grant-tables \
             --innodb-buffer-pool-size=32M --innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=0 \
             --innodb-flush-method=fsync --max-connections=64 --performance-schema=off &\n{web}wait\n"
        )
    }

    /// What is to be divided.
    pub(super) fn command(&self) -> String {
        let uid = self.uid;
        format!(
            "exec setpriv --reuid {uid} --regid {uid} --clear-groups sh {}",
            self.dir.join("serve").display()
        )
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Whether it serves.
    fn serves(&self) -> bool {
        match self.kind {
            Kind::Web => done(Command::new("ab").args(["-q", "-n", "1", &self.url()])).is_ok_and(|said| {
                said.contains("Failed requests:        0") && !said.contains("Non-2xx responses")
            }),
            Kind::Database => std::os::unix::net::UnixStream::connect(self.socket()).is_ok(),
        }
    }

    /// Waits until it serves.
    pub(super) fn wait(&self, divided: &mut Divided<'_>) -> Result<()> {
        let until = clock::now() + PATIENCE;
        while !self.serves() {
            divided.check()?;
            let log = || std::fs::read_to_string(self.dir.join("httpd.log")).unwrap_or_default();
            ensure!(
                clock::now() < until,
                "the service of user {} does not serve{}; {}",
                self.uid,
                divided.complaints(),
                log().trim()
            );
            clock::sleep(Nanos::from_millis(100));
        }
        Ok(())
    }
}

/// A port that nobody has now.
fn free_port() -> Result<u16> {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(socket.local_addr()?.port())
}
