//! docs/admin.md, as a new administrator follows it: every command, with the paths that it names, as root of a machine of
//! its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::follow::commands;
use crate::harness::{on_our_cpu, one_cpu, skip};
use crate::own_machine::OwnMachine;
use crate::page::{block, check};

const PAGE: &str = include_str!("../../../../docs/admin.md");

#[test]
fn a_new_administrator_follows_the_page() {
    const TEST: &str = "a_new_administrator_follows_the_page";
    let Some(machine) = OwnMachine::new(TEST, "useradd runuser") else { return };
    let blocks: Vec<_> = commands(PAGE).into_iter().filter(|(block, _)| block.kind == "sh").collect();
    assert!(blocks.len() >= 8, "{blocks:#?}");
    // The page waits for numbers that are as good as those it shows; here for what the tolerance needs, however busy it is.
    let here = |text: &str| on_our_cpu(text).replace("sleep 10\n", "enough\n");
    let parts: Vec<String> = blocks.iter().map(|(block, _)| here(block.text)).collect();
    // What stands below a block is what that block prints; where nothing stands there, it prints nothing.
    for ((block, shown), output) in blocks.iter().zip(machine.run(&parts)) {
        match shown {
            Some(shown) => check(shown, &output).unwrap_or_else(|why| panic!("after\n{}{why}", block.text)),
            None if block.text.contains("audit") => assert!(output.lines().count() >= 3, "{output}"),
            None => assert_eq!(output, "", "after {}", block.text),
        }
    }
}

/// The users of the login node in docs/recipes.md, who do nothing but log in and compute.
const LOGIN_NODE: &str = "\
cp target/release/* /usr/local/bin/
useradd alice && useradd carol
mkdir -p /etc/divvy
cp policy.toml /etc/divvy/divvyd.toml
divvyd --system 2> divvyd.log &
until [ -S /run/divvy/api.sock ]; do sleep 0.1; done
runuser -u alice -- sha256sum /dev/zero &
runuser -u carol -- sha256sum /dev/zero &
until [ $(divvy ls | grep -c everything) = 2 ]; do sleep 0.5; done
divvy ls | grep -o '[a-z]*/everything' | sort
enough
";

#[test]
fn a_login_node_is_divided_by_its_recipe() {
    const RECIPES: &str = include_str!("../../../../docs/recipes.md");
    let Some(machine) = OwnMachine::new("a_login_node_is_divided_by_its_recipe", "useradd runuser") else {
        return;
    };
    // One program of each is enough for one CPU.
    let cpus = format!("[scheduler]\ncpus = \"{}\"\n", one_cpu());
    let policy = block(RECIPES, "toml policy").replace("[scheduler]\n", &cpus);
    assert!(policy.contains(&cpus), "{policy}");
    machine.sandbox().write("policy.toml", &policy);
    let look = commands(RECIPES).into_iter().find(|(block, _)| block.kind == "sh system").expect("a look");
    let printed = machine.run(&[LOGIN_NODE.to_owned(), look.0.text.to_owned()]);
    assert_eq!(printed[0], "alice/everything\ncarol/everything\n");
    check(look.1.expect("what it shows"), &printed[1]).unwrap();
}

/// Where an administrator has set up a system's divvyd that does not run, whose own is asked is told once, and not who said so.
#[test]
fn a_systems_divvyd_that_does_not_run_is_told_of() {
    let Some(machine) = OwnMachine::new("a_systems_divvyd_that_does_not_run_is_told_of", "true") else {
        return;
    };
    let parts = [
        "cp target/release/* /usr/local/bin/\ndivvy run -- true\n",
        "mkdir -p /etc/divvy && : > /etc/divvy/divvyd.toml\ndivvy run -- true\n",
        "divvy share --group x 1:true 2>&1 >/dev/null | grep system\n",
        "divvy run --own -- true; DIVVY_MODE=user divvy run -- true; divvy share -q --group x 1:true; divvy ls\n",
        "rm -r /etc/divvy; mkdir -p /etc/systemd/system/sockets.target.wants\n\
         ln -s /nowhere /etc/systemd/system/sockets.target.wants/divvyd.socket; divvy run -- true\n",
    ];
    let printed = machine.run(&parts.map(str::to_owned));
    let told = |of: &str| {
        format!(
            "divvy: the system's divvyd does not run, though it is set up here ({of}): your own divides this, not among all \
             users; --own, or DIVVY_MODE=user, says that it is meant\n"
        )
    };
    assert_eq!(printed[0], "");
    assert_eq!(printed[1..3], [told("/etc/divvy/divvyd.toml"), told("/etc/divvy/divvyd.toml")]);
    assert!(!printed[3].contains("system"), "{}", printed[3]);
    assert_eq!(printed[4], told("/etc/systemd/system/sockets.target.wants/divvyd.socket"));
}

