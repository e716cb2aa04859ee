use std::{path::PathBuf, time::Duration};

/// Configuration of the interface, already validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// Socket that plugins connect to; absent: only launched plugins are used.
    pub socket: Option<PathBuf>,
    /// Directory of plugins that are launched, each named `<two digits>-<name>`.
    pub plugin_dir: PathBuf,
    /// Directory of their configuration: `<two digits>-<name>.conf`, or `<name>.conf`.
    pub plugin_config_dir: PathBuf,
    /// How long a plugin may take to register after it was launched or connected.
    pub registration_timeout: Duration,
    /// How long a plugin may take to answer a request.
    pub request_timeout: Duration,
    /// Names of plugins without which no container is created.
    pub required: Vec<String>,
    /// What no plugin may adjust.
    pub restrictions: Restrictions,
    /// File in which the processes of launched plugins are recorded, so that the next daemon finds those that are left
    /// over.
    pub process_record: PathBuf,
    /// Name of the engine, as plugins see it.
    pub runtime_name: String,
    /// Version of the engine, as plugins see it.
    pub runtime_version: String,
}

/// What no plugin may adjust. A container for which a plugin does it is not created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// No plugin may add OCI hooks.
    pub hooks: bool,
    /// No plugin may replace the default seccomp profile.
    pub default_seccomp: bool,
    /// No plugin may give a seccomp policy to a container without one.
    pub unconfined_seccomp: bool,
    /// No plugin may replace a seccomp profile that the pod names.
    pub custom_seccomp: bool,
    /// No plugin may change namespaces.
    pub namespaces: bool,
    /// No plugin may set sysctls.
    pub sysctls: bool,
    /// Annotation with which a pod tolerates the absence of required plugins; empty: none.
    pub tolerate_missing_annotation: String,
}
