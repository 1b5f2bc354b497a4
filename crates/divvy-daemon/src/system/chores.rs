//! What a system's divvyd does beside answering: it reads its policy anew when it is told to, and gives signs of life.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::Notify;

use super::PolicyFile;
use super::notify::Notifier;
use crate::market::policy::Policy;
use crate::message::{Answer, Command, Handle};

/// What they need. They run on the API's thread.
pub(super) struct Chores {
    pub(super) scheduler: Handle,
    pub(super) notifier: Arc<Notifier>,
    /// The manager wants a sign of life at least so often.
    pub(super) watchdog: Option<Duration>,
    /// Told each time that somebody asks for a reload (SIGHUP).
    pub(super) reload: Arc<Notify>,
    pub(super) file: PolicyFile,
    /// What holds just now.
    pub(super) policy: Policy,
}

impl Chores {
    pub(super) async fn run(mut self) {
        if let Some(every) = self.watchdog {
            tokio::spawn(signs_of_life(self.scheduler.clone(), Arc::clone(&self.notifier), every));
        }
        loop {
            self.reload.notified().await;
            self.notifier.reloading();
            self.reload_policy().await;
            self.notifier.tell(&[NotifyState::Ready]);
        }
    }

    /// Takes over what the policy file says now, or nothing of it.
    async fn reload_policy(&mut self) {
        let path = self.file.path.display().to_string();
        let new = match self.file.read() {
            Ok(new) => new,
            Err(e) => {
                tracing::error!(policy = path, "policy not read anew, the old one stays: {e}");
                return;
            }
        };
        if new.scheduler != self.policy.scheduler {
            tracing::warn!(policy = path, "what [scheduler] says holds from the next start on");
        }
        tracing::info!(policy = path, "policy read anew");
        self.policy = new;
    }
}

/// Says that all is well as long as every thread answers: twice as often as it has to be, and never for one that hangs.
async fn signs_of_life(scheduler: Handle, notifier: Arc<Notifier>, every: Duration) {
    let pause = every / 2;
    loop {
        let asked = tokio::time::timeout(pause, scheduler.ask(Command::Status)).await;
        match asked {
            Ok(Ok(Answer::Status(status))) => {
                let text = format!("divides {} clients", status.clients);
                notifier.tell(&[NotifyState::Watchdog, NotifyState::Status(&text)]);
            }
            _ => tracing::warn!("the scheduler has not answered for {} ms", pause.as_millis()),
        }
        tokio::time::sleep(pause).await;
    }
}
