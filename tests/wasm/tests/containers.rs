//! Modules as containers, through the real daemon, monitor, registry and `crictl`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, Outcome, PodSpec, Process, Registry, wait_until};
use testbed::checkout;
use wasm_tests::{
    ARGUMENTS, DEEP, EXIT, HELLO, IDLE, LOOP, Layout, TERMINAL, TOUCH, artifact, binary, compat, http_component,
    program, read_file, slow,
};

#[path = "../../system/tests/terminal/mod.rs"]
mod terminal;

use terminal::Terminal;

const REGISTRY: &str = "127.0.0.1:5000";

/// A node with a handler for modules, a registry, and a pod.
struct WasmNode {
    node: Node,
    _registry: Registry,
    pod: PodSpec,
    pod_id: String,
}

impl WasmNode {
    fn start() -> Self {
        Self::start_with("")
    }

    /// Starts a node whose handler has further lines of configuration.
    fn start_with(lines: &str) -> Self {
        let config = format!("[handlers.wasm]\nkind = \"wasm\"\nbinary = \"{}\"\n{lines}", program().display());
        let node = Node::with(Options { config, ..Options::default() });
        let registry = Registry::start(&node);
        let pod = PodSpec::named(&node, "modules");
        let pod_id = node.run_pod(&pod);
        Self { node, _registry: registry, pod, pod_id }
    }

    /// Returns the only process that runs a module.
    fn process(&self) -> Process {
        let mut modules = self.node.processes();
        modules.retain(|process| process.name == "pinion-wasm");
        assert_eq!(modules.len(), 1);
        modules.remove(0)
    }

    /// Pushes an image to the registry, pulls it, and returns its reference.
    fn pull(&self, name: &str, layout: &Layout) -> String {
        let directory = self.node.dir.path().join(format!("layout-{name}"));
        let reference = format!("{REGISTRY}/{name}:1");
        layout.write(&directory, &reference);
        let script = checkout("scripts/push-image");
        let directory = directory.to_str().expect("UTF-8");
        self.node.run(script.to_str().expect("UTF-8"), &[directory, REGISTRY, name, "1"]).ok();
        self.node.crictl(&["pull", &reference]).ok();
        reference
    }

    fn spec(&self, name: &str, image: &str, arguments: &[&str]) -> ContainerSpec {
        let mut spec = ContainerSpec::new(name, image, &[]);
        spec.0["args"] = json!(arguments);
        spec
    }

    fn run(&self, spec: &ContainerSpec) -> String {
        self.node.run_container(&self.pod_id, &self.pod, spec)
    }

    fn create(&self, spec: &ContainerSpec) -> Outcome {
        self.node.create_container(&self.pod_id, &self.pod, spec)
    }

    fn status(&self, id: &str) -> Value {
        self.node.crictl(&["inspect", id]).json()["status"].clone()
    }

    /// Waits until a container has exited, and returns its exit code and log.
    fn finish(&self, id: &str) -> (i64, String) {
        wait_until("the container has exited", || self.status(id)["state"] == "CONTAINER_EXITED");
        let code = self.status(id)["exitCode"].as_i64().expect("an exit code");
        (code, self.node.crictl(&["logs", id]).ok())
    }

    /// Returns the compiled code in the cache.
    fn code(&self) -> Vec<PathBuf> {
        let root = self.node.dir.path().join("data/wasm");
        let versions = fs::read_dir(root).into_iter().flatten().flatten();
        let files = versions.flat_map(|version| fs::read_dir(version.path()).into_iter().flatten().flatten());
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|name| name == "cwasm")).collect()
    }

    fn end(self) {
        self.node.remove_all_pods();
        self.node.end();
    }
}

#[test]
fn an_image_with_a_module_is_run_by_its_annotation_and_compiled_once() {
    let wasm = WasmNode::start();
    let image = wasm.pull("hello", &compat(&binary(HELLO), "compat"));
    let id = wasm.run(&wasm.spec("first", &image, &[]));
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()));
    assert!(wasm.node.pinion(&["why", &id]).ok().contains("compile the module"));
    assert_eq!(wasm.code().len(), 1);
    let id = wasm.run(&wasm.spec("second", &image, &[]));
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()));
    assert!(!wasm.node.pinion(&["why", &id]).ok().contains("compile the module"), "it is compiled already");
    wasm.end();
}

