//! A page of the documentation as text: its blocks, and whether what a command prints is what the page shows.

/// How far a part that was achieved may be from the one on the page, in percent of all CPU time, where the machine is busy with
/// other things.
const MAX_POINTS_OFF: f64 = 5.0;
/// Rounded to two digits, what is due may end in another one.
const MAX_ROUNDING: f64 = 0.011;
/// Digits of a number that is written in hexadecimal, at least: no word is as long and made of these letters alone.
const HEX_MIN: usize = 16;
/// Of a client that computes, whether it has its turn just now.
const TURNS: [&str; 3] = ["running", "held", "limited"];

/// What strips are drawn with.
const BLOCKS: std::ops::RangeInclusive<char> = '▁'..='█';

/// A block of the page: what it is marked as, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub kind: &'a str,
    pub text: &'a str,
}

pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, block)) = rest.split_once("\n```") {
        let (kind, after) = block.split_once('\n').expect("a block begins with a line of its own");
        let end = if after.starts_with("```") { 0 } else { after.find("\n```").expect("a block ends") + 1 };
        found.push(Block { kind, text: &after[..end] });
        rest = &after[end + "```".len()..];
    }
    found
}

/// The first block that is marked so.
pub fn block<'a>(page: &'a str, kind: &str) -> &'a str {
    let found = blocks(page).into_iter().find(|block| block.kind == kind);
    found.unwrap_or_else(|| panic!("no block is marked {kind:?}")).text
}

/// The line without what differs from run to run: each number is a `#`, with its sign, however a table is drawn.
fn shape(line: &str) -> String {
    // What a verdict is depends on what else the machine does.
    if line.starts_with("shares: ") {
        return "shares:".to_owned();
    }
    let line = line.replace('├', "└").replace('│', " ");
    // A strip of blocks is a chart, which is another one each time.
    let words = line.split_whitespace().filter(|word| !word.chars().all(|c| BLOCKS.contains(&c)));
    let words = words.map(|word| if TURNS.contains(&word) { TURNS[0] } else { word });
    words.map(word_shape).collect::<Vec<_>>().join(" ")
}

fn word_shape(word: &str) -> String {
    let mut shape = String::new();
    let signed = word.strip_prefix(['+', '-']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let mut rest = signed.unwrap_or(word);
    while let Some(first) = rest.chars().next() {
        let run = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
        let hex = run(|c| c.is_ascii_hexdigit());
        let length = if hex >= HEX_MIN {
            hex
        } else if first.is_ascii_digit() {
            run(|c| c.is_ascii_digit() || c == '.')
        } else {
            0
        };
        let (part, next) =
            if length > 0 { ("#", length) } else { (&rest[..first.len_utf8()], first.len_utf8()) };
        shape.push_str(part);
        rest = &rest[next..];
    }
    shape
}

/// The fractions of a row of a table, in percent: what is due in one column or two, and what was achieved.
fn percents(line: &str) -> Option<(Vec<f64>, f64)> {
    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "client").collect();
    let decimal = |word: &&str| word.parse::<f64>().ok().filter(|_| word.contains('.'));
    // Of clients: target, achieved, and an error, which has a sign.
    let of_client = words.windows(3).find_map(|three| {
        let (target, achieved, _) = (decimal(&three[0])?, decimal(&three[1])?, decimal(&three[2])?);
        three[2].starts_with(['+', '-']).then_some((vec![target], achieved))
    });
    // Of currencies: requested, effective and achieved are the last.
    let of_currency = || {
        let [.., requested, effective, achieved] = words.as_slice() else { return None };
        Some((vec![decimal(requested)?, decimal(effective)?], decimal(achieved)?))
    };
    of_client.or_else(of_currency)
}

