//! Manual pages and shell completions of `divvy` and `divvyd`, made from their own command lines; `divvy` completes itself.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap_complete::{Generator as _, Shell};

/// Writes `DIR/divvy.1`, one page for each subcommand, `DIR/divvyd.1`, and `DIR/completions/`.
///
/// # Errors
/// Where a file cannot be written.
pub(crate) fn run(out: &Path) -> Result<()> {
    let completions = out.join("completions");
    std::fs::create_dir_all(&completions).with_context(|| format!("create {}", completions.display()))?;
    for (name, mut command) in [("divvy", divvy_cli::command()), ("divvyd", divvy_daemon::command())] {
        clap_mangen::generate_to(command.clone(), out)
            .with_context(|| format!("write to {}", out.display()))?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let file = completions.join(shell.file_name(name));
            let script = match name {
                "divvy" => divvy_cli::completion_script(&shell.to_string())
                    .with_context(|| format!("no completions for {shell}"))?
                    .into_bytes(),
                _ => {
                    let mut script = Vec::new();
                    clap_complete::generate(shell, &mut command, name, &mut script);
                    script
                }
            };
            std::fs::write(&file, script).with_context(|| format!("write {}", file.display()))?;
        }
    }
    eprintln!("man: pages and completions are in {}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page() {
        let out = std::env::temp_dir().join(format!("divvy-man-{}", std::process::id()));
        run(&out).expect("pages");
        for page in ["divvy.1", "divvy-share.1", "completions/divvy.bash", "completions/_divvy"] {
            let text = std::fs::read_to_string(out.join(page)).expect(page);
            assert!(text.contains("divvy"), "{page}");
        }
        for page in ["fund", "reserve", "unfund", "nice", "currency-tree", "exchange-offer", "market-explain"]
        {
            let text = std::fs::read_to_string(out.join(format!("divvy-{page}.1"))).expect(page);
            assert!(text.contains("system\\-socket"), "{page}: {text}");
        }
        // divvyd's own, which know every option that it takes.
        let options: Vec<String> =
            divvy_daemon::command().get_arguments().filter_map(|a| a.get_long()).map(str::to_owned).collect();
        assert!(options.iter().any(|option| option == "slice"), "{options:?}");
        for page in ["divvyd.1", "completions/divvyd.bash", "completions/_divvyd", "completions/divvyd.fish"]
        {
            // A manual page writes a hyphen as `\\-`.
            let text = std::fs::read_to_string(out.join(page)).expect(page).replace('\\', "");
            for option in &options {
                assert!(text.contains(option.as_str()), "{page} knows nothing of --{option}");
            }
        }
        std::fs::remove_dir_all(&out).expect("clean up");
    }
}
