use cri_proto::v1;
use pod::ContainerConfig;

use super::{cdi, field, limits, mount, security, signal};
use crate::Failure;

/// Validates the configuration of a container.
pub(crate) fn container(message: v1::ContainerConfig) -> Result<ContainerConfig, Failure> {
    let metadata = message.metadata.ok_or_else(|| Failure::invalid("config.metadata", "is missing"))?;
    let image = message.image.unwrap_or_default();
    let linux = message.linux.unwrap_or_default();
    let limits = limits("config.linux.resources", &linux.resources.unwrap_or_default())?;
    Ok(ContainerConfig {
        name: field::name("config.metadata.name", &metadata.name)?,
        attempt: metadata.attempt,
        user_specified_image: match image.user_specified_image.as_str() {
            "" => image.image.clone(),
            image => image.to_owned(),
        },
        image: field::word("config.image.image", &image.image)?,
        command: arguments("config.command", message.command)?,
        args: arguments("config.args", message.args)?,
        working_dir: match message.working_dir.as_str() {
            "" => None,
            path => Some(field::path_inside("config.working_dir", path)?),
        },
        env: environment(message.envs)?,
        volumes: mount::volumes("config.mounts", &message.mounts)?,
        devices: mount::devices("config.devices", &message.devices)?,
        cdi_devices: cdi::devices(&message.cdi_devices, &message.annotations)?,
        labels: field::map("config.labels", message.labels)?,
        annotations: field::map("config.annotations", message.annotations)?,
        log_path: match message.log_path.as_str() {
            "" => None,
            path => Some(field::relative_path("config.log_path", path)?),
        },
        stdin: message.stdin,
        stdin_once: message.stdin_once,
        tty: message.tty,
        resources: limits.resources,
        oom_score_adj: limits.oom_score_adj,
        security: security::security(linux.security_context)?,
        stop_signal: signal::number(field::known("config.stop_signal", message.stop_signal)?),
        vm_process: None,
    })
}

fn arguments(at: &str, values: Vec<String>) -> Result<Vec<String>, Failure> {
    values.iter().enumerate().try_for_each(|(index, value)| field::text(&format!("{at}[{index}]"), value).map(drop))?;
    Ok(values)
}

/// Converts environment variables. The values are bytes in the message, but the runtime specification is JSON, so they
/// must be UTF-8.
fn environment(messages: Vec<v1::KeyValue>) -> Result<Vec<(String, String)>, Failure> {
    messages.into_iter().enumerate().map(|(index, pair)| variable(&format!("config.envs[{index}]"), pair)).collect()
}

fn variable(at: &str, pair: v1::KeyValue) -> Result<(String, String), Failure> {
    let at_key = format!("{at}.key");
    if pair.key.is_empty() || pair.key.contains('=') {
        return Err(Failure::invalid(&at_key, format_args!("{:?} is not a valid variable name", pair.key)));
    }
    let key = field::text(&at_key, &pair.key)?;
    let value = String::from_utf8(pair.value)
        .map_err(|_| Failure::invalid(&format!("{at}.value"), format_args!("value of {key:?} is not UTF-8")))?;
    Ok((key, field::text(&format!("{at}.value"), &value)?))
}
