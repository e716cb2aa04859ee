//! The output of `pinion why --json`.

use cri_proto::pinion::{ContainerExit, Denial, Explanation, OomKill, Stage, denial::By, explanation::Kind};
use serde_json::{Value, json};

use super::text;

pub(super) fn explanation(why: &Explanation) -> Value {
    let kind = match why.kind() {
        Kind::Pod => "pod",
        Kind::Container => "container",
        Kind::Unspecified => "unknown",
    };
    json!({
        "kind": kind,
        "id": why.id,
        "name": why.name,
        "pod": why.pod,
        "state": text::state(why.state()),
        "stage": why.stage,
        "since": why.since,
        "waits_for": why.waits_for.as_ref().map(text::wait),
        "failure": why.failure,
        "end": why.exit.as_ref().map(exit),
        "oom": why.oom.as_ref().map(oom),
        "denied": why.denied.iter().map(denial).collect::<Vec<_>>(),
        "timeline": why.timeline.iter().map(stage).collect::<Vec<_>>(),
    })
}

fn exit(exit: &ContainerExit) -> Value {
    json!({"code": exit.code, "signal": exit.signal, "at": exit.at, "words": exit.description})
}

fn oom(oom: &OomKill) -> Value {
    let limit = oom.limit().as_str_name().to_lowercase();
    json!({"limit": limit, "group": oom.group, "killed": oom.killed, "line": oom.line})
}

fn denial(denial: &Denial) -> Value {
    let by = match denial.by() {
        By::Seccomp => "seccomp",
        By::Lsm => "lsm",
        By::Unspecified => "unknown",
    };
    let Denial { pid, system_call, name, line, .. } = denial;
    json!({"by": by, "pid": pid, "system_call": system_call, "name": name, "line": line})
}

fn stage(stage: &Stage) -> Value {
    // 0 for the current stage.
    let ended = stage.duration.map_or(0, |duration| stage.began.wrapping_add_signed(duration));
    let Stage { name, began, part, failure, .. } = stage;
    json!({"name": name, "began": began, "ended": ended, "part": part, "failure": failure})
}

#[cfg(test)]
mod tests {
    use cri_proto::pinion::{Wait, container_exit::Cause, explanation::State, oom_kill::Limit, wait::What};

    use super::*;

    /// The output of the versions in which the daemon sent JSON.
    const CONTAINER: &str = r#"{
  "denied": [
    {
      "by": "seccomp",
      "line": "audit: type=1326 pid=7",
      "name": "mount",
      "pid": 7,
      "system_call": 165
    },
    {
      "by": "lsm",
      "line": "audit: type=1400",
      "name": null,
      "pid": 8,
      "system_call": null
    }
  ],
  "end": {
    "at": 1700000000000000009,
    "code": 137,
    "signal": 9,
    "words": "SIGKILL, by the kernel: out of memory"
  },
  "failure": "a process was killed: the container ran out of memory",
  "id": "c1",
  "kind": "container",
  "name": "web",
  "oom": {
    "group": "/pinion/p1/c1",
    "killed": 2,
    "limit": "container",
    "line": "oom-kill:constraint=CONSTRAINT_MEMCG"
  },
  "pod": "p1",
  "since": 1700000000000000009,
  "stage": "ended",
  "state": "exited",
  "timeline": [
    {
      "began": 1700000000000000001,
      "ended": 1700000000000000005,
      "failure": "no",
      "name": "creating",
      "part": false
    },
    {
      "began": 1700000000000000009,
      "ended": 0,
      "failure": "",
      "name": "ended",
      "part": true
    }
  ],
  "waits_for": null
}"#;

    const POD: &str = r#"{
  "denied": [],
  "end": null,
  "failure": "",
  "id": "p1",
  "kind": "pod",
  "name": "default/web",
  "oom": null,
  "pod": null,
  "since": 5,
  "stage": "network",
  "state": "being created",
  "timeline": [],
  "waits_for": "network"
}"#;

    const NOW: u64 = 1_700_000_000_000_000_000;

    fn pretty(why: &Explanation) -> String {
        serde_json::to_string_pretty(&explanation(why)).expect("JSON")
    }

    #[test]
    fn a_container_has_the_json_that_scripts_read() {
        let denied = |by: By, pid, system_call, name: Option<&str>, line: &str| Denial {
            by: by.into(),
            pid,
            system_call,
            name: name.map(str::to_owned),
            line: line.into(),
        };
        let stage = |name: &str, began, duration, part, failure: &str| Stage {
            name: name.into(),
            began: NOW + began,
            duration,
            part,
            failure: failure.into(),
        };
        let why = Explanation {
            kind: Kind::Container.into(),
            id: "c1".into(),
            name: "web".into(),
            pod: Some("p1".into()),
            state: State::Exited.into(),
            stage: "ended".into(),
            since: NOW + 9,
            waits_for: None,
            failure: "a process was killed: the container ran out of memory".into(),
            exit: Some(ContainerExit {
                code: Some(137),
                signal: Some(9),
                at: NOW + 9,
                cause: Cause::OutOfMemory.into(),
                command: 0,
                description: "SIGKILL, by the kernel: out of memory".into(),
            }),
            oom: Some(OomKill {
                limit: Limit::Container.into(),
                group: Some("/pinion/p1/c1".into()),
                killed: 2,
                line: Some("oom-kill:constraint=CONSTRAINT_MEMCG".into()),
            }),
            denied: vec![
                denied(By::Seccomp, 7, Some(165), Some("mount"), "audit: type=1326 pid=7"),
                denied(By::Lsm, 8, None, None, "audit: type=1400"),
            ],
            timeline: vec![stage("creating", 1, Some(4), false, "no"), stage("ended", 9, None, true, "")],
        };
        assert_eq!(pretty(&why), CONTAINER);
    }

    #[test]
    fn a_pod_has_the_json_that_scripts_read() {
        let why = Explanation {
            kind: Kind::Pod.into(),
            id: "p1".into(),
            name: "default/web".into(),
            state: State::BeingCreated.into(),
            stage: "network".into(),
            since: 5,
            waits_for: Some(Wait { what: Some(What::Stage("network".into())) }),
            ..Explanation::default()
        };
        assert_eq!(pretty(&why), POD);
    }

    #[test]
    fn limits_and_unknown_exit_codes_have_the_json_that_scripts_read() {
        let limits = [Limit::Unknown, Limit::Container, Limit::Pod, Limit::Above, Limit::Node].map(|limit| {
            let oom = OomKill { limit: limit.into(), ..OomKill::default() };
            super::oom(&oom)["limit"].as_str().expect("a text").to_owned()
        });
        assert_eq!(limits, ["unknown", "container", "pod", "above", "node"]);
        let unknown = exit(&ContainerExit { at: 5, description: "unknown".into(), ..ContainerExit::default() });
        assert_eq!(unknown.to_string(), r#"{"at":5,"code":null,"signal":null,"words":"unknown"}"#);
    }
}
