use cri_proto::{
    REPORT_FORMAT,
    pinion::{self as proto, container_exit, denial, explanation, oom_kill, wait::What},
};
use pod::{
    Cause, CommandError, ContainerExit, Denial, DeniedBy, Explanation, ObjectKind, ObjectState, OomKill, OomLimit,
    TimelineStage, Wait,
};

use super::info::check_format;
use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Explains each pod and container that matches the name. Runs on a blocking thread, because it reads the kernel log.
pub(super) async fn handle(state: Shared, request: proto::WhyRequest) -> Outcome<proto::WhyResponse> {
    check_format("why", request.format)?;
    let reports = offload::blocking(move || state.engine.why(&request.name));
    let reports =
        reports.await.map_err(|panic| Failure::internal(format!("the daemon panicked; this is a bug: {panic}")))??;
    Ok(proto::WhyResponse { explanations: reports.into_iter().map(explanation).collect(), format: REPORT_FORMAT })
}

fn explanation(why: Explanation) -> proto::Explanation {
    let kind = match why.kind {
        ObjectKind::Pod => explanation::Kind::Pod,
        ObjectKind::Container => explanation::Kind::Container,
    };
    proto::Explanation {
        kind: kind.into(),
        id: why.id.as_str().to_owned(),
        name: why.name,
        pod: why.pod.map(String::from),
        state: state(why.state).into(),
        stage: why.stage,
        since: why.since,
        waits_for: why.waits_for.map(wait),
        failure: why.failure,
        exit: why.end.map(exit),
        oom: why.oom.map(oom),
        denied: why.denied.into_iter().map(denial).collect(),
        timeline: why.timeline.into_iter().map(stage).collect(),
    }
}

fn state(state: ObjectState) -> explanation::State {
    match state {
        ObjectState::BeingCreated => explanation::State::BeingCreated,
        ObjectState::NotCreated => explanation::State::NotCreated,
        ObjectState::RollbackPending => explanation::State::RollbackPending,
        ObjectState::Ready => explanation::State::Ready,
        ObjectState::NotReady => explanation::State::NotReady,
        ObjectState::Stopped => explanation::State::Stopped,
        ObjectState::Created => explanation::State::Created,
        ObjectState::Starting => explanation::State::Starting,
        ObjectState::Running => explanation::State::Running,
        ObjectState::Exited => explanation::State::Exited,
        ObjectState::NotStarted => explanation::State::NotStarted,
    }
}

fn wait(wait: Wait) -> proto::Wait {
    let what = match wait {
        Wait::Stage(name) => What::Stage(name),
        Wait::NetworkPlugin { name, command } => What::NetworkPlugin(proto::NetworkPlugin { name, command }),
        Wait::Start => What::Start(true),
        Wait::Execve => What::Execve(true),
        Wait::Exit => What::Exit(true),
    };
    proto::Wait { what: Some(what) }
}

fn exit(exit: ContainerExit) -> proto::ContainerExit {
    let command = match exit.cause {
        Some(Cause::StartFailed { command: Some(CommandError::NotFound) }) => container_exit::Command::NotFound,
        Some(Cause::StartFailed { command: Some(CommandError::NotExecutable) }) => {
            container_exit::Command::NotExecutable
        }
        _ => container_exit::Command::Unspecified,
    };
    proto::ContainerExit {
        code: exit.code,
        signal: exit.signal,
        at: exit.at,
        cause: cause(exit.cause).into(),
        command: command.into(),
        description: exit.words,
    }
}

fn cause(cause: Option<Cause>) -> container_exit::Cause {
    match cause {
        None => container_exit::Cause::Unspecified,
        Some(Cause::Exited) => container_exit::Cause::Exited,
        Some(Cause::StartFailed { .. }) => container_exit::Cause::StartFailed,
        Some(Cause::Oom { .. }) => container_exit::Cause::OutOfMemory,
        Some(Cause::Stopped { .. }) => container_exit::Cause::Stopped,
        Some(Cause::GraceExpired) => container_exit::Cause::GraceExpired,
        Some(Cause::Killed) => container_exit::Cause::Killed,
        Some(Cause::Request { .. }) => container_exit::Cause::Requested,
        Some(Cause::Signal(_)) => container_exit::Cause::Signal,
        Some(Cause::Unknown) => container_exit::Cause::Unknown,
    }
}

fn oom(oom: OomKill) -> proto::OomKill {
    let limit = match oom.limit {
        OomLimit::Container => oom_kill::Limit::Container,
        OomLimit::Pod => oom_kill::Limit::Pod,
        OomLimit::Above => oom_kill::Limit::Above,
        OomLimit::Node => oom_kill::Limit::Node,
        OomLimit::Unknown => oom_kill::Limit::Unknown,
    };
    proto::OomKill { limit: limit.into(), group: oom.group, killed: oom.killed, line: oom.line }
}

fn denial(denial: Denial) -> proto::Denial {
    let by = match denial.by {
        DeniedBy::Seccomp => denial::By::Seccomp,
        DeniedBy::Lsm => denial::By::Lsm,
    };
    proto::Denial {
        by: by.into(),
        pid: denial.pid,
        system_call: denial.system_call,
        name: denial.name.map(str::to_owned),
        line: denial.line,
    }
}

fn stage(stage: TimelineStage) -> proto::Stage {
    // A clock that is set back makes a duration negative.
    let duration = (stage.ended != 0).then(|| stage.ended.wrapping_sub(stage.began).cast_signed());
    proto::Stage { name: stage.name, began: stage.began, duration, part: stage.part, failure: stage.failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_a_duration_once_it_has_ended() {
        let of = |began, ended| {
            let (name, failure) = ("pull the image".to_owned(), String::new());
            stage(TimelineStage { name, began, ended, part: true, failure }).duration
        };
        assert_eq!((of(5, 0), of(5, 5), of(5, 9), of(9, 5)), (None, Some(0), Some(4), Some(-4)));
    }

    #[test]
    fn an_exit_carries_its_cause_and_what_prevented_the_execution() {
        let with = |cause| exit(ContainerExit { code: Some(128), signal: None, at: 1, cause, words: "w".into() });
        let failed = with(Some(Cause::StartFailed { command: Some(CommandError::NotFound) }));
        assert_eq!(failed.cause(), container_exit::Cause::StartFailed);
        assert_eq!((failed.command(), failed.description.as_str()), (container_exit::Command::NotFound, "w"));
        let unrecorded = with(None);
        assert_eq!(unrecorded.cause(), container_exit::Cause::Unspecified);
        assert_eq!(unrecorded.command(), container_exit::Command::Unspecified);
    }
}
