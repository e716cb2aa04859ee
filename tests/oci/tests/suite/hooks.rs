//! `hooks`: their order, the state that they receive, their environment, and the effect of a failing hook.

use std::fs;

use oci_tests::{Bundle, Case, each_runtime};
use serde_json::{Value, json};

each_runtime!(
    hook_that_ignores_its_stdin,
    all_kinds_in_order,
    several_of_a_kind_in_order,
    state_on_stdin,
    statuses,
    environment_and_arguments,
    environment_of_the_caller,
    environment_of_the_process,
    working_directories,
    start_container_is_confined,
    namespaces_of_the_hooks,
    prestart_failing,
    create_runtime_failing,
    create_container_failing,
    start_container_failing,
    poststart_failing,
    poststop_failing,
    timeout,
    missing_hook,
    relative_path_is_refused,
    large_output_does_not_block,
    output_to_files,
);

const KINDS: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// Returns a hook that reads its standard input and then runs a shell script.
fn script(text: &str) -> Value {
    raw_script(&format!("cat > /dev/null; {text}"))
}

/// Returns a hook that runs a shell script, which has the state on its standard input.
fn raw_script(text: &str) -> Value {
    json!({ "path": "/bin/sh", "args": ["sh", "-c", text] })
}

/// Mounts a directory for the output of hooks on `/notes`, and returns its path on the host.
fn notes(bundle: &mut Bundle) -> String {
    let directory = bundle.directory.join("notes");
    fs::create_dir_all(&directory).expect("create a directory");
    let path = directory.to_str().expect("the path is ASCII").to_owned();
    bundle.mount("/notes", "bind", &path, &["bind", "rw"]);
    path
}

fn hook_that_ignores_its_stdin(case: &Case) {
    if case.runtime == oci_tests::Runtime::Crun {
        return; // crun fails if the hook exits before crun has written the state: a race.
    }
    for _ in 0..5 {
        let mut bundle = case.bundle();
        bundle.spec["hooks"]["createRuntime"] = json!([{ "path": "/bin/true" }]);
        case.container(bundle).run().ok();
    }
}

fn all_kinds_in_order(case: &Case) {
    let mut bundle = case.script("echo process >> /notes/order");
    let path = notes(&mut bundle);
    for kind in KINDS {
        let file = if kind == "startContainer" { "/notes".to_owned() } else { path.clone() };
        bundle.spec["hooks"][kind] = json!([script(&format!("echo {kind} >> {file}/order"))]);
    }
    let container = case.container(bundle);
    let order = || fs::read_to_string(format!("{path}/order")).unwrap_or_default();
    container.create().ok();
    assert_eq!(order().split_whitespace().collect::<Vec<_>>(), ["prestart", "createRuntime", "createContainer"]);
    let pid = container.pid();
    container.start().ok();
    container.wait(pid);
    container.delete().ok();
    let order = order();
    let mut words: Vec<&str> = order.split_whitespace().collect();
    assert_eq!(words.pop(), Some("poststop"));
    assert_eq!(words[..3], ["prestart", "createRuntime", "createContainer"]);
    assert_eq!(words.len(), 6, "{words:?}");
    let at = |word: &str| words.iter().position(|other| *other == word).expect("the hook ran");
    // The order of the process and poststart is undefined; crun does not wait for startContainer either.
    assert!(at("startContainer") < at("process"), "{words:?}");
    assert!(case.runtime == oci_tests::Runtime::Crun || at("startContainer") < at("poststart"), "{words:?}");
}

fn several_of_a_kind_in_order(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    let list: Vec<Value> = (0..5).map(|n| script(&format!("echo {n} >> {path}/order"))).collect();
    bundle.spec["hooks"]["createRuntime"] = json!(list);
    case.container(bundle).run().ok();
    assert_eq!(fs::read_to_string(format!("{path}/order")).expect("the hooks ran"), "0\n1\n2\n3\n4\n");
}

fn state_on_stdin(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    bundle.spec["annotations"] = json!({ "a.key": "its value" });
    for kind in KINDS {
        let file = if kind == "startContainer" { "/notes".to_owned() } else { path.clone() };
        bundle.spec["hooks"][kind] = json!([raw_script(&format!("cat > {file}/{kind}"))]);
    }
    let container = case.container(bundle);
    container.run().ok();
    for kind in KINDS {
        let text = fs::read_to_string(format!("{path}/{kind}")).expect("the hook ran");
        let state: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{kind}: {error}: {text:?}"));
        assert_eq!(state["id"], container.id.as_str(), "{kind}");
        assert_eq!(state["bundle"], container.bundle.directory.to_str().expect("the path is ASCII"), "{kind}");
        assert_eq!(state["annotations"]["a.key"], "its value", "{kind}");
        assert!(state["ociVersion"].is_string() && state["status"].is_string(), "{kind}: {state}");
        if ["prestart", "createRuntime", "poststart"].contains(&kind) {
            assert!(state["pid"].as_i64().is_some_and(|pid| pid > 1), "{kind}: {state}");
        }
    }
}

