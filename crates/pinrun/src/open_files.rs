//! RLIMIT_NOFILE while a container is created: all mounts of a container are open at the same time, until they are
//! attached. The container itself gets the limit with which the runtime was called.

use std::borrow::Cow;

use rustix::process::{Resource, Rlimit, setrlimit};
use syscall::resource_limit;

use crate::failure::Failure;

const NAME: &str = "RLIMIT_NOFILE";

/// A number of mounts and devices that fits into any usual limit.
const FEW: u64 = 64;

/// An upper bound for all other descriptors, those inherited from the caller included.
const OTHERS: u64 = 256;

/// The limit before it was raised; `None` if it was not.
#[derive(Debug)]
pub(crate) struct OpenFiles(Option<Rlimit>);

impl OpenFiles {
    /// Raises the soft limit to what the mounts of the spec need. The returned spec gives the container's process the
    /// former limit.
    pub(crate) fn raise_for(spec: &oci::Spec) -> Result<(Self, Cow<'_, oci::Spec>), Failure> {
        let devices = spec.linux.as_ref().map_or(0, |linux| linux.devices.len());
        let opened = (spec.mounts.len() + devices) as u64;
        if opened <= FEW {
            return Ok((Self(None), Cow::Borrowed(spec)));
        }
        let before =
            resource_limit::get(Resource::Nofile).map_err(|error| Failure::io(format!("read {NAME}"), error))?;
        let needed = opened + OTHERS;
        let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
        if enough(before.current) {
            return Ok((Self(None), Cow::Borrowed(spec)));
        }
        let maximum = if enough(before.maximum) { before.maximum } else { Some(needed) };
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|error| {
            let operation = format!("raise {NAME} to {needed} for {opened} mounts and devices");
            Failure::io(format!("{operation} (start the runtime with LimitNOFILE={needed} or more)"), error)
        })?;
        let mut spec = spec.clone();
        if let Some(process) = &mut spec.process
            && !process.rlimits.iter().any(|limit| limit.kind == NAME)
        {
            let [soft, hard] = [before.current, before.maximum].map(|limit| limit.unwrap_or(u64::MAX));
            process.rlimits.push(oci::Rlimit { kind: NAME.to_owned(), soft, hard });
        }
        Ok((Self(Some(before)), Cow::Owned(spec)))
    }

    /// Restores the limit for hooks, which are children of the runtime. Open descriptors stay open.
    pub(crate) fn restore(self) {
        if let Some(before) = self.0 {
            // Lowering a limit needs no privileges.
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}
