//! Events of pods, as the API server sends them.

use serde::Deserialize;

/// What happened to the pod of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Name of the DaemonSet.
    pub(super) set: String,
    pub(super) state: State,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It exists.
    Created,
    /// Its containers are running and ready.
    Ready,
    /// It is to be removed.
    Ending,
    /// It does not exist any longer.
    Removed,
}

impl Event {
    /// Parses an event of `kubectl get --watch --output-watch-events`; `None` for pods that are not those of DaemonSets.
    pub(super) fn of(value: Message) -> Option<Self> {
        let Message { kind, object } = value;
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        let state = if kind == "DELETED" {
            State::Removed
        } else if object.metadata.deletion_timestamp.is_some() {
            State::Ending
        } else if object.status.conditions.iter().any(is_ready) {
            State::Ready
        } else {
            State::Created
        };
        Some(Self { set: object.metadata.labels.set?, state })
    }
}

/// A message of the API server. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.
#[derive(Deserialize)]
pub(super) struct Message {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    labels: Labels,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
struct Labels {
    #[serde(rename = "pinion-bench")]
    set: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Option<Event> {
        Event::of(serde_json::from_str(text).expect("a message"))
    }

    #[test]
    fn the_life_of_a_pod_has_four_states() {
        let pod = |kind: &str, metadata: &str, ready: &str| {
            event(&format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"name":"x",{metadata}"labels":{{"pinion-bench":"one"}}}},
                "status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}}}"#
            ))
            .map(|event| event.state)
        };
        let ending = r#""deletionTimestamp":"2026-01-01T00:00:00Z","#;
        let states = [
            pod("ADDED", "", "False"),
            pod("MODIFIED", "", "True"),
            pod("MODIFIED", ending, "True"),
            pod("DELETED", ending, "False"),
        ];
        assert_eq!(states, [State::Created, State::Ready, State::Ending, State::Removed].map(Some));
        assert_eq!(event(r#"{"type":"ADDED","object":{"metadata":{"name":"other"}}}"#), None);
    }
}
