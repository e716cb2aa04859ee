//! Commands that are not about one container (list, spec, features), logs, error messages and invalid specs.

use std::fs;

use oci_tests::{Bundle, Case, Runtime, change, each_runtime};
use serde_json::{Value, json};

each_runtime!(
    messages_are_short,
    version_has_a_commit,
    debug_logs_more,
    list_as_json,
    list_as_table,
    list_of_ids,
    list_without_containers,
    spec_is_runnable,
    spec_does_not_overwrite,
    features_are_complete,
    version,
    unknown_command,
    unknown_flag,
    error_goes_to_stderr,
    log_as_json,
    log_as_text,
    log_of_success_has_no_error,
    bundle_without_a_config,
    missing_bundle,
    invalid_configs_are_refused,
    invalid_specs_are_refused,
    unknown_fields_are_ignored,
    missing_root,
    absolute_root,
);

fn list_as_json(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    let second = case.container(case.script("sleep 1000"));
    second.create().ok();
    let list = case.call(&["list", "--format", "json"]).json();
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), 2);
    let entry = list.iter().find(|entry| entry["id"] == container.id.as_str()).expect("the container is listed");
    assert_eq!(entry["status"], "running");
    assert_eq!(entry["pid"], container.pid());
    assert_eq!(entry["bundle"], container.bundle.directory.to_str().expect("the path is ASCII"));
    let created = entry["created"].as_str().expect("a time");
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");
    container.remove();
    second.remove();
}

fn list_as_table(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    let table = case.call(&["list"]);
    let lines: Vec<Vec<&str>> = table.ok().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0][..3],
        ["ID", "PID", "STATUS"].map(|word| if case.runtime == Runtime::Crun && word == "ID" { "NAME" } else { word })
    );
    assert_eq!(lines[1][0], container.id);
    assert_eq!(lines[1][2], "running");
    container.remove();
}

fn list_of_ids(case: &Case) {
    let container = case.container(case.script("sleep 1000"));
    container.create_and_start();
    assert_eq!(case.call(&["list", "--quiet"]).ok().trim(), container.id);
    container.remove();
}

fn list_without_containers(case: &Case) {
    let list = case.call(&["list", "--format", "json"]).json();
    assert!(list.is_null() || list.as_array().is_some_and(Vec::is_empty), "{list:?}");
}

fn spec_is_runnable(case: &Case) {
    let bundle = case.bundle();
    let directory = bundle.directory.to_str().expect("the path is ASCII").to_owned();
    case.call_with(&["spec"], |command| {
        command.current_dir(&directory);
    })
    .ok();
    let text = fs::read_to_string(bundle.directory.join("config.json")).expect("the file was written");
    let mut spec: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(spec["process"]["args"][0], "sh");
    for kind in ["pid", "network", "ipc", "uts", "mount"] {
        let list = spec["linux"]["namespaces"].as_array().expect("namespaces");
        assert!(list.iter().any(|namespace| namespace["type"] == kind), "{kind}");
    }
    spec["process"]["args"] = json!(["/bin/echo", "runs"]);
    spec["process"]["terminal"] = json!(false);
    spec["root"]["path"] = json!("root");
    let mut bundle = bundle;
    bundle.spec = spec;
    let container = case.container(bundle);
    assert_eq!(container.run().ok(), "runs\n");
}

fn spec_does_not_overwrite(case: &Case) {
    let bundle = case.bundle();
    bundle.write();
    let before = fs::read(bundle.directory.join("config.json")).expect("the file was written");
    case.call_with(&["spec"], |command| {
        command.current_dir(&bundle.directory);
    })
    .error_with(&["exist"]);
    assert_eq!(fs::read(bundle.directory.join("config.json")).expect("the file exists"), before);
}

fn features_are_complete(case: &Case) {
    let features = case.call(&["features"]).json();
    for key in ["ociVersionMin", "ociVersionMax"] {
        assert!(features[key].as_str().is_some_and(|version| version.starts_with("1.")), "{key}");
    }
    let list = |value: &Value| -> Vec<String> {
        value.as_array().expect("a list").iter().map(|word| word.as_str().expect("a string").to_owned()).collect()
    };
    for kind in ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"] {
        assert!(list(&features["hooks"]).iter().any(|hook| hook == kind), "{kind}");
    }
    let options = list(&features["mountOptions"]);
    for option in ["bind", "rbind", "ro", "nosuid", "rslave", "noatime", "rro"] {
        assert!(options.iter().any(|known| known == option), "{option}");
    }
    let linux = &features["linux"];
    for kind in ["cgroup", "ipc", "mount", "network", "pid", "user", "uts"] {
        assert!(list(&linux["namespaces"]).iter().any(|known| known == kind), "{kind}");
    }
    assert!(list(&linux["capabilities"]).iter().any(|name| name == "CAP_CHOWN"));
    assert!(list(&linux["capabilities"]).iter().all(|name| name.starts_with("CAP_")));
    assert_eq!(linux["cgroup"]["v1"], true);
    assert_eq!(linux["seccomp"]["enabled"], true);
    for action in ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_NOTIFY", "SCMP_ACT_LOG"] {
        assert!(list(&linux["seccomp"]["actions"]).iter().any(|known| known == action), "{action}");
    }
    assert!(list(&linux["seccomp"]["operators"]).iter().any(|known| known == "SCMP_CMP_MASKED_EQ"));
    assert!(linux["apparmor"]["enabled"].is_boolean() && linux["selinux"]["enabled"].is_boolean());
}