/// What the page does with systemd cannot be done here; that its files are what systemd takes can be seen.
#[test]
fn the_units_of_the_page_are_what_systemd_takes() {
    const TEST: &str = "the_units_of_the_page_are_what_systemd_takes";
    let systemd = block(PAGE, "sh systemd");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let units: Vec<_> = systemd.split_whitespace().filter(|word| word.starts_with("dist/systemd/")).collect();
    assert_eq!(units.len(), 2, "{systemd}");
    for unit in &units {
        let mode = std::fs::metadata(root.join(unit)).expect(unit).permissions().mode();
        assert_eq!(mode & 0o111, 0, "{unit} is no program");
    }
    let units: Vec<PathBuf> = units.iter().map(|unit| root.join(unit)).collect();
    check_units(TEST, &units);
    // What is put beside the unit starts the same program, with one option more.
    let unit = std::fs::read_to_string(root.join("dist/systemd/divvyd.service")).expect("the unit");
    let starts = |text: &str| text.lines().find(|line| line.starts_with("ExecStart=/")).map(str::to_owned);
    let [usual, beside] = [unit.as_str(), block(PAGE, "ini")].map(|text| starts(text).expect("a command"));
    assert_eq!(beside, format!("{usual} --backend cgroup"));
    assert!(block(PAGE, "ini").contains("\nExecStart=\n"), "which is emptied first");
}

/// With something in the place of systemd that writes down what it is asked for.
#[test]
fn the_units_are_installed_as_the_page_says() {
    let Some(machine) = OwnMachine::new("the_units_are_installed_as_the_page_says", "install") else {
        return;
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::create_dir_all(machine.sandbox().path("dist/systemd")).expect("a directory");
    for unit in ["dist/systemd/divvyd.service", "dist/systemd/divvyd.socket"] {
        machine.sandbox().write(unit, &std::fs::read_to_string(root.join(unit)).expect(unit));
    }
    let before = "mkdir -p /etc/systemd/system\n\
                  printf '#!/bin/sh\\necho \"$@\"\\n' > /usr/local/bin/systemctl && chmod 755 /usr/local/bin/systemctl\n";
    let commands = commands(PAGE).into_iter().filter(|(block, _)| block.kind == "sh systemd");
    let commands: String = commands.map(|(block, _)| block.text).collect();
    let look = "stat -c '%a %n' /etc/systemd/system/divvyd.*\n";
    let printed = machine.run(&[before.to_owned(), commands, look.to_owned()]);
    assert_eq!(printed[1], "daemon-reload\nenable --now divvyd.service divvyd.socket\nedit divvyd\n");
    let units = "644 /etc/systemd/system/divvyd.service\n644 /etc/systemd/system/divvyd.socket\n";
    assert_eq!(printed[2], units);
}

/// A socket that is enabled alone has divvyd begin when it is asked: nobody would be divided from a boot until then.
#[test]
fn pages_enable_the_service_with_its_socket() {
    for page in ["admin", "install", "slurm", "recipes"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{page}.md"));
        let text = std::fs::read_to_string(&path).expect("a page");
        assert!(text.contains("systemctl enable --now divvyd.service divvyd.socket"), "{page}");
        assert!(!text.contains("enable --now divvyd.socket"), "{page}");
    }
}

/// That systemd has no complaints about units, where there is one to ask.
pub fn check_units(test: &str, units: &[PathBuf]) {
    let verify = std::process::Command::new("systemd-analyze").arg("verify").args(units).output();
    let Ok(verify) = verify else { return skip(test, "no systemd-analyze") };
    let said = String::from_utf8_lossy(&verify.stderr);
    // What the units name is not installed here.
    const NOT_INSTALLED: [&str; 2] = ["is not executable", "Command 'man divvyd(1)' failed"];
    let names: Vec<&str> = units.iter().filter_map(|unit| unit.file_name()?.to_str()).collect();
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| names.iter().any(|name| line.contains(name)))
        .filter(|line| !NOT_INSTALLED.iter().any(|part| line.contains(part)))
        .collect();
    assert_eq!(complaints, [] as [&str; 0], "{said}");
}
