//! Hooks of the runtime specification, run by a real monitor: order, namespaces, state, and that they do not delay
//! other containers.

mod node;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use monitor_api::{Attachments, Create, Failure, Reply, Request, Role};
use node::{Node, PATIENCE};
use testbed::wait_until;

/// Creates a hook that runs the script `text`, and returns its entry of the spec.
fn hook(node: &Node, name: &str, text: &str) -> oci::Hook {
    let path = node.state.path().join(format!("hook-{name}"));
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("write a hook");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    oci::Hook { path: path.to_str().expect("text").into(), ..oci::Hook::default() }
}

fn bundle(node: &Node, id: &str) -> PathBuf {
    let bundle = node.state.path().join(format!("bundle-{id}"));
    fs::create_dir_all(bundle.join("rootfs")).expect("mkdir");
    bundle
}

/// Sends the `Create` of a container, and returns its sequence number.
fn create(node: &mut Node, id: &str, hooks: oci::Hooks, args: &[&str]) -> u64 {
    let bundle = bundle(node, id);
    let spec = oci::Spec { hooks: Some(hooks), ..node.spec(id, args) };
    let create = Create {
        container: id.into(),
        sandbox: "pod".into(),
        spec,
        log: Default::default(),
        bundle: bundle.to_str().expect("text").into(),
        mounts: None,
        runtime: None,
        external: false,
        interpreter: None,
    };
    let attachments = node.output(id).with(Role::Rootfs, node.rootfs());
    node.send(Request::Create(Box::new(create)), &attachments)
}

fn created(answer: Result<(Reply, Attachments), Failure>) -> (u32, Attachments) {
    match answer.expect("created") {
        (Reply::Created(created), files) => (created.pid, files),
        other => panic!("unexpected: {other:?}"),
    }
}

fn read_file(node: &Node, name: &str) -> String {
    fs::read_to_string(node.state.path().join(name)).unwrap_or_default()
}

#[test]
fn each_hook_runs_at_its_point_in_its_namespaces() {
    let mut node = Node::start();
    let dir = node.state.path().display().to_string();
    // The script of a hook is on the node; inside the container the hook is a program of the image.
    let note = |name: &str| {
        format!("echo {name} >> {dir}/order; cat > {dir}/state-{name}; readlink /proc/self/ns/mnt > {dir}/mnt-{name}")
    };
    let inside = oci::Hook {
        path: "/bin/sh".into(),
        args: ["sh", "-c", "echo started > /tmp/start"].map(str::to_owned).to_vec(),
        ..oci::Hook::default()
    };
    let hooks = oci::Hooks {
        prestart: vec![hook(&node, "prestart", &note("prestart"))],
        create_runtime: vec![hook(&node, "runtime", &note("runtime"))],
        create_container: vec![hook(
            &node,
            "container",
            &format!("{}; ls {dir}/bundle-c/rootfs > {dir}/seen", note("container")),
        )],
        start_container: vec![inside],
        poststart: vec![hook(&node, "poststart", &note("poststart"))],
        poststop: vec![hook(&node, "poststop", &note("poststop"))],
    };
    let seq = create(&mut node, "c", hooks, &["sh", "-c", "cat /tmp/start; exec sleep 1000"]);
    let (pid, _files) = created(node.answer(seq));
    assert_eq!(read_file(&node, "order"), "prestart\nruntime\ncontainer\n");
    node.start_container("c").expect("start");
    assert_eq!(read_file(&node, "order"), "prestart\nruntime\ncontainer\npoststart\n");
    node.wait_for_entry("c", "stdout F started");
    node.delete("c");
    assert_eq!(read_file(&node, "order"), "prestart\nruntime\ncontainer\npoststart\npoststop\n");

    let own_namespace = fs::read_link("/proc/self/ns/mnt").expect("own namespace").display().to_string();
    for (name, status, of) in [
        ("prestart", "created", pid),
        ("runtime", "creating", pid),
        ("container", "creating", pid),
        ("poststart", "running", pid),
        ("poststop", "stopped", 0),
    ] {
        let state: oci::State = serde_json::from_str(&read_file(&node, &format!("state-{name}"))).expect("a state");
        assert_eq!((state.id.as_str(), state.pid), ("c", of as i32), "{name}");
        assert!(state.bundle.ends_with("/bundle-c"), "{name}: {}", state.bundle);
        assert_eq!(serde_json::to_value(state.status).expect("JSON"), status, "{name}");
        let on_the_node = read_file(&node, &format!("mnt-{name}")).trim() == own_namespace;
        assert_eq!(on_the_node, name != "container", "{name}");
    }
    assert!(
        read_file(&node, "seen").contains("bin"),
        "createContainer sees the container's root: {}",
        read_file(&node, "seen")
    );
    assert_eq!(
        fs::read_dir(node.state.path().join("bundle-c/rootfs")).expect("rootfs").count(),
        0,
        "the node does not see it"
    );
    node.end();
}

