//! Audio encoders at 1 to 5 (VTRR, section 5): how far each is, over time.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::divided::{Divided, Division};
use super::goals::Goals;
use super::{each, rows};
use crate::paper::Setting;
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Plot, Style};
use crate::paper::real::arena::Arena;
use crate::paper::stats::{median, worst};

const SHARES: [u64; 5] = [1, 2, 3, 4, 5];
const ALL: f64 = 15.0;
/// Mono, 16 bits, 44.1 kHz: seconds of sound, so often one after the other in the file, of which no encoder sees the end in a run.
const SECONDS: usize = 600;
const TIMES: usize = 12;
const RATE: usize = 44_100;
/// So often is looked where each is.
const STEP: Nanos = Nanos::from_millis(500);
/// All read within this, however busy the machine is.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// What is run, on standard input, which is read from the file.
const ENCODERS: [(&str, &str); 3] = [
    ("lame", "lame --quiet -r -s 44.1 --signed --bitwidth 16 -m m - /dev/null"),
    (
        "flac",
        "flac --silent --totally-silent -8 --endian=little --sign=signed --channels=1 --bps=16 --sample-rate=44100 -c -",
    ),
    ("opusenc", "opusenc --quiet --raw --raw-rate 44100 --raw-chan 1 - /dev/null"),
];

/// Where one encoder was at a time; a row of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    encoder: String,
    division: Division,
    /// What divvy used.
    #[serde(default)]
    backend: String,
    share: u64,
    /// Since the first look.
    seconds: f64,
    /// Seconds of sound that it has read since then.
    encoded: f64,
    /// divvy's own CPU time over the run, of one CPU; in each row.
    own: f64,
}

/// A sound that is not all alike: two tones that drift, and noise.
fn sound() -> Vec<u8> {
    let mut noise: u32 = 1;
    let sample = |i: usize| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let t = i as f64 / RATE as f64;
        let tones = (t * (600.0 + t)).sin() + 0.5 * (t * 2711.0).sin();
        let sample = tones * 9000.0 + f64::from(noise >> 20) - 2048.0;
        (sample as i16).to_le_bytes()
    };
    (0..SECONDS * RATE).flat_map(sample).collect()
}

/// What of the sound each encoder has read: where it is in its file.
fn positions(divided: &Divided<'_>, file: &Path) -> Vec<Option<u64>> {
    let of = |client: usize| {
        divided.processes(client).into_iter().find_map(|pid| {
            let to = std::fs::read_link(format!("/proc/{pid}/fd/0")).ok()?;
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/0")).ok()?;
            let at = info.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()?;
            (to == file).then_some(at)
        })
    };
    (0..SHARES.len()).map(of).collect()
}

fn measure(
    arena: &Arena,
    division: Division,
    (name, command): (&str, &str),
    file: &Path,
    steps: u32,
) -> Result<Vec<Row>> {
    let mut divided = Divided::new(arena, division, &SHARES)?;
    let script = format!("exec {command} <'{}' >/dev/null", file.display());
    divided.start(division, &SHARES, &vec![script; SHARES.len()])?;
    let until = clock::now() + PATIENCE;
    while positions(&divided, file).contains(&None) {
        divided.check()?;
        ensure!(clock::now() < until, "somebody reads nothing{}", divided.complaints());
        clock::sleep(Nanos::from_millis(100));
    }
    clock::sleep(Nanos::from_secs(1));
    let begun = clock::now();
    let before = divided.books()?;
    let (mut looks, mut next) = (Vec::new(), begun);
    for _ in 0..=steps {
        clock::sleep(next.since(clock::now()));
        divided.check()?;
        looks.push((clock::now().since(begun), positions(&divided, file)));
        next = next + STEP;
    }
    let own = divided.books()?.since(&before).known(division).own;
    let backend = divided.end(division)?;
    let mut rows = Vec::new();
    for (k, &share) in SHARES.iter().enumerate() {
        let first = looks[0].1[k].with_context(|| format!("{name} with share {share} reads nothing"))?;
        for (at, positions) in &looks {
            let read = positions[k].with_context(|| format!("{name} with share {share} has ended"))? - first;
            let encoded = read as f64 / (2 * RATE) as f64;
            rows.push(Row {
                encoder: name.to_owned(),
                division,
                backend: backend.clone(),
                share,
                seconds: at.0 as f64 / 1e9,
                encoded,
                own,
            });
        }
    }
    Ok(rows)
}

