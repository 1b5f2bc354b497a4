//! Every command that the README and the pages for users show is run, and prints what is shown.

use crate::follow::{CALL, commands, follow};
use crate::page::block;

const README: &str = include_str!("../../../../README.md");
const TEST: &str = "scripts/test.sh";

#[test]
fn every_example_of_the_readme_runs() {
    // This very test is among what that runs.
    let page = README.replace(&format!("```sh\n{TEST}\n```\n"), "");
    assert!(page.len() < README.len(), "the tests are a block of their own");
    follow(&page, 3);
}

#[test]
fn every_example_of_the_tutorial_runs() {
    follow(include_str!("../../../../docs/tutorial.md"), 13);
}

#[test]
fn every_example_of_the_reference_runs() {
    follow(include_str!("../../../../docs/share.md"), 3);
}

#[test]
fn every_example_of_divvyd_runs() {
    follow(include_str!("../../../../docs/daemon.md"), 6);
}

#[test]
fn every_example_of_limits_runs() {
    follow(include_str!("../../../../docs/limits.md"), 3);
}

#[test]
fn every_example_of_the_page_in_the_browser_runs() {
    follow(include_str!("../../../../docs/web.md"), 1);
}

#[test]
fn every_completion_of_the_installation_is_made() {
    follow(include_str!("../../../../docs/install.md"), 1);
}

#[test]
fn every_recipe_runs() {
    follow(include_str!("../../../../docs/recipes.md"), 6);
}

/// The quick start has the two commands: a run, and all tests; and CI runs the same as the second.
#[test]
fn the_quick_start_is_two_commands() {
    let section = README.split("\n## ").find(|s| s.starts_with("Quick start")).expect("a quick start");
    let blocks: Vec<&str> = commands(section).iter().map(|(block, _)| block.text).collect();
    assert_eq!(blocks.len(), 2, "{blocks:#?}");
    assert!(blocks[0].starts_with(CALL) && blocks[0].contains("--for 10s"), "{blocks:#?}");
    assert_eq!(blocks[0].matches("sha256sum /dev/zero").count(), 3);
    let one_command = |block: &str| block.replace("\\\n", " ").lines().count() == 1;
    assert!(blocks.iter().all(|block| one_command(block)), "{blocks:#?}");
    assert_eq!(blocks[1].trim(), TEST);
    assert!(include_str!("../../../../.ci/run").contains(TEST));
    // The package is an aside, no third command; its name is that of the page which a test installs it by.
    assert!(section.contains("`apt install ./divvy_*.deb`") && section.contains("`cargo xtask dist`"));
    let install = block(include_str!("../../../../docs/install.md"), "sh debian");
    assert!(install.starts_with("apt install ./divvy_") && install.contains(".deb\n"), "{install}");
}
