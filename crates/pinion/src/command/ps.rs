use cri_proto::v1;
use serde_json::{Value, json};

use crate::{
    Client, Failure, human,
    lookup::{self, PORTS},
    output,
    table::Table,
};

/// Arguments of `pinion ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Include containers that exited
    #[arg(short, long)]
    all: bool,
    /// Print ids only
    #[arg(short, long)]
    quiet: bool,
}

/// A container with the details from its status.
struct Row {
    container: v1::Container,
    status: v1::ContainerStatus,
    pod: String,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let rows = rows(&mut client, args.all).await?;
    if client.json {
        output::json(&rows.iter().map(object).collect::<Vec<_>>())?;
    } else if args.quiet {
        output::lines(rows.iter().map(|row| row.container.id.as_str()))?;
    } else {
        let mut table = Table::new(&["CONTAINER", "NAME", "IMAGE", "STATE", "POD", "PORTS", "AGE"]);
        for row in &rows {
            table.row([
                human::short(&row.container.id),
                lookup::name_of(&row.container),
                image(&row.container),
                &state(&row.status),
                &row.pod,
                ports(row),
                &human::age(row.container.created_at),
            ]);
        }
        table.print()?;
    }
    Ok(0)
}

async fn rows(client: &mut Client, all: bool) -> Result<Vec<Row>, Failure> {
    let mut containers = lookup::containers(client).await?;
    containers.retain(|c| all || c.state() == v1::ContainerState::ContainerRunning);
    containers.sort_by_key(|c| std::cmp::Reverse(c.created_at));
    let pods = lookup::pods(client).await?;
    let mut rows = Vec::with_capacity(containers.len());
    for container in containers {
        let request = v1::ContainerStatusRequest { container_id: container.id.clone(), verbose: false };
        // A container that was removed since it was listed is skipped.
        let Ok(response) = client.runtime.container_status(request).await else { continue };
        let pod = pods.iter().find(|pod| pod.id == container.pod_sandbox_id).map(lookup::pod_name).unwrap_or_default();
        rows.push(Row { status: response.into_inner().status.unwrap_or_default(), pod: pod.to_owned(), container });
    }
    Ok(rows)
}

/// Returns the published ports. A container that exited has released them.
fn ports(row: &Row) -> &str {
    match row.status.state() {
        v1::ContainerState::ContainerExited => "",
        _ => row.container.annotations.get(PORTS).map_or("", String::as_str),
    }
}

/// Returns the image reference that the user specified, else the resolved one.
fn image(container: &v1::Container) -> &str {
    match &container.image {
        Some(spec) if !spec.user_specified_image.is_empty() => &spec.user_specified_image,
        Some(spec) => &spec.image,
        None => &container.image_ref,
    }
}

/// Returns the state of a container for the table: `Up 3m`, `Exited (1) 5m ago`, `Created`.
fn state(status: &v1::ContainerStatus) -> String {
    match status.state() {
        v1::ContainerState::ContainerCreated => "Created".to_owned(),
        v1::ContainerState::ContainerRunning => format!("Up {}", human::age(status.started_at)),
        v1::ContainerState::ContainerExited if status.reason == "OOMKilled" => {
            format!("OOM killed {} ago", human::age(status.finished_at))
        }
        v1::ContainerState::ContainerExited => {
            format!("Exited ({}) {} ago", status.exit_code, human::age(status.finished_at))
        }
        v1::ContainerState::ContainerUnknown => "Unknown".to_owned(),
    }
}

/// Returns the state of a container for JSON: `created`, `running`, `exited` or `unknown`.
pub(super) fn state_word(state: v1::ContainerState) -> &'static str {
    match state {
        v1::ContainerState::ContainerCreated => "created",
        v1::ContainerState::ContainerRunning => "running",
        v1::ContainerState::ContainerExited => "exited",
        v1::ContainerState::ContainerUnknown => "unknown",
    }
}

fn object(row: &Row) -> Value {
    let (container, status) = (&row.container, &row.status);
    let exited = status.state() == v1::ContainerState::ContainerExited;
    json!({
        "id": container.id, "name": lookup::name_of(container), "image": image(container), "imageId": container.image_id,
        "state": state_word(status.state()), "exitCode": exited.then_some(status.exit_code), "reason": status.reason,
        "pod": row.pod, "podId": container.pod_sandbox_id, "createdAt": container.created_at,
        "startedAt": status.started_at, "finishedAt": status.finished_at, "labels": container.labels,
        "annotations": container.annotations,
    })
}
