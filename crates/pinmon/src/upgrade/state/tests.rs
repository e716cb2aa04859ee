use std::collections::BTreeMap;

use monitor_api::{LogOptions, PendingHooks};
use serde_json::Value;

use super::*;

fn hooks() -> Box<PendingHooks> {
    let hook =
        oci::Hook { path: "/bin/hook".into(), args: vec!["hook".into()], timeout: Some(5), ..Default::default() };
    Box::new(PendingHooks {
        hooks: oci::Hooks { poststop: vec![hook], ..Default::default() },
        state: oci::State {
            oci_version: "1.3.0".into(),
            id: "web".into(),
            bundle: "/run/pinion/container/web".into(),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            ..Default::default()
        },
    })
}

fn output(full: bool) -> Output {
    let stream = Stream { kind: StreamKind::Stdout, fd: 20, terminal: true, ended: false, looks: 0, resting: false };
    let tap = Tap { number: 3, kind: StreamKind::Stderr, pipe: 22 };
    match full {
        true => Output {
            line_max: 16384,
            limit: None,
            streams: vec![stream],
            sink: Sink {
                file: Some(21),
                total: 10,
                unwritten: Some((5, "no space left on device".into())),
                report_at: 99,
            },
            taps: vec![tap],
            apart: true,
        },
        false => Output {
            line_max: 64,
            limit: None,
            streams: vec![],
            sink: Sink { file: None, total: 0, unwritten: None, report_at: 0 },
            taps: vec![],
            apart: false,
        },
    }
}

fn container(full: bool, stage: Stage) -> Container {
    let id = RequestId { link: 2, seq: 8 };
    Container {
        serial: 5,
        description: ContainerDescription {
            id: "web".into(),
            sandbox: "pod".into(),
            cgroup: "/kubepods/pod/web".into(),
            pid: if full { 4_000_000 } else { 0 },
            start_time: if full { 1 << 40 } else { 0 },
            log: LogOptions { line_max: 16384, awaited: full, limit: None },
            hooks: full.then(hooks),
            user_namespace: full.then_some(true),
            runtime: None,
            external: false,
        },
        grouped: full,
        oom_kills: None,
        pidfd: full.then_some(23),
        output: output(full),
        stdin: full.then_some(24),
        filter: if full { Filter::Program(0) } else { Filter::None },
        pod_init: full,
        stage,
        warnings: if full { vec!["clamped".into()] } else { vec![] },
        deletes: if full { vec![id] } else { vec![] },
        removals: 0,
    }
}

fn state(full: bool) -> State {
    let status = ExitStatus { code: Some(137), signal: Some(9), oom_killed: true, at: u64::MAX };
    let exec = Exec {
        serial: 6,
        id: "exec".into(),
        container: "web".into(),
        pid: 77,
        pidfd: 25,
        sync: 26,
        terminal: Some(27),
        warnings: vec!["ignored".into()],
        left: false,
    };
    let timers = [
        Timer::Rest(5, 1),
        Timer::Drain(5),
        Timer::Taps(5),
        Timer::Exit(5, 2),
        Timer::Left(6, 1),
        Timer::Remove(5),
        Timer::Thaw(5),
        Timer::SetUp(5),
        Timer::Execute(5),
        Timer::Answer(5),
        Timer::Command(6),
        Timer::Maker(8),
        Timer::Upgrade,
        Timer::Writers,
        Timer::Terminals,
        Timer::Alarm(9),
        Timer::Close(5),
        Timer::Reopen(5),
        Timer::Signals,
    ];
    let timers = timers.into_iter().enumerate().map(|(n, timer)| (Duration::new(n as u64, 7), timer)).collect();
    State {
        head: Head { format: 1, contract: 1, version: "0.1.0".into() },
        request_id: RequestId { link: 3, seq: 9 },
        all: vec![3, 4],
        listener: 3,
        directory: 4,
        journal: "journal-7".into(),
        trees: vec![("unified".into(), 5)],
        files: full.then_some((Some(1024), None)),
        oom_score_adj: -999,
        node_mounts: full.then_some(6),
        link: full.then_some(Link { fd: 7, number: 3, greeted: true }),
        links: 3,
        serials: 9,
        programs: if full { vec![vec![0, 1, 255]] } else { vec![] },
        containers: match full {
            true => vec![
                container(true, Stage::Created(30)),
                container(true, Stage::Draining(status.clone())),
                container(true, Stage::Exited(status)),
            ],
            false => vec![container(false, Stage::Running)],
        },
        explained_oom_kills: vec![],
        orphans: if full { vec![Orphan { serial: 4, id: "gone".into(), output: output(true) }] } else { vec![] },
        commands: if full { vec![exec] } else { vec![] },
        kept: if full { vec![("sandbox/pod".into(), vec![28, 29])] } else { vec![] },
        closing: if full { vec![31] } else { vec![] },
        timers: if full { timers } else { vec![] },
    }
}

/// What version 0.1.0 wrote for a state with all optional fields, and for one without any.
const SAMPLES: [(bool, &str); 2] = [(true, include_str!("full.json")), (false, include_str!("bare.json"))];

/// A container of version 0.1.0, which is on the other side of an upgrade.
#[derive(Serialize, Deserialize)]
struct PreviousContainer {
    serial: u64,
    id: String,
    sandbox: String,
    cgroup: String,
    grouped: bool,
    pid: i32,
    start_time: u64,
    pidfd: Option<FdNumber>,
    log: LogOptions,
    output: Output,
    stdin: Option<FdNumber>,
    filter: Filter,
    #[serde(default)]
    hooks: Option<Box<PendingHooks>>,
    pod_init: bool,
    #[serde(default)]
    user_namespace: Option<bool>,
    stage: Stage,
    warnings: Vec<String>,
    deletes: Vec<RequestId>,
    removals: u32,
}

/// Parses JSON, so that the order of members does not matter.
fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Removes the members of containers that version 0.1.0 wrote as `null` and that are omitted now. It used `null` for
/// missing ones.
fn without_nulls(mut state: Value) -> Value {
    for container in state["containers"].as_array_mut().expect("containers") {
        let container = container.as_object_mut().expect("a container");
        container.retain(|name, value| !(value.is_null() && ["hooks", "user_namespace"].contains(&name.as_str())));
    }
    state
}

#[test]
fn the_state_has_the_json_of_version_0_1_0() {
    for (full, sample) in SAMPLES {
        let sample = without_nulls(value(sample));
        assert_eq!(serde_json::to_value(state(full)).expect("JSON"), sample);
    }
}

#[test]
fn the_state_of_version_0_1_0_is_read() {
    for (_, sample) in SAMPLES {
        let read: State = serde_json::from_str(sample).expect("a state");
        assert_eq!(serde_json::to_value(read).expect("JSON"), without_nulls(value(sample)));
    }
}

#[test]
fn version_0_1_0_reads_the_state() {
    for (full, sample) in SAMPLES {
        let containers = serde_json::to_string(&state(full).containers).expect("JSON");
        let read: Vec<PreviousContainer> = serde_json::from_str(&containers).expect("containers");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), value(sample)["containers"]);
    }
}

#[test]
fn only_programs_that_know_external_containers_take_them_over() {
    let mut containers = vec![container(false, Stage::Running)];
    assert_eq!(format_with(&containers), FORMAT);
    containers[0].description.external = true;
    assert_eq!(format_with(&containers), FORMAT_EXTERNAL);
}