#[test]
fn modules_have_arguments_files_exit_codes_and_signals_like_programs() {
    let wasm = WasmNode::start();
    let run = |name: &str, module: &str, arguments: &[&str]| {
        let image = wasm.pull(name, &compat(&binary(module), "compat"));
        wasm.run(&wasm.spec(name, &image, arguments))
    };
    assert_eq!(wasm.finish(&run("exit", EXIT, &[])).0, 42);
    assert_eq!(wasm.finish(&run("arguments", ARGUMENTS, &["a", "b"])).1.replace('\0', "|"), "/app.wasm|a|b|");
    assert_eq!(wasm.finish(&run("file", &read_file("etc/greeting"), &[])), (0, "hello from a file".to_owned()));
    let (code, log) = wasm.finish(&run("process", &read_file("proc/self/maps"), &[]));
    assert_eq!((code, log.as_str()), (44, ""), "/proc is hidden");
    let (code, _) = wasm.finish(&run("outside", &read_file("../etc/hostname"), &[]));
    assert!(matches!(code, 63 | 76), "{code}");
    assert_eq!(wasm.finish(&run("deep", DEEP, &[])).0, 134);

    let id = run("loop", LOOP, &[]);
    wasm.node.crictl(&["exec", "-s", &id, "/bin/true"]).error();
    let start = Instant::now();
    wasm.node.crictl(&["stop", "--timeout", "15", &id]).ok();
    assert!(start.elapsed().as_secs() < 12, "SIGTERM ended it");
    assert_eq!(wasm.finish(&id).0, 143);
    wasm.end();
}

#[test]
fn an_artifact_runs_without_an_annotation_and_next_to_a_program() {
    let wasm = WasmNode::start();
    let image = wasm.pull("artifact", &artifact(&binary(HELLO)));
    let id = wasm.run(&wasm.spec("module", &image, &[]));
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()));
    let program = format!("{REGISTRY}/demo:1");
    wasm.node.crictl(&["pull", &program]).ok();
    let id = wasm.run(&ContainerSpec::new("program", &program, &["sh", "-c", "echo from a program"]));
    assert_eq!(wasm.finish(&id), (0, "from a program".to_owned()));
    wasm.end();
}

#[test]
fn the_runtime_class_runs_modules_and_programs_by_their_content() {
    let mut wasm = WasmNode::start();
    let image = wasm.pull("plain", &compat(&binary(HELLO), ""));
    let error = {
        let id = wasm.create(&wasm.spec("default", &image, &[])).ok();
        wasm.node.crictl(&["start", &id]).error()
    };
    assert!(error.contains("/app.wasm"), "not a program of this machine: {error}");
    wasm.pod = PodSpec::named(&wasm.node, "class");
    let file = wasm.node.file("class.json", &wasm.pod.0);
    wasm.pod_id = wasm.node.crictl(&["runp", "--runtime", "wasm", &file]).ok();
    let id = wasm.run(&wasm.spec("module", &image, &[]));
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()));
    let program = format!("{REGISTRY}/demo:1");
    wasm.node.crictl(&["pull", &program]).ok();
    let id = wasm.run(&ContainerSpec::new("program", &program, &["sh", "-c", "echo from a program"]));
    assert_eq!(wasm.finish(&id).1, "from a program");
    wasm.end();
}

#[test]
fn a_module_that_uses_too_much_memory_is_killed_alone() {
    let wasm = WasmNode::start();
    let idle = wasm.pull("idle", &compat(&binary(IDLE), "compat"));
    let other = wasm.run(&wasm.spec("other", &idle, &[]));
    let image = wasm.pull("touch", &compat(&binary(TOUCH), "compat"));
    let mut spec = wasm.spec("touch", &image, &[]);
    spec.0["linux"]["resources"] = json!({"memory_limit_in_bytes": 64 << 20});
    let id = wasm.run(&spec);
    assert_eq!(wasm.finish(&id).0, 137);
    assert_eq!(wasm.status(&id)["reason"], "OOMKilled");
    assert_eq!(wasm.status(&other)["state"], "CONTAINER_RUNNING");
    wasm.end();
}

