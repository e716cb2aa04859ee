//! What a container would inherit from the monitor and must not: its limit of open files and its place in the OOM
//! killer's order.

use std::fs;

use rustix::process::{Resource, Rlimit, setrlimit};
use syscall::resource_limit;

/// As the daemon started us.
#[derive(Debug)]
pub(crate) struct Inherit {
    pub(crate) files: Option<Rlimit>,
    pub(crate) oom_score_adj: i32,
}

/// As far from the OOM killer as can be without being exempt from what the system may do as a last resort.
const PROTECTED: i32 = -999;
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

impl Inherit {
    /// Raises the monitor's own limit of open files to what is allowed, and protects it from the OOM killer where it
    /// may.
    pub(crate) fn prepare() -> Self {
        let oom_score_adj =
            crate::process::oom_score_adj(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0);
        // Without CAP_SYS_RESOURCE it may not go lower than it is.
        let _ = fs::write(OOM_SCORE_ADJ, PROTECTED.min(oom_score_adj).to_string());
        let raise = |before: &Rlimit| {
            let raised = Rlimit { current: before.maximum, maximum: before.maximum };
            before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok()
        };
        let files = resource_limit::get(Resource::Nofile);
        let files = files.inspect_err(|error| eprintln!("pinmon: read the limit of open files: {error}"));
        let files = files.ok().filter(raise);
        Self { files, oom_score_adj }
    }

    /// Names the limit of open files that the monitor had at first, unless the process names one.
    pub(crate) fn restore_files(&self, process: &mut oci::Process) {
        const NAME: &str = "RLIMIT_NOFILE";
        let Some(Rlimit { current, maximum }) = self.files else { return };
        if !process.rlimits.iter().any(|limit| limit.kind == NAME) {
            let [soft, hard] = [current, maximum].map(|limit| limit.unwrap_or(u64::MAX));
            process.rlimits.push(oci::Rlimit { kind: NAME.to_owned(), soft, hard });
        }
    }
}
