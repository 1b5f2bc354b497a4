//! A table of accounts and users, line by line: `ACCOUNT|USER|PARENT|SHARES`.
//!
//! A line with a user is that user's in the account; one without, the account itself. All of it is checked here, so that what
//! is wrong is told with its line.
//!
//! **Slurm's two shares that are no number of tickets.** `0` means that others come first: it is a thousandth of one share. Of
//! `parent`, a user has what the account has, as Slurm reckons it: as much as all users of it with a number together, and as
//! much as any other `parent`. An account of `parent` stands for what is in it: it has as many shares as those together.

use std::collections::BTreeMap;

use divvy_api::site::{ROOT_ACCOUNT, SiteAccount, SiteTable, SiteUser};

/// The most shares that can be tickets.
const SHARES_MAX: u64 = u32::MAX as u64;
/// Where anybody beside it has 0 shares, one share is so many tickets, and 0 shares are one.
const FINE: u64 = 1000;

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

/// What stands where shares are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    Number(u64),
    Parent,
}

fn shares(text: &str) -> Result<Shares, String> {
    let wrong = || format!("'{text}' shares: give a whole number from 0 to {SHARES_MAX}, or parent");
    if text == "parent" {
        return Ok(Shares::Parent);
    }
    text.parse().ok().filter(|n| *n <= SHARES_MAX).map(Shares::Number).ok_or_else(wrong)
}

/// Tickets for the shares of those in one account, `of_accounts` and `of_users`, each as Slurm means them. What an account of
/// `parent` stands for is among the first already, as a number.
fn tickets(of_accounts: &mut [u64], of_users: &[Shares]) -> Result<Vec<u64>, String> {
    let number = |shares: &Shares| match shares {
        Shares::Number(n) => *n,
        Shares::Parent => 0,
    };
    let all: u64 = of_users.iter().map(number).fold(0, u64::saturating_add).max(1);
    let of = |shares: &Shares| match shares {
        Shares::Number(n) => *n,
        Shares::Parent => all,
    };
    let mut users: Vec<u64> = of_users.iter().map(of).collect();
    let among = || of_accounts.iter().chain(&users);
    let fine = if among().any(|n| *n == 0) { FINE } else { 1 };
    if let Some(most) = among().max().filter(|most| most.saturating_mul(fine) > SHARES_MAX) {
        return Err(format!(
            "{most} shares beside somebody's 0: what is beside that has to be {} at most",
            SHARES_MAX / FINE
        ));
    }
    of_accounts.iter_mut().chain(&mut users).for_each(|n| *n = (*n * fine).max(1));
    Ok(users)
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
    let (mut of_accounts, mut of_users): (Vec<Shares>, Vec<Shares>) = (Vec::new(), Vec::new());
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
            of_accounts.push(amount);
            table.accounts.push(SiteAccount { account: account.to_owned(), parent, shares: 0 });
        } else {
            let uid = known(user).ok_or_else(|| wrong(format!("there is no user '{user}' on this node")))?;
            if uid == 0 {
                return Err(wrong("leave root out: root's jobs are root's own".to_owned()));
            }
            if let Some(first) = users.insert((uid, account.to_owned()), line) {
                return Err(wrong(format!("user {user} is in account {account} by line {first} already")));
            }
            places.push((line, account.to_owned()));
            of_users.push(amount);
            table.users.push(SiteUser { user: user.to_owned(), account: account.to_owned(), shares: 0 });
        }
    }
    for (line, place) in places {
        if place != ROOT_ACCOUNT && !accounts.contains_key(&place) {
            return Err(TableError { line, what: format!("account '{place}' is not in the table") });
        }
    }
    check_ways(&table, &accounts)?;
    give_tickets(&mut table, &accounts, &of_accounts, &of_users)?;
    Ok(table)
}

