//! Limits changed, and use told.

use std::fs;

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = crate::cases!(
    limits_are_changed_by_options_and_files,
    what_the_kernel_refuses_is_told,
    stats_are_in_runcs_words,
    an_oom_is_an_event,
    events_end_with_the_container,
);

const MEMORY: u64 = 64 << 20;

fn running(args: &[&str]) -> Bundle {
    let mut bundle = Bundle::new(args);
    bundle.spec["linux"]["resources"] = json!({"memory": {"limit": MEMORY, "swap": MEMORY}, "pids": {"limit": 50}});
    bundle.write();
    bundle.pinrun(&["run", "-d", ID]).ok();
    bundle
}

fn figures(bundle: &Bundle) -> Value {
    let event: Value = serde_json::from_str(&bundle.pinrun(&["events", "--stats", ID]).ok()).expect("one object");
    assert_eq!((&event["type"], &event["id"]), (&json!("stats"), &json!(ID)));
    event["data"].clone()
}

fn recorded(bundle: &Bundle) -> Value {
    let text = fs::read_to_string(bundle.root().join(ID).join("state.json")).expect("a record");
    serde_json::from_str::<Value>(&text).expect("JSON")["resources"].clone()
}

fn limits_are_changed_by_options_and_files() {
    let bundle = running(&["sleep", "1000"]);
    bundle.pinrun(&["update", "--memory", "96m", "--memory-swap", "96m", "--pids-limit", "20", ID]).ok();
    let now = figures(&bundle);
    assert_eq!((&now["memory"]["usage"]["limit"], &now["pids"]["limit"]), (&json!(96 << 20), &json!(20)));
    fs::write(bundle.path("r.json"), json!({"pids": {"limit": 30}}).to_string()).expect("r.json");
    bundle.pinrun(&["update", "-r", "r.json", ID]).ok();
    assert_eq!(figures(&bundle)["pids"]["limit"], 30);
    assert_eq!(
        (&recorded(&bundle)["memory"]["limit"], &recorded(&bundle)["pids"]["limit"]),
        (&json!(96 << 20), &json!(30))
    );
    bundle.pinrun(&["delete", "--force", ID]).ok();
}

fn what_the_kernel_refuses_is_told() {
    let bundle = running(&["sleep", "1000"]);
    let before = recorded(&bundle);
    bundle.pinrun(&["update", "--cpuset-cpus", "4000", ID]).failed("cpuset");
    bundle.pinrun(&["update", "--memory", "lots", ID]).failed("lots");
    bundle.pinrun(&["update", "-r", "absent.json", ID]).failed("absent.json");
    // The first of two was set when the second was refused.
    bundle.pinrun(&["update", "--pids-limit", "3", "--memory", "100", "--memory-swap", "50", ID]).failed("memory");
    assert_eq!(figures(&bundle)["pids"]["limit"], 50);
    assert_eq!(recorded(&bundle), before);
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.pinrun(&["update", "--pids-limit", "3", ID]).failed("container does not exist");
}

fn stats_are_in_runcs_words() {
    let bundle = running(&["sleep", "1000"]);
    let now = figures(&bundle);
    assert!(now["cpu"]["usage"]["total"].as_u64().expect("ns") > 0, "{now}");
    assert!(now["memory"]["usage"]["usage"].as_u64().expect("bytes") > 0, "{now}");
    assert_eq!((&now["pids"]["current"], &now["pids"]["limit"]), (&json!(1), &json!(50)));
    // The kernel's own table, whatever its names.
    assert!(now["memory"]["raw"].as_object().expect("a table").contains_key("pgfault"), "{now}");
    for key in ["cpuset", "blkio", "hugetlb", "intel_rdt"] {
        assert!(now[key].is_object(), "{key}: {now}");
    }
    bundle.pinrun(&["delete", "--force", ID]).ok();
}

fn an_oom_is_an_event() {
    let bundle = running(&["sleep", "1000"]);
    let events = bundle.command(&["events", "--interval", "1h", ID]).stdout(std::process::Stdio::piped()).spawn();
    let mut events = events.expect("pinrun");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(events.stdout.take().expect("a pipe")));
    let mut next = || serde_json::from_str::<Value>(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!(next()["type"], "stats");
    // Whoever looks first has told the first stats, and may not watch yet; so more than one is killed.
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(next);
        while !told.is_finished() {
            let code = bundle.pinrun(&["exec", ID, "sh", "-c", "x=a; while :; do x=$x$x; done"]).code;
            assert_eq!(code, 137);
        }
        told.join().expect("an event")
    });
    assert_eq!(told, json!({"type": "oom", "id": ID}));
    bundle.pinrun(&["delete", "--force", ID]).ok();
    assert!(events.wait().expect("it ends").success());
}

fn events_end_with_the_container() {
    let bundle = running(&["sleep", "1000"]);
    let command = &mut bundle.command(&["events", "--interval", "1h", ID]);
    let mut events = command.stdout(std::process::Stdio::piped()).spawn().expect("pinrun");
    let mut said = std::io::BufReader::new(events.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut said, &mut String::new()).expect("the first stats");
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    assert!(events.wait().expect("it ends").success());
    bundle.pinrun(&["delete", "--force", ID]).ok();
}
