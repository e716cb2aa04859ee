//! Command, arguments, environment: the request's over the image's.

use image::ImageConfig;

use crate::ContainerConfig;

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command replaces the image's entry point and arguments; arguments alone replace the image's arguments.
pub(super) fn arguments(config: &ContainerConfig, image: &ImageConfig) -> Vec<String> {
    if !config.command.is_empty() {
        return [config.command.clone(), config.args.clone()].concat();
    }
    let args = if config.args.is_empty() { &image.cmd } else { &config.args };
    [image.entrypoint.clone(), args.clone()].concat()
}

/// Defaults, then the image's, then the request's; the last of a name counts, at the place of the first.
pub(super) fn environment(config: &ContainerConfig, image: &ImageConfig, hostname: &str) -> Vec<String> {
    let mut env = vec![PATH.to_owned()];
    if config.tty {
        env.push("TERM=xterm".into());
    }
    env.push(format!("HOSTNAME={hostname}"));
    for entry in &image.env {
        set(&mut env, entry.clone());
    }
    for (name, value) in &config.env {
        set(&mut env, format!("{name}={value}"));
    }
    env
}

/// Sets `NAME=value`.
pub(crate) fn set(env: &mut Vec<String>, entry: String) {
    let name = entry.split('=').next().unwrap_or_default();
    let same = |known: &&mut String| known.split('=').next() == Some(name);
    match env.iter_mut().find(same) {
        Some(known) => *known = entry,
        None => env.push(entry),
    }
}

/// A working directory is absolute; what is not is taken from the root.
pub(crate) fn absolute(dir: &str) -> String {
    if dir.starts_with('/') { dir.to_owned() } else { format!("/{dir}") }
}
