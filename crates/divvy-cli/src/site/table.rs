//! A table of accounts and users, line by line: `ACCOUNT|USER|PARENT|SHARES`.
//!
//! A line with a user is that user's in the account; one without, the account itself. All of it is checked here, so that what
//! is wrong is told with its line.

use std::collections::BTreeMap;

use divvy_api::site::{ROOT_ACCOUNT, SiteAccount, SiteTable, SiteUser};

/// The most shares, and the least, that can be tickets.
const SHARES_MAX: u64 = u32::MAX as u64;

/// What is wrong with a table, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableError {
    line: usize,
    what: String,
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

fn shares(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' shares: give a whole number from 1 to {SHARES_MAX}");
    text.parse().ok().filter(|n| (1..=SHARES_MAX).contains(n)).ok_or_else(wrong)
}

/// The table that `text` is; its version and tickets are the caller's to set. Which users there are says `known`.
///
/// # Errors
/// [`TableError`]: the first line that cannot be.
pub(super) fn parse(text: &str, known: impl Fn(&str) -> Option<u32>) -> Result<SiteTable, TableError> {
    let mut table = SiteTable::default();
    let mut accounts: BTreeMap<String, usize> = BTreeMap::new();
    let mut users: BTreeMap<(u32, String), usize> = BTreeMap::new();
    let mut places: Vec<(usize, String)> = Vec::new();
    for (k, text) in text.lines().enumerate() {
        let line = k + 1;
        let wrong = |what: String| TableError { line, what };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = text.split('|').map(str::trim).collect();
        let [account, user, parent, amount] = fields[..] else {
            return Err(wrong(format!("{} fields; a line is ACCOUNT|USER|PARENT|SHARES", fields.len())));
        };
        if account.is_empty() {
            return Err(wrong("no account".to_owned()));
        }
        // The root account is all there is, and root's jobs are root's own.
        if account == ROOT_ACCOUNT && (user.is_empty() || known(user) == Some(0)) {
            continue;
        }
        let amount = shares(amount).map_err(wrong)?;
        if user.is_empty() {
            if let Some(first) = accounts.insert(account.to_owned(), line) {
                return Err(wrong(format!(
                    "account {account} is in line {first} already; an account is in one place"
                )));
            }
            let parent = if parent.is_empty() { ROOT_ACCOUNT } else { parent }.to_owned();
            places.push((line, parent.clone()));
            table.accounts.push(SiteAccount { account: account.to_owned(), parent, shares: amount });
        } else {
            let uid = known(user).ok_or_else(|| wrong(format!("there is no user '{user}' on this node")))?;
            if uid == 0 {
                return Err(wrong("leave root out: root's jobs are root's own".to_owned()));
            }
            if let Some(first) = users.insert((uid, account.to_owned()), line) {
                return Err(wrong(format!("user {user} is in account {account} by line {first} already")));
            }
            places.push((line, account.to_owned()));
            table.users.push(SiteUser { user: user.to_owned(), account: account.to_owned(), shares: amount });
        }
    }
    for (line, place) in places {
        if place != ROOT_ACCOUNT && !accounts.contains_key(&place) {
            return Err(TableError { line, what: format!("account '{place}' is not in the table") });
        }
    }
    check_ways(&table, &accounts)?;
    Ok(table)
}

/// Every account is below the root account.
fn check_ways(table: &SiteTable, lines: &BTreeMap<String, usize>) -> Result<(), TableError> {
    let parents: BTreeMap<&str, &str> =
        table.accounts.iter().map(|row| (row.account.as_str(), row.parent.as_str())).collect();
    for row in &table.accounts {
        let mut at = row.account.as_str();
        for _ in 0..=parents.len() {
            match parents.get(at) {
                Some(above) => at = above,
                None => break,
            }
        }
        if at != ROOT_ACCOUNT {
            let line = lines.get(&row.account).copied().unwrap_or_default();
            return Err(TableError { line, what: format!("account {} is below itself", row.account) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<u32> {
        [("root", 0), ("alice", 1001), ("bob", 1002)]
            .into_iter()
            .find(|(n, _)| *n == name)
            .map(|(_, uid)| uid)
    }

    /// As sacctmgr 22.05 prints them.
    #[test]
    fn what_slurm_prints_is_a_table() {
        let text = "root|||1\nroot|root||1\nscience||root|30\nscience|alice||3\nphysics||science|2\nphysics|alice||1\nphysics|bob||4\n";
        let table = parse(text, known).unwrap();
        let account = |account: &str, parent: &str, shares| SiteAccount {
            account: account.into(),
            parent: parent.into(),
            shares,
        };
        let user = |user: &str, account: &str, shares| SiteUser {
            user: user.into(),
            account: account.into(),
            shares,
        };
        assert_eq!(table.accounts, [account("science", "root", 30), account("physics", "science", 2)]);
        assert_eq!(
            table.users,
            [user("alice", "science", 3), user("alice", "physics", 1), user("bob", "physics", 4)]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = "# account|user|parent|shares\n\nscience||root|1\nscience|alice||1\n";
        assert_eq!(parse(good, known).unwrap().accounts.len(), 1);
        for (line, words) in [
            ("arts||root", "line 5: 3 fields; a line is ACCOUNT|USER|PARENT|SHARES"),
            ("|||1", "line 5: no account"),
            ("arts||root|-1", "line 5: '-1' shares: give a whole number from 1 to 4294967295"),
            ("arts||root|0", "line 5: '0' shares"),
            ("arts||root|4294967296", "line 5: '4294967296' shares"),
            ("arts||root|99999999999999999999", "line 5: '99999999999999999999' shares"),
            ("arts||root|parent", "line 5: 'parent' shares"),
            ("arts||root|", "line 5: '' shares"),
            ("science||root|2", "line 5: account science is in line 3 already; an account is in one place"),
            ("science|alice||2", "line 5: user alice is in account science by line 4 already"),
            ("science|mallory||2", "line 5: there is no user 'mallory' on this node"),
            ("science|root||2", "line 5: leave root out"),
            ("law|bob||2", "line 5: account 'law' is not in the table"),
            ("law||courts|2", "line 5: account 'courts' is not in the table"),
            ("law||law|2", "line 5: account law is below itself"),
            ("law||courts|1\ncourts||law|1", "line 5: account law is below itself"),
        ] {
            let error = parse(&format!("{good}{line}\n"), known).unwrap_err().to_string();
            assert!(error.starts_with(words), "{line}: {error}");
        }
    }
}
