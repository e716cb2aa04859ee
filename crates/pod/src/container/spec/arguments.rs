//! Command, arguments and environment: those of the request have precedence over those of the image.

use image::ImageConfig;

use crate::ContainerConfig;

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the command line. A command replaces the image's entrypoint and arguments; arguments alone replace only the
/// image's arguments.
pub(in crate::container) fn arguments(config: &ContainerConfig, image: &ImageConfig) -> Vec<String> {
    if !config.command.is_empty() {
        return [config.command.clone(), config.args.clone()].concat();
    }
    let args = if config.args.is_empty() { &image.cmd } else { &config.args };
    let arguments = [image.entrypoint.clone(), args.clone()].concat();
    match arguments.is_empty() && image.is_wasm() {
        true => vec![image::MODULE_PATH.to_owned()],
        false => arguments,
    }
}

/// Returns the environment: defaults, those of the administrator, then the image's variables, then the request's. The last value of a variable
/// counts, in the position of the first.
pub(super) fn environment(
    config: &ContainerConfig,
    image: &ImageConfig,
    hostname: &str,
    defaults: &[String],
) -> Vec<String> {
    let mut env = vec![PATH.to_owned()];
    if config.tty {
        env.push("TERM=xterm".into());
    }
    env.push(format!("HOSTNAME={hostname}"));
    for entry in defaults.iter().chain(&image.env) {
        set(&mut env, entry.clone());
    }
    for (name, value) in &config.env {
        set(&mut env, format!("{name}={value}"));
    }
    env
}

/// Sets or replaces a variable, given as `NAME=value`.
pub(crate) fn set(env: &mut Vec<String>, entry: String) {
    let name = entry.split('=').next().unwrap_or_default();
    let has_name = |existing: &&mut String| existing.split('=').next() == Some(name);
    match env.iter_mut().find(has_name) {
        Some(existing) => *existing = entry,
        None => env.push(entry),
    }
}

/// Makes a working directory absolute: a relative path is taken from the root.
pub(crate) fn absolute(dir: &str) -> String {
    if dir.starts_with('/') { dir.to_owned() } else { format!("/{dir}") }
}
