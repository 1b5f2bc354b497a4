//! The `divvyd` program; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    divvy_linux::stack::with_room(divvy_daemon::main)
}
