//! Clients by the user's rules: made, changed and let go as the rules' file says.
//!
//! A rule is its selector: one that is in the file before and after a change keeps its client, and only what the file changed
//! about it is changed, so that what a user set meanwhile (`divvy set`) holds. A file that cannot be used changes nothing.

use std::collections::BTreeMap;

use divvy_linux::CpuMask;
use divvy_policy::{ClientId, Share};

use super::groups::{self, Asked};
use super::{Scheduler, parse_limit, parse_share};
use crate::message::Refusal;
use crate::rules::Loaded;
use divvy_api::rules::{Rule, RuleState, Rules, RulesState};
use divvy_api::types::Bounds;

#[derive(Debug)]
struct Applied {
    rule: Rule,
    /// Its client, or why it has none.
    client: Result<ClientId, String>,
    /// Why the client is still what it was by the rule of before, which this is then.
    refused: Option<String>,
}

/// The rules that hold.
#[derive(Debug, Default)]
pub(super) struct RuleBook {
    path: Option<String>,
    error: Option<String>,
    applied: Vec<Applied>,
    groups: BTreeMap<String, u64>,
}

impl RuleBook {
    /// The share that the file gives to a group.
    pub(super) fn share_of(&self, group: &str) -> Option<Share> {
        Share::new(*self.groups.get(group)?).ok()
    }
}

impl Scheduler {
    /// Takes what the file says by now.
    pub(super) fn take_rules(&mut self, loaded: Loaded) {
        let path = loaded.path.display().to_string();
        match loaded.rules {
            Ok(rules) => {
                self.rules.error = None;
                self.apply_rules(rules.unwrap_or_default());
            }
            Err(e) => {
                crate::say(format_args!("{path}: {e}; the rules of before hold"));
                self.rules.error = Some(e.to_string());
            }
        }
        self.rules.path = Some(path);
        self.stay_a_while();
    }

