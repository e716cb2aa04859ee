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
    (Crun, "mounts::flags_are_undone_by_their_opposites", "keeps ro though rw follows"),
    (Runc, "mounts::flags_are_undone_by_their_opposites", "hands 'defaults' to the file system (mended in 1.2)"),
    (Runc, "mounts::data_of_tmpfs", "gives a tmpfs the mode of the folder below it, whatever mode= says"),
    (Runc, "mounts::idmapped_bind", "no idmapped mounts before 1.2"),
    (Runc, "mounts::idmapped_recursive", "no idmapped mounts before 1.2"),
    (Crun, "mounts::propagation", "leaves a bind mount private that asks for shared"),
    (Crun, "mounts::recursive_attributes", "asks the kernel for rnodiratime in a way it refuses"),
    (Crun, "mounts::rootfs_propagation", "takes any word for a propagation"),
    (Runc, "mounts::rootfs_propagation", "cannot bind a root that it made unbindable before"),
    (Runc, "namespaces::domainname", "older than domainname"),
    (Runc, "namespaces::joined_user_namespace", "wants mappings for a user namespace that it joins"),
    (Crun, "namespaces::named_twice", "takes a type of namespace twice"),
    (Runc, "namespaces::network_device_is_moved", "older than netDevices"),
    (Crun, "namespaces::network_device_is_moved", "older than netDevices"),
    (Runc, "namespaces::time_offsets", "no time namespaces before 1.2"),
    (Crun, "namespaces::time_offsets", "fails to write the offsets"),
    (Runc, "namespaces::time_offsets_without_a_namespace", "no time namespaces before 1.2"),
    (Crun, "namespaces::time_offsets_without_a_namespace", "ignores the offsets"),
    (Crun, "namespaces::user_namespace_without_mappings", "makes up a mapping"),
    (Crun, "process::apparmor_and_selinux_of_nothing", "writes an empty label"),
    (Runc, "process::capabilities_the_machine_lacks", "fails where root lacks a capability"),
    (Crun, "process::capabilities_the_machine_lacks", "fails where root lacks a capability"),
    (Runc, "process::cpu_affinity_of_exec", "older than execCPUAffinity"),
    (Crun, "process::cpu_affinity_of_exec", "older than execCPUAffinity"),
    (Runc, "process::io_priority", "older than ioPriority"),
    (Crun, "process::io_priority", "older than ioPriority"),
    (Runc, "process::memory_policy", "older than memoryPolicy"),
    (Crun, "process::memory_policy", "older than memoryPolicy"),
    (Runc, "process::personality", "no personality before 1.2"),
    (Runc, "process::scheduler_batch", "older than scheduler"),
    (Crun, "process::scheduler_batch", "older than scheduler"),
];

/// Why a case is known to fail on a runtime.
pub fn known(runtime: Runtime, case: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(on, name, _)| *on == runtime && *name == case).map(|(_, _, reason)| *reason)
}
