//! Texts for what the daemon reports as data.

use cri_proto::pinion::{OomKill, Wait, explanation::State, oom_kill::Limit, wait::What};

/// Describes a state.
pub(super) fn state(state: State) -> &'static str {
    match state {
        State::BeingCreated => "being created",
        State::NotCreated => "could not be created",
        State::RollbackPending => "could not be created; rollback pending",
        State::Ready => "ready",
        State::NotReady => "not ready",
        State::Stopped => "stopped",
        State::Created => "created",
        State::Starting => "starting",
        State::Running => "running",
        State::Exited => "exited",
        State::NotStarted => "could not be started, and was removed",
        // A state that only a newer daemon knows.
        State::Unspecified => "unknown",
    }
}

/// Describes what an object waits for.
pub(super) fn wait(wait: &Wait) -> String {
    match &wait.what {
        Some(What::Stage(name)) => name.clone(),
        Some(What::NetworkPlugin(plugin)) => {
            format!("CNI plugin {} {}, which is running", plugin.name, plugin.command)
        }
        Some(What::Start(_)) => "to be started".to_owned(),
        Some(What::Execve(_)) => "the execve of its program".to_owned(),
        Some(What::Exit(_)) => "its processes to exit".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Describes a memory limit that was reached.
pub(super) fn oom(oom: &OomKill) -> String {
    let limit = match oom.limit() {
        Limit::Container => "limit of the container",
        Limit::Pod => "limit of the pod",
        Limit::Above => "limit of a cgroup above the pod",
        Limit::Node => "no limit: the node was out of memory",
        Limit::Unknown => "the kernel did not report which limit was reached",
    };
    let group = oom.group.as_ref().map(|group| format!(" ({group})")).unwrap_or_default();
    let line = oom.line.as_ref().map(|line| format!("; kernel: {line}")).unwrap_or_default();
    format!("{limit}{group}{line}")
}

#[cfg(test)]
mod tests {
    use cri_proto::pinion::NetworkPlugin;

    use super::*;

    #[test]
    fn every_wait_has_a_text() {
        let plugin = NetworkPlugin { name: "bridge".into(), command: "ADD".into() };
        let waits = [What::NetworkPlugin(plugin), What::Start(true), What::Execve(true), What::Exit(true)];
        let texts = waits.map(|what| wait(&Wait { what: Some(what) }));
        let expected = [
            "CNI plugin bridge ADD, which is running",
            "to be started",
            "the execve of its program",
            "its processes to exit",
        ];
        assert_eq!(texts, expected);
        assert_eq!(wait(&Wait { what: None }), "unknown", "of a newer daemon");
    }

    #[test]
    fn a_memory_limit_is_described_with_its_cgroup_and_the_message_of_the_kernel() {
        let kill = OomKill {
            limit: Limit::Above.into(),
            group: Some("/kubepods".into()),
            killed: 1,
            line: Some("oom-kill:x".into()),
        };
        assert_eq!(oom(&kill), "limit of a cgroup above the pod (/kubepods); kernel: oom-kill:x");
        assert_eq!(oom(&OomKill::default()), "the kernel did not report which limit was reached");
    }
}
