use clap::ValueEnum;
use cri_proto::{pinion::CheckPodRequest, v1};
use serde_json::{Value, json};

use super::{pods, ps::state_word};
use crate::{Client, Failure, lookup, output};

/// Arguments of `pinion inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Search only this kind of object [default: container, then pod, then image]
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<Kind>,
    /// Have the network plugins of pods check them (CNI's CHECK); the exit code is 1 if one reports a problem
    #[arg(long)]
    check: bool,
    /// Names or ids
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Container,
    Pod,
    Image,
}

/// Prints a JSON array, whether or not `--json` is given.
pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let (mut objects, mut has_problem) = (Vec::new(), false);
    for name in &args.names {
        let mut object = one(&mut client, name, args.kind).await?;
        if args.check && object["type"] == "pod" {
            let problem = check(&mut client, &object).await?;
            has_problem |= problem.is_some();
            object["check"] = json!({"network": problem.as_deref().unwrap_or("no problem")});
        }
        objects.push(object);
    }
    output::json(&objects)?;
    Ok(u8::from(has_problem))
}

async fn check(client: &mut Client, pod: &Value) -> Result<Option<String>, Failure> {
    let id = pod["id"].as_str().unwrap_or_default().to_owned();
    Ok(client.native.check_pod(CheckPodRequest { pod_sandbox_id: id }).await?.into_inner().problem)
}

async fn one(client: &mut Client, name: &str, kind: Option<Kind>) -> Result<Value, Failure> {
    let searched = |this: Kind| kind.is_none_or(|kind| kind == this);
    if searched(Kind::Container)
        && let Some(container) = lookup::find_container(client, name).await?
    {
        return self::container(client, container).await;
    }
    if searched(Kind::Pod)
        && let Some(pod) = lookup::find_pod(client, name).await?
    {
        return self::pod(client, pod).await;
    }
    // A name that is not a valid image reference is treated as an image that does not exist.
    if searched(Kind::Image)
        && let Ok(Some(image)) = image(client, name).await
    {
        return Ok(image);
    }
    let kinds = kind.map_or("container, pod or image".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    Err(Failure::new(format!("no {kinds} {name:?}")))
}

async fn container(client: &mut Client, listed: v1::Container) -> Result<Value, Failure> {
    let request = v1::ContainerStatusRequest { container_id: listed.id, verbose: true };
    let response = client.runtime.container_status(request).await?.into_inner();
    let status = response.status.unwrap_or_default();
    let exited = status.state() == v1::ContainerState::ContainerExited;
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: listed.pod_sandbox_id, verbose: false };
    let pod = client.runtime.pod_sandbox_status(request).await?.into_inner().status.unwrap_or_default();
    let addresses = pods::addresses(pod.network.unwrap_or_default());
    Ok(json!({
        "type": "container", "id": status.id, "name": status.metadata.map(|m| m.name),
        "image": status.image.map(|i| i.user_specified_image), "imageId": status.image_id,
        "state": state_word(v1::ContainerState::try_from(status.state).unwrap_or_default()),
        "exitCode": exited.then_some(status.exit_code), "reason": status.reason, "message": status.message,
        "createdAt": status.created_at, "startedAt": status.started_at, "finishedAt": status.finished_at,
        "logPath": status.log_path,
        "pod": {"id": pod.id, "name": pod.metadata.map(|m| m.name), "ip": addresses.first(), "ips": addresses},
        "labels": status.labels, "annotations": status.annotations, "info": details(&response.info),
    }))
}

async fn pod(client: &mut Client, listed: v1::PodSandbox) -> Result<Value, Failure> {
    let state = pods::state(&listed);
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: listed.id, verbose: true };
    let response = client.runtime.pod_sandbox_status(request).await?.into_inner();
    let status = response.status.unwrap_or_default();
    let metadata = status.metadata.unwrap_or_default();
    let addresses = pods::addresses(status.network.unwrap_or_default());
    let containers = response
        .containers_statuses
        .iter()
        .map(|c| json!({"id": c.id, "name": c.metadata.as_ref().map(|m| &m.name), "state": state_word(c.state())}));
    Ok(json!({
        "type": "pod", "id": status.id, "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
        "attempt": metadata.attempt, "state": state, "createdAt": status.created_at,
        "ip": addresses.first(), "ips": addresses, "containers": containers.collect::<Vec<_>>(),
        "labels": status.labels, "annotations": status.annotations, "info": details(&response.info),
    }))
}

async fn image(client: &mut Client, name: &str) -> Result<Option<Value>, Failure> {
    let image = Some(v1::ImageSpec { image: name.to_owned(), ..Default::default() });
    let response = client.images.image_status(v1::ImageStatusRequest { image, verbose: true }).await?.into_inner();
    Ok(response.image.map(|image| {
        json!({
            "type": "image", "id": image.id, "tags": image.repo_tags, "digests": image.repo_digests, "size": image.size,
            "uid": image.uid.map(|uid| uid.value), "username": image.username, "pinned": image.pinned,
            "info": details(&response.info),
        })
    }))
}

/// Returns the verbose part of a response.
fn details(info: &std::collections::HashMap<String, String>) -> Value {
    info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}
