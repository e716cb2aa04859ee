//! CNI plugins that are shell scripts, and configurations for them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Shell code that prints a result with one address.
pub(crate) const RESULT: &str = r#"echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"x"}],
    "ips":[{"address":"10.9.0.7/24","interface":0}],"dns":{"nameservers":["10.9.0.1"],"search":["a.b"]}}'"#;

/// Writes a plugin that records its environment and input, and then runs the shell code in `response`.
pub(crate) fn plugin(name: &str, response: &str) {
    fs::create_dir_all("/run/bin").unwrap();
    fs::create_dir_all("/run/calls").unwrap();
    let path = Path::new("/run/bin").join(name);
    let script = format!(
        "#!/bin/sh\nenv | grep ^CNI_ | sort > /run/calls/{name}.$CNI_COMMAND.env\ncat > /run/calls/{name}.$CNI_COMMAND.json\n\
         echo \"{name} $CNI_COMMAND\" >> /run/calls/order\n{response}\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn list(file: &str, version: &str, plugins: &str) {
    fs::create_dir_all("/run/net.d").unwrap();
    let text = format!(r#"{{"cniVersion": "{version}", "name": "test", "plugins": [{plugins}]}}"#);
    fs::write(Path::new("/run/net.d").join(file), text).unwrap();
}

pub(crate) fn recorded(name: &str) -> String {
    fs::read_to_string(Path::new("/run/calls").join(name)).unwrap_or_default()
}

pub(crate) fn json(name: &str) -> serde_json::Value {
    serde_json::from_str(&recorded(name)).unwrap_or_else(|e| panic!("{name}: {e}: {}", recorded(name)))
}

/// Writes a configuration list of a name.
pub(crate) fn named_list(name: &str, version: &str, plugins: &str) {
    fs::create_dir_all("/run/net.d").unwrap();
    let text = format!(r#"{{"cniVersion": "{version}", "name": "{name}", "plugins": [{plugins}]}}"#);
    fs::write(format!("/run/net.d/50-{name}.conflist"), text).unwrap();
}

/// Returns the recorded calls, one in each line.
pub(crate) fn order() -> Vec<String> {
    recorded("order").lines().map(str::to_owned).collect()
}