fn version(case: &Case) {
    let outcome = case.call(&["--version"]);
    let text = outcome.ok();
    assert!(text.starts_with(&format!("{} version ", case.runtime.name())), "{text}");
    assert!(text.contains("spec: 1."), "{text}");
}

fn unknown_command(case: &Case) {
    let outcome = case.call(&["nonsense"]);
    assert!(!format!("{}{}", outcome.stdout, outcome.stderr).is_empty());
    outcome.error_with(&["nonsense", "unknown command"]);
}

fn unknown_flag(case: &Case) {
    assert_ne!(case.call(&["list", "--nonsense"]).code, 0);
    assert_ne!(case.call(&["--nonsense", "list"]).code, 0);
}

fn error_goes_to_stderr(case: &Case) {
    let outcome = case.call(&["state", "nobody"]);
    assert!(outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("nobody") || outcome.stderr.contains("exist"), "{}", outcome.stderr);
    assert_eq!(outcome.code, 1);
}

fn log_as_json(case: &Case) {
    let path = case.directory().join("log.json");
    let path = path.to_str().expect("the path is ASCII");
    case.call(&["--log", path, "--log-format", "json", "state", "nobody"]).exits(1);
    let text = fs::read_to_string(path).expect("the log is written");
    // containerd uses the last line whose level is error.
    let errors: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line: &Value| line["level"] == "error")
        .collect();
    let last = errors.last().expect("an error was logged");
    assert!(last["msg"].as_str().is_some_and(|text| text.contains("exist") || text.contains("No such file")), "{last}");
    assert!(last["time"].as_str().is_some_and(|time| time.starts_with("20") && time.contains('T')), "{last}");
}

fn log_as_text(case: &Case) {
    let path = case.directory().join("log.text");
    let path = path.to_str().expect("the path is ASCII");
    case.call(&["--log", path, "state", "nobody"]).exits(1);
    let text = fs::read_to_string(path).expect("the log is written");
    assert!(text.contains("exist") || text.contains("No such file"), "{text}");
}

