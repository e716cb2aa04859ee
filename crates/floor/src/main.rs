//! A lower bound for OCI runtimes: only the system calls that the lifecycle of a container needs.
//!
//! `pinion-floor ROOTFS GROUP FILTER PROGRAM…`: no JSON, no options, no protection against malicious images, no error
//! messages with context. The spec is that of `pinion-bench oci`, hard-coded in these files. The time that a runtime
//! needs beyond this is its overhead.
//!
//! It creates a real container: the benchmark compares it from inside with the container of the first runtime.
//!
//! Two things that every runtime needs are included, too: running from a program that the container cannot write
//! (CVE-2019-5736), and a record of the container for the next call, written atomically by rename, with the seccomp
//! filter for `exec`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cgroups;
mod child;
mod record;
mod restart;

use std::{ffi::CString, io, os::unix::ffi::OsStrExt, process::ExitCode};

use rustix::{
    fd::AsFd,
    process::{WaitId, WaitIdOptions, waitid},
    thread::UnshareFlags,
};
use syscall::clone::Clone3;

/// The command-line arguments.
struct Arguments {
    rootfs: CString,
    group: String,
    filter: Vec<u8>,
    program: Vec<CString>,
}

fn main() -> ExitCode {
    match restart::from_read_only_program().and_then(|()| parse()).and_then(|arguments| run(&arguments)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("pinion-floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> io::Result<Arguments> {
    let words: Vec<CString> =
        std::env::args_os().skip(1).map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let [rootfs, group, filter, program @ ..] = words.as_slice() else {
        return Err(io::Error::other("usage: pinion-floor ROOTFS GROUP FILTER PROGRAM…"));
    };
    let filter = std::fs::read(std::ffi::OsStr::from_bytes(filter.as_bytes()))?;
    let group = group.to_string_lossy().trim_start_matches('/').to_owned();
    Ok(Arguments { rootfs: rootfs.clone(), group, filter, program: program.to_vec() })
}

fn run(arguments: &Arguments) -> io::Result<u8> {
    let record = record::Record::create(&arguments.group, &arguments.filter)?;
    let cgroups = cgroups::Cgroups::create(&arguments.group)?;
    let child = Clone3 { namespaces: Some(UnshareFlags::NEWPID), cgroup: cgroups.v2() }.fork(|| {
        let error = child::run(arguments, &cgroups);
        eprintln!("pinion-floor: set up the container: {error}");
        1
    })?;
    record.write(child.pid.as_raw_pid())?;
    let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    cgroups.remove()?;
    record.remove()?;
    Ok(status.and_then(|status| status.exit_status()).and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
}
