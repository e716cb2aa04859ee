//! Prepares the guest for its pod.

use std::{fs, path::PathBuf};

use agent_api::{Configuration, SHARED, SHARED_TAG};
use rustix::{
    io::Errno,
    mount::{MountFlags, mount},
};

use crate::{
    clock,
    failure::{invalid, system},
    network,
    process::Outcome,
};

/// Applies a configuration. What was applied stays if a later step fails.
pub(crate) fn apply(configuration: &Configuration) -> Outcome<()> {
    if let Some(now) = configuration.time.filter(|now| clock::now().abs_diff(*now) > configuration.time_tolerance) {
        clock::set(now).map_err(|errno| system("set the clock", errno))?;
    }
    if !configuration.entropy.is_empty() {
        let seeded = syscall::random::reseed(&configuration.entropy);
        seeded.map_err(|error| system("seed the random number generator", error))?;
    }
    if let Some(hostname) = &configuration.hostname {
        rustix::system::sethostname(hostname.as_bytes())
            .map_err(|errno| system(format_args!("set the hostname {hostname:?}"), errno))?;
    }
    if configuration.mount_shared {
        mount_shared()?;
    }
    if let Some(network) = &configuration.network {
        network::apply(network)?;
    }
    configuration.sysctls.iter().try_for_each(|(name, value)| write_sysctl(name, value))
}

/// Mounts the file system of the pod. Succeeds if it is mounted.
fn mount_shared() -> Outcome<()> {
    let operation = format!("mount the file system of the pod on {SHARED}");
    fs::create_dir_all(SHARED).map_err(|error| system(&operation, error))?;
    if fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&format!(" {SHARED} virtiofs "))) {
        return Ok(());
    }
    match mount(SHARED_TAG, SHARED, "virtiofs", MountFlags::empty(), c"") {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(errno) => Err(system(operation, errno)),
    }
}

fn write_sysctl(name: &str, value: &str) -> Outcome<()> {
    // A name with slashes has dots in its parts (sysctl(8)).
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !path.split('/').all(is_part) {
        return Err(invalid(format!("set sysctl {name:?}: it is not the name of a sysctl")));
    }
    let file: PathBuf = ["/proc/sys", &path].iter().collect();
    fs::write(file, value).map_err(|error| system(format_args!("set sysctl {name} to {value:?}"), error))
}
