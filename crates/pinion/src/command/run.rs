//! `pinion run`: a pod with one container, or one more container in a pod.
//!
//! ```text
//! pull if missing → pod (its own, or --pod) → container → attach → start → carry → exit code → --rm
//! ```
//!
//! What was made is removed again if a later step fails.

mod arguments;
mod foreground;
mod messages;

use std::{collections::HashMap, path::Path};

use cri_proto::{
    pinion::{InfoRequest, PullRequest},
    v1,
};
use serde_json::json;

use super::{attach, rm::remove_pod};
use crate::{
    Client, Failure,
    failure::CANNOT,
    lookup::{self, LOGS, OWN_POD},
    output, progress,
    session::{End, Kind, Session},
    terminal,
};
pub(crate) use arguments::{Args, Pull};
use foreground::Signals;

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.tty && args.interactive && !args.detach && !terminal::is_input() {
        return Err(Failure::usage("run -it: standard input is not a terminal"));
    }
    let messages = messages::Messages::of(&args).map_err(Failure::usage)?;
    let image = image(&mut client, &args).await.map_err(cannot)?;
    // From here on a signal must not end this program between making and removing.
    let signals = Signals::catch()?;
    let made = make(&mut client, &args, messages, image).await?;
    match execute(&mut client, &args, &made, signals).await {
        // The user left a terminal: the container goes on, --rm or not.
        Ok(None) => Ok(0),
        Ok(Some(code)) => {
            if args.rm {
                made.remove(&mut client).await.map_err(cannot)?;
            }
            Ok(code)
        }
        Err(failure) => {
            if args.rm || !made.started(&mut client).await {
                // The first failure is the one that counts.
                let _ = made.remove(&mut client).await;
            }
            Err(failure)
        }
    }
}

/// The image's id, after a pull if there must be one.
async fn image(client: &mut Client, args: &Args) -> Result<String, Failure> {
    let image = Some(v1::ImageSpec { image: args.image.clone(), ..Default::default() });
    let here = client.images.image_status(v1::ImageStatusRequest { image, verbose: false }).await?.into_inner().image;
    match (here, args.pull) {
        (Some(image), Pull::Missing | Pull::Never) => Ok(image.id),
        (None, Pull::Never) => {
            Err(Failure::new(format!("image {:?} is not here, and --pull never; see: pinion images", args.image)))
        }
        (_, Pull::Always | Pull::Missing) => {
            let request = PullRequest { reference: args.image.clone(), ..Default::default() };
            progress::pull(client, request, args.detach && client.json).await
        }
    }
}

/// What this command made, for its removal.
struct Made {
    container: String,
    pod: String,
    own_pod: bool,
}

impl Made {
    async fn remove(&self, client: &mut Client) -> Result<(), Failure> {
        client.runtime.remove_container(v1::RemoveContainerRequest { container_id: self.container.clone() }).await?;
        if self.own_pod { remove_pod(client, &self.pod).await } else { Ok(()) }
    }

    /// Whether the container's program ever ran: then there is something to look at.
    async fn started(&self, client: &mut Client) -> bool {
        let request = v1::ContainerStatusRequest { container_id: self.container.clone(), verbose: false };
        let status = client.runtime.container_status(request).await.ok().and_then(|answer| answer.into_inner().status);
        status.is_some_and(|status| status.started_at > 0)
    }
}

/// The fault is not the container's.
fn cannot(failure: Failure) -> Failure {
    failure.with_code(CANNOT)
}

