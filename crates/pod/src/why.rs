//! `pinion why`: what became of a pod or container, what it waits for, and what the kernel knows of its end.
//!
//! Nothing here is guessed: where the kernel does not tell, it is said that it does not.

mod exit;
mod kernel_log;
mod oom;

use std::sync::Arc;

use serde::Serialize;

use crate::{
    Engine, Error, clock,
    container::{Container, ContainerPhase},
    engine::Inner,
    failures::Failed,
    sandbox::{Sandbox, SandboxPhase},
    timeline::Stage,
};

pub use exit::End;
pub use kernel_log::Denied;
pub use oom::{Oom, OomLimit};

/// All that is known of one pod or container. Times are nanoseconds since the epoch.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// `pod` or `container`.
    pub kind: &'static str,
    /// Its id; of one that could not be made, the one it had.
    pub id: String,
    /// A pod's `namespace/name`, a container's name.
    pub name: String,
    /// A container's pod.
    pub pod: Option<String>,
    /// `being made`, `ready`, `running`, `exited`, `could not be made`, …
    pub state: String,
    /// What it is at.
    pub stage: String,
    /// Since when.
    pub since: u64,
    /// What it waits for now; absent: nothing.
    pub waits_for: Option<String>,
    /// Why it failed, or is not what it should be; empty: it is.
    pub failure: String,
    /// How a container ended.
    pub end: Option<End>,
    /// Whose memory limit it met, when a process of it was killed for that.
    pub oom: Option<Oom>,
    /// What the kernel's log says was denied to it.
    pub denied: Vec<Denied>,
    /// The oldest first.
    pub timeline: Vec<Stage>,
}

impl Engine {
    /// Of the pod or container of this id, beginning of an id, name, `namespace/name` or `pod/container`, with the
    /// containers of a pod. An empty text: all that is being made, or could not be made of late, or removed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn why(&self, wanted: &str) -> Result<Vec<Why>, Error> {
        let engine = &self.0;
        let log = kernel_log::read();
        let mut found = Vec::new();
        for sandbox in engine.sandboxes() {
            let name = &sandbox.config().name;
            let whole = format!("{}/{}", name.namespace, name.name);
            let meant = is(wanted, sandbox.id(), &[&name.name, &whole]);
            let stuck = wanted.is_empty() && is_stuck(&sandbox);
            if meant || stuck {
                found.push(of_sandbox(engine, &sandbox));
            }
            for container in engine.containers_of(sandbox.id()) {
                let own = &container.config().name;
                let names = [own.clone(), format!("{}/{own}", name.name), format!("{whole}/{own}")];
                let making = wanted.is_empty() && container.record().phase == ContainerPhase::Creating;
                if meant || making || is(wanted, container.id(), &names.each_ref().map(String::as_str)) {
                    found.push(of_container(engine, &container, &log));
                }
            }
        }
        for failed in engine.failures.all() {
            if wanted.is_empty()
                || is(wanted, &failed.id, &[&failed.name, failed.name.rsplit('/').next().unwrap_or("")])
            {
                found.push(of_failed(failed));
            }
        }
        if found.is_empty() && !wanted.is_empty() {
            return Err(Error::not_found("pod or container", wanted));
        }
        Ok(found)
    }

    /// An image was pulled: what is made of it tells how long that took. Times are nanoseconds since the epoch.
    pub fn pulled(&self, image: &str, began: u64) {
        self.0.pulls.note(image.to_owned(), began, clock::now());
    }
}

fn is(wanted: &str, id: &str, names: &[&str]) -> bool {
    !wanted.is_empty() && (id.starts_with(wanted) || names.contains(&wanted))
}

fn is_stuck(sandbox: &Sandbox) -> bool {
    let record = sandbox.record();
    let failed = record.timeline.stages().iter().rfind(|stage| !stage.part).is_some_and(|now| !now.failure.is_empty());
    failed || matches!(record.phase, SandboxPhase::Reserved | SandboxPhase::Networked)
}

/// What is at the end of a timeline.
fn now(stages: &[Stage]) -> (String, u64, String) {
    let now = stages.iter().rfind(|stage| !stage.part);
    now.map(|stage| (stage.name.clone(), stage.began, stage.failure.clone())).unwrap_or_default()
}

fn of_sandbox(engine: &Inner, sandbox: &Sandbox) -> Why {
    let record = sandbox.record();
    let mut timeline = record.timeline.stages().to_vec();
    let (stage, since, failure) = now(&timeline);
    let noted = timeline.iter().filter(|stage| stage.part).map(|stage| stage.began).max().unwrap_or(0);
    let mut waits_for = sandbox.is_making().then(|| stage.clone());
    for call in engine.network.calls(sandbox.id()).into_iter().filter(|call| call.began > noted) {
        let name = format!("CNI plugin {} {}", call.plugin, call.command);
        let ended = call.took.map_or(0, |took| call.began + u64::try_from(took.as_nanos()).unwrap_or(0));
        if ended == 0 {
            waits_for = Some(format!("{name}, which runs"));
        }
        timeline.push(Stage { name, began: call.began, ended, part: true, failure: call.failure });
    }
    let state = match record.phase {
        SandboxPhase::Ready => "ready",
        SandboxPhase::Stopped => "stopped",
        _ if sandbox.is_making() => "being made",
        _ => "not ready",
    };
    let name = &sandbox.config().name;
    Why {
        kind: "pod",
        id: sandbox.id().to_owned(),
        name: format!("{}/{}", name.namespace, name.name),
        pod: None,
        state: state.to_owned(),
        failure,
        stage,
        since,
        waits_for,
        end: None,
        oom: None,
        denied: Vec::new(),
        timeline,
    }
}

fn of_container(engine: &Inner, container: &Arc<Container>, log: &[String]) -> Why {
    let (record, status) = (container.record(), container.status());
    let timeline = record.timeline.stages().to_vec();
    let (stage, since, _) = now(&timeline);
    let waits_for = match record.phase {
        ContainerPhase::Creating if status.making => Some(stage.clone()),
        ContainerPhase::Created => Some("its start".to_owned()),
        ContainerPhase::Starting => Some("its program's execve".to_owned()),
        ContainerPhase::Running if stage.starts_with("stop") => Some("the end of its processes".to_owned()),
        _ => None,
    };
    let state = match record.phase {
        ContainerPhase::Creating if status.making => "being made",
        ContainerPhase::Creating => "could not be made, nor taken back yet",
        ContainerPhase::Created => "created",
        ContainerPhase::Starting => "starting",
        ContainerPhase::Running => "running",
        ContainerPhase::Exited => "exited",
    };
    Why {
        kind: "container",
        id: container.id().to_owned(),
        name: container.config().name.clone(),
        pod: Some(container.metadata.sandbox.clone()),
        state: state.to_owned(),
        stage,
        since,
        waits_for,
        failure: record.message.clone(),
        end: exit::of(&record),
        oom: oom::of(engine, container, &record, log),
        denied: kernel_log::denied(container, &record, log),
        timeline,
    }
}

fn of_failed(failed: Failed) -> Why {
    let (stage, ..) = now(&failed.timeline);
    Why {
        kind: if failed.sandbox.is_some() { "container" } else { "pod" },
        id: failed.id,
        name: failed.name,
        pod: failed.sandbox,
        state: failed.state.to_owned(),
        stage,
        since: failed.at,
        waits_for: None,
        failure: failed.why,
        end: None,
        oom: None,
        denied: Vec::new(),
        timeline: failed.timeline,
    }
}
