//! One cycle of an attacker: its pod is run, driven, stopped and removed, and checked for leaks.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use super::{
    attack::{Attack, Drive},
    drive,
};
use crate::{
    Client, ContainerPlan, PodPlan, Record,
    cgroups::{self, PodLimits},
    client::is_timeout,
    namespaces::NodeNamespaces,
};

/// Timeout of each request about the pod of an attacker. The engine waits for at most a minute, the kubelet for two.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(75);
/// How long the removal of the pod of an attacker may take, including repeated requests.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(150);

/// The environment of all attacks of a run.
#[derive(Clone, Debug)]
pub(super) struct AttackContext {
    pub(super) namespaces: NodeNamespaces,
    pub(super) client: Client,
    pub(super) dir: PathBuf,
    /// The `cgroup_parent` of the node.
    pub(super) node_parent: String,
    pub(super) limits: PodLimits,
    /// A file of the node that no container may read or change.
    pub(super) secret: PathBuf,
    /// Port of the streaming server.
    pub(super) port: u16,
    /// Id of the container of a victim.
    pub(super) victim: String,
    /// Number of files that the attacker `files` creates.
    pub(super) files: u32,
}

/// The times of a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CycleTimes {
    /// From the first request to the start of the container.
    pub(super) start: Duration,
    /// From the first request to stop the pod until everything is removed.
    pub(super) removal: Duration,
}

/// Runs an attacker for this duration and removes it.
pub(super) async fn run(
    context: &AttackContext,
    record: &Record,
    attack: &Attack,
    number: usize,
    hold: Duration,
) -> CycleTimes {
    let name = format!("{}-{number}", attack.name);
    let fault = |error: String| record.fault(format!("attacker {name}: {error}"));
    let mut client = context.client.clone();
    let mut times = CycleTimes::default();
    let begin = Instant::now();
    let (pod, container) = match plan(context, attack, &name) {
        Ok(plans) => plans,
        Err(error) => {
            fault(error);
            return times;
        }
    };
    match client.run(&pod, &container, REQUEST_TIMEOUT).await {
        Ok((pod_id, id)) => {
            times.start = begin.elapsed();
            drive::run(context, record, attack, (&pod, &pod_id, &id), hold).await;
        }
        Err(error) => fault(error),
    }
    let begin = Instant::now();
    if attack.unkillable {
        // The request must fail with the reason. Then the processes are released, as an administrator would do.
        match try_remove(&mut client, &name).await {
            Err(error) if is_timeout(&error) => fault(error),
            _ => {}
        }
        release(context, attack).await;
    }
    if let Err(error) = remove(&mut client, &name).await {
        fault(error);
    }
    times.removal = begin.elapsed();
    let leaked = leaked_groups(&pod.cgroup_parent).await;
    if !leaked.is_empty() {
        fault(format!("{} cgroups leaked: {}", leaked.len(), leaked[0].display()));
    }
    remove_directories(context, &name).await;
    times
}

fn plan(context: &AttackContext, attack: &Attack, name: &str) -> Result<(PodPlan, ContainerPlan), String> {
    let parent = cgroups::create(&context.node_parent, name, context.limits)
        .map_err(|error| format!("create cgroup: {error}"))?;
    let (logs, volume) = (context.dir.join("logs").join(name), context.dir.join("volumes").join(name));
    fs::create_dir_all(volume.join("part")).map_err(|error| format!("create volume: {error}"))?;
    fs::create_dir_all(&logs).map_err(|error| format!("create log directory: {error}"))?;
    let command = attack.command.iter().map(|&word| match word {
        "@files" => context.files.to_string(),
        "@secret" => context.secret.to_string_lossy().into_owned(),
        "@port" => context.port.to_string(),
        word => word.to_owned(),
    });
    let mut mounts = vec![(volume, "/volume".to_owned())];
    if attack.drive == Drive::Names {
        mounts.push((logs.clone(), "/logs".to_owned()));
    }
    let container = ContainerPlan {
        name: attack.name.to_owned(),
        command: ["/bin/attacker".to_owned()].into_iter().chain(command).collect(),
        mounts,
        privileged: attack.privileged,
        capabilities: attack.capabilities.iter().map(|&name| name.to_owned()).collect(),
        cpu_quota: i64::from(context.limits.cpu_quota),
        cpu_shares: i64::from(context.limits.cpu_shares),
        memory: i64::try_from(context.limits.memory).unwrap_or(i64::MAX),
    };
    let pod = PodPlan {
        name: name.to_owned(),
        cgroup_parent: parent,
        logs,
        host_network: attack.host_network,
        privileged: attack.privileged,
        ..PodPlan::default()
    };
    Ok((pod, container))
}

/// Stops and removes the pod with this name. Repeats the requests until they succeed, as the kubelet does.
async fn remove(client: &mut Client, name: &str) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let error = match try_remove(client, name).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if begin.elapsed() > REMOVAL_TIMEOUT {
            return Err(format!("cannot be removed after {} s: {error}", REMOVAL_TIMEOUT.as_secs()));
        }
        // An error is allowed, a timeout is not.
        if is_timeout(&error) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn try_remove(client: &mut Client, name: &str) -> Result<(), String> {
    use cri_proto::v1;
    let request = v1::ListPodSandboxRequest::default();
    let pods =
        crate::client::response("ListPodSandbox", REQUEST_TIMEOUT, client.runtime.list_pod_sandbox(request)).await?;
    let has_name = |pod: &&v1::PodSandbox| pod.metadata.as_ref().is_some_and(|metadata| metadata.name == name);
    let Some(pod) = pods.items.iter().find(has_name).map(|pod| pod.id.clone()) else { return Ok(()) };
    let filter = v1::ContainerFilter { pod_sandbox_id: pod.clone(), ..Default::default() };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let list =
        crate::client::response("ListContainers", REQUEST_TIMEOUT, client.runtime.list_containers(request)).await?;
    for container in list.containers {
        client.stop(&container.id, 1, REQUEST_TIMEOUT).await?;
    }
    client.remove_pod(&pod, REQUEST_TIMEOUT).await
}

/// Aborts the connection of the FUSE file system that the processes of this attack wait for.
pub(super) async fn release(context: &AttackContext, attack: &Attack) {
    let (namespaces, program) = (context.namespaces, format!("attacker {}", attack.name));
    let script = format!(
        "for pid in $(pgrep -f '{program}'); do nsenter -t $pid -m -r /bin/busybox umount -f /fuse 2>/dev/null; done"
    );
    let _ = tokio::task::spawn_blocking(move || namespaces.command("sh", &["-c", &script]).status()).await;
}

/// Returns the cgroups that the engine leaked below that of a pod, and removes them.
async fn leaked_groups(parent: &str) -> Vec<PathBuf> {
    let begin = Instant::now();
    // The kernel and the engine may remove them after the response.
    while cgroups::has_children(parent) && begin.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cgroups::remove(parent)
}

/// Removes the logs and the volume of a pod with rm(1), which handles directories of any depth.
async fn remove_directories(context: &AttackContext, name: &str) {
    let directories = ["logs", "volumes"].map(|kind| context.dir.join(kind).join(name));
    let task = tokio::task::spawn_blocking(move || {
        Command::new("nice").args(["-n", "19", "rm", "-rf", "--"]).args(directories).status()
    });
    let _ = task.await;
}
