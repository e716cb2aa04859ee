//! The objects that are created.

use serde_json::{Value, json};

/// Ends at SIGTERM, which a program that is pid 1 of its namespace ignores without a handler: removals must not take the grace period.
const SCRIPT: &str = "trap 'exit 0' TERM; sleep 1000000 & wait";

/// Returns a list of DaemonSets, each of one pod on a node, also if the node has taints.
pub(super) fn list(names: &[String], node: &str, image: &str) -> Value {
    let items: Vec<Value> = names.iter().map(|name| daemon_set(name, node, image)).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn daemon_set(name: &str, node: &str, image: &str) -> Value {
    let labels = json!({"pinion-bench": name});
    let container = json!({
        "name": "sleep",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", SCRIPT],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "tolerations": [{"operator": "Exists"}],
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "containers": [container],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_selects_its_own_pods_on_the_node() {
        let list = list(&["one".to_owned(), "two".to_owned()], "worker", "bench:1");
        let spec = &list["items"][1]["spec"];
        assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
        assert_eq!(spec["selector"]["matchLabels"]["pinion-bench"], "two");
        assert_eq!(spec["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"], "worker");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    }
}
