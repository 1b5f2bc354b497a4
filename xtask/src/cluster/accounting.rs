//! The site's accounting: slurmdbd, on a MariaDB of its own in the machine's memory.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context as _, Result, bail};

use super::site::{as_daemon, bounded, daemon, done, eventually, write};

const DATA: &str = "/var/lib/mysql";
/// Where Slurm's plugin looks for it.
const SOCKET: &str = "/run/mysqld/mysqld.sock";
const CONF: &str = "\
AuthType=auth/munge
DbdHost=site
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
";
/// Read once, when the database begins: nobody but who is on this machine can ask it.
const INIT: &str = "\
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
";

/// Starts both, and waits until slurmdbd answers.
///
/// # Errors
/// What does not start.
pub(super) fn start() -> Result<Vec<(&'static str, Child)>> {
    for dir in ["/run/mysqld", DATA, "/run/slurm"] {
        std::fs::create_dir_all(dir).with_context(|| format!("create {dir}"))?;
    }
    done(&mut bounded(&["chown", "mysql:mysql", "/run/mysqld", DATA]))?;
    done(&mut bounded(&["chown", "slurm:slurm", "/run/slurm"]))?;
    let datadir = format!("--datadir={DATA}");
    let fresh = ["mariadb-install-db", "--no-defaults", "--user=mysql", "--skip-test-db", &datadir];
    done(bounded(&fresh).arg("--auth-root-authentication-method=normal"))?;
    write("/etc/slurm/mariadb.sql", INIT)?;
    let mut mariadbd = Command::new("mariadbd");
    mariadbd.args(["--no-defaults", "--user=mysql", "--skip-networking", &datadir]);
    mariadbd.args([&format!("--socket={SOCKET}"), "--init-file=/etc/slurm/mariadb.sql"]);
    mariadbd.args([
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=8M",
        "--innodb-flush-log-at-trx-commit=0",
    ]);
    let mut mariadbd = daemon("mariadbd", &mut mariadbd)?;
    eventually("the database's socket", || {
        if let Some(status) = mariadbd.try_wait().context("look after mariadbd")? {
            bail!("cluster: mariadbd ended by {status}");
        }
        Ok(Path::new(SOCKET).exists().then_some(()))
    })?;
    write("/etc/slurm/slurmdbd.conf", CONF)?;
    // Slurm takes it from nobody who lets others read it.
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions("/etc/slurm/slurmdbd.conf", private).context("make slurmdbd.conf private")?;
    done(&mut bounded(&["chown", "slurm:slurm", "/etc/slurm/slurmdbd.conf"]))?;
    let mut slurmdbd = daemon("slurmdbd", as_daemon("slurm").args(["slurmdbd", "-D"]))?;
    // slurmctld ends where it finds nobody.
    eventually("an answer of slurmdbd", || {
        if let Some(status) = slurmdbd.try_wait().context("look after slurmdbd")? {
            bail!("cluster: slurmdbd ended by {status}");
        }
        Ok(sacctmgr("show cluster").is_ok().then_some(()))
    })?;
    Ok(vec![("mariadbd", mariadbd), ("slurmdbd", slurmdbd)])
}

/// `sacctmgr` with these words, which it does not ask back about.
///
/// # Errors
/// Where it fails, with what it said.
pub(super) fn sacctmgr(words: &str) -> Result<String> {
    let mut argv = vec!["sacctmgr", "--immediate", "--noheader", "--parsable2"];
    argv.extend(words.split(' '));
    done(&mut bounded(&argv))
}
