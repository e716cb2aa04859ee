//! What the file server of virtual machines can do, as it states itself.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime},
};

use serde::Deserialize;
use tokio::process::Command;

/// Feature of a file server that can hand its state over (virtiofsd 1.13).
const MIGRATION: &str = "migrate-precopy";
/// Argument with which a file server that can is started, so that it finds the paths of all open files again: files of an overlay that
/// is mounted again have no usable file handles.
pub(crate) const MIGRATION_MODE: &str = "--migration-mode=find-paths";
/// How long it may take to state its features.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most output that is parsed, in bytes.
const OUTPUT_MAX: usize = 64 << 10;

/// Whether a file server can hand its state over, by the time at which its program was modified.
#[derive(Default)]
pub(super) struct Migrations(tokio::sync::Mutex<Option<(SystemTime, bool)>>);

impl Migrations {
    /// Executes the program if it was not executed since it was modified. A program that does not answer cannot.
    pub(super) async fn supports(&self, program: &Path) -> bool {
        let modified = offload::in_place(|| std::fs::metadata(program).and_then(|file| file.modified()));
        let Ok(modified) = modified else { return false };
        let mut known = self.0.lock().await;
        if let Some((_, supports)) = known.filter(|(at, _)| *at == modified) {
            return supports;
        }
        let supports = features(program).await.iter().any(|feature| feature == MIGRATION);
        *known = Some((modified, supports));
        supports
    }
}

async fn features(program: &Path) -> Vec<String> {
    let mut command = Command::new(program);
    command.arg("--print-capabilities").env_clear().stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(TIMEOUT, command.output()).await {
        Ok(Ok(output)) if output.stdout.len() <= OUTPUT_MAX => parse(&output.stdout),
        _ => Vec::new(),
    }
}

/// Parses the capabilities of a vhost-user back end.
fn parse(output: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Capabilities {
        #[serde(default)]
        features: Vec<String>,
    }
    serde_json::from_slice::<Capabilities>(output).map(|capabilities| capabilities.features).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_that_a_file_server_states() {
        let newer = br#"{ "type": "fs", "features": ["migrate-precopy", "separate-options"] }"#;
        assert_eq!(parse(newer), ["migrate-precopy", "separate-options"]);
        for older in [&b"{\n  \"type\": \"fs\"\n}\n"[..], b"", b"usage: virtiofsd"] {
            assert!(parse(older).is_empty());
        }
    }
}
