use crate::{SandboxConfig, SharedMode};

/// Returns the host name of the pod.
pub(crate) fn hostname(config: &SandboxConfig) -> String {
    /// `HOST_NAME_MAX` of the kernel, without the terminating zero.
    const LENGTH_MAX: usize = 64;
    let name = if !config.hostname.is_empty() {
        config.hostname.clone()
    } else if config.network == SharedMode::Node {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        config.name.name.clone()
    };
    name.chars().filter(char::is_ascii).take(LENGTH_MAX).collect()
}
