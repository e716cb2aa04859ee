//! Processors and memory that are added to the running guest.
//!
//! The kernel sets memory online by itself: `memhp_default_state` on its command line.

use std::{fs, path::PathBuf, thread::available_parallelism};

use agent_api::Capacity;

use crate::{failure::system, process::Outcome};

/// Directory with a directory for each processor.
const CPUS: &str = "/sys/devices/system/cpu";

/// Returns the memory that the kernel manages, in bytes.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// Sets a processor online that is not, and returns what the guest has: the daemon repeats the request, and others are not delayed
/// by the time that each takes. `boot` is the memory before any was added, in bytes.
pub(crate) fn online(boot: u64) -> Outcome<Capacity> {
    if let Some(file) = find_offline().map_err(|error| system(format_args!("list {CPUS}"), error))? {
        fs::write(&file, "1").map_err(|error| system(format_args!("write 1 to {}", file.display()), error))?;
    }
    // The affinity of this process includes every processor that is online.
    let cpus = available_parallelism().map_err(|error| system("count the processors", error))?;
    let cpus = u32::try_from(cpus.get()).unwrap_or(u32::MAX);
    Ok(Capacity { cpus, added_memory: memory().saturating_sub(boot) })
}

/// Returns the file of a processor that is offline, which the kernel sets online when `1` is written to it. The one that the guest
/// booted with may have no such file.
fn find_offline() -> std::io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(CPUS)? {
        let entry = entry?;
        let number = entry.file_name();
        let is_cpu =
            number.to_str().and_then(|name| name.strip_prefix("cpu")).is_some_and(|n| n.parse::<u32>().is_ok());
        let file = entry.path().join("online");
        if is_cpu && fs::read_to_string(&file).is_ok_and(|state| state.trim() == "0") {
            return Ok(Some(file));
        }
    }
    Ok(None)
}
