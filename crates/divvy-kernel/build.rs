//! Compiles the BPF programs and makes their skeleton; compiles the policies natively as well, for the tests.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script everything by the environment")]

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The newest clang: `$CLANG`, else one by its version, as Debian has them, else whatever is called clang.
fn clang() -> String {
    println!("cargo::rerun-if-env-changed=CLANG");
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let runs =
        |clang: &String| Command::new(clang).arg("--version").output().is_ok_and(|o| o.status.success());
    let versions = (18..=24).rev().map(|version| format!("clang-{version}"));
    let found = versions.chain(["clang".to_owned()]).find(runs);
    found.expect("clang 18 or later is missing: install clang-19, or run scripts/setup.sh")
}

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    let clang = clang();
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo says where"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        "s390x" => "s390",
        "powerpc64" => "powerpc",
        other => panic!("no BPF programs for {other}"),
    };
    let define = format!("-D__TARGET_ARCH_{arch}");
    // Functions that another policy needs are dead code to this one.
    let flags = [
        "-mcpu=v3",
        "-Wall",
        "-Werror",
        "-Wno-unused-function",
        "-Wno-missing-declarations",
        define.as_str(),
    ];
    SkeletonBuilder::new()
        .source("bpf/divvy.bpf.c")
        .clang(&clang)
        .clang_args(flags)
        .build_and_generate(out.join("divvy.skel.rs"))
        .unwrap_or_else(|e| panic!("compile the BPF programs with {clang}: {e:#}"));
    cc::Build::new()
        .compiler(&clang)
        .file("bpf/native.c")
        .flag("-Wno-unused-function")
        .warnings_into_errors(true)
        .compile("divvy_native");
}
