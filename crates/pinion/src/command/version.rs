use std::path::PathBuf;

use cri_proto::v1;
use serde_json::json;

use crate::{Client, Failure, output};

/// Arguments of `pinion version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Prints the version of this program even if no daemon is listening, but then fails: scripts use the exit code to
/// check for a daemon.
pub(crate) async fn run(socket: Option<PathBuf>, json: bool) -> Result<u8, Failure> {
    let client = env!("CARGO_PKG_VERSION");
    let daemon = daemon(socket, json).await;
    match (&daemon, json) {
        (Ok(version), true) => {
            let daemon = json!({"name": version.runtime_name, "version": version.runtime_version, "api": version.runtime_api_version});
            output::json(&json!({"client": client, "daemon": daemon}))?;
        }
        (Err(_), true) => output::json(&json!({"client": client, "daemon": null}))?,
        (Ok(version), false) => output::lines([
            format!("client  {client}"),
            format!(
                "daemon  {} {} (CRI {})",
                version.runtime_name, version.runtime_version, version.runtime_api_version
            ),
        ])?,
        (Err(_), false) => output::line(&format!("client  {client}"))?,
    }
    daemon.map(|_| 0)
}

async fn daemon(socket: Option<PathBuf>, json: bool) -> Result<v1::VersionResponse, Failure> {
    let mut client = Client::connect(socket, json).await?;
    Ok(client.runtime.version(v1::VersionRequest::default()).await?.into_inner())
}
