use crate::Runtime;
use crate::Runtime::{Crun, Runc};

/// Runtime, case, and why the case fails there (runc 1.1.5, crun 1.8.1). `pinrun` has none.
pub const KNOWN: &[(Runtime, &str, &str)] = &[
    (Crun, "exec::capability_flag", "replaces the capabilities of the process by those of --cap"),
    (Crun, "exec::cwd_is_the_containers", "starts in / if --cwd is not given"),
    (Crun, "exec::process_file_with_oom_score", "ignores oomScoreAdj of exec"),
    (Runc, "exec::process_file_with_oom_score", "ignores oomScoreAdj of exec"),
    (Runc, "exec::process_file_with_umask", "ignores umask of exec (mended in 1.2)"),
    (Crun, "exec::user_flag", "takes a negative user id"),
    (Crun, "lifecycle::bad_ids_are_refused", "takes blanks and controls in an id"),
    (Crun, "lifecycle::kill_by_name_and_number", "takes a name in lower case for another signal"),
    (Crun, "lifecycle::kill_with_unknown_signal", "takes an unknown name for a signal and says nothing"),
    (Crun, "terminal::socket_without_a_terminal_is_refused", "ignores a console socket that nobody will use"),
];

/// Why a case is known to fail on a runtime.
pub fn known(runtime: Runtime, case: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(on, name, _)| *on == runtime && *name == case).map(|(_, _, reason)| *reason)
}
