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
use pod::{START_ERROR, annotation};
use serde_json::json;

use super::{attach, rm::remove_pod};
use crate::{
    Client, Failure, human,
    lookup::{self, LOGS, OWN_POD},
    output, progress,
    session::{End, Kind, Session},
    terminal,
};
use arguments::Network;
pub(crate) use arguments::{Args, Pull};
use foreground::Signals;

/// Runs the container and returns its exit code, or 125 to 127 as Docker does.
pub(crate) async fn run(client: Client, args: Args) -> Result<u8, Failure> {
    run_container(client, args).await.map_err(Failure::beside_program)
}

async fn run_container(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.tty && args.interactive && !args.detach && !terminal::is_input() {
        return Err(Failure::usage("run -it: standard input is not a terminal"));
    }
    if args.network == Network::Host && !args.publish.is_empty() {
        return Err(Failure::usage(
            "-p publishes ports of a pod with an address of its own; with --network host the program listens on the node \
             itself: leave -p out",
        ));
    }
    let messages = messages::Messages::of(&args).map_err(Failure::usage)?;
    let image = image(&mut client, &args).await?;
    // From here on a signal must not end this program between making and removing.
    let signals = Signals::catch()?;
    let made = make(&mut client, &args, messages, image).await?;
    match execute(&mut client, &args, &made, signals).await {
        // The user left a terminal: the container keeps running. With --rm the daemon removes it when it ends.
        Ok(None) => Ok(0),
        Ok(Some(code)) => {
            // The daemon removes it, too, whether or not this program lives: this waits until it is gone.
            if args.rm
                && let Err(failure) = made.remove(&mut client).await
            {
                failure.print();
            }
            Ok(code)
        }
        Err(failure) => {
            // One that runs although this program lost its session is the daemon's; one whose output nobody reads has
            // no use.
            if args.rm && failure.is_quiet() || made.never_ran(&mut client).await {
                // The first failure is the one that counts.
                let _ = made.remove(&mut client).await;
            }
            Err(failure)
        }
    }
}

/// An image on this node.
struct Image {
    id: String,
    /// When its pull for this container began, nanoseconds since the epoch; `None`: it was here.
    pulled: Option<i64>,
}

/// The image, after a pull if there must be one.
async fn image(client: &mut Client, args: &Args) -> Result<Image, Failure> {
    let image = Some(v1::ImageSpec { image: args.image().to_owned(), ..Default::default() });
    let here = client.images.image_status(v1::ImageStatusRequest { image, verbose: false }).await?.into_inner().image;
    match (here, args.pull) {
        (Some(image), Pull::Missing | Pull::Never) => Ok(Image { id: image.id, pulled: None }),
        (None, Pull::Never) => {
            Err(Failure::new(format!("image {:?} is not here, and --pull never; see: pinion images", args.image())))
        }
        (_, Pull::Always | Pull::Missing) => {
            let pulled = Some(human::now());
            let request = PullRequest { reference: args.image().to_owned(), ..Default::default() };
            let id = progress::pull(client, request, args.detach && client.json).await?;
            Ok(Image { id, pulled })
        }
    }
}

/// What this command made, for its removal.
struct Made {
    container: String,
    name: String,
    pod: Pod,
}

/// The pod of the container.
struct Pod {
    id: String,
    config: v1::PodSandboxConfig,
    /// Whether this command made it.
    made: bool,
}

impl Made {
    async fn remove(&self, client: &mut Client) -> Result<(), Failure> {
        client.runtime.remove_container(v1::RemoveContainerRequest { container_id: self.container.clone() }).await?;
        if !self.pod.made {
            return Ok(());
        }
        // Others may have put containers into it.
        let is_used = lookup::containers(client).await?.iter().any(|other| other.pod_sandbox_id == self.pod.id);
        if is_used { Ok(()) } else { remove_pod(client, &self.pod.id).await }
    }

    /// Whether the daemon says that the container's program never ran: then nothing of it is worth keeping. Where no
    /// daemon answers nobody knows.
    async fn never_ran(&self, client: &mut Client) -> bool {
        let request = v1::ContainerStatusRequest { container_id: self.container.clone(), verbose: false };
        let status = client.runtime.container_status(request).await.ok().and_then(|answer| answer.into_inner().status);
        status.is_some_and(|status| status.started_at == 0 || status.reason == START_ERROR)
    }
}

