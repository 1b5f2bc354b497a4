//! docs/slurm.md, as a site's administrator follows it: every command, and what stands below each is what one sees.

use std::io::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::site::{NODES, Site, bounded};

const PAGE: &str = include_str!("../../../docs/slurm.md");
/// How far a part that was achieved may be from the one on the page, in percent of all CPU time: it is counted in whole cycles
/// from the moment in which the last job began.
const MAX_POINTS_OFF: f64 = 1.0;
/// On a busy machine a job may begin later than the page waits: an administrator who sees that looks again, once or twice.
const LOOKS: u32 = 2;
const LOOK_AGAIN: Nanos = Nanos::from_secs(2);
/// How srun's lines end where the jobs before are not quite gone.
const WAITS: [&str; 2] = ["queued and waiting for resources", "has been allocated resources"];

/// A block of the page: what it is marked as, and its text.
#[derive(Clone, Copy, Debug)]
struct Block {
    kind: &'static str,
    text: &'static str,
}

fn blocks() -> Result<Vec<Block>> {
    let mut found = Vec::new();
    let mut rest = PAGE;
    while let Some((_, block)) = rest.split_once("\n```") {
        let (kind, after) = block.split_once('\n').context("a block begins with a line of its own")?;
        let (text, after) = match after.strip_prefix("```") {
            Some(after) => ("", after),
            None => after.split_once("\n```").context("a block ends")?,
        };
        found.push(Block { kind, text });
        rest = after;
    }
    Ok(found)
}

/// The line, with every number a `#`, however it is drawn: which of two branches comes first is the market's.
fn shape(line: &str) -> String {
    let line = line.replace('├', "└").replace('│', " ");
    let mut shape = String::new();
    for word in line.split_whitespace() {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let mut in_number = false;
        for c in word.chars() {
            let digit = c.is_ascii_digit() || (in_number && c == '.');
            if !digit || !in_number {
                shape.push(if digit { '#' } else { c });
            }
            in_number = digit && number(c);
        }
        shape.push(' ');
    }
    shape
}

/// Its numbers with a point.
fn decimals(line: &str) -> Vec<f64> {
    line.split_whitespace().filter(|word| word.contains('.')).filter_map(|word| word.parse().ok()).collect()
}

/// What was printed is what the page says: the same lines, in any order, and about the same numbers.
///
/// # Errors
/// The first difference.
fn check(shown: &str, printed: &str) -> Result<()> {
    let sorted = |text: &str| {
        let lines =
            text.lines().filter(|line| !line.trim().is_empty() && !WAITS.iter().any(|w| line.ends_with(w)));
        let mut lines: Vec<(String, String)> = lines.map(|line| (shape(line), line.to_owned())).collect();
        lines.sort();
        lines
    };
    let (shown, printed) = (sorted(shown), sorted(printed));
    for ((wanted, shown), (got, printed)) in shown.iter().zip(&printed) {
        ensure!(wanted == got, "the page shows\n{shown}\nand this was printed:\n{printed}");
    }
    for ((_, shown), (_, printed)) in shown.iter().zip(&printed) {
        for (wanted, got) in decimals(shown).into_iter().zip(decimals(printed)) {
            ensure!((wanted - got).abs() <= MAX_POINTS_OFF, "{got} is not {wanted}: {printed}");
        }
    }
    ensure!(shown.len() == printed.len(), "the page shows {shown:#?}\nand this was printed: {printed:#?}");
    Ok(())
}

/// Follows the page on a site without divvy. Every output is shown.
///
/// # Errors
/// A command that fails, or an output that is not the page's.
pub(super) fn run(site: &mut Site) -> Result<()> {
    let blocks = blocks()?;
    let mut followed = 0;
    for (k, block) in blocks.iter().enumerate() {
        let places: &[&str] = match block.kind {
            "sh" => &[""],
            "sh nodes" => &NODES,
            "sh n1" => &["n1"],
            "sh n2" => &["n2"],
            "" | "text" => continue,
            kind => bail!("a block of kind {kind:?}: {}", block.text),
        };
        let shown = blocks.get(k + 1).filter(|next| next.kind == "text").map_or("", |next| next.text);
        for place in places {
            // The page divides the first CPU; here that may be another one.
            let cpus = format!("cpus = \"{}\"", super::site::cpu()?);
            let mut printed = follow(site, place, &block.text.replace("cpus = \"0\"", &cpus))?;
            let is_look = shown.lines().any(|line| line.starts_with("achieved: "));
            for _ in 0..LOOKS {
                if !is_look || check(shown, &printed).is_ok() {
                    break;
                }
                clock::sleep(LOOK_AGAIN);
                printed = follow(site, place, block.text)?;
            }
            check(shown, &printed).with_context(|| format!("after, {place}:\n{}", block.text))?;
        }
        followed += 1;
    }
    ensure!(followed >= 10, "{followed} blocks are no page");
    println!("cluster: the page was followed to its end");
    Ok(())
}

/// What a block prints, both streams: what it starts in the background goes on, and writes elsewhere.
fn follow(site: &mut Site, place: &str, text: &str) -> Result<String> {
    println!("--- {}\n{text}", if place.is_empty() { "beside the controller" } else { place });
    let script = format!("cd {}\n{text}", super::machine::SOURCES);
    let argv = ["sh", "-e", "-c", &script];
    let mut command = if place.is_empty() { bounded(&argv) } else { site.node(place)?.command(&argv) };
    let path = "/tmp/printed";
    let file = std::fs::File::create(path).with_context(|| format!("create {path}"))?;
    let errors = file.try_clone().context("the same file")?;
    let status = command.stdout(file).stderr(errors).status();
    let printed = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    print!("{printed}");
    std::io::stdout().flush().context("say it")?;
    ensure!(status.context("start sh")?.success(), "{place}: this block fails:\n{text}");
    Ok(printed)
}