    fn apply_rules(&mut self, rules: Rules) {
        // One that is empty between two changes is there before and after them.
        self.keep_empty_groups(true);
        let mut before = std::mem::take(&mut self.rules.applied);
        let groups = std::mem::replace(&mut self.rules.groups, rules.groups);
        let mut kept = Vec::with_capacity(rules.rules.len());
        for rule in rules.rules {
            let at = before.iter().position(|old| is_same(&old.rule, &rule));
            kept.push((at.map(|at| before.swap_remove(at)), rule));
        }
        // First whoever goes: its processes, name and selector are free then.
        for gone in before {
            if let Ok(client) = gone.client
                && self.book.entry(client).is_some()
                && let Err(e) = self.detach(client)
            {
                crate::say(format_args!("rule {}: {}", gone.rule.name, e.message));
            }
        }
        for (old, rule) in kept {
            let say = |e: &Refusal| {
                crate::say(format_args!("rule {} (line {}): {}", rule.name, rule.line, e.message));
            };
            let applied = match old {
                Some(Applied { rule: old, client: Ok(client), .. }) if self.stays(client, &old, &rule) => {
                    match self.change_rule(client, &old, &rule) {
                        Ok(()) => Applied { rule, client: Ok(client), refused: None },
                        // The client has what it had, and the change is tried again when the file is read the next time.
                        Err(e) => {
                            say(&e);
                            Applied { rule: old, client: Ok(client), refused: Some(e.message) }
                        }
                    }
                }
                _ => {
                    let client = self.add_rule(&rule).inspect_err(say).map_err(|e| e.message);
                    Applied { rule, client, refused: None }
                }
            };
            self.rules.applied.push(applied);
        }
        self.keep_empty_groups(false);
        let changed = self.rules.groups.iter().filter(|(group, share)| groups.get(*group) != Some(share));
        let changed: Vec<(String, u64)> = changed.map(|(group, &share)| (group.clone(), share)).collect();
        if let Some(own) = &mut self.own {
            for (group, share) in changed {
                if let (Ok(path), Ok(share)) = (own.groups.find(&group), Share::new(share)) {
                    own.groups.set_group_share(&path, share);
                }
            }
        }
        self.apply_groups();
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<ClientId, Refusal> {
        let (share, limit) = (parse_share(rule.share)?, parse_limit(rule.limit_ppm.unwrap_or(0))?);
        let group = group_of(rule)?;
        let name = self.book.name(Some(&rule.name), true, &rule.name, None)?;
        self.check_cycle(share, None)?;
        let crate::message::Answer::Added(client) =
            self.attach((share, group.as_ref()), &rule.selector, name, None, None)?
        else {
            return Err(super::internal_text("a client that was not added"));
        };
        let client = ClientId(client.id);
        let bound = self.set_limit(client, limit).and_then(|()| self.bound_rule(client, rule.cpus));
        if let Err(e) = bound {
            let _ = self.detach(client); // It ran without until now.
            return Err(e);
        }
        Ok(client)
    }

    /// Keeps it to these CPUs; `None` changes nothing, and an empty set gives back all.
    fn bound_rule(&mut self, client: ClientId, cpus: Option<CpuMask>) -> Result<(), Refusal> {
        let change = Bounds { cpus, ..Bounds::default() };
        let limit = self.engine.ledger().clients()[client.index()].limit;
        self.check_bounds(Some(client), limit, change)?;
        self.set_bounds(client, change)
    }

    /// Whether a rule's client is the one of before. One that its user has let go stays so until the rule is another.
    fn stays(&self, client: ClientId, old: &Rule, new: &Rule) -> bool {
        self.book.entry(client).is_some() || Rule { line: new.line, ..old.clone() } == *new
    }

    /// Changes what the file has changed about a rule: all of it or, where any is refused, nothing.
    fn change_rule(&mut self, client: ClientId, old: &Rule, new: &Rule) -> Result<(), Refusal> {
        if self.book.entry(client).is_none() {
            return Ok(());
        }
        let (share, limit) = (parse_share(new.share)?, parse_limit(new.limit_ppm.unwrap_or(0))?);
        let group = group_of(new)?;
        if old.share != new.share {
            self.check_cycle(share, Some(client))?;
        }
        if old.limit_ppm != new.limit_ppm {
            self.check_limit_is_kept(limit)?;
        }
        // The kernel has a say in this: it comes first.
        if old.cpus != new.cpus {
            self.bound_rule(client, Some(new.cpus.unwrap_or_default()))?;
        }
        if old.limit_ppm != new.limit_ppm {
            self.set_limit(client, limit)?;
        }
        if old.share != new.share {
            self.rebase();
            if let Some(own) = &mut self.own {
                own.groups.set_share(client, share);
            }
        }
        if old.group != new.group {
            self.migrate(client, group.as_ref());
        }
        Ok(())
    }

    fn keep_empty_groups(&mut self, keep: bool) {
        if let Some(own) = &mut self.own {
            own.groups.keep_empty(keep);
        }
    }

    pub(super) fn rules_state(&self) -> RulesState {
        let rules = self.rules.applied.iter().map(|applied| {
            let gone = || "it was let go (divvy detach); a change of its rule makes it anew".to_owned();
            let client = applied.client.clone().and_then(|client| {
                self.book.entry(client).map(|entry| (client, entry.name.clone())).ok_or_else(gone)
            });
            RuleState {
                line: applied.rule.line,
                name: client.as_ref().map_or_else(|_| applied.rule.name.clone(), |(_, name)| name.clone()),
                selector: applied.rule.selector.to_string(),
                client: client.as_ref().ok().map(|(client, _)| client.0),
                let_go: applied.client.is_ok() && client.is_err(),
                why: client.err().or_else(|| applied.refused.clone()),
            }
        });
        RulesState { path: self.rules.path.clone(), error: self.rules.error.clone(), rules: rules.collect() }
    }
}

/// The group that a rule's client is to be in.
fn group_of(rule: &Rule) -> Result<Option<Asked>, Refusal> {
    let path = rule.group.as_deref().map(groups::parse).transpose()?;
    Ok(path.map(|path| Asked { path, share: None }))
}

/// Whether a rule is the same as before, with another share, limit, group or CPUs at most.
fn is_same(old: &Rule, new: &Rule) -> bool {
    old.selector == new.selector && old.name == new.name
}
