//! Limits of the monitor that containers must not inherit: open files, and the score of the OOM killer.

use std::fs;

use rustix::process::{Resource, Rlimit, setrlimit};
use syscall::resource_limit;

/// Limits that the daemon started this process with.
#[derive(Debug)]
pub(crate) struct InheritedLimits {
    pub(crate) open_files: Option<Rlimit>,
    pub(crate) oom_score_adj: i32,
}

/// Score that protects best from the OOM killer without exempting the process from it.
const PROTECTED: i32 = -999;
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

impl InheritedLimits {
    /// Raises the soft limit of open files of this process to the hard limit, and lowers its OOM score if it may.
    pub(crate) fn prepare() -> Self {
        let oom_score_adj =
            crate::process::oom_score_adj(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0);
        // Without CAP_SYS_RESOURCE the score cannot be lowered.
        let _ = fs::write(OOM_SCORE_ADJ, PROTECTED.min(oom_score_adj).to_string());
        let raise = |before: &Rlimit| {
            let raised = Rlimit { current: before.maximum, maximum: before.maximum };
            before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok()
        };
        let open_files = resource_limit::get(Resource::Nofile);
        let open_files = open_files.inspect_err(|error| eprintln!("pinmon: read the open file limit: {error}"));
        let open_files = open_files.ok().filter(raise);
        Self { open_files, oom_score_adj }
    }

    /// Sets the original limit of open files for a process, unless its spec has one.
    pub(crate) fn restore_open_files(&self, process: &mut oci::Process) {
        const NAME: &str = "RLIMIT_NOFILE";
        let Some(Rlimit { current, maximum }) = self.open_files else { return };
        if !process.rlimits.iter().any(|limit| limit.kind == NAME) {
            let [soft, hard] = [current, maximum].map(|limit| limit.unwrap_or(u64::MAX));
            process.rlimits.push(oci::Rlimit { kind: NAME.to_owned(), soft, hard });
        }
    }
}
