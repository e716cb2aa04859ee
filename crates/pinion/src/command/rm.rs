use std::path::Path;

use cri_proto::v1;

use crate::{
    Client, Failure,
    lookup::{self, OWN_POD},
    output::Outcomes,
};

/// Arguments of `pinion rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kill running containers first
    #[arg(short, long)]
    force: bool,
    /// Names or ids
    #[arg(required = true, value_name = "CONTAINER")]
    containers: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for name in &args.containers {
        let outcome = remove(&mut client, name, args.force).await;
        outcomes.add(name, outcome)?;
    }
    outcomes.finish()
}

async fn remove(client: &mut Client, name: &str, force: bool) -> Result<(), Failure> {
    let container = lookup::container(client, name).await?;
    if container.state() == v1::ContainerState::ContainerRunning && !force {
        return Err(Failure::new(format!(
            "remove container {name:?}: it is running; stop it first or use: pinion rm -f {name}"
        )));
    }
    let pod = lookup::pods(client).await?.into_iter().find(|pod| pod.id == container.pod_sandbox_id);
    client.runtime.remove_container(v1::RemoveContainerRequest { container_id: container.id }).await?;
    let Some(pod) = pod.filter(|pod| pod.annotations.contains_key(OWN_POD)) else { return Ok(()) };
    // Other containers may have been added to the pod; it is removed with the last one.
    let is_used = lookup::containers(client).await?.iter().any(|other| other.pod_sandbox_id == pod.id);
    if is_used { Ok(()) } else { remove_pod(client, &pod.id).await }
}

/// Removes a pod, and its log directory if `pinion run` created that (the annotation holds its path).
pub(crate) async fn remove_pod(client: &mut Client, id: &str) -> Result<(), Failure> {
    let pod = lookup::pods(client).await?.into_iter().find(|pod| pod.id == id);
    let pod_sandbox_id = id.to_owned();
    client.runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    client.runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    match pod.as_ref().and_then(|pod| pod.annotations.get(lookup::LOGS)) {
        Some(directory) => pod::remove_logs(Path::new(directory))
            .map_err(|error| Failure::new(format!("remove logs in {directory}: {error}"))),
        None => Ok(()),
    }
}