#[test]
fn an_http_component_answers_in_the_network_of_its_pod() {
    let wasm = WasmNode::start();
    let image = wasm.pull("http", &artifact(&binary(&http_component(418))));
    let id = wasm.run(&wasm.spec("http", &image, &[]));
    let pod = wasm.node.crictl(&["inspectp", &wasm.pod_id]).json();
    let address = pod["status"]["network"]["ip"].as_str().expect("an address").to_owned();
    let url = format!("http://{address}:8080/");
    let get = || wasm.node.run("curl", &["-s", "-o", "/dev/null", "-w", "%{http_code}", &url]).stdout;
    wait_until("the component answers", || get() == "418");
    wasm.node.crictl(&["stop", "--timeout", "15", &id]).ok();
    assert_eq!(wasm.finish(&id).0, 143);
    wasm.end();
}

#[test]
fn compiled_code_is_removed_with_its_image() {
    let wasm = WasmNode::start();
    let image = wasm.pull("hello", &compat(&binary(HELLO), "compat"));
    let id = wasm.run(&wasm.spec("hello", &image, &[]));
    assert_eq!((wasm.finish(&id).0, wasm.code().len()), (0, 1));
    wasm.node.remove_all_pods();
    wasm.node.crictl(&["rmi", &image]).ok();
    // The reconciler runs every 60 s.
    testbed::wait_until("the code is removed", Duration::from_secs(100), || wasm.code().is_empty());
    wasm.end();
}

#[test]
fn a_hundred_modules_share_their_code() {
    const COUNT: usize = 100;
    let wasm = WasmNode::start();
    let image = wasm.pull("idle", &compat(&binary(IDLE), "compat"));
    for number in 0..COUNT {
        wasm.run(&wasm.spec(&format!("idle-{number}"), &image, &[]));
    }
    let modules: Vec<_> = wasm.node.processes().into_iter().filter(|process| process.name == "pinion-wasm").collect();
    assert_eq!(modules.len(), COUNT);
    let mut kib: Vec<u64> =
        modules.iter().filter_map(|process| process.memory()).map(|memory| memory.proportional).collect();
    kib.sort_unstable();
    println!("PSS of {} modules: median {} KiB, maximum {} KiB", kib.len(), kib[kib.len() / 2], kib[kib.len() - 1]);
    assert_eq!(wasm.code().len(), 1);
    wasm.end();
}

/// Prints how long `pinion run` takes until the first output and until it returns; what is asserted is only that the
/// containers ran.
#[test]
fn the_warm_start_of_a_module_is_measured_next_to_that_of_a_program() {
    const ROUNDS: usize = 50;
    let wasm = WasmNode::start();
    let module = wasm.pull("hello", &compat(&binary(HELLO), "compat"));
    let image = format!("{REGISTRY}/demo:1");
    wasm.node.crictl(&["pull", &image]).ok();
    let pinion = program().with_file_name("pinion");
    let run = |arguments: &[&str]| {
        let mut command = wasm.node.command(pinion.to_str().expect("UTF-8"));
        command.args(["run", "--rm", "--network", "host"]).args(arguments).stdout(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn().expect("start pinion");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("read the output");
        let first = start.elapsed();
        assert!(child.wait().expect("wait").success() && line.starts_with("hello from a "), "{line}");
        [first, start.elapsed()]
    };
    let commands = [vec![module.as_str()], vec![image.as_str(), "echo", "hello from a program"]];
    let cold = commands.each_ref().map(|command| run(command));
    println!("first start: module {:?}, program {:?}", cold[0], cold[1]);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        commands.iter().zip(&mut times).for_each(|(command, times)| times.push(run(command)));
    }
    for (name, times) in ["module", "program"].iter().zip(&times) {
        for (index, event) in ["first output", "return"].iter().enumerate() {
            let mut times: Vec<Duration> = times.iter().map(|time| time[index]).collect();
            times.sort_unstable();
            println!("{name}, {event}: median {:?}, minimum {:?}", times[ROUNDS / 2], times[0]);
        }
    }
    wasm.end();
}

