//! Attaches pods by running each plugin of the list as libcni does: `ADD` in order, `DEL` in reverse.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Map, Value, json};

use super::{
    attach::{Attach, Pod},
    lists::List,
};
use crate::engine::Failure;

pub(super) struct Programs {
    directory: PathBuf,
    list: Value,
    /// Result of the last `ADD`, for the `DEL` that follows.
    result: Value,
}

impl Programs {
    pub(super) fn new(list: List, directory: &Path) -> Self {
        Self { directory: directory.to_owned(), list: list.config(), result: Value::Null }
    }

    fn plugins(&self) -> Vec<Map<String, Value>> {
        let plugins = self.list["plugins"].as_array().cloned().unwrap_or_default();
        plugins.into_iter().filter_map(|plugin| plugin.as_object().cloned()).collect()
    }

    fn run(
        &self,
        command: &str,
        mut plugin: Map<String, Value>,
        pod: &Pod<'_>,
        previous: &Value,
    ) -> Result<Value, Failure> {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        for key in ["name", "cniVersion"] {
            plugin.insert(key.to_owned(), self.list[key].clone());
        }
        if !previous.is_null() {
            plugin.insert("prevResult".to_owned(), previous.clone());
        }
        if let Some(port) = pod.port.filter(|_| plugin.contains_key("capabilities")) {
            let ports = json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]});
            plugin.insert("runtimeConfig".to_owned(), ports);
        }
        let failed = |reason: String| Failure(format!("{kind} {command}: {reason}"));
        let mut child = Command::new(self.directory.join(&kind))
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &pod.id)
            .env("CNI_NETNS", pod.path)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed(format!("{e}; name the directory of the plugins with --plugins")))?;
        let mut stdin = child.stdin.take().ok_or_else(|| failed("no pipe".to_owned()))?;
        stdin.write_all(Value::Object(plugin).to_string().as_bytes()).map_err(|e| failed(e.to_string()))?;
        drop(stdin);
        let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }
}

impl Attach for Programs {
    fn attach(&mut self, pod: &Pod<'_>) -> Result<(), Failure> {
        let mut result = Value::Null;
        for plugin in self.plugins() {
            result = self.run("ADD", plugin, pod, &result)?;
        }
        self.result = result;
        Ok(())
    }

    fn detach(&mut self, pod: &Pod<'_>) -> Result<(), Failure> {
        for plugin in self.plugins().into_iter().rev() {
            self.run("DEL", plugin, pod, &self.result)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
