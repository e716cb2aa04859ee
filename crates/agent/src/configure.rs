//! Prepares the guest for its pod.

use std::{fs, path::PathBuf};

use agent_api::{Configuration, SHARED, SHARED_TAG};
use rustix::{
    io::Errno,
    mount::{MountFlags, mount},
};

use crate::{
    clock,
    failure::{Unapplied, invalid, system},
    network,
    process::Outcome,
};

/// Applies a configuration. What was applied stays if a later step fails; when it is repeated, the time is not set again.
pub(crate) fn apply(configuration: &mut Configuration) -> Result<(), Unapplied> {
    let time = configuration.time.take();
    if let Some(now) = time.filter(|now| clock::now().abs_diff(*now) > configuration.time_tolerance) {
        clock::set(now).map_err(|errno| system("set the clock", errno))?;
    }
    let entropy = std::mem::take(&mut configuration.entropy);
    if !entropy.is_empty() {
        syscall::random::reseed(&entropy).map_err(|error| system("seed the random number generator", error))?;
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
    configuration.sysctls.iter().try_for_each(|(name, value)| write_sysctl(name, value)).map_err(Unapplied::Failed)
}

/// Mounts the file system of the pod. Succeeds if it is mounted.
fn mount_shared() -> Result<(), Unapplied> {
    let operation = format!("mount the file system of the pod on {SHARED}");
    fs::create_dir_all(SHARED).map_err(|error| system(&operation, error))?;
    if fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&format!(" {SHARED} virtiofs "))) {
        return Ok(());
    }
    match mount(SHARED_TAG, SHARED, "virtiofs", MountFlags::empty(), c"") {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        // No device has this tag.
        Err(errno @ Errno::INVAL) => Err(Unapplied::Absent(system(operation, errno))),
        Err(errno) => Err(system(operation, errno).into()),
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