pub(super) fn encoders(s: &mut Setting, arena: &Arena) -> Result<()> {
    let mut not = Vec::new();
    let rows = rows(s, "encoders", || {
        let missing: Vec<&str> =
            ENCODERS.map(|(name, _)| name).into_iter().filter(|e| !arena.has(e)).collect();
        ensure!(missing.is_empty(), "{} not installed: scripts/setup.sh", missing.join(", "));
        let file = arena.memory().join("sound.raw");
        std::fs::write(&file, sound().repeat(TIMES)).context("write the sound")?;
        let mut rows = Vec::new();
        for encoder in ENCODERS.into_iter().take(s.pick(1, 3)) {
            let divisions = s.pick(&[Division::Signals][..], &Division::USUAL);
            rows.extend(each(s, encoder.0, divisions, &mut not, |division| {
                measure(arena, division, encoder, &file, s.pick(8, 20))
            })?);
        }
        std::fs::remove_file(&file).context("remove the sound")?;
        Ok(rows)
    })?;
    if !rows.is_empty() {
        write(s, &rows)?;
    }
    not.iter().for_each(|line| s.page.text(line));
    Ok(())
}

/// One run's rows, by client.
struct Run<'a>(Vec<Vec<&'a Row>>);

impl<'a> Run<'a> {
    fn of(rows: &'a [Row], encoder: &str, division: Division) -> Option<Self> {
        let of = |share: &u64| -> Vec<&Row> {
            let is_it = |r: &&Row| r.encoder == encoder && r.division == division && r.share == *share;
            rows.iter().filter(is_it).collect()
        };
        let clients: Vec<Vec<&Row>> = SHARES.iter().map(of).collect();
        clients.iter().all(|rows| rows.len() > 1).then_some(Self(clients))
    }

    fn looks(&self) -> usize {
        self.0.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Seconds of sound a second, between two looks.
    fn rates(&self, from: usize, to: usize) -> Vec<f64> {
        let rate = |rows: &Vec<&Row>| {
            (rows[to].encoded - rows[from].encoded) / (rows[to].seconds - rows[from].seconds)
        };
        self.0.iter().map(rate).collect()
    }

    /// The largest error of a rate between two looks, relative to what is due.
    fn error(&self, from: usize, to: usize) -> f64 {
        let rates = self.rates(from, to);
        let all: f64 = rates.iter().sum();
        worst(rates.iter().zip(SHARES).map(|(rate, share)| (rate / all * ALL / share as f64 - 1.0).abs()))
    }

    fn whole(&self) -> f64 {
        self.error(0, self.looks() - 1)
    }

    /// The median over windows of a second.
    fn windows(&self) -> f64 {
        let errors: Vec<f64> = (2..self.looks()).map(|to| self.error(to - 2, to)).collect();
        median(&errors).unwrap_or(f64::NAN)
    }
}

fn write(s: &mut Setting, rows: &[Row]) -> Result<()> {
    s.page.heading("Audio encoders at 1 to 5");
    s.page.text(
        "Five of the same encoder on one CPU: seconds of sound that each has read in a second, by where it is in its file. An encoder reads \
         blocks, so that a second's error has their grain.",
    );
    let mut table = Vec::new();
    for (encoder, _) in ENCODERS {
        for division in Division::USUAL {
            let Some(run) = Run::of(rows, encoder, division) else { continue };
            let mut row = vec![encoder.to_owned(), division.label(&run.0[0][0].backend)];
            row.extend(run.rates(0, run.looks() - 1).into_iter().map(number));
            row.extend([run.whole(), run.windows(), run.0[0][0].own].map(percent));
            table.push(row);
        }
    }
    let mut head = vec!["encoder".to_owned(), "who divides".to_owned()];
    head.extend(SHARES.map(|share| format!("share {share}")));
    head.extend(["largest error, %", "in a second, median, %", "divvy's own, %"].map(str::to_owned));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    s.page.columns(&head, &table);
    s.page.csv("encoders", rows)?;
    for (encoder, _) in ENCODERS {
        for division in Division::GOALS {
            let Some(run) = Run::of(rows, encoder, division) else { continue };
            let least = division.least(&run.0[0][0].backend);
            let least = least.and_then(|least| Some((least, Run::of(rows, encoder, least)?)));
            let of = format!("{encoder}, {}", division.name());
            let mut goals = Goals { page: &mut s.page, of, divvy: run, least };
            let whole = "largest error of a rate over the run";
            goals.goal(whole, Limit::Most(2.0), "%", |run| 100.0 * run.whole());
            goals.own(|run| 100.0 * run.0[0][0].own);
        }
        draw(s, rows, encoder)?;
    }
    Ok(())
}

/// How far each of `encoder` was over time, by the first of divvy's ways that was measured.
fn draw(s: &mut Setting, rows: &[Row], encoder: &str) -> Result<()> {
    let measured = |division| Some((division, Run::of(rows, encoder, division)?));
    let Some((division, run)) = Division::GOALS.into_iter().find_map(measured) else { return Ok(()) };
    let title = format!("Five of {encoder} at 1 to 5 ({})", division.name());
    let mut plot = Plot::new(title, "seconds", "seconds of sound encoded");
    for (client, share) in run.0.iter().zip(SHARES).rev() {
        let points = client.iter().map(|row| (row.seconds, row.encoded)).collect();
        plot.add(format!("share {share}"), Style::Line, points);
    }
    s.page.plot(&format!("encoders-{encoder}"), &plot)
}
