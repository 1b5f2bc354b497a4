//! Users' offers: files in a directory, whose owner is whose offer it is. A line each: `cpu:500@n1 for memory:200@n2`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use divvy_market::{Amount, Resource};
use divvy_site::{PlaceId, Side, UserId};
use rustix::fs::OFlags;

/// A file has no more bytes than this.
const FILE_MAX: u64 = 4096;
/// Offers of one user that count.
pub(super) const OFFERS_MAX: usize = 64;

/// What somebody gives, and wants for it.
pub(super) type Wish = (UserId, Side, Side);

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// How many times each is offered.
    pub(super) wishes: BTreeMap<Wish, usize>,
    /// What is no offer, and why.
    pub(super) wrong: Vec<String>,
}

/// Reads all of the directory. Files that are gone meanwhile are passed over.
///
/// # Errors
/// Where the directory cannot be read.
pub(super) fn read(dir: &Path, place: impl Fn(&str) -> Option<PlaceId>) -> std::io::Result<Spool> {
    let mut spool = Spool::default();
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    let mut paths: Vec<_> = std::fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        match file(&path) {
            Ok((uid, text)) => {
                for (k, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                    let count = count.entry(uid).or_default();
                    *count += 1;
                    let read = if *count > OFFERS_MAX {
                        Err(format!("user {uid} has more than {OFFERS_MAX} offers"))
                    } else {
                        wish(line, &place)
                    };
                    match read {
                        Ok((gives, wants)) => {
                            *spool.wishes.entry((UserId(uid), gives, wants)).or_default() += 1
                        }
                        Err(why) => spool.wrong.push(format!("{}, line {}: {why}", path.display(), k + 1)),
                    }
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => spool.wrong.push(format!("{}: {}", path.display(), crate::files::cause(&e))),
        }
    }
    Ok(spool)
}

/// Whose file it is, and what is in it. No link is followed, and one with two names might be somebody else's doing.
fn file(path: &Path) -> std::io::Result<(u32, String)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(std::io::Error::other("not a file with one name"));
    }
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(std::io::Error::other(format!(
            "it has more than {FILE_MAX} bytes: none of its offers counts"
        )));
    }
    Ok((about.uid(), text))
}

fn wish(line: &str, place: impl Fn(&str) -> Option<PlaceId>) -> Result<(Side, Side), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [gives, "for", wants] = words[..] else {
        return Err("write RESOURCE:AMOUNT@NODE for RESOURCE:AMOUNT@NODE".to_owned());
    };
    let side = |word: &str| {
        let wrong = || format!("'{word}': write RESOURCE:AMOUNT@NODE, such as cpu:500@n1");
        let (what, at) = word.split_once('@').ok_or_else(wrong)?;
        let (resource, amount) = what.split_once(':').ok_or_else(wrong)?;
        let resource: Resource = resource.parse().map_err(|e| format!("'{word}': {e}"))?;
        let amount = amount.parse().map_err(|_| wrong())?;
        let amount = Amount::new(amount).map_err(|e| format!("'{word}': {e}"))?;
        let place = place(at).ok_or_else(|| format!("there is no node or class '{at}'"))?;
        Ok::<Side, String>(Side { place, resource, amount })
    };
    Ok((side(gives)?, side(wants)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_offers_of_their_owners() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a", "cpu:500@n1 for memory:20@n2\n\ncpu:500@n1 for memory:20@n2\n");
        write(
            "b",
            "cpu:0@n1 for cpu:1@n2\ncpu:5@n3 for cpu:1@n2\ncpu@n1 for cpu:1@n2\ngold:1@n1 for cpu:1@n2\ncpu:1@n1\n",
        );
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        write("c", "");
        std::fs::hard_link(dir.path().join("c"), dir.path().join("d")).unwrap();
        // Cut after 4096 bytes its last offer would be for another amount.
        write("e", &format!("{}cpu:1@n1 for cpu:11@n2", "\n".repeat(FILE_MAX as usize - 19)));
        let place = |name: &str| name.strip_prefix('n')?.parse().ok().filter(|n| *n < 3).map(PlaceId);
        let spool = read(dir.path(), place).unwrap();
        let me = UserId(rustix::process::geteuid().as_raw());
        let side = |place, resource, amount| Side {
            place: PlaceId(place),
            resource,
            amount: Amount::new(amount).unwrap(),
        };
        let wish = (me, side(1, Resource::Cpu, 500), side(2, Resource::Memory, 20));
        assert_eq!(spool.wishes.into_iter().collect::<Vec<_>>(), [(wish, 2)]);
        assert_eq!(spool.wrong.len(), 5 + 3 + 1, "{:?}", spool.wrong);
    }
}
