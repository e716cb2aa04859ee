//! Kernel modules from the initramfs. The files that list them are documented where they are written: `vm::guest_image`.

use std::{fs, fs::File, io};

use rustix::{io::Errno, system::finit_module};

use crate::during;

/// Paths of modules to load at boot, one per line, each after those that it depends on.
const BOOT: &str = "/modules/boot";

/// Lines `NAME: PATH PATH…`: what to load when the kernel requests a module or one of its aliases.
const DEMAND: &str = "/modules/demand";
/// Program that the kernel executes to load a module, with the arguments of modprobe(8) (`kernel/module/kmod.c`).
const HELPER: &str = "/proc/sys/kernel/modprobe";
/// This program in the initramfs.
const AGENT: &str = "/init";

/// Has the kernel request modules from this program.
pub(crate) fn serve_requests() -> io::Result<()> {
    fs::write(HELPER, AGENT).map_err(during(format_args!("write {HELPER}")))
}

/// Returns the module that the kernel requests with these arguments.
pub(crate) fn requested(arguments: &[String]) -> Option<&str> {
    match arguments {
        [_, quiet, end, name] if quiet == "-q" && end == "--" => Some(name),
        _ => None,
    }
}

/// Loads a module that the kernel has requested, and those that it depends on.
///
/// # Errors
/// `NotFound` if the image does not have it: the kernel requests many names of things that exist nowhere.
pub(crate) fn load_requested(name: &str) -> io::Result<()> {
    let list = fs::read_to_string(DEMAND)?;
    let paths = find(&list, name).ok_or(io::ErrorKind::NotFound)?;
    // A dependency may be of use to other processors only.
    let mut outcome = Ok(());
    for path in paths.split_whitespace() {
        outcome = load(path).map_err(during(format_args!("load {path}")));
    }
    outcome
}

/// Returns the paths of a module in a list. Names are equal if they differ in `-` and `_` only.
fn find<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let is_same = |other: &str| other.len() == name.len() && other.replace('-', "_") == name.replace('-', "_");
    // An alias may contain `:`, but not followed by a blank.
    list.lines().filter_map(|line| line.split_once(": ")).find(|(other, _)| is_same(other)).map(|(_, paths)| paths)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_its_name_and_aliases() {
        let list = "bridge: /modules/stp.ko /modules/bridge.ko\nrtnl_link_bridge: /modules/bridge.ko\ndevname:net/tun: /modules/tun.ko\n";
        assert_eq!(find(list, "bridge"), Some("/modules/stp.ko /modules/bridge.ko"));
        assert_eq!(find(list, "rtnl-link-bridge"), Some("/modules/bridge.ko"));
        assert_eq!(find(list, "devname:net/tun"), Some("/modules/tun.ko"));
        assert_eq!(find(list, "stp"), None);
    }

    #[test]
    fn only_the_arguments_of_the_kernel_request_a_module() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(requested(&words("/init -q -- bridge")), Some("bridge"));
        assert_eq!(requested(&words("/init -q bridge")), None);
        assert_eq!(requested(&words("/init")), None);
    }
}