#[test]
fn what_is_not_a_module_is_refused_at_creation() {
    let wasm = WasmNode::start();
    let image = wasm.pull("broken", &compat(b"\0asm\x01\0\0\0\xff\xff", "compat"));
    let error = wasm.create(&wasm.spec("broken", &image, &[])).error();
    assert!(error.contains("compile the WebAssembly module"), "{error}");
    let image = wasm.pull("script", &compat(b"#!/bin/sh\n", "compat"));
    let error = wasm.create(&wasm.spec("script", &image, &[])).error();
    assert!(error.contains("is not a WebAssembly module"), "{error}");
    assert_eq!(wasm.code(), Vec::<PathBuf>::new());
    wasm.end();
}

#[test]
fn a_signal_ends_a_looping_module_at_once_with_its_exit_code() {
    let wasm = WasmNode::start();
    let image = wasm.pull("loop", &compat(&binary(LOOP), "compat"));
    for (name, signal, code) in [("usr1", "USR1", 138), ("term", "TERM", 143), ("kill", "KILL", 137)] {
        let id = wasm.run(&wasm.spec(name, &image, &[]));
        let process = wasm.process();
        wait_until("the module handles signals", || {
            fs::read_dir(process.directory.join("task")).is_ok_and(|threads| threads.count() > 1)
        });
        let start = Instant::now();
        wasm.node.pinion(&["kill", "--signal", signal, &id]).ok();
        assert_eq!(wasm.finish(&id).0, code, "{signal}");
        assert!(start.elapsed() < Duration::from_secs(5), "{signal} took {:?}", start.elapsed());
    }
    wasm.end();
}

#[test]
fn a_module_has_a_terminal() {
    let wasm = WasmNode::start();
    let image = wasm.pull("terminal", &compat(&binary(TERMINAL), "compat"));
    let pinion = program().with_file_name("pinion");
    let line = format!("{} run --rm -it --network host {image}", pinion.display());
    let mut terminal = Terminal::run(&wasm.node, &line);
    terminal.see("ready");
    terminal.type_in("a line\r");
    terminal.see("got a line");
    assert_eq!(terminal.end(), Some(2), "standard input is a character device");
    wasm.end();
}

#[test]
fn a_module_runs_in_the_user_namespace_of_its_pod() {
    let mut wasm = WasmNode::start();
    let volume = wasm.node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    fs::write(volume.join("file"), "content\n").expect("a file");
    let ids = json!([{"host_id": 200_000, "container_id": 0, "length": 65536}]);
    let context = json!({"namespace_options": {"pid": 1, "userns_options": {"mode": 0, "uids": ids, "gids": ids}}});
    wasm.pod = PodSpec::named(&wasm.node, "mapped");
    wasm.pod.0["linux"]["security_context"] = context.clone();
    wasm.pod_id = wasm.node.run_pod(&wasm.pod);
    let spec = |name: &str, module: &str| {
        let image = wasm.pull(name, &compat(&binary(module), "compat"));
        let mut spec = wasm.spec(name, &image, &[]);
        spec.0["mounts"] =
            json!([{"host_path": volume, "container_path": "/volume", "uidMappings": ids, "gidMappings": ids}]);
        spec.0["linux"]["security_context"] = context.clone();
        spec
    };
    let id = wasm.run(&spec("file", &read_file("volume/file")));
    assert_eq!(wasm.finish(&id), (0, "content".to_owned()));
    wasm.run(&spec("idle", IDLE));
    let status = fs::read_to_string(wasm.process().directory.join("status")).expect("read the status");
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("user ids");
    assert!(uids.split_whitespace().all(|uid| uid == "200000"), "{uids}");
    wasm.end();
}