/// Whether a line that was printed is the one that is shown.
fn fits(shown: &str, printed: &str) -> bool {
    let alike = match shown.strip_suffix(" ...") {
        Some(start) => shape(printed).starts_with(&shape(start)),
        None => shape(shown) == shape(printed),
    };
    let near = |a: f64, b: f64, most: f64| (a - b).abs() <= most;
    alike
        && match (percents(shown), percents(printed)) {
            (Some((due, achieved)), Some((due_here, achieved_here))) => {
                due.iter().zip(&due_here).all(|(a, b)| near(*a, *b, MAX_ROUNDING))
                    && near(achieved, achieved_here, MAX_POINTS_OFF)
            }
            _ => true,
        }
}

/// Whether what was printed is what the page shows: the same lines in any order, with other numbers, but for what is due and
/// achieved in a table. `...` on the page stands for more lines, and at the end of a line for more of it.
///
/// # Errors
/// The first line that is shown and was not printed, or was printed and is not shown.
pub fn check(shown: &str, printed: &str) -> Result<(), String> {
    let lines = |text| str::lines(text).filter(|line: &&str| !line.trim().is_empty());
    let mut left: Vec<&str> = lines(printed).collect();
    let mut has_more = false;
    for line in lines(shown) {
        if line.trim() == "..." {
            has_more = true;
            continue;
        }
        match left.iter().position(|printed| fits(line, printed)) {
            Some(at) => drop(left.remove(at)),
            None => return Err(format!("the page shows\n{line}\nand this was printed:\n{printed}")),
        }
    }
    if left.is_empty() || has_more {
        return Ok(());
    }
    Err(format!("the page does not show\n{}\nof what was printed:\n{printed}", left.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_marks() {
        let page = "a\n```sh ctrl-c\none\n```\n```text\n```\nb\n\n```\ntwo\nthree\n```\n";
        let found: Vec<(&str, &str)> = blocks(page).iter().map(|block| (block.kind, block.text)).collect();
        assert_eq!(found, [("sh ctrl-c", "one\n"), ("text", ""), ("", "two\nthree\n")]);
        assert_eq!(block(page, ""), "two\nthree\n");
    }

    #[test]
    fn what_differs_from_run_to_run_does_not_count() {
        for (shown, printed) in [
            ("2.0 s on 1 CPU (--for)\n", "12.34 s on 1 CPU (--for)\n"),
            ("a 3 75.00 74.90 -0.12 running 1.33 s", "a 3 75.00 76.10 +1.47 held 2.50 s"),
            ("├─ 2000 alice  66.67 66.67 66.60", "└─ 2000 alice  66.67 66.67 65.00"),
            ("http://127.0.0.1:34217/#5d0c8e1b7c0f4a0d", "http://127.0.0.1:8/#000000000000ffffff"),
            ("shares: each client got its share", "shares: a got 1 % instead of 2 %: it slept"),
            ("one\ntwo", "two\none"),
            ("one\n...", "one\ntwo\nthree"),
            ("kept by ...", "kept by cgroup.freeze"),
            ("sums ▁▃ █", "sums ▂ ▄ ▄▄"),
        ] {
            assert_eq!(check(shown, printed), Ok(()), "{shown} {printed}");
        }
    }

    #[test]
    fn what_is_not_the_same_is_told() {
        for (shown, printed) in [
            ("one", "two"),
            ("one", "one\ntwo"),
            ("one\ntwo", "one"),
            ("one\none", "one\n1"),
            ("a 3 75.00 74.90 -0.12 running", "a 3 66.67 74.90 +9.12 running"),
            ("a 3 75.00 74.90 -0.12 running", "a 3 75.00 60.00 -20.00 running"),
            ("a 3 75.00 74.90 -0.12 running", "a 3 75.00 74.90 -0.12 asleep"),
            ("alice 66.67 66.67 66.60", "alice 66.67 50.00 66.60"),
            ("kept by ...", "held by signals"),
        ] {
            assert!(check(shown, printed).is_err(), "{shown} {printed}");
        }
    }
}
