//! A small machine that works all the time and counts: a shell as its first process, and nothing else.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::image::Image;
use super::kernel;
use super::machine::{self, BARE, LINE, QEMU};

/// What a line of the console begins with that says that one more piece of work is done.
const DONE: &str = "done ";
/// The machine's clock counts its instructions. In real time its kernel would have as many ticks whatever it is given of a CPU, so
/// that a machine with less of it would do less for its CPU time; and one that is starved while it boots would panic.
const CLOCK: &str = "-icount shift=3,sleep=off,align=off -rtc clock=vm";
/// What the kernel starts.
const INIT: &str = "\
#!/bin/sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin
export PATH=/bin
n=0
while :; do
  head -c 32k /bin/busybox | sha256sum >/dev/null
  n=$((n+1))
  echo \"done $n\"
done
";

/// What machines of this kind are started from.
#[derive(Debug)]
pub(crate) struct Small {
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Small {
    /// Puts the machine's file system into `dir`.
    ///
    /// # Errors
    /// What is missing here, with the fix.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        machine::check()?;
        let kernel = kernel::ready()?.image();
        let mut image = Image::new();
        image.base()?;
        image.link("/bin/sh", "busybox");
        image.text("/init", INIT.as_bytes(), 0o755);
        let initrd = dir.join("small.initrd");
        image.write(&initrd)?;
        Ok(Self { kernel, initrd })
    }

    /// A shell's command that is such a machine, of one CPU, with its console on standard output.
    pub(crate) fn command(&self) -> String {
        format!(
            "{QEMU} {} -m 128 -smp 1 -accel tcg,thread=single {CLOCK} -kernel '{}' -initrd '{}' -append '{LINE}' -serial stdio",
            BARE.join(" "),
            self.kernel.display(),
            self.initrd.display()
        )
    }
}

/// Whether a line of the console says that one more piece of work is done.
pub(crate) fn counts(line: &str) -> bool {
    line.starts_with(DONE)
}
