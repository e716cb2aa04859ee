//! The floor: the system calls that a container's life needs, and nothing else.
//!
//! `pinion-floor ROOTFS GROUP FILTER PROGRAM…`: no JSON, no options, no checks of what an image may have prepared, no
//! messages; the spec is that of `pinion-bench oci`, word for word in these files. What a runtime takes longer than
//! this is its own.
//!
//! It makes a real container: the benchmark compares what is seen inside with what is seen under the first runtime.
//!
//! Two things that no runtime can go without are here, too: running from a program that the container cannot write to
//! (CVE-2019-5736), and a record of the container for the next call, written beside and renamed, with the filter for
//! `exec`.

#![forbid(unsafe_code)]

mod cgroups;
mod inside;
mod record;
mod restart;

use std::{ffi::CString, io, os::unix::ffi::OsStrExt, process::ExitCode};

use rustix::{
    fd::AsFd,
    process::{WaitId, WaitIdOptions, waitid},
    thread::UnshareFlags,
};
use syscall::clone::Clone3;

/// What the command line says.
struct Wanted {
    rootfs: CString,
    group: String,
    filter: Vec<u8>,
    program: Vec<CString>,
}

fn main() -> ExitCode {
    match restart::from_safe_program().and_then(|()| wanted()).and_then(|wanted| run(&wanted)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("pinion-floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wanted() -> io::Result<Wanted> {
    let words: Vec<CString> =
        std::env::args_os().skip(1).map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let [rootfs, group, filter, program @ ..] = words.as_slice() else {
        return Err(io::Error::other("usage: pinion-floor ROOTFS GROUP FILTER PROGRAM…"));
    };
    let filter = std::fs::read(std::ffi::OsStr::from_bytes(filter.as_bytes()))?;
    let group = group.to_string_lossy().trim_start_matches('/').to_owned();
    Ok(Wanted { rootfs: rootfs.clone(), group, filter, program: program.to_vec() })
}

fn run(wanted: &Wanted) -> io::Result<u8> {
    let record = record::Record::make(&wanted.group, &wanted.filter)?;
    let groups = cgroups::Groups::make(&wanted.group)?;
    let child = Clone3 { namespaces: Some(UnshareFlags::NEWPID), cgroup: groups.v2() }.fork(|| {
        let error = inside::enter(wanted, &groups);
        eprintln!("pinion-floor: inside: {error}");
        1
    })?;
    record.write(child.pid)?;
    let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    groups.remove()?;
    record.remove()?;
    Ok(status.and_then(|status| status.exit_status()).and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
}
