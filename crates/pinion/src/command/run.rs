//! `pinion run`: a pod with one container, or one more container in a pod.
//!
//! ```text
//! pull if missing → pod (a new one, or --pod) → container → attach → start → relay stdio → exit code → --rm
//! ```
//!
//! If a step fails, the objects of the earlier steps are removed.

mod arguments;
mod foreground;
mod messages;
mod network_request;
mod networks;

use std::{collections::HashMap, path::Path};

use cri_proto::{
    REPORT_FORMAT,
    pinion::{InfoRequest, ListNetworksRequest, PullRequest},
    v1,
};
use pod::{START_ERROR, annotation};
use serde_json::json;

use super::{attach, rm::remove_pod};
use crate::{
    Client, Failure, human,
    lookup::{self, LOGS, OWN_POD},
    output, progress,
    report::check_format,
    session::{End, Kind, Session},
    terminal,
};
pub(crate) use arguments::{Args, Pull};
use foreground::Signals;
use networks::Network;

/// Runs the container and returns its exit code, or 125 to 127 as Docker does.
pub(crate) async fn run(client: Client, args: Args) -> Result<u8, Failure> {
    run_container(client, args).await.map_err(Failure::with_engine_code)
}

async fn run_container(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.tty && args.interactive && !args.detach && !terminal::is_input() {
        return Err(Failure::usage("run -it: standard input is not a terminal"));
    }
    if args.network.contains(&Network::Host) && !args.publish.is_empty() {
        return Err(Failure::usage(
            "run -p: ports cannot be published with --network host, where the program listens on the node itself; \
             remove -p",
        ));
    }
    let messages = messages::Messages::new(&args).map_err(Failure::usage)?;
    if messages.networks.has_metadata() {
        // An older daemon ignores the metadata, and would use the network of all pods.
        client.native.list_networks(ListNetworksRequest {}).await?;
    }
    let image = image(&mut client, &args).await?;
    // From here on a signal must not end this program before it has removed what it created.
    let signals = Signals::catch()?;
    let created = create(&mut client, &args, messages, image).await?;
    match execute(&mut client, &args, &created, signals).await {
        // The user detached: the container keeps running. With --rm the daemon removes it when it exits.
        Ok(None) => Ok(0),
        Ok(Some(code)) => {
            // The daemon removes it, too, even if this program is killed. This call waits until it is removed.
            if args.rm
                && let Err(failure) = created.remove(&mut client).await
            {
                failure.print();
            }
            Ok(code)
        }
        Err(failure) => {
            // A container that still runs although its session broke is left to the daemon. One whose output has no
            // reader anymore is useless.
            if args.rm && failure.is_quiet() || created.never_ran(&mut client).await {
                // An error here would hide the first failure, which is the one to report.
                let _ = created.remove(&mut client).await;
            }
            Err(failure)
        }
    }
}

/// An image on this node.
struct Image {
    id: String,
    /// When the pull for this container started, in nanoseconds since the epoch; `None` if the image was present.
    pulled: Option<i64>,
}

/// Returns the image. Pulls it first if the pull policy requires that.
async fn image(client: &mut Client, args: &Args) -> Result<Image, Failure> {
    let image = Some(v1::ImageSpec { image: args.image().to_owned(), ..Default::default() });
    let present =
        client.images.image_status(v1::ImageStatusRequest { image, verbose: false }).await?.into_inner().image;
    match (present, args.pull) {
        (Some(image), Pull::Missing | Pull::Never) => Ok(Image { id: image.id, pulled: None }),
        (None, Pull::Never) => Err(Failure::new(format!(
            "image {:?} is not present, and --pull is never; see: pinion images",
            args.image()
        ))),
        (_, Pull::Always | Pull::Missing) => {
            let pulled = Some(human::now());
            let request = PullRequest { reference: args.image().to_owned(), ..Default::default() };
            let id = progress::pull(client, request, args.detach && client.json).await?;
            Ok(Image { id, pulled })
        }
    }
}

/// The objects that this command created, and that it may have to remove.
struct CreatedContainer {
    container: String,
    name: String,
    pod: Pod,
}

/// The pod of the container.
struct Pod {
    id: String,
    config: v1::PodSandboxConfig,
    /// Whether this command created it.
    is_new: bool,
}

impl CreatedContainer {
    async fn remove(&self, client: &mut Client) -> Result<(), Failure> {
        client.runtime.remove_container(v1::RemoveContainerRequest { container_id: self.container.clone() }).await?;
        if !self.pod.is_new {
            return Ok(());
        }
        // Other clients may have added containers to the pod.
        let is_used = lookup::containers(client).await?.iter().any(|other| other.pod_sandbox_id == self.pod.id);
        if is_used { Ok(()) } else { remove_pod(client, &self.pod.id).await }
    }

