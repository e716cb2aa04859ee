//! Containers of containerd-shim-runc-v2, which `RUNC_SHIM` names: what those of the test shim lack, namespaces, cgroups,
//! terminals and input. `tests/external/shims` runs it.

mod shim;
mod terminal;

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::json;
use shim::{IMAGE, Shim, check_gone, node, node_with, run_pod, state};
use system_tests::{ContainerSpec, PodSpec, wait_until};
use terminal::Terminal;

#[test]
fn a_shim_gets_what_the_pod_requests() {
    let path = env::var_os("RUNC_SHIM").expect("RUNC_SHIM names containerd-shim-runc-v2");
    let shims = [Shim { name: "runc-v2", binary: path.into() }];
    let node = node(&shims);
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::write(volume.join("file"), "content\n").expect("a file");
    for shim in &shims {
        let pod = PodSpec::named(&node, shim.name);
        let pod_id = run_pod(&node, &pod, shim.name).ok();
        let script = "cat /volume/file; hostname; id -u; grep Seccomp: /proc/self/status; \
                      trap 'echo stopping; exit 7' TERM; while :; do sleep 0.1; done";
        let mut spec = ContainerSpec::new("web", IMAGE, &["sh", "-c", script]);
        spec.0["mounts"] = json!([{"host_path": volume, "container_path": "/volume", "readonly": true}]);
        spec.0["envs"] = json!([{"key": "GREETING", "value": "hello"}]);
        spec.0["linux"]["resources"] = json!({"memory_limit_in_bytes": 64 << 20});
        let id = node.run_container(&pod_id, &pod, &spec);
        let exec = |command: &[&str]| node.crictl(&[&["exec", "-s", &id], command].concat());
        assert_eq!(exec(&["sh", "-c", "echo $GREETING; cat /volume/file"]).ok(), "hello\ncontent");
        exec(&["sh", "-c", "echo x > /volume/new"]).error();
        node.crictl(&["update", "--memory", &(96 << 20).to_string(), &id]).ok();
        let stats = node.crictl(&["stats", "-o", "json", &id]).json();
        assert!(stats["stats"][0]["memory"]["workingSetBytes"]["value"].is_string(), "{stats}");
        node.crictl(&["stop", "--timeout", "10", &id]).ok();
        assert_eq!(state(&node, &id).1, Some(7));
        let log = node.crictl(&["logs", &id]).ok();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.first_chunk(), Some(&["content", shim.name, "0"]), "{log}");
        assert_eq!(lines.last(), Some(&"stopping"), "{log}");

        let eater = "head -c 200m /dev/zero | tail -c 200m > /dev/null";
        let mut spec = ContainerSpec::new("eater", IMAGE, &["sh", "-c", eater]);
        spec.0["linux"]["resources"] =
            json!({"memory_limit_in_bytes": 32 << 20, "memory_swap_limit_in_bytes": 32 << 20});
        let id = node.run_container(&pod_id, &pod, &spec);
        wait_until("it exits", || state(&node, &id).0 == "CONTAINER_EXITED");
        assert_eq!(node.crictl(&["inspect", &id]).json()["status"]["reason"], "OOMKilled");
        node.crictl(&["rmp", "-f", &pod_id]).ok();

        let pinion = PathBuf::from(env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinion");
        let script = "tty; stty size; read line; echo got $line";
        let line = format!("{} run --rm -it --runtime {} {IMAGE} sh -c '{script}'", pinion.display(), shim.name);
        let mut terminal = Terminal::run(&node, &line);
        terminal.see("/dev/pts/0");
        terminal.type_in("words\n");
        terminal.see("got words");
        assert_eq!(terminal.end(), Some(0));
        check_gone(&node);
    }
    node.end();
}

#[test]
fn a_pod_of_a_shim_has_a_user_namespace_and_read_only_mounts_if_its_runtime_supports_them() {
    let path = env::var_os("RUNC_SHIM").expect("RUNC_SHIM names containerd-shim-runc-v2");
    let runc = env::var("RUNC").expect("RUNC names runc 1.2 or newer");
    let node = node_with(&format!(
        "[handlers.runc-v2]\nkind = \"shim\"\nbinary = \"{}\"\noptions = {{ binary_name = \"{runc}\" }}\n",
        path.to_string_lossy()
    ));
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).expect("chmod");
    let mut pod = PodSpec::named(&node, "mapped");
    let ids = json!([{"host_id": 100_000, "container_id": 0, "length": 65_536}]);
    let namespaces = json!({"pid": 1, "userns_options": {"mode": 0, "uids": ids, "gids": ids}});
    pod.0["linux"] = json!({"security_context": {"namespace_options": namespaces}});
    let pod_id = run_pod(&node, &pod, "runc-v2").ok();
    let mut spec = ContainerSpec::new("web", IMAGE, &["sleep", "1000"]);
    spec.0["linux"]["security_context"] = json!({"namespace_options": namespaces});
    spec.0["mounts"] =
        json!([{"host_path": volume, "container_path": "/volume", "readonly": true, "recursive_read_only": true}]);
    let id = node.run_container(&pod_id, &pod, &spec);
    let exec = |script: &str| node.crictl(&["exec", "-s", &id, "sh", "-c", script]);
    assert_eq!(exec("awk '{print $1, $2, $3}' /proc/self/uid_map").ok(), "0 100000 65536");
    assert_eq!(exec("id -u; stat -c %u /; touch /file").ok(), "0\n0");
    let error = exec("touch /volume/file").error();
    assert!(error.contains("Read-only file system"), "{error}");
    node.crictl(&["rmp", "-f", &pod_id]).ok();
    check_gone(&node);
    node.end();
}
