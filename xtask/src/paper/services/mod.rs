//! Real services: three users' web servers and databases at 1:2:3 under load (ALPS, section 5.3), audio encoders at 1 to 5
//! (VTRR, section 5), parallel test suites, and virtual machines at 1:2:3 (VTRR, section 5).
//!
//! *Service*: Apache with PHP and MariaDB of one user's own (`service.rs`). *Load*: `ab` and `sysbench`, on another CPU than
//! theirs (`load.rs`). *Division*: nobody's, divvy's, and the kernel's CPU weights (`divided.rs`), on one CPU that is theirs
//! together. Each part keeps its rows as data, so that the page can be made of parts that were measured one by one.

mod counted;
mod divided;
mod encoders;
mod goals;
mod load;
mod machines;
mod served;
mod service;
mod suites;
mod turns;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use divided::Division;
pub(crate) use turns::{TURNS, work as turns};

use super::real::arena::Arena;
use super::{Setting, alps};
use crate::PaperArgs;

/// Makes the runs and writes `OUT/services.md`.
///
/// # Errors
/// What is missing here, or does not run; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "services: only root runs the servers of three users; use sudo"
    );
    let divvy = alps::start::divvy(args.programs.as_deref())?;
    let mut setting = Setting::new(&PaperArgs { lanes: 1, ..args.clone() }, "services")?;
    let cpus = setting.bench.cpus().to_vec();
    ensure!(cpus.len() > 1, "services: the load needs a CPU of its own, and this machine has one");
    {
        let asked = setting.bench.asked();
        let arena = Arena::new(&cpus, 1, divvy, asked)?;
        served::web(&mut setting, &arena)?;
        served::transactions(&mut setting, &arena)?;
        encoders::encoders(&mut setting, &arena)?;
        suites::suites(&mut setting, &arena)?;
        machines::machines(&mut setting, &arena)?;
    }
    setting.only = None;
    setting.finish("Real services", &PREFACE)
}

const PREFACE: [&str; 2] = [
    "What is divided runs on one CPU, divvy too, so that what it uses is taken from the services; what makes load and what \
     watches run on another. CPU time is what the kernel's own books say (`cpuacct`). *Nobody*: no scheduler but the \
     kernel's, all in sessions of their own. *divvy, default*: `divvy share` as it comes, with the back end that it takes here in \
     brackets; *signals* and *cgroup*: with `--backend signals` and `--backend cgroup`, which `--backend auto` takes where \
     it can be had. *Kernel's weights*: a cgroup for each, weighed as the shares say. *Minimal loop*: the least that a program does which \
     divides by holding: it freezes (*freezer*) or stops (*signals*) all but one, each for its share times 10 ms by the clock, \
     and looks at nothing but, by signals, who there is. Whoever sleeps in its turn leaves the CPU idle, so its parts of CPU time are not the shares'; what it costs, and \
     what being held costs the work, are what divvy's are to be seen beside.",
    "Each part can be measured by itself (`--only web`, `oltp`, `encoders`, `suites` or `machines`); the page then takes the other parts \
     from the data that is there.",
];

/// The rows of a part: measured if it is wanted, else what an earlier run has left; none if there is nothing.
fn rows<T: Serialize + DeserializeOwned>(
    s: &Setting,
    part: &str,
    measure: impl FnOnce() -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    if s.wants(part) {
        return measure().with_context(|| format!("services: {part}"));
    }
    let path = s.page.data(part);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut data = csv::Reader::from_path(&path).with_context(|| format!("read {}", path.display()))?;
    data.deserialize().map(|row| row.with_context(|| format!("read {}", path.display()))).collect()
}

/// What `measure` finds for each of `divisions`. Where divvy was to take its clients to cgroups of its own, and could not, a line
/// in `not` says why.
fn each<T>(
    s: &Setting,
    part: &str,
    divisions: &[Division],
    not: &mut Vec<String>,
    mut measure: impl FnMut(Division) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let mut rows = Vec::new();
    for &division in divisions {
        eprintln!("services: {part}: {}", division.name());
        match measure(division) {
            Ok(measured) => rows.extend(measured),
            Err(e) if division.moves() => {
                s.bench.check()?;
                not.push(format!("{}: {} was not measured: {e:#}.", part, division.name()));
            }
            Err(e) => return Err(e.context(division.name())),
        }
    }
    Ok(rows)
}
