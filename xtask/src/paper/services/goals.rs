//! The goals of one of divvy's ways to divide, each beside what the least comes to that divides by the same means.

use super::divided::Division;
use crate::paper::page::{Limit, Page};

/// What was measured, of divvy and of the least.
pub(super) struct Goals<'a, R> {
    pub(super) page: &'a mut Page,
    /// What the goals' names begin with.
    pub(super) of: String,
    pub(super) divvy: R,
    pub(super) least: Option<(Division, R)>,
}

impl<R> Goals<'_, R> {
    pub(super) fn goal(&mut self, what: &str, limit: Limit, unit: &str, value: impl Fn(&R) -> f64) {
        let beside = self.least.as_ref().map(|(least, rows)| (least.name(), value(rows)));
        self.page.goal_beside(format!("{}: {what}", self.of), limit, value(&self.divvy), unit, beside);
    }

    /// That what is done is as the shares are. The work of one client costs more CPU time than another's, whoever divides: beside it
    /// stands what the least would come to, `at_shares`, were each given just its part of the CPU time.
    pub(super) fn done(&mut self, unit: &str, done: impl Fn(&R) -> f64, at_shares: impl Fn(&R) -> f64) {
        let name =
            self.least.as_ref().map(|(least, _)| format!("{}, its CPU time put at 1:2:3", least.name()));
        let least = self.least.as_ref().map(|(_, rows)| at_shares(rows));
        let what = format!("{}: {unit}, {LARGEST}", self.of);
        self.page.goal_beside(what, Limit::Most(2.0), done(&self.divvy), "%", name.as_deref().zip(least));
    }

    pub(super) fn used(&mut self, used: impl Fn(&R) -> f64) {
        self.goal(&format!("CPU time, {LARGEST}"), Limit::Most(2.0), "%", used);
    }

    pub(super) fn kept(&mut self, unit: &str, kept: impl Fn(&R) -> f64) {
        self.goal(&format!("all {unit}, of those without a scheduler"), Limit::Least(97.0), "%", kept);
    }

    pub(super) fn own(&mut self, own: impl Fn(&R) -> f64) {
        self.goal("own CPU time", Limit::Most(0.5), "%", own);
    }
}

const LARGEST: &str = "largest error of a part of 1:2:3";
