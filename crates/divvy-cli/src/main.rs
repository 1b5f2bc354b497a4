//! The `divvy` program; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    divvy_cli::main()
}
