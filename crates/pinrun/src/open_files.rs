//! The limit of open files: every mount of a container is open at once, until it is attached. The container has the
//! limit that the runtime was called with.

use std::borrow::Cow;

use rustix::process::{Resource, Rlimit, setrlimit};
use syscall::resource_limit;

use crate::failure::Failure;

const NAME: &str = "RLIMIT_NOFILE";

/// As many mounts and devices fit into any limit that a process can start with.
const FEW: u64 = 64;

/// Descriptors that are opened in addition to them, and what the runtime is called with.
const OTHERS: u64 = 256;

/// The limit as it was, where it was raised.
#[derive(Debug)]
pub(crate) struct OpenFiles(Option<Rlimit>);

impl OpenFiles {
    /// Raises the soft limit as far as the spec's mounts need; the spec that is returned has the container's process
    /// get the old one back.
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
            let what = format!("raise {NAME} to {needed}, for {opened} mounts and devices");
            Failure::io(format!("{what} (start the runtime with a hard limit of so many, as LimitNOFILE=)"), error)
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

    /// For hooks, which are the runtime's children; what is open stays so.
    pub(crate) fn restore(self) {
        if let Some(before) = self.0 {
            // A soft limit may always be lowered; a hard one that was raised is this process's to lower.
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}