/// Says in `table` how many tickets everybody has for these shares, from below: an account of `parent` has what is in it.
fn give_tickets(
    table: &mut SiteTable,
    lines: &BTreeMap<String, usize>,
    of_accounts: &[Shares],
    of_users: &[Shares],
) -> Result<(), TableError> {
    let mut within: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (k, row) in table.accounts.iter().enumerate() {
        within.entry(&row.parent).or_default().0.push(k);
    }
    for (k, row) in table.users.iter().enumerate() {
        within.entry(&row.account).or_default().1.push(k);
    }
    // Whoever is in an account comes before it.
    let mut order = vec![ROOT_ACCOUNT];
    let mut next = 0;
    while let Some(account) = order.get(next).copied() {
        next += 1;
        let inside = within.get(account).map_or(&[][..], |(accounts, _)| accounts);
        order.extend(inside.iter().map(|&k| table.accounts[k].account.as_str()));
    }
    let mut amounts: (Vec<u64>, Vec<u64>) = (vec![0; of_accounts.len()], vec![0; of_users.len()]);
    let mut contents: BTreeMap<&str, u64> = BTreeMap::new();
    for account in order.into_iter().rev() {
        let Some((accounts, users)) = within.get(account) else { continue };
        let stands_for = |k: usize| match of_accounts[k] {
            Shares::Number(n) => n,
            Shares::Parent => contents.get(table.accounts[k].account.as_str()).copied().unwrap_or(1),
        };
        let mut inside: Vec<u64> = accounts.iter().map(|&k| stands_for(k)).collect();
        let shares: Vec<Shares> = users.iter().map(|&k| of_users[k]).collect();
        let numbers = shares.iter().map(|shares| match shares {
            Shares::Number(n) => *n,
            Shares::Parent => 1,
        });
        let content = inside.iter().copied().chain(numbers).fold(0, u64::saturating_add);
        contents.insert(account, content.clamp(1, SHARES_MAX));
        let wrong = |what| TableError {
            line: lines.get(account).copied().unwrap_or(1),
            what: format!("in account {account}: {what}"),
        };
        let given = tickets(&mut inside, &shares).map_err(wrong)?;
        accounts.iter().zip(inside).for_each(|(&k, amount)| amounts.0[k] = amount);
        users.iter().zip(given).for_each(|(&k, amount)| amounts.1[k] = amount);
    }
    table.accounts.iter_mut().zip(amounts.0).for_each(|(row, amount)| row.shares = amount);
    table.users.iter_mut().zip(amounts.1).for_each(|(row, amount)| row.shares = amount);
    Ok(())
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
        [("root", 0), ("alice", 1001), ("bob", 1002), ("carol", 1003)]
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

    /// Tickets of accounts and users by name, in the table's order.
    fn tickets_of(text: &str) -> Vec<(String, u64)> {
        let table = parse(text, known).unwrap();
        let accounts = table.accounts.into_iter().map(|row| (row.account, row.shares));
        let users = table.users.into_iter().map(|row| (format!("{}@{}", row.user, row.account), row.shares));
        accounts.chain(users).collect()
    }

    #[track_caller]
    fn check_tickets(text: &str, expected: &[(&str, u64)]) {
        let expected: Vec<(String, u64)> =
            expected.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        assert_eq!(tickets_of(text), expected, "{text}");
    }

    #[test]
    fn others_come_before_whoever_has_no_shares() {
        check_tickets(
            "a||root|3\nb||root|0\na|alice||1\na|bob||0\na|carol||0\nb|bob||7\n",
            &[("a", 3000), ("b", 1), ("alice@a", 1000), ("bob@a", 1), ("carol@a", 1), ("bob@b", 7)],
        );
    }

    #[test]
    fn whoever_has_the_parents_shares_has_as_much_as_all_with_a_number() {
        check_tickets(
            "a||root|3\na|alice||2\na|bob||5\na|carol||parent\n",
            &[("a", 3), ("alice@a", 2), ("bob@a", 5), ("carol@a", 7)],
        );
        // Nobody has a number: all are the same.
        check_tickets(
            "a||root|3\na|alice||parent\na|bob||parent\n",
            &[("a", 3), ("alice@a", 1), ("bob@a", 1)],
        );
    }

    /// The users of b and c are beside alice, as if they were in a: 2 and 6 of her 4.
    #[test]
    fn an_account_of_its_parents_shares_stands_for_what_is_in_it() {
        check_tickets(
            "a||root|3\nb||a|parent\nc||b|parent\na|alice||4\nb|bob||2\nc|carol||6\n",
            &[("a", 3), ("b", 8), ("c", 6), ("alice@a", 4), ("bob@b", 2), ("carol@c", 6)],
        );
        check_tickets("empty||root|parent\nb||root|2\n", &[("empty", 1), ("b", 2)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = "# account|user|parent|shares\n\nscience||root|1\nscience|alice||1\n";
        assert_eq!(parse(good, known).unwrap().accounts.len(), 1);
        for (line, words) in [
            ("arts||root", "line 5: 3 fields; a line is ACCOUNT|USER|PARENT|SHARES"),
            ("|||1", "line 5: no account"),
            ("arts||root|-1", "line 5: '-1' shares: give a whole number from 0 to 4294967295, or parent"),
            ("arts||root|1.5", "line 5: '1.5' shares"),
            ("arts||root|PARENT", "line 5: 'PARENT' shares"),
            (
                "science|bob||0\nscience|carol||4294968",
                "line 3: in account science: 4294968 shares beside somebody's 0: what is beside that has to be 4294967 at most",
            ),
            ("arts||root|4294967296", "line 5: '4294967296' shares"),
            ("arts||root|99999999999999999999", "line 5: '99999999999999999999' shares"),
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
