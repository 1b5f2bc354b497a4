//! Quick runs of the experiments on clients of many processes: each writes its part of the page with the data behind it, and
//! leaves nobody behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Marks whatever a run starts, in its environment.
const MARK: &str = "DIVVY_XTASK_TEST";
/// Divided among two or three: what one of them gets may not be less than this part of its target, however busy it is here.
const LEAST_OF_TARGET: f64 = 0.2;

/// Processes that carry the mark.
fn left(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}").into_bytes();
    let marked = |entry: std::io::Result<std::fs::DirEntry>| {
        let dir = entry.ok()?.path();
        let environment = std::fs::read(dir.join("environ")).ok()?;
        let found = environment.split(|&b| b == 0).any(|variable| variable == mark);
        found.then(|| {
            String::from_utf8_lossy(&std::fs::read(dir.join("cmdline")).unwrap_or_default()).into_owned()
        })
    };
    std::fs::read_dir("/proc").expect("/proc").filter_map(marked).collect()
}

/// Runs one part; the page, and the rows of a file of its data.
fn run(part: &str, data: &str) -> (String, Vec<BTreeMap<String, String>>) {
    let out = tempfile::tempdir().expect("a directory");
    let mark = format!("{}-{part}", std::process::id());
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["paper", "groups", "--quick", "--only", part, "--out"])
        .arg(out.path())
        .env(MARK, &mark)
        .env("DIVVY_RUNTIME_DIR", out.path().join("run"))
        .output()
        .expect("run xtask");
    assert!(output.status.success(), "{part}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left(&mark), [""; 0]);
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let page = read(&out.path().join("groups.md"));
    let csv = read(&out.path().join(format!("groups/{data}.csv")));
    let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    (page, lines.map(|line| head.iter().cloned().zip(line).collect()).collect())
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column} of {row:?}: {e}"))
}

#[test]
fn users() {
    let (page, rows) = run("users", "users");
    assert!(
        page.contains("## Three users with 50 processes each") && page.contains("worst error of a fraction"),
        "{page}"
    );
    assert_eq!(rows.len(), 6);
    for three in rows.chunks(3) {
        let achieved: f64 = three.iter().map(|row| number(row, "achieved")).sum();
        assert!((achieved - 1.0).abs() < 1e-9, "{three:?}");
        for (row, share) in three.iter().zip([1.0, 2.0, 3.0]) {
            assert!((number(row, "target") - share / 6.0).abs() < 1e-9, "{row:?}");
            assert!(number(row, "achieved") > LEAST_OF_TARGET * share / 6.0, "{row:?}");
            assert!(number(row, "requests_per_second") > 0.0, "{row:?}");
        }
    }
}

#[test]
fn many() {
    let (page, rows) = run("many", "many");
    assert!(page.contains("1003 processes in 10 clients: own CPU"), "{page}");
    // The processes beside those that compute are known, and left alone.
    for (row, processes) in rows.iter().zip([103.0, 1003.0]) {
        assert!((number(row, "members") - processes).abs() < 0.5, "{row:?}");
        assert!(number(row, "idle") >= processes - 13.0 && number(row, "overhead") > 0.0, "{row:?}");
    }
    assert_eq!(rows.len(), 2);
}

#[test]
fn storm() {
    let (page, rows) = run("storm", "storm");
    assert!(page.contains("fork storm: worst error of its fraction"), "{page}");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert!(number(row, "children_per_second") > 0.0 && row["shares"] == "1 : 1", "{row:?}");
    assert!(number(row, "storm_error") > LEAST_OF_TARGET - 1.0, "{row:?}");
}
