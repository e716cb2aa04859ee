//! `update` and `events`.

use std::fs;

use serde_json::{Value, json};

use crate::bundle::{Bundle, ID};

pub(crate) const CASES: &[super::Case] = testbed::cases!(
    limits_are_changed_by_options_and_files,
    limits_that_the_kernel_refuses_are_reported,
    stats_have_runcs_format,
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

fn stats(bundle: &Bundle) -> Value {
    let event: Value = serde_json::from_str(&bundle.pinrun(&["events", "--stats", ID]).ok()).expect("parse the event");
    assert_eq!((&event["type"], &event["id"]), (&json!("stats"), &json!(ID)));
    event["data"].clone()
}

fn recorded_resources(bundle: &Bundle) -> Value {
    let text = fs::read_to_string(bundle.root().join(ID).join("state.json")).expect("read the record");
    serde_json::from_str::<Value>(&text).expect("parse the JSON")["resources"].clone()
}

fn limits_are_changed_by_options_and_files() {
    let bundle = running(&["sleep", "1000"]);
    bundle.pinrun(&["update", "--memory", "96m", "--memory-swap", "96m", "--pids-limit", "20", ID]).ok();
    let now = stats(&bundle);
    assert_eq!((&now["memory"]["usage"]["limit"], &now["pids"]["limit"]), (&json!(96 << 20), &json!(20)));
    fs::write(bundle.path("r.json"), json!({"pids": {"limit": 30}}).to_string()).expect("write r.json");
    bundle.pinrun(&["update", "-r", "r.json", ID]).ok();
    assert_eq!(stats(&bundle)["pids"]["limit"], 30);
    assert_eq!(
        (&recorded_resources(&bundle)["memory"]["limit"], &recorded_resources(&bundle)["pids"]["limit"]),
        (&json!(96 << 20), &json!(30))
    );
    bundle.pinrun(&["delete", "--force", ID]).ok();
}

fn limits_that_the_kernel_refuses_are_reported() {
    let bundle = running(&["sleep", "1000"]);
    let before = recorded_resources(&bundle);
    bundle.pinrun(&["update", "--cpuset-cpus", "4000", ID]).failed("cpuset");
    bundle.pinrun(&["update", "--memory", "lots", ID]).failed("lots");
    bundle.pinrun(&["update", "-r", "absent.json", ID]).failed("absent.json");
    // The pids limit was set when the memory limit was refused.
    bundle.pinrun(&["update", "--pids-limit", "3", "--memory", "100", "--memory-swap", "50", ID]).failed("memory");
    assert_eq!(stats(&bundle)["pids"]["limit"], 50);
    assert_eq!(recorded_resources(&bundle), before);
    bundle.pinrun(&["delete", "--force", ID]).ok();
    bundle.pinrun(&["update", "--pids-limit", "3", ID]).failed("container does not exist");
}

fn stats_have_runcs_format() {
    let bundle = running(&["sleep", "1000"]);
    let now = stats(&bundle);
    assert!(now["cpu"]["usage"]["total"].as_u64().expect("cpu.usage.total is a number") > 0, "{now}");
    assert!(now["memory"]["usage"]["usage"].as_u64().expect("memory.usage.usage is a number") > 0, "{now}");
    assert_eq!((&now["pids"]["current"], &now["pids"]["limit"]), (&json!(1), &json!(50)));
    // The raw table of the kernel.
    assert!(now["memory"]["raw"].as_object().expect("memory.raw is an object").contains_key("pgfault"), "{now}");
    for key in ["cpuset", "blkio", "hugetlb", "intel_rdt"] {
        assert!(now[key].is_object(), "{key}: {now}");
    }
    bundle.pinrun(&["delete", "--force", ID]).ok();
}

fn an_oom_is_an_event() {
    let bundle = running(&["sleep", "1000"]);
    let events = bundle.command(&["events", "--interval", "1h", ID]).stdout(std::process::Stdio::piped()).spawn();
    let mut events = events.expect("spawn pinrun");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(events.stdout.take().expect("stdout is a pipe")));
    let mut next = || {
        serde_json::from_str::<Value>(&lines.next().expect("an event is missing").expect("read a line"))
            .expect("parse the JSON")
    };
    assert_eq!(next()["type"], "stats");
    // `events` may have printed the first stats and not watch for OOM kills yet; therefore processes are killed until
    // it reports one.
    let event = std::thread::scope(|scope| {
        let event = scope.spawn(next);
        while !event.is_finished() {
            let code = bundle.pinrun(&["exec", ID, "sh", "-c", "x=a; while :; do x=$x$x; done"]).code;
            assert_eq!(code, 137);
        }
        event.join().expect("read the event")
    });
    assert_eq!(event, json!({"type": "oom", "id": ID}));
    bundle.pinrun(&["delete", "--force", ID]).ok();
    assert!(events.wait().expect("wait for pinrun").success());
}

fn events_end_with_the_container() {
    let bundle = running(&["sleep", "1000"]);
    let command = &mut bundle.command(&["events", "--interval", "1h", ID]);
    let mut events = command.stdout(std::process::Stdio::piped()).spawn().expect("spawn pinrun");
    let mut output = std::io::BufReader::new(events.stdout.take().expect("stdout is a pipe"));
    std::io::BufRead::read_line(&mut output, &mut String::new()).expect("read the first stats");
    bundle.pinrun(&["kill", ID, "KILL"]).ok();
    assert!(events.wait().expect("wait for pinrun").success());
    bundle.pinrun(&["delete", "--force", ID]).ok();
}