fn statuses(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    for kind in KINDS {
        let file = if kind == "startContainer" { "/notes".to_owned() } else { path.clone() };
        bundle.spec["hooks"][kind] = json!([raw_script(&format!("cat > {file}/{kind}"))]);
    }
    case.container(bundle).run().ok();
    let status = |kind: &str| {
        let text = fs::read_to_string(format!("{path}/{kind}")).expect("the hook ran");
        let state: Value = serde_json::from_str(&text).expect("JSON");
        state["status"].as_str().expect("status").to_owned()
    };
    // The specification requires `creating`; its validation programs and crun use `created`.
    assert!(["creating", "created"].contains(&status("createRuntime").as_str()));
    assert!(["creating", "created"].contains(&status("createContainer").as_str()));
    assert_eq!(status("poststop"), "stopped");
}

fn environment_and_arguments(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    let text =
        format!("echo \"$0 $1\" > {path}/out; env | sort | grep -v -e ^PWD -e ^SHLVL -e ^_= -e ^OLDPWD >> {path}/out");
    bundle.spec["hooks"]["createRuntime"] =
        json!([{ "path": "/bin/sh", "args": ["sh", "-c", text, "zero", "one"], "env": ["PATH=/usr/bin:/bin", "A=b"] }]);
    case.container(bundle).run().ok();
    let out = fs::read_to_string(format!("{path}/out")).expect("the hook ran");
    assert_eq!(out, "zero one\nA=b\nPATH=/usr/bin:/bin\n");
}

/// Hooks without `env` have the environment of the runtime's caller; `startContainer` hooks have that of the process.
fn environment_of_the_caller(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    for kind in KINDS.into_iter().filter(|kind| *kind != "startContainer") {
        bundle.spec["hooks"][kind] = json!([script(&format!("echo $OF_THE_CALLER > {path}/{kind}"))]);
    }
    case.container(bundle).call_with_bundle("run", &[], |call| {
        call.env("OF_THE_CALLER", "yes");
    });
    for kind in KINDS.into_iter().filter(|kind| *kind != "startContainer") {
        assert_eq!(fs::read_to_string(format!("{path}/{kind}")).expect("the hook ran"), "yes\n", "{kind}");
    }
}

fn environment_of_the_process(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    bundle.spec["process"]["env"].as_array_mut().expect("env").push(json!("OF_THE_PROCESS=yes"));
    bundle.spec["hooks"]["startContainer"] = json!([script("echo $OF_THE_PROCESS$OF_THE_CALLER > /notes/seen")]);
    case.container(bundle).call_with_bundle("run", &[], |call| {
        call.env("OF_THE_CALLER", "no");
    });
    assert_eq!(fs::read_to_string(format!("{path}/seen")).expect("the hook ran"), "yes\n");
}

/// The specification does not define the working directory of a hook; these are the ones of runc.
fn working_directories(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    bundle.spec["process"]["cwd"] = json!("/home/user");
    for kind in ["createRuntime", "createContainer"] {
        bundle.spec["hooks"][kind] = json!([script(&format!("pwd -P > {path}/{kind}"))]);
    }
    bundle.spec["hooks"]["startContainer"] = json!([script("pwd -P > /notes/startContainer")]);
    let container = case.container(bundle);
    container.run().ok();
    let output = |kind: &str| fs::read_to_string(format!("{path}/{kind}")).expect("the hook ran").trim().to_owned();
    let directory = container.bundle.directory.to_str().expect("the path is ASCII").to_owned();
    assert_eq!(output("createRuntime"), directory);
    assert_eq!(output("createContainer"), format!("{directory}/root"));
    assert_eq!(output("startContainer"), "/home/user");
}

