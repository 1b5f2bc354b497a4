//! A site's table of accounts and users, as a batch system keeps it, and what divvyd makes of it.

pub use divvy_site::{Orders, Report};
use serde::{Deserialize, Serialize};

/// Before a job's, in the name of the currency that its tasks share.
pub const JOB_PREFIX: &str = "job.";
/// Before an account's name, in the name of each currency that a table makes: nobody else may begin a name so.
pub const SITE_PREFIX: &str = "site.";
/// The account above all others, as Slurm calls it.
pub const ROOT_ACCOUNT: &str = "root";
/// Base tickets that all of a site's jobs have together, unless the table says otherwise.
pub const SITE_TICKETS: u64 = 1000;

/// Who has which part of a site: `PUT /v1/market/site`. Superusers only; done whole or not at all.
///
/// An account becomes a currency of root's, `root/site.ACCOUNT`, funded by the account that it is in; each user of it has a
/// currency of its own below that, `USER/site.ACCOUNT`. All are soft tickets of cpu, memory and disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteTable {
    /// Rises with each table: an older one than holds is refused. By at most 1000, or to Unix time in seconds (plus 300) at most:
    /// one from a clock that runs ahead is refused too.
    pub version: u64,
    /// Base tickets that all of the site's jobs have together.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub tickets: u64,
    /// The accounts, in any order, `root` left out.
    pub accounts: Vec<SiteAccount>,
    /// The users of accounts, in any order.
    pub users: Vec<SiteUser>,
}

/// An account of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteAccount {
    /// Its name, once in a table.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._-]{1,59}$")))]
    pub account: String,
    /// The account that it is in; `root` at the top.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub parent: String,
    /// Its shares of that.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub shares: u64,
}

/// A user in an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteUser {
    /// By name or number, once in an account.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub user: String,
    /// Which account.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub account: String,
    /// The user's shares of it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = u32::MAX)))]
    pub shares: u64,
}

/// What came of a table, or holds: `GET /v1/market/site`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Site {
    /// The version of the table that holds, over restarts of divvyd too; 0 where none was given.
    pub version: u64,
    /// Currencies of accounts and users that there are, by name.
    pub currencies: Vec<String>,
    /// Of these, those that no table names any more and that still back something.
    pub kept: Vec<String>,
    /// Changes that the table made: currencies that came or ended, tickets that came, ended or have another amount.
    pub changes: usize,
}
