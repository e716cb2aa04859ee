//! One life of an attacker's pod: made, driven, stopped, removed, and nothing of it left.

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
    client::is_unanswered,
    groups::{self, PodLimits},
    inside::Inside,
};

/// Bound for each request about an attacker's pod: the engine's own bound for a wait is a minute, kubelet's two.
const PATIENCE: Duration = Duration::from_secs(75);
/// Bound for the end of an attacker's pod, however often it must be requested.
const END: Duration = Duration::from_secs(150);

/// What every attack of a run shares.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) inside: Inside,
    pub(super) client: Client,
    pub(super) dir: PathBuf,
    /// The node's `cgroup_parent`.
    pub(super) node_parent: String,
    pub(super) limits: PodLimits,
    /// A file of the node that no container may read or change.
    pub(super) secret: PathBuf,
    /// The streaming server's port.
    pub(super) port: u16,
    /// A victim's container.
    pub(super) victim: String,
    /// How many files the attack with files makes.
    pub(super) files: u32,
}

/// What a life took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CycleTimes {
    /// From the first request to the container's start.
    pub(super) start: Duration,
    /// From the first request to stop until everything was removed.
    pub(super) end: Duration,
}

/// Runs an attacker for this time and removes it.
pub(super) async fn run(field: &Field, record: &Record, attack: &Attack, number: usize, hold: Duration) -> CycleTimes {
    let name = format!("{}-{number}", attack.name);
    let fault = |error: String| record.fault(format!("attacker {name}: {error}"));
    let mut client = field.client.clone();
    let mut times = CycleTimes::default();
    let begin = Instant::now();
    let (pod, container) = match plan(field, attack, &name) {
        Ok(plans) => plans,
        Err(error) => {
            fault(error);
            return times;
        }
    };
    match client.run(&pod, &container, PATIENCE).await {
        Ok((pod_id, id)) => {
            times.start = begin.elapsed();
            drive::run(field, record, attack, (&pod, &pod_id, &id), hold).await;
        }
        Err(error) => fault(error),
    }
    let begin = Instant::now();
    if attack.unkillable {
        // Answered, with the reason; then whatever it waits for ends, as an administrator would end it.
        match try_end(&mut client, &name).await {
            Err(error) if is_unanswered(&error) => fault(error),
            _ => {}
        }
        release(field, attack).await;
    }
    if let Err(error) = end(&mut client, &name).await {
        fault(error);
    }
    times.end = begin.elapsed();
    let leaked = leaked_groups(&pod.cgroup_parent).await;
    if !leaked.is_empty() {
        fault(format!("{} cgroups leaked: {}", leaked.len(), leaked[0].display()));
    }
    remove_directories(field, &name).await;
    times
}

fn plan(field: &Field, attack: &Attack, name: &str) -> Result<(PodPlan, ContainerPlan), String> {
    let parent =
        groups::make(&field.node_parent, name, field.limits).map_err(|error| format!("make cgroup: {error}"))?;
    let (logs, volume) = (field.dir.join("logs").join(name), field.dir.join("volumes").join(name));
    fs::create_dir_all(volume.join("part")).map_err(|error| format!("make volume: {error}"))?;
    fs::create_dir_all(&logs).map_err(|error| format!("make logs: {error}"))?;
    let command = attack.command.iter().map(|&word| match word {
        "@files" => field.files.to_string(),
        "@secret" => field.secret.to_string_lossy().into_owned(),
        "@port" => field.port.to_string(),
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
        cpu_quota: i64::from(field.limits.cpu_quota),
        cpu_shares: i64::from(field.limits.cpu_shares),
        memory: i64::try_from(field.limits.memory).unwrap_or(i64::MAX),
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

/// Stops and removes the pod of this name, as kubelet does: requested again until it is done.
async fn end(client: &mut Client, name: &str) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let error = match try_end(client, name).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if begin.elapsed() > END {
            return Err(format!("cannot be removed after {} s: {error}", END.as_secs()));
        }
        // An answer in time that names the reason is allowed; none is not.
        if is_unanswered(&error) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn try_end(client: &mut Client, name: &str) -> Result<(), String> {
    use cri_proto::v1;
    let request = v1::ListPodSandboxRequest::default();
    let pods = crate::client::answered("ListPodSandbox", PATIENCE, client.runtime.list_pod_sandbox(request)).await?;
    let named = |pod: &&v1::PodSandbox| pod.metadata.as_ref().is_some_and(|metadata| metadata.name == name);
    let Some(pod) = pods.items.iter().find(named).map(|pod| pod.id.clone()) else { return Ok(()) };
    let filter = v1::ContainerFilter { pod_sandbox_id: pod.clone(), ..Default::default() };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let listed = crate::client::answered("ListContainers", PATIENCE, client.runtime.list_containers(request)).await?;
    for container in listed.containers {
        client.stop(&container.id, 1, PATIENCE).await?;
    }
    client.remove_pod(&pod, PATIENCE).await
}

/// Ends the connection of the file system that this attack's processes wait for.
pub(super) async fn release(field: &Field, attack: &Attack) {
    let (inside, program) = (field.inside, format!("attacker {}", attack.name));
    let script = format!(
        "for pid in $(pgrep -f '{program}'); do nsenter -t $pid -m -r /bin/busybox umount -f /fuse 2>/dev/null; done"
    );
    let _ = tokio::task::spawn_blocking(move || inside.command("sh", &["-c", &script]).status()).await;
}

/// Groups that the engine left below a pod's, which are removed then.
async fn leaked_groups(parent: &str) -> Vec<PathBuf> {
    let begin = Instant::now();
    // The kernel and the engine may remove them after the answer.
    while groups::has_children(parent) && begin.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    groups::remove(parent)
}

/// Removes logs and volume of a pod. `rm` takes any depth.
async fn remove_directories(field: &Field, name: &str) {
    let directories = ["logs", "volumes"].map(|kind| field.dir.join(kind).join(name));
    let removed = tokio::task::spawn_blocking(move || {
        Command::new("nice").args(["-n", "19", "rm", "-rf", "--"]).args(directories).status()
    });
    let _ = removed.await;
}
