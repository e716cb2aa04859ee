use cri_proto::v1;
use serde_json::{Value, json};

use super::rm::remove_pod;
use crate::{
    Client, Failure, human, lookup,
    output::{self, Outcomes},
    table::Table,
};

/// Arguments of `pinion pods`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Print ids only
    #[arg(short, long)]
    quiet: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Kill the processes of pods and release their networks
    Stop {
        /// Names or ids
        #[arg(required = true, value_name = "POD")]
        pods: Vec<String>,
    },
    /// Remove pods with their containers
    Rm {
        /// Remove pods even if containers are running
        #[arg(short, long)]
        force: bool,
        /// Remove all pods
        #[arg(short, long, conflicts_with = "pods")]
        all: bool,
        /// Names or ids
        #[arg(required_unless_present = "all", value_name = "POD")]
        pods: Vec<String>,
    },
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    match args.verb {
        None => list(client, args.quiet).await,
        Some(Verb::Stop { pods }) => {
            let mut outcomes = Outcomes::new(client.json);
            for name in &pods {
                let outcome = stop(&mut client, name).await;
                outcomes.add(name, outcome)?;
            }
            outcomes.finish()
        }
        Some(Verb::Rm { force, all, pods }) => {
            let pods = match all {
                true => lookup::pods(&mut client).await?.into_iter().map(|pod| pod.id).collect(),
                false => pods,
            };
            let mut outcomes = Outcomes::new(client.json);
            for name in &pods {
                let outcome = remove(&mut client, name, force).await;
                outcomes.add(name, outcome)?;
            }
            outcomes.finish()
        }
    }
}

async fn stop(client: &mut Client, name: &str) -> Result<(), Failure> {
    let pod_sandbox_id = lookup::pod(client, name).await?.id;
    client.runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id }).await?;
    Ok(())
}

async fn remove(client: &mut Client, name: &str, force: bool) -> Result<(), Failure> {
    let pod = lookup::pod(client, name).await?;
    let containers = lookup::containers(client).await?;
    let is_running =
        |c: &v1::Container| c.pod_sandbox_id == pod.id && c.state() == v1::ContainerState::ContainerRunning;
    match containers.iter().find(|c| is_running(c)) {
        Some(container) if !force => {
            let running = lookup::name_of(container);
            Err(Failure::new(format!(
                "remove pod {name:?}: container {running:?} is running; use: pinion pods rm -f {name}"
            )))
        }
        _ => remove_pod(client, &pod.id).await,
    }
}

/// A pod with the details from its status.
struct Row {
    pod: v1::PodSandbox,
    addresses: Vec<String>,
    containers: usize,
}

async fn list(mut client: Client, quiet: bool) -> Result<u8, Failure> {
    let rows = rows(&mut client).await?;
    if client.json {
        output::json(&rows.iter().map(object).collect::<Vec<_>>())?;
    } else if quiet {
        output::lines(rows.iter().map(|row| row.pod.id.as_str()))?;
    } else {
        let mut table = Table::new(&["POD", "NAME", "NAMESPACE", "STATE", "IP", "CONTAINERS", "AGE"]);
        for Row { pod, addresses, containers } in &rows {
            let metadata = pod.metadata.clone().unwrap_or_default();
            table.row([
                human::short(&pod.id).to_owned(),
                metadata.name,
                metadata.namespace,
                state(pod).to_owned(),
                addresses.first().cloned().unwrap_or_default(),
                containers.to_string(),
                human::age(pod.created_at),
            ]);
        }
        table.print()?;
    }
    Ok(0)
}

async fn rows(client: &mut Client) -> Result<Vec<Row>, Failure> {
    let mut pods = lookup::pods(client).await?;
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.created_at));
    let containers = lookup::containers(client).await?;
    let mut rows = Vec::with_capacity(pods.len());
    for pod in pods {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.id.clone(), verbose: false };
        // A pod that was removed since it was listed is skipped.
        let Ok(response) = client.runtime.pod_sandbox_status(request).await else { continue };
        let network = response.into_inner().status.and_then(|status| status.network).unwrap_or_default();
        rows.push(Row {
            addresses: addresses(network),
            containers: containers.iter().filter(|c| c.pod_sandbox_id == pod.id).count(),
            pod,
        });
    }
    Ok(rows)
}

/// Returns all IP addresses of a pod.
pub(super) fn addresses(network: v1::PodSandboxNetworkStatus) -> Vec<String> {
    let more = network.additional_ips.into_iter().map(|more| more.ip);
    std::iter::once(network.ip).chain(more).filter(|ip| !ip.is_empty()).collect()
}

/// Returns the state of a pod for output: `ready` or `stopped`.
pub(super) fn state(pod: &v1::PodSandbox) -> &'static str {
    match pod.state() {
        v1::PodSandboxState::SandboxReady => "ready",
        v1::PodSandboxState::SandboxNotready => "stopped",
    }
}

fn object(row: &Row) -> Value {
    let metadata = row.pod.metadata.clone().unwrap_or_default();
    json!({
        "id": row.pod.id, "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
        "attempt": metadata.attempt, "state": state(&row.pod), "ip": row.addresses.first(), "ips": row.addresses,
        "containers": row.containers, "createdAt": row.pod.created_at, "labels": row.pod.labels,
        "annotations": row.pod.annotations,
    })
}