async fn make(client: &mut Client, args: &Args, messages: messages::Messages, image: String) -> Result<Made, Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => messages::random_name(&args.image)?,
    };
    if args.name.is_some()
        && let Some(other) =
            lookup::containers(client).await.map_err(cannot)?.iter().find(|c| lookup::name_of(c) == name)
    {
        let id = crate::human::short(&other.id);
        return Err(Failure::new(format!(
            "name {name:?} is taken by container {id}; choose another or use: pinion rm -f {name}"
        ))
        .with_code(CANNOT));
    }
    let (pod, config, own_pod) = pod(client, args, &messages, &name).await.map_err(cannot)?;
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: pod.clone(),
        config: Some(messages.container(args, &name, image)),
        sandbox_config: Some(config),
    };
    match client.runtime.create_container(request).await {
        Ok(answer) => Ok(Made { container: answer.into_inner().container_id, pod, own_pod }),
        Err(status) => {
            if own_pod {
                // The first failure is the one that counts.
                let _ = remove_pod(client, &pod).await;
            }
            Err(Failure::from(status).of_command())
        }
    }
}

/// The pod to put the container in: its id, its configuration, and whether it goes with the container.
async fn pod(
    client: &mut Client,
    args: &Args,
    messages: &messages::Messages,
    name: &str,
) -> Result<(String, v1::PodSandboxConfig, bool), Failure> {
    if let Some(wanted) = &args.pod
        && let Some(pod) = lookup::find_pod(client, wanted).await?
    {
        if !args.publish.is_empty() {
            return Err(Failure::usage(format!(
                "-p: pod {wanted:?} is there already, and ports are published when a pod is made"
            )));
        }
        return Ok((pod.id, v1::PodSandboxConfig::default(), false));
    }
    let uid = messages::random_uid()?;
    let logs = log_folder(client, &uid).await?;
    let mut annotations = HashMap::from([(LOGS.to_owned(), logs.clone())]);
    if args.pod.is_none() {
        annotations.insert(OWN_POD.to_owned(), "true".to_owned());
        if args.detach && args.rm {
            annotations.insert(cri::REMOVE_ENDED.to_owned(), "true".to_owned());
        }
    }
    let config = v1::PodSandboxConfig {
        log_directory: logs.clone(),
        annotations,
        ..messages.pod(args, args.pod.as_deref().unwrap_or(name), uid)
    };
    let request = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: args.runtime.clone() };
    match client.runtime.run_pod_sandbox(request).await {
        Ok(answer) => Ok((answer.into_inner().pod_sandbox_id, config, args.pod.is_none())),
        Err(status) => {
            // Empty, for nothing has run; if it cannot be removed, the failure that counts is the other one.
            let _ = std::fs::remove_dir(&logs);
            Err(status.into())
        }
    }
}

/// Makes a folder for a pod's logs among the daemon's durable data.
async fn log_folder(client: &mut Client, uid: &str) -> Result<String, Failure> {
    let info = client.native.info(InfoRequest {}).await?.into_inner().json;
    let info: serde_json::Value = serde_json::from_str(&info).unwrap_or_default();
    let data =
        info["daemon"]["dataDir"].as_str().ok_or_else(|| Failure::new("the daemon does not tell where its data is"))?;
    let folder = Path::new(data).join("logs").join(uid);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("make folder for logs {}: {error}", folder.display())))?;
    Ok(folder.display().to_string())
}

/// Starts the container, and stays with it unless detached. `None`: it goes on without us.
async fn execute(client: &mut Client, args: &Args, made: &Made, signals: Signals) -> Result<Option<u8>, Failure> {
    let id = &made.container;
    let request = v1::StartContainerRequest { container_id: id.clone() };
    if args.detach {
        client.runtime.start_container(request).await.map_err(|status| Failure::from(status).of_command())?;
        match client.json {
            true => output::json(&json!({"id": id, "podId": made.pod}))?,
            false => output::line(id)?,
        }
        return Ok(None);
    }
    let start = attach::start(client, id.clone(), args.interactive).await?;
    // Attached before it starts, so that its first byte is seen.
    let session = Session::open(client, Kind::Attach, start).await;
    // Even without a session: where there is none because the command cannot be run, this says so.
    client.runtime.start_container(request).await.map_err(|status| Failure::from(status).of_command())?;
    match foreground::stay(client, id, session.map_err(cannot)?, signals).await? {
        End::Exited(code) => Ok(Some(attach::exit_code(code))),
        End::Detached => Ok(None),
    }
}