async fn make(client: &mut Client, args: &Args, messages: messages::Messages, image: Image) -> Result<Made, Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => messages::random_name(args.image())?,
    };
    if args.name.is_some()
        && let Some(other) = lookup::containers(client).await?.iter().find(|c| lookup::name_of(c) == name)
    {
        let id = human::short(&other.id);
        return Err(Failure::new(format!(
            "name {name:?} is taken by container {id}; choose another or use: pinion rm -f {name}"
        )));
    }
    let pod = pod(client, args, &messages, &name).await?;
    let mut config = messages.container(args, &name, image.id);
    config.annotations.extend(image.pulled.map(|began| (annotation::PULLED_SINCE.to_owned(), began.to_string())));
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: pod.id.clone(),
        config: Some(config),
        sandbox_config: Some(pod.config.clone()),
    };
    match client.runtime.create_container(request).await {
        Ok(answer) => Ok(Made { container: answer.into_inner().container_id, name, pod }),
        Err(status) => {
            if pod.made {
                // The first failure is the one that counts.
                let _ = remove_pod(client, &pod.id).await;
            }
            Err(Failure::from(status).of_command())
        }
    }
}

/// The pod to put the container in, made where there is none.
async fn pod(client: &mut Client, args: &Args, messages: &messages::Messages, name: &str) -> Result<Pod, Failure> {
    if let Some(wanted) = &args.pod
        && let Some(pod) = lookup::find_pod(client, wanted).await?
    {
        if !args.publish.is_empty() {
            return Err(Failure::usage(format!(
                "-p: pod {wanted:?} is there already, and ports are published when a pod is made"
            )));
        }
        return Ok(Pod { id: pod.id, config: v1::PodSandboxConfig::default(), made: false });
    }
    let uid = messages::random_uid()?;
    let logs = log_directory(client, &uid).await?;
    let mut annotations = HashMap::from([(LOGS.to_owned(), logs.clone())]);
    if args.pod.is_none() {
        annotations.insert(OWN_POD.to_owned(), "true".to_owned());
    }
    if args.rm {
        annotations.insert(annotation::REMOVE_ENDED.to_owned(), "true".to_owned());
    }
    if !args.publish.is_empty() {
        annotations.insert(annotation::FREE_PORTS.to_owned(), "true".to_owned());
    }
    let config = v1::PodSandboxConfig {
        log_directory: logs.clone(),
        annotations,
        ..messages.pod(args, args.pod.as_deref().unwrap_or(name), uid)
    };
    let request = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: args.runtime.clone() };
    match client.runtime.run_pod_sandbox(request).await {
        Ok(answer) => Ok(Pod { id: answer.into_inner().pod_sandbox_id, config, made: true }),
        Err(status) => {
            // Empty, for nothing has run; if it cannot be removed, the failure that counts is the other one.
            let _ = std::fs::remove_dir(&logs);
            Err(status.into())
        }
    }
}

/// Makes a directory for a pod's logs among the daemon's durable data.
async fn log_directory(client: &mut Client, uid: &str) -> Result<String, Failure> {
    let info = client.native.info(InfoRequest {}).await?.into_inner().json;
    let info: serde_json::Value = serde_json::from_str(&info).unwrap_or_default();
    let data =
        info["daemon"]["dataDir"].as_str().ok_or_else(|| Failure::new("the daemon does not tell where its data is"))?;
    let directory = Path::new(data).join("logs").join(uid);
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::new(format!("make directory for logs {}: {error}", directory.display())))?;
    Ok(directory.display().to_string())
}

/// Starts the container, and stays with it unless detached. `None`: it goes on without us.
async fn execute(client: &mut Client, args: &Args, made: &Made, signals: Signals) -> Result<Option<u8>, Failure> {
    let id = &made.container;
    let request = v1::StartContainerRequest { container_id: id.clone() };
    if args.detach {
        client.runtime.start_container(request).await.map_err(|status| Failure::from(status).of_command())?;
        match client.json {
            true => output::json(&json!({"id": id, "podId": made.pod.id}))?,
            false => output::line(id)?,
        }
        return Ok(None);
    }
    let start = attach::start(client, id.clone(), args.interactive).await?;
    // Attached before it starts, so that its first byte is seen.
    let session = Session::open(client, Kind::Attach, start).await;
    // Even without a session: where there is none because the command cannot be run, this says so.
    client.runtime.start_container(request).await.map_err(|status| Failure::from(status).of_command())?;
    match foreground::stay(client, id, session?, signals).await? {
        End::Exited(exit) => Ok(Some(attach::exited(&made.name, exit))),
        End::Detached => Ok(None),
    }
}