fn log_of_success_has_no_error(case: &Case) {
    let path = case.directory().join("log.json");
    let path = path.to_str().expect("the path is ASCII").to_owned();
    let container = case.container(case.script("true"));
    let directory = container.bundle.directory.to_str().expect("the path is ASCII");
    case.call(&["--log", &path, "--log-format", "json", "run", "--bundle", directory, &container.id]).ok();
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(!text.contains(r#""level":"error""#), "{text}");
}

fn bundle_without_a_config(case: &Case) {
    let directory = case.bundle().directory;
    let id = format!("{}x", case.tag);
    case.call(&["create", "--bundle", directory.to_str().expect("the path is ASCII"), &id])
        .error_with(&["config.json"]);
}

fn missing_bundle(case: &Case) {
    case.call(&["create", "--bundle", "/nowhere/at/all", &format!("{}x", case.tag)])
        .error_with(&["/nowhere/at/all", "no such"]);
}

fn invalid_configs_are_refused(case: &Case) {
    let bundle = case.bundle();
    let directory = bundle.directory.to_str().expect("the path is ASCII");
    let id = format!("{}x", case.tag);
    let deep = "[".repeat(100_000);
    for text in ["", "{", "[]", "null", "{}", "\u{0}", r#"{"ociVersion":1}"#, &deep] {
        fs::write(bundle.directory.join("config.json"), text).expect("write a file");
        let outcome = case.call(&["create", "--bundle", directory, &id]);
        outcome.error();
        assert!(outcome.code < 128, "the runtime crashed: {outcome:?}");
        case.assert_no_leftovers();
    }
}

/// An invalid spec: description, words of which the message must contain one, runtimes that accept it, and the change.
type InvalidSpec = (&'static str, &'static [&'static str], &'static [Runtime], Box<dyn Fn(&mut Bundle)>);

fn invalid_specs_are_refused(case: &Case) {
    let table: Vec<InvalidSpec> = vec![
        ("no root", &["root"], &[], change(|b| drop(b.spec.as_object_mut().expect("an object").remove("root")))),
        ("relative cwd", &["cwd"], &[Runtime::Crun], change(|b| b.spec["process"]["cwd"] = json!("relative"))),
        ("no args", &["args", "open executable"], &[], change(|b| b.spec["process"]["args"] = json!([]))),
        (
            "args of the wrong type",
            &["args", "string", "expected", "not specified"],
            &[],
            change(|b| b.spec["process"]["args"] = json!("sh")),
        ),
        (
            "unknown rlimit",
            &["rlimit"],
            &[],
            change(|b| b.spec["process"]["rlimits"] = json!([{ "type": "RLIMIT_NONE", "soft": 1, "hard": 1 }])),
        ),
        (
            "soft above hard",
            &["rlimit", "invalid argument"],
            &[],
            change(|b| b.spec["process"]["rlimits"] = json!([{ "type": "RLIMIT_CORE", "soft": 2, "hard": 1 }])),
        ),
        (
            "unknown namespace",
            &["namespace"],
            &[],
            change(|b| b.spec["linux"]["namespaces"][0] = json!({ "type": "nonsense" })),
        ),
        (
            "namespace with a missing path",
            &["/nowhere"],
            &[],
            change(|b| {
                b.namespace("ipc", Some("/nowhere"));
            }),
        ),
        (
            "uid as a string",
            &["uid", "number", "u32", "uint", "expected"],
            &[Runtime::Crun],
            change(|b| b.spec["process"]["user"] = json!({ "uid": "root" })),
        ),
        ("oomScoreAdj out of range", &["oom"], &[], change(|b| b.spec["process"]["oomScoreAdj"] = json!(5000))),
        (
            "unknown device type",
            &["device", "type"],
            &[Runtime::Crun],
            change(|b| b.spec["linux"]["devices"] = json!([{ "path": "/dev/x", "type": "q" }])),
        ),
        (
            "pids limit as a string",
            &["pids", "limit", "number", "expected", "int"],
            &[Runtime::Crun],
            change(|b| b.spec["linux"]["resources"]["pids"] = json!({ "limit": "many" })),
        ),
        (
            "intelRdt without resctrl",
            &["intelrdt", "rdt", "resctrl"],
            &[Runtime::Runc, Runtime::Crun],
            change(|b| b.spec["linux"]["intelRdt"] = json!({ "closID": "x" })),
        ),
        (
            "unknown sysctl",
            &["sysctl", "kernel.nonsense", "net.nonsense", "net/nonsense"],
            &[],
            change(|b| b.spec["linux"]["sysctl"] = json!({ "net.nonsense": "1" })),
        ),
    ];
    let mut bad = Vec::new();
    for (description, words, lenient, change) in
        table.iter().filter(|(_, _, lenient, _)| !lenient.contains(&case.runtime))
    {
        let mut bundle = case.bundle();
        change(&mut bundle);
        let outcome = case.container(bundle).run();
        let text = outcome.stderr.to_lowercase();
        if outcome.code == 0 || !words.iter().any(|word| text.contains(word)) {
            bad.push(format!("{description} {lenient:?}: {} {text}", outcome.code));
        }
        case.assert_no_leftovers();
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

fn unknown_fields_are_ignored(case: &Case) {
    case.output("true", |bundle| {
        bundle.spec["ofTheFuture"] = json!({ "deep": [1, 2] });
        bundle.spec["linux"]["ofTheFuture"] = json!(true);
        bundle.spec["process"]["ofTheFuture"] = json!("x");
        bundle.spec["annotations"] = json!({ "any": "thing" });
    });
}

fn missing_root(case: &Case) {
    case.assert_refused(&["nowhere"], |bundle| bundle.spec["root"]["path"] = json!("nowhere"));
}

fn absolute_root(case: &Case) {
    let text = case.output("echo here", |bundle| bundle.spec["root"]["path"] = json!(bundle.path("/").to_str()));
    assert_eq!(text, "here\n");
}

/// Messages contain no debug output of the runtime's types, and name a property only once.
fn messages_are_short(case: &Case) {
    let message = |change: &dyn Fn(&mut oci_tests::Bundle)| {
        let mut bundle = case.bundle();
        change(&mut bundle);
        case.container(bundle).run().error().to_owned()
    };
    let scheduler = message(&|bundle| {
        bundle.spec["process"]["scheduler"] =
            json!({ "policy": "SCHED_DEADLINE", "runtime": 5, "deadline": 4, "period": 3 });
    });
    assert!(!scheduler.contains("{ size"), "{scheduler}");
    let path = message(&|bundle| bundle.spec["linux"]["cgroupsPath"] = json!("/pinion\0test"));
    assert!(path.contains("cgroupsPath"), "{path}");
    let resources = message(&|bundle| bundle.spec["linux"]["resources"]["pids"] = json!({ "limit": "x" }));
    assert!(resources.matches("linux.resources").count() <= 1, "{resources}");
    let seccomp = message(&|bundle| bundle.spec["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NOTHING" }));
    assert!(seccomp.matches("linux.seccomp").count() <= 1, "{seccomp}");
}

/// go-runc and Docker parse the commit.
fn version_has_a_commit(case: &Case) {
    let version = case.call(&["--version"]);
    let commit = version.ok().lines().find_map(|line| line.strip_prefix("commit: "));
    assert!(commit.is_some_and(|commit| !commit.is_empty()), "{}", version.stdout);
}

fn debug_logs_more(case: &Case) {
    let log = case.directory().join("log");
    let path = log.to_str().expect("the path is ASCII");
    let container = case.container(case.bundle());
    let bundle = container.bundle.directory.to_str().expect("the path is ASCII");
    case.call(&["--debug", "--log", path, "--log-format", "json", "run", "--bundle", bundle, &container.id]).ok();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(text.lines().any(|line| line.contains("\"level\":\"debug\"")), "{text:?}");
}