    /// Whether the daemon reports that the program of the container never ran, so that the container can be removed.
    /// False if the daemon does not respond.
    async fn never_ran(&self, client: &mut Client) -> bool {
        let request = v1::ContainerStatusRequest { container_id: self.container.clone(), verbose: false };
        let status =
            client.runtime.container_status(request).await.ok().and_then(|response| response.into_inner().status);
        status.is_some_and(|status| status.started_at == 0 || status.reason == START_ERROR)
    }
}

async fn create(
    client: &mut Client,
    args: &Args,
    messages: messages::Messages,
    image: Image,
) -> Result<CreatedContainer, Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => messages::random_name(args.image())?,
    };
    if args.name.is_some()
        && let Some(other) = lookup::containers(client).await?.iter().find(|c| lookup::name_of(c) == name)
    {
        let id = human::short(&other.id);
        return Err(Failure::new(format!(
            "create container: name {name:?} is taken by container {id}; choose another or use: pinion rm -f {name}"
        )));
    }
    let pod = pod(client, args, &messages, &name).await?;
    let mut config = messages.container(args, &name, image.id);
    config.annotations.extend(image.pulled.map(|start| (annotation::PULLED_SINCE.to_owned(), start.to_string())));
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: pod.id.clone(),
        config: Some(config),
        sandbox_config: Some(pod.config.clone()),
    };
    match client.runtime.create_container(request).await {
        Ok(response) => Ok(CreatedContainer { container: response.into_inner().container_id, name, pod }),
        Err(status) => {
            if pod.is_new {
                // An error here would hide the first failure, which is the one to report.
                let _ = remove_pod(client, &pod.id).await;
            }
            Err(Failure::from(status).with_exec_code())
        }
    }
}

/// Returns the pod for the container. Creates it if it does not exist.
async fn pod(client: &mut Client, args: &Args, messages: &messages::Messages, name: &str) -> Result<Pod, Failure> {
    if let Some(pod_name) = &args.pod
        && let Some(pod) = lookup::find_named_pod(client, pod_name).await?
    {
        if messages.networks.is_requested() {
            return Err(Failure::usage(format!(
                "run: pod {pod_name:?} already exists, and its networks are chosen when it is created; see: pinion network \
                 connect"
            )));
        }
        if !args.publish.is_empty() {
            return Err(Failure::usage(format!(
                "run -p: pod {pod_name:?} already exists, and ports are published when a pod is created"
            )));
        }
        return Ok(Pod { id: pod.id, config: v1::PodSandboxConfig::default(), is_new: false });
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
    let request = messages.networks.add_to(request).map_err(Failure::new)?;
    match client.runtime.run_pod_sandbox(request).await {
        Ok(response) => Ok(Pod { id: response.into_inner().pod_sandbox_id, config, is_new: true }),
        Err(status) => {
            // The directory is empty, because nothing has run. An error here would hide the failure to report.
            let _ = std::fs::remove_dir(&logs);
            Err(status.into())
        }
    }
}

/// Creates a directory for the logs of a pod in the data directory of the daemon.
async fn log_directory(client: &mut Client, uid: &str) -> Result<String, Failure> {
    let info = client.native.info(InfoRequest { format: REPORT_FORMAT }).await?.into_inner();
    check_format("create log directory", info.format)?;
    let daemon = info
        .daemon
        .ok_or_else(|| Failure::new("create log directory: the daemon did not report its data directory"))?;
    let directory = Path::new(&daemon.data_dir).join("logs").join(uid);
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::new(format!("create log directory {}: {error}", directory.display())))?;
    Ok(directory.display().to_string())
}

/// Starts the container, and attaches to it unless `--detach` is given. Returns the exit code, or `None` if the
/// container keeps running.
async fn execute(
    client: &mut Client,
    args: &Args,
    created: &CreatedContainer,
    signals: Signals,
) -> Result<Option<u8>, Failure> {
    let id = &created.container;
    let request = v1::StartContainerRequest { container_id: id.clone() };
    if args.detach {
        client.runtime.start_container(request).await.map_err(|status| Failure::from(status).with_exec_code())?;
        match client.json {
            true => output::json(&json!({"id": id, "podId": created.pod.id}))?,
            false => output::line(id)?,
        }
        return Ok(None);
    }
    let start = attach::start(client, id.clone(), args.interactive).await?;
    // Attach before the start, so that the first byte of output is not missed.
    let session = Session::open(client, Kind::Attach, start).await;
    // Start the container even if the session failed: the error of the start may be the cause.
    client.runtime.start_container(request).await.map_err(|status| Failure::from(status).with_exec_code())?;
    match foreground::relay(client, id, session?, signals).await? {
        End::Exited(exit) => Ok(Some(attach::exited(&created.name, exit))),
        End::Detached => Ok(None),
    }
}
