//! Containers that cannot be started: what the kubelet shows of them is what `pinion why` shows.

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, PodSpec, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";

/// Where a container fails.
enum Fails {
    /// `CreateContainer` returns an error, and the container does not exist.
    Create,
    /// `StartContainer` returns an error, and the container has exited with this reason.
    Start(&'static str),
    /// The container exits with this reason after it was started.
    Run(&'static str),
}

struct Case {
    name: &'static str,
    command: &'static [&'static str],
    /// Members of the configuration of the container.
    config: Value,
    fails: Fails,
    /// What the message names.
    names: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let case = |name, command, config, fails, names| Case { name, command, config, fails, names };
    let sleep: &[&str] = &["sleep", "1000"];
    let context = |context: Value| json!({"linux": {"security_context": context}});
    let mount = json!({"mounts": [{"host_path": "/dev/null/volume", "container_path": "/volume"}]});
    let profile = |kind: &str| context(json!({kind: {"profile_type": 2, "localhost_ref": "/missing-profile"}}));
    let memory = |bytes: u64| json!({"linux": {"resources": {"memory_limit_in_bytes": bytes}}});
    vec![
        case("missing", &["/bin/missing"], json!({}), Fails::Start("StartError"), &["/bin/missing", "no such file"]),
        case("unlisted", &["missing"], json!({}), Fails::Start("StartError"), &["missing", "not found"]),
        case("text", &["/etc/passwd"], json!({}), Fails::Start("StartError"), &["/etc/passwd", "not an executable"]),
        case("directory", &["/etc"], json!({}), Fails::Start("StartError"), &["/etc", "directory"]),
        case("cwd", sleep, json!({"working_dir": "/etc/passwd/x"}), Fails::Start("StartError"), &["/etc/passwd/x"]),
        case("user", sleep, context(json!({"run_as_username": "absent"})), Fails::Create, &["absent"]),
        case("mount", sleep, mount, Fails::Create, &["/dev/null/volume"]),
        case("seccomp", sleep, profile("seccomp"), Fails::Create, &["seccomp", "/missing-profile"]),
        case("apparmor", sleep, profile("apparmor"), Fails::Create, &["missing-profile"]),
        case("tiny", sleep, memory(4096), Fails::Create, &["memory limit is too low"]),
        case(
            "small",
            &["tail", "-c", "40000000", "/dev/zero"],
            memory(4 << 20),
            Fails::Run("OOMKilled"),
            &["out of memory"],
        ),
    ]
}

/// Returns what `pinion why` knows about a container, by its name.
fn why(node: &Node, name: &str) -> Value {
    let objects = node.pinion(&["why", "--json", name]).json();
    assert_eq!(objects.as_array().map(Vec::len), Some(1), "{objects}");
    objects[0].clone()
}

#[test]
fn reason_and_message_of_a_container_that_cannot_start_are_those_of_why() {
    let node = Node::start();
    node.load_image();
    let pod = PodSpec::named(&node, "p");
    let pod_id = node.run_pod(&pod);
    let mut wrong = Vec::new();
    for case in cases() {
        let mut spec = ContainerSpec::new(case.name, IMAGE, case.command);
        for (key, value) in case.config.as_object().expect("an object") {
            spec.0[key] = value.clone();
        }
        let created = node.create_container(&pod_id, &pod, &spec);
        let status = |id: &str| node.crictl(&["inspect", id]).json()["status"].clone();
        // What the kubelet receives: an error of a request, or reason and message of an exited container.
        let (error, status, reason) = match case.fails {
            Fails::Create => (Some(created.error()), None, ""),
            Fails::Start(reason) => {
                let id = created.ok();
                (Some(node.crictl(&["start", &id]).error()), Some(status(&id)), reason)
            }
            Fails::Run(reason) => {
                let id = created.ok();
                node.crictl(&["start", &id]).ok();
                wait_until("the container exits", || status(&id)["state"] == "CONTAINER_EXITED");
                (None, Some(status(&id)), reason)
            }
        };
        let why = why(&node, case.name);
        let failure = why["failure"].as_str().unwrap_or_default();
        if failure.is_empty() || !case.names.iter().all(|name| failure.contains(name)) {
            wrong.push(format!("{}: why: {failure}", case.name));
        }
        // crictl escapes quotes.
        if let Some(error) = error.map(|error| error.replace('\\', ""))
            && !error.contains(failure)
        {
            wrong.push(format!("{}: why: {failure}; error: {error}", case.name));
        }
        if let Some(status) = status {
            let expected = json!(["CONTAINER_EXITED", reason, failure]);
            let shown = json!([status["state"], status["reason"], status["message"]]);
            if shown != expected {
                wrong.push(format!("{}: {shown}, not {expected}", case.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    node.remove_all_pods();
    node.end();
}
