//! Kernel modules from the initramfs. The files that list them are documented where they are written: `vm::guest_image`.

use std::{fs, fs::File, io};

use rustix::{io::Errno, system::finit_module};

use crate::during;

/// Paths of modules to load at boot, one per line, each after those that it depends on.
const BOOT: &str = "/modules/boot";

/// Loads the modules that every guest needs. One that cannot be loaded is reported on the console: what needs it fails.
pub(crate) fn load_boot_modules() -> io::Result<()> {
    let list = fs::read_to_string(BOOT).map_err(during(format_args!("read {BOOT}")))?;
    for path in list.lines().filter(|line| !line.is_empty()) {
        if let Err(error) = load(path) {
            eprintln!("pinion-agent: load {path}: {error}");
        }
    }
    Ok(())
}

fn load(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    match finit_module(&file, c"", 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