#[test]
fn a_module_that_cannot_be_compiled_in_time_is_refused_at_once_afterwards_and_delays_no_other_pod() {
    let wasm = WasmNode::start_with("compile_timeout = \"5s\"\n");
    let image = wasm.pull("slow", &compat(&binary(&slow(3000)), "compat"));
    let hello = wasm.pull("hello", &compat(&binary(HELLO), "compat"));
    let other = PodSpec::named(&wasm.node, "other");
    let other_id = wasm.node.run_pod(&other);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let start = Instant::now();
            (wasm.create(&wasm.spec("slow", &image, &[])).error(), start.elapsed())
        });
        wait_until("the module is being compiled", || {
            wasm.node.processes().iter().any(|process| {
                fs::read_to_string(process.directory.join("cmdline")).is_ok_and(|line| line.contains("\0compile\0"))
            })
        });
        let start = Instant::now();
        wasm.node.create_container(&other_id, &other, &wasm.spec("hello", &hello, &[])).ok();
        assert!(start.elapsed() < Duration::from_secs(4), "the other pod waited {:?}", start.elapsed());
        let (error, time) = slow.join().expect("no panic");
        assert!(error.contains("compile the WebAssembly module: "), "{error}");
        assert!(time > Duration::from_secs(2), "{time:?}: {error}");
    });
    let start = Instant::now();
    let error = wasm.create(&wasm.spec("again", &image, &[])).error();
    assert!(error.contains("it is compiled again in "), "{error}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    wasm.end();
}

#[test]
fn a_module_in_a_volume_is_the_one_that_runs() {
    let wasm = WasmNode::start();
    let image = wasm.pull("exit", &compat(&binary(EXIT), "compat"));
    let directory = wasm.node.dir.path().join("volume");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("app.wasm"), binary(HELLO)).expect("the module");
    let mut spec = wasm.spec("volume", &image, &[]);
    spec.0["command"] = json!(["/data/./app.wasm"]);
    spec.0["mounts"] = json!([{"container_path": "/data", "host_path": directory, "readonly": true}]);
    let id = wasm.run(&spec);
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()));
    let mut spec = wasm.spec("over", &image, &[]);
    spec.0["mounts"] = json!([{"container_path": "/app.wasm", "host_path": directory.join("app.wasm")}]);
    let id = wasm.run(&spec);
    assert_eq!(wasm.finish(&id), (0, "hello from a module".to_owned()), "the module of the image is hidden");
    wasm.end();
}

#[test]
fn a_handler_without_its_program_is_refused_with_the_pod() {
    let missing = "/nonexistent/pinion-wasm";
    let config = format!("[handlers.wasm]\nkind = \"wasm\"\nbinary = \"{missing}\"\n");
    let node = Node::with(Options { config, ..Options::default() });
    let pod = PodSpec::named(&node, "modules");
    let file = node.file("pod.json", &pod.0);
    let error = node.crictl(&["runp", "--runtime", "wasm", &file]).error();
    assert!(error.contains(missing) && error.contains("install pinion-wasm"), "{error}");
    let listed = node.pinion(&["handlers"]).ok();
    assert!(listed.contains("install pinion-wasm"), "{listed}");
    node.end();
}

#[test]
fn a_check_of_the_handler_runs_a_module() {
    let wasm = WasmNode::start();
    let report = wasm.node.pinion(&["--json", "handlers", "check", "wasm"]).json();
    let steps = report["steps"].as_array().expect("steps");
    let module = steps.iter().find(|step| step["step"] == "WebAssembly module");
    assert!(module.is_some_and(|step| step["ok"] == true), "{report:#}");
    wasm.end();
}

#[test]
fn a_full_disk_is_not_a_fault_of_the_module() {
    // The directory of the node is mounted in its namespaces, and so is what is mounted in it.
    let wasm = WasmNode::start();
    let image = wasm.pull("hello", &compat(&binary(HELLO), "compat"));
    let spec = wasm.spec("first", &image, &[]);
    // The first request creates the directory.
    let id = wasm.run(&spec);
    wasm.finish(&id);
    let cache = wasm.code()[0].parent().expect("a directory").to_owned();
    let cache = cache.to_str().expect("UTF-8");
    wasm.node.run("mount", &["-t", "tmpfs", "-o", "size=4k", "tmpfs", cache]).ok();
    let other = wasm.pull("exit", &compat(&binary(EXIT), "compat"));
    let error = wasm.create(&wasm.spec("second", &other, &[])).error();
    assert!(error.contains("No space left on device"), "{error}");
    wasm.node.run("umount", &[cache]).ok();
    let id = wasm.run(&wasm.spec("second", &other, &[]));
    assert_eq!(wasm.finish(&id).0, 42);
    wasm.end();
}
