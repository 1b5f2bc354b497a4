//! `divvy web`: the clients on a page in the browser. The page is in this program; it is served on loopback, and asks divvyd
//! through us, as the user who started us.
//!
//! Every user of the machine, and every site that the user's browser has open, can reach a loopback port. So nothing but the
//! page's own files is answered without the token, which the address has behind `#`, where a browser sends it to nobody; the
//! page itself puts it into a header, which no other site can. `Host` must be a name of loopback, or another site's name that
//! was made to mean this machine (DNS rebinding) would make the browser take our answers for that site's own.

mod http;
mod serve;
mod view;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args as ClapArgs;
use divvy_api::place::Place;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::remote::{json as pretty, which::Which};
use crate::{Code, Failure, capable, mention, print, tell};
use serve::Site;
use view::View;

/// Bytes of a token: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| {
        "a port is a number from 0 to 65535, as in --port 8080; 0 is one that is free".to_owned()
    })
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WebArgs {
    /// The port on loopback [default: one that is free]
    #[arg(long, value_name = "PORT", value_parser = port)]
    port: Option<u16>,

    /// Only print the address; without it the page is opened where there is a desktop
    #[arg(long)]
    no_open: bool,

    /// Print the address as JSON, and open nothing
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(args: &WebArgs) -> Result<Code, Failure> {
    let choice = args.which.choice()?;
    let listener = listen(args.port)?;
    let system = |e: std::io::Error| Failure::new(Code::System, format!("serve on loopback: {e}"));
    let port = listener.local_addr().map_err(system)?.port();
    let token = token()?;
    // From here on a signal is waited for: what was made is removed.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(system)?;
    let site = Arc::new(Site { token: token.clone(), view: View::new(choice.clone()), choice });
    site.view.look(true);
    serve::start(listener, &site).map_err(system)?;
    let address = format!("http://127.0.0.1:{port}/#{token}");
    if args.json {
        print(pretty(&json!({"address": address, "port": port, "pid": std::process::id()}))?)?;
    } else {
        mention(format_args!("{address}"))?;
        tell("divvy web: serves that page until Ctrl-C; whoever has the address acts as you");
    }
    let door = if args.json || args.no_open { None } else { open(&address) };
    let signal = signals.forever().next().unwrap_or(SIGTERM);
    if let Some(door) = door {
        let _ = std::fs::remove_file(door); // The token in it opens nothing any more.
    }
    Ok(Code::Signalled(signal))
}

fn listen(port: Option<u16>) -> Result<TcpListener, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).map_err(|e| {
        let asked = port.map_or_else(|| "a free port".to_owned(), |port| format!("port {port}"));
        let fix = "name another with --port, or none for one that is free";
        Failure::new(Code::System, format!("listen at {asked} of 127.0.0.1: {e}; {fix}"))
    })
}

/// What only who is told the address knows: 128 bits of the kernel's randomness.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut had = 0;
    while had < bytes.len() {
        had += rustix::rand::getrandom(&mut bytes[had..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Failure::new(Code::System, format!("ask the kernel for a random token: {e}")))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Opens the page on a desktop; gives the file to remove at the end. The address is in a file that only its user can read: the
/// command lines of all processes can be read by everybody.
fn open(address: &str) -> Option<PathBuf> {
    if ["WAYLAND_DISPLAY", "DISPLAY"].into_iter().all(|name| capable::variable(name).is_none()) {
        return None;
    }
    let dir = Place::open_or_create().ok()?.dir().path().to_owned();
    let door = dir.join(format!("web-{}.html", std::process::id()));
    let text = format!(
        "<!doctype html><title>divvy</title><meta http-equiv=refresh content=\"0; url={address}\">\n"
    );
    let opened = std::fs::write(&door, text).and_then(|()| {
        let mut browser = Command::new("xdg-open");
        browser.arg(&door).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    match opened {
        Ok(mut browser) => {
            // Nobody waits for it, but it shall not be left a zombie.
            std::thread::spawn(move || browser.wait());
        }
        Err(e) => tell(format_args!("divvy web: xdg-open: {e}; open the address yourself")),
    }
    Some(door)
}