#[test]
fn a_hook_that_sleeps_delays_no_other_container() {
    let mut node = Node::start();
    let dir = node.state.path().display().to_string();
    let script = || format!("echo $$ > {dir}/sleeper; exec sleep 100000");
    let hooks = oci::Hooks { create_runtime: vec![hook(&node, "sleeps", &script())], ..oci::Hooks::default() };
    let creation = create(&mut node, "slow", hooks, &["true"]);
    node.run("quick", &["true"]);
    assert_eq!(node.wait("quick").code, Some(0));
    node.delete("quick");
    // A container that is deleted during its creation has its hook killed.
    wait_until("the hook runs", PATIENCE, || !read_file(&node, "sleeper").is_empty());
    let pid: i32 = read_file(&node, "sleeper").trim().parse().expect("a pid");
    let delete = node.send(Request::Delete { container: "slow".into() }, &Attachments::new());
    let failure = node.answer(creation).expect_err("deleted");
    node.answer(delete).expect("deleted");
    assert!(failure.message.contains("slow"), "{failure:?}");
    wait_until("the hook is killed", PATIENCE, || !std::path::Path::new(&format!("/proc/{pid}/cwd")).exists());

    let late = oci::Hook { timeout: Some(1), ..hook(&node, "late", "exec sleep 100000") };
    let hooks = oci::Hooks { create_runtime: vec![late], ..oci::Hooks::default() };
    let seq = create(&mut node, "late", hooks, &["true"]);
    let failure = node.answer(seq).expect_err("timed out");
    assert!(failure.message.contains("hooks.createRuntime[0]") && failure.message.contains("1 s"), "{failure:?}");
    node.end();
}

#[test]
fn a_hook_that_fails_aborts_the_creation_and_poststop_runs() {
    let mut node = Node::start();
    let dir = node.state.path().display().to_string();
    for (name, hooks) in [
        (
            "runtime",
            oci::Hooks { create_runtime: vec![hook(&node, "fails", "echo why >&2; exit 3")], ..oci::Hooks::default() },
        ),
        (
            "container",
            oci::Hooks {
                create_container: vec![hook(&node, "fails", "echo why >&2; exit 3")],
                ..oci::Hooks::default()
            },
        ),
    ] {
        let poststop = vec![hook(&node, "after", &format!("echo {name} > {dir}/after"))];
        let seq = create(&mut node, name, oci::Hooks { poststop, ..hooks }, &["true"]);
        let failure = node.answer(seq).expect_err("refused");
        assert!(failure.message.contains("exit code 3") && failure.message.contains("why"), "{failure:?}");
        assert_eq!(read_file(&node, "after"), format!("{name}\n"));
        assert!(node.inventory().is_empty());
    }
    node.end();
}

#[test]
fn a_poststart_hook_that_fails_kills_the_container() {
    let mut node = Node::start();
    let hooks = oci::Hooks { poststart: vec![hook(&node, "fails", "echo why >&2; exit 3")], ..oci::Hooks::default() };
    let seq = create(&mut node, "c", hooks, &["sleep", "1000"]);
    created(node.answer(seq));
    let failure = node.start_container("c").expect_err("its hook failed");
    assert!(failure.message.contains("exit code 3") && failure.message.contains("why"), "{failure:?}");
    assert_eq!(node.wait("c").signal, Some(9));
    node.delete("c");
    node.end();
}

#[test]
fn poststop_runs_after_the_monitor_was_replaced() {
    let mut node = Node::start();
    let dir = node.state.path().display().to_string();
    let hooks =
        oci::Hooks { poststop: vec![hook(&node, "after", &format!("cat > {dir}/after"))], ..oci::Hooks::default() };
    let seq = create(&mut node, "c", hooks, &["sleep", "1000"]);
    let (_, files) = created(node.answer(seq));
    node.start_container("c").expect("start");
    let (holding, _) = node.inventory().remove("c").expect("held");
    assert!(holding.container.hooks.is_some());
    node.replace_monitor();
    let adopt = Request::Adopt(monitor_api::Adopt { holding });
    node.request(adopt, files).expect("adopted");
    node.delete("c");
    assert!(read_file(&node, "after").contains("stopped"));
    node.end_after_kills();
}
