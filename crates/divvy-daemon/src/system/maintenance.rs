//! What a system's divvyd does beside answering: it reads its policy anew when it is told to, and gives signs of life.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use divvy_linux::CpuMask;
use sd_notify::NotifyState;
use tokio::sync::Notify;

use super::in_force::{InForce, brief};
use super::market_bridge::{Follower, MarketBridge};
use super::notify::Notifier;
use super::{PolicyFile, Read, SystemPlaceError};
use crate::limit::Limiter;
use crate::market::message::{self as market, Ask, Who};
use crate::market::policy::Policy;
use crate::message::{Answer, Command, Handle};
use divvy_api::types::ErrorCode;

/// Users who run something are looked for this often, where everybody's processes are divided.
const NEWCOMERS: Duration = Duration::from_secs(5);
/// So often it is looked whether every thread answers, where no manager wants to know.
const LOOK: Duration = Duration::from_secs(10);

/// What they need. They run on the API's thread.
pub(super) struct Maintenance {
    pub(super) scheduler: Handle,
    pub(super) market: market::Handle,
    pub(super) notifier: Arc<Notifier>,
    /// The manager wants a sign of life at least so often.
    pub(super) watchdog: Option<Duration>,
    /// Told each time that somebody asks for a reload (SIGHUP).
    pub(super) reload: Arc<Notify>,
    pub(super) file: PolicyFile,
    pub(super) in_force: Arc<InForce>,
    /// What divvyd was started with.
    pub(super) begun_with: Policy,
    /// What holds just now.
    pub(super) policy: Policy,
    pub(super) limiter: Limiter,
    pub(super) bridge: MarketBridge,
}

impl Maintenance {
    pub(super) async fn run(self) {
        let every = self.watchdog.unwrap_or(LOOK);
        let (scheduler, market) = (self.scheduler.clone(), self.market.clone());
        tokio::spawn(signs_of_life(scheduler, market, Arc::clone(&self.notifier), every));
        let Self {
            market, notifier, reload, file, in_force, begun_with, mut policy, limiter, bridge, ..
        } = self;
        let follower = bridge.begin(&policy).await;
        let mut seen = BTreeSet::new();
        loop {
            follower.look_for_users(&policy, &mut seen).await;
            let newcomers = async {
                if policy.everything_of_all() {
                    tokio::time::sleep(NEWCOMERS).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = reload.notified() => {}
                () = newcomers => continue,
            }
            seen.clear();
            notifier.reloading();
            let modified = in_force.modified();
            match reload_policy(&market, &file, &mut policy, &follower).await {
                Ok(is_there) => in_force.took(is_there, modified, differs(&begun_with, &policy)),
                Err(why) => {
                    tracing::error!(policy = %file.path.display(), "policy not read anew, the old one stays: {why}");
                    in_force.refused(brief(&why), modified);
                }
            }
            limiter.set_policy(policy.clone());
            notifier.tell(&[NotifyState::Ready]);
        }
    }
}

/// Whether what is only read at the start is another.
fn differs(begun_with: &Policy, policy: &Policy) -> bool {
    begun_with.scheduler != policy.scheduler || begun_with.presence != policy.presence
}

/// One of these CPUs that the machine does not have. (Which of them divvyd itself may use depends on what it keeps itself to.)
fn absent_cpu(cpus: Option<&CpuMask>) -> Option<u32> {
    let online = CpuMask::online().ok()?;
    cpus?.iter().find(|&cpu| !online.contains(cpu))
}

/// Takes over what the policy file says now, and says whether it is there; or nothing of it, and says why.
async fn reload_policy(
    market: &market::Handle,
    file: &PolicyFile,
    policy: &mut Policy,
    follower: &Follower,
) -> Result<bool, String> {
    let path = file.path.display().to_string();
    let Read { policy: new, is_there } = file.read().map_err(|e| match e {
        SystemPlaceError::Policy { why, .. } => why, // Whoever is told of it knows of which file.
        e => e.to_string(),
    })?;
    if let Some(cpu) = absent_cpu(new.scheduler.cpus.as_ref()) {
        return Err(format!(
            "[scheduler] cpus: this machine has no CPU {cpu}; the next start would fail by that"
        ));
    }
    let asked = market.ask(Who::divvyd(), Ask::Reload(Box::new(new.clone()))).await;
    asked.map_err(|refusal| format!("the market did not take it: {}", refusal.message))?;
    if new.scheduler != policy.scheduler {
        tracing::warn!(policy = path, "what [scheduler] says holds from the next start on");
    }
    if new.presence != policy.presence {
        tracing::warn!(policy = path, "what [presence] says holds from the next start on");
    }
    if is_there {
        tracing::info!(policy = path, "policy read anew");
    } else {
        tracing::warn!(policy = path, "there is no such file: the defaults hold from now on");
    }
    follower.follow(&new).await;
    *policy = new;
    Ok(is_there)
}

/// Says that all is well as long as every thread answers: twice as often as it has to be, and never for one that hangs.
async fn signs_of_life(scheduler: Handle, market: market::Handle, notifier: Arc<Notifier>, every: Duration) {
    let pause = every / 2;
    // The least that the market can be asked.
    let base = || Ask::Currency("base".to_owned());
    loop {
        let asked = async {
            let status = scheduler.ask(Command::Status).await;
            (status, market.ask(Who::divvyd(), base()).await)
        };
        match tokio::time::timeout(pause, asked).await {
            // We are ending already.
            Ok((Err(refusal), _)) if refusal.code == ErrorCode::Leaving => return,
            Ok((_, Err(refusal))) if refusal.code == ErrorCode::Leaving => {
                // It has ended by itself. So do we, in order; whoever manages us starts us anew.
                tracing::error!("the thread of the market has ended");
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
                return;
            }
            Ok((Ok(Answer::Status(status)), _)) => {
                let text = format!("divides {} clients", status.clients);
                notifier.tell(&[NotifyState::Watchdog, NotifyState::Status(&text)]);
            }
            _ => tracing::warn!("a thread has not answered within {} ms", pause.as_millis()),
        }
        tokio::time::sleep(pause).await;
    }
}