/// A `startContainer` hook is a program of the image, so it has the restrictions of the container's process.
fn start_container_is_confined(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    bundle.spec["process"]["noNewPrivileges"] = json!(false);
    bundle.spec["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }] });
    let command = "grep -E '^(Seccomp|CapEff):' /proc/self/status > /notes/seen";
    bundle.spec["hooks"]["startContainer"] = json!([script(command)]);
    bundle.args(&["/bin/sh", "-c", &command.replace("seen", "process")]);
    case.container(bundle).run().ok();
    let output = |name: &str| fs::read_to_string(format!("{path}/{name}")).expect("the hook ran");
    assert!(output("seen").contains("Seccomp:\t2"), "{}", output("seen"));
    assert_eq!(output("seen"), output("process"));
}

fn namespaces_of_the_hooks(case: &Case) {
    let mut bundle = case.bundle();
    let path = notes(&mut bundle);
    for kind in KINDS {
        let file = if kind == "startContainer" { "/notes".to_owned() } else { path.clone() };
        bundle.spec["hooks"][kind] = json!([script(&format!("readlink /proc/self/ns/uts > {file}/{kind}; exit 0"))]);
    }
    case.container(bundle).run().ok();
    let host = fs::read_link("/proc/self/ns/uts")
        .expect("read the link of the namespace")
        .to_str()
        .expect("the path is ASCII")
        .to_owned();
    for kind in KINDS {
        let namespace = fs::read_to_string(format!("{path}/{kind}")).expect("the hook ran");
        let in_container = ["createContainer", "startContainer"].contains(&kind);
        assert_eq!(namespace.trim() != host, in_container, "{kind}: {namespace}");
    }
}

/// Runs a container with a failing hook: the error must name the hook, and nothing may be left over.
fn failing_hook(case: &Case, kind: &str) {
    let mut bundle = case.script("echo ran > /notes/ran");
    let path = notes(&mut bundle);
    bundle.spec["hooks"][kind] = json!([script("echo sorry >&2; exit 12")]);
    let container = case.container(bundle);
    container.run().error_with(&["hook", "12"]);
    container.call("state", &[]).error();
    assert!(!std::path::Path::new(&format!("{path}/ran")).exists(), "the program must not run");
    case.assert_no_leftovers();
}

fn prestart_failing(case: &Case) {
    failing_hook(case, "prestart");
}

fn create_runtime_failing(case: &Case) {
    failing_hook(case, "createRuntime");
}

fn create_container_failing(case: &Case) {
    failing_hook(case, "createContainer");
}

fn start_container_failing(case: &Case) {
    failing_hook(case, "startContainer");
}

fn poststart_failing(case: &Case) {
    // Runtime specification 1.3, runtime.md, "Lifecycle", step 9: the runtime returns an error and stops and destroys
    // the container.
    let mut bundle = case.script("sleep 1000");
    let path = notes(&mut bundle);
    bundle.spec["hooks"]["poststart"] = json!([script("exit 3"), script(&format!("echo ran > {path}/second"))]);
    bundle.spec["hooks"]["poststop"] = json!([script(&format!("echo ran > {path}/poststop"))]);
    let container = case.container(bundle);
    container.run().error_with(&["poststart", "hook", "3"]);
    case.assert_no_leftovers();
    container.create().ok();
    let pid = container.pid();
    fs::remove_file(format!("{path}/poststop")).expect("the hook ran");
    container.start().error_with(&["poststart", "hook", "3"]);
    container.wait(pid);
    if !container.call("state", &[]).stdout.is_empty() {
        container.delete().ok();
    }
    assert!(fs::exists(format!("{path}/poststop")).expect("look up a file"), "the poststop hook must run");
    assert!(!fs::exists(format!("{path}/second")).expect("look up a file"), "no hook may run after one that failed");
    case.assert_no_leftovers();
}

fn poststop_failing(case: &Case) {
    let mut bundle = case.script("exit 0");
    let path = notes(&mut bundle);
    bundle.spec["hooks"]["poststop"] = json!([script("exit 3"), script(&format!("echo second > {path}/second"))]);
    let container = case.container(bundle);
    container.create().ok();
    let pid = container.pid();
    container.start().ok();
    container.wait(pid);
    container.delete();
    container.call("state", &[]).error();
    case.assert_no_leftovers();
}

fn timeout(case: &Case) {
    let mut bundle = case.bundle();
    bundle.spec["hooks"]["createRuntime"] =
        json!([{ "path": "/bin/sh", "args": ["sh", "-c", "exec sleep 1000"], "timeout": 1 }]);
    case.container(bundle).run().error_with(&["hook", "timed out", "timeout", "time"]);
    case.assert_no_leftovers();
}

fn missing_hook(case: &Case) {
    case.assert_refused(&["/nowhere/at/all", "hook"], |bundle| {
        bundle.spec["hooks"]["createRuntime"] = json!([{ "path": "/nowhere/at/all" }]);
    });
}

fn relative_path_is_refused(case: &Case) {
    case.assert_refused(&["hook", "absolute", "bin/sh"], |bundle| {
        bundle.spec["hooks"]["createRuntime"] = json!([{ "path": "bin/sh", "args": ["sh", "-c", "exit 0"] }]);
    });
}

fn large_output_does_not_block(case: &Case) {
    let mut bundle = case.bundle();
    bundle.spec["hooks"]["createRuntime"] = json!([script("yes | head -c 1000000; yes | head -c 1000000 >&2")]);
    case.container(bundle).run().ok();
}

/// Annotations of crun; runc does not have them.
fn output_to_files(case: &Case) {
    let mut bundle = case.bundle();
    let files = ["stdout", "stderr"].map(|name| case.directory().join(name));
    for (name, file) in ["stdout", "stderr"].iter().zip(&files) {
        bundle.spec["annotations"][format!("run.oci.hooks.{name}")] = json!(file.to_str().expect("the path is ASCII"));
    }
    for kind in KINDS {
        bundle.spec["hooks"][kind] = json!([script(&format!("echo {kind}; echo of {kind} >&2"))]);
    }
    case.container(bundle).run().ok();
    let [stdout, stderr] = files.map(|file| fs::read_to_string(file).expect("the file was created"));
    for kind in KINDS {
        assert!(stdout.lines().any(|line| line == kind), "{kind}: {stdout}");
        assert!(stderr.lines().any(|line| line == format!("of {kind}")), "{kind}: {stderr}");
    }
}
