use super::*;

fn error(text: &str) -> String {
    Config::parse("/etc/x.toml", text).expect_err("must be refused").to_string()
}

#[test]
fn the_defaults_are_valid_and_complete() {
    let config = Config::parse("", "").expect("valid");
    assert_eq!(config.socket, Path::new(DEFAULT_SOCKET));
    assert_eq!(config.network.subnet, "10.85.0.0/16");
    assert!(config.monitor.is_none() && config.network.subnet6.is_none());
}

#[test]
fn a_file_changes_only_what_it_names() {
    let config = Config::parse("", "data_dir = \"/d\"\n[registries.mirrors]\n\"docker.io\" = [\"http://m:5000\"]\n")
        .expect("valid");
    assert_eq!(config.data_dir, Path::new("/d"));
    assert_eq!(config.state_dir, Path::new("/run/pinion"));
    assert_eq!(config.registries.mirrors["docker.io"], ["http://m:5000"]);
}

#[test]
fn the_shown_configuration_can_be_read_again() {
    let config = Config::parse("", "[network]\nsubnet6 = \"fd00::/64\"\n").expect("valid");
    let text = toml::to_string(&config).expect("TOML");
    assert_eq!(toml::to_string(&Config::parse("", &text).expect("valid")).expect("TOML"), text);
}

#[test]
fn errors_name_file_line_and_key() {
    let unknown = error("data_dir = \"/d\"\n[network]\nbrigde = \"x\"\n");
    assert!(unknown.starts_with("/etc/x.toml:3: ") && unknown.contains("brigde"), "{unknown}");
    let syntax = error("data_dir = \n");
    assert!(syntax.starts_with("/etc/x.toml:1: "), "{syntax}");
    let kind = error("[network]\nbridge = \"b\"\npool = -1\n");
    assert!(kind.starts_with("/etc/x.toml:3: network.pool: "), "{kind}");
    assert_eq!(
        error("\n[network]\nsubnet = \"10.300.0.0/16\"\n"),
        "/etc/x.toml:3: network.subnet: \"10.300.0.0/16\" is not an IPv4 subnet (address/bits, 8 to 30 bits)"
    );
}

#[test]
fn invalid_values_are_refused() {
    for (text, key) in [
        ("state_dir = \"run\"", "state_dir"),
        ("data_dir = \"/a/../b\"", "data_dir"),
        ("cgroup_parent = \"pinion\"", "cgroup_parent"),
        ("[log]\nlevel = \"a=b=c\"", "log.level"),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[log]\nlevel = \"inof,pod=debug\"", "log.level"),
        ("[log]\nlevel = \"\"", "log.level"),
        ("[network]\nbridge = \"a-very-long-name-of-a-bridge\"", "network.bridge"),
        ("[network]\nselectable = [\"storage\", \"../x\"]", "network.selectable"),
        ("[network]\nsubnet6 = \"10.0.0.0/8\"", "network.subnet6"),
        ("[network]\npool = 100000", "network.pool"),
        ("[network]\nsubnet = \"127.0.0.0/8\"", "network.subnet"),
        ("state_dir = \"/var/lib/pinion/state\"", "state_dir"),
        ("[log]\nformat = \"xml\"", "log.format"),
        ("[containers]\nlog_line_max = 1", "containers.log_line_max"),
        ("[containers]\nlog_size_max = 8191", "containers.log_size_max"),
        ("[containers]\nlog_size_max = -1", "containers.log_size_max"),
        ("[streaming]\naddress = \"10.0.0.1:0\"", "streaming.address"),
        ("[streaming]\nidle_timeout = \"4 hours\"", "streaming.idle_timeout"),
        ("[metrics]\naddress = \"9470\"", "metrics.address"),
        ("[metrics]\naddress = \"0.0.0.0:9\"\n[streaming]\naddress = \"127.0.0.1:9\"", "metrics.address"),
        ("[cadvisor]\nsocket = \"crio.sock\"", "cadvisor.socket"),
        ("[cadvisor]\nsocket = \"/run/pinion/pinion.sock\"", "cadvisor.socket"),
        ("[tracing]\nendpoint = \"collector\"", "tracing.endpoint"),
        ("[tracing]\nendpoint = \"https://collector:4317\"", "tracing.endpoint"),
        ("[tracing]\nendpoint = \"http://collector:4318/v1/traces\"", "tracing.endpoint"),
        ("[tracing]\nsample_ratio = 1.5", "tracing.sample_ratio"),
        ("[cdi]\ndirs = \"/etc/cdi\"", "cdi.dirs"),
        ("[cdi]\ndirs = [\"cdi\"]", "cdi.dirs"),
        ("[nri]\nsocket_path = \"nri.sock\"", "nri.socket_path"),
        ("[nri]\nplugin_request_timeout = 2", "nri.plugin_request_timeout"),
        ("[nri]\nrequired = \"guard\"", "nri.required"),
        ("[upgrade]\nmonitor = \"never\"", "upgrade.monitor"),
        ("[registries]\nplain_http = [\"http://x\"]", "registries.plain_http"),
        ("[registries]\ndefault_registry = \"a b\"", "registries.default_registry"),
        ("[registries.mirrors]\nx = [\"mirror\"]", "registries.mirrors.\"x\""),
        ("[registries.mirrors]\nx = [\"http://m?x\"]", "registries.mirrors.\"x\""),
        ("[registries.mirrors]\n\"http://x\" = []", "registries.mirrors.\"http://x\""),
    ] {
        let error = error(text);
        assert!(error.contains(&format!(": {key}: ")), "{error}");
    }
    let secret =
        error("[registries.mirrors]\nx = [\"https://me:hunter2@m\"]\n[tracing]\nendpoint = \"http://me:hunter2@c\"");
    assert!(secret.lines().count() == 2 && !secret.contains("hunter2"), "{secret}");
    let long = format!("socket = \"/{}\"", "x".repeat(200));
    assert!(error(&long).contains(": socket: "));
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_the_file() {
    let all = error("[network]\npool = -1\nbrigde = \"x\"\n[log]\nlevel = 3\nlog = {a = 1}\n");
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(
        lines,
        [
            "/etc/x.toml:2: network.pool: -1 is not between 0 and 1024",
            "/etc/x.toml:3: network.brigde: no such key; did you mean network.bridge?",
            "/etc/x.toml:5: log.level: must be a string, is an integer",
            "/etc/x.toml:6: log.log.\"a\": no such key; `pinion config default` lists all keys",
        ]
    );
    assert_eq!(error("network = 3\n"), "/etc/x.toml:1: network: is a table; set its keys under [network]");
    assert_eq!(
        error("[registries]\nmirrors = [\"x\"]\n"),
        "/etc/x.toml:2: registries.mirrors: is a table; set its keys under [registries.mirrors]"
    );
    assert_eq!(
        error("[log.level]\npod = \"debug\"\n"),
        "/etc/x.toml:2: log.level.\"pod\": no such key; `pinion config default` shows the values of log.level"
    );
    for level in ["off", "info,pod=debug", "DEBUG", "warn,cri=trace"] {
        Config::parse("", &format!("[log]\nlevel = \"{level}\"")).expect("a level");
    }
}

#[test]
fn drop_ins_override_key_by_key_and_errors_name_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let main = dir.path().join("c.toml");
    let drop_in = |name: &str, text: &str| {
        std::fs::create_dir_all(dir.path().join("c.toml.d")).expect("made");
        std::fs::write(dir.path().join("c.toml.d").join(name), text).expect("written");
    };
    std::fs::write(&main, "[network]\nbridge = \"b0\"\nsubnet6 = \"fd00::/64\"\npool = 3\n").expect("written");
    drop_in("20-b.toml", "[network]\nsubnet6 = \"\"\n[registries.mirrors]\na = [\"http://two\"]\n");
    drop_in("10-a.toml", "[network]\npool = 4\n[registries.mirrors]\na = [\"http://one\"]\nb = []\n");
    drop_in("30-c.toml.old", "no TOML");
    drop_in(".40-d.toml", "no TOML");
    let config = Config::load(Some(&main)).expect("valid");
    assert_eq!((config.network.bridge.as_str(), config.network.pool), ("b0", 4));
    assert_eq!(config.network.subnet6, None, "an empty string unsets it");
    assert_eq!(config.registries.mirrors["a"], ["http://two"]);
    assert!(config.registries.mirrors["b"].is_empty());
    drop_in("15-x.toml", "\n[network]\nsubnet = \"x\"\n");
    let error = Config::load(Some(&main)).expect_err("refused").to_string();
    assert!(
        error.starts_with(&format!("{}:3: network.subnet: ", dir.path().join("c.toml.d/15-x.toml").display())),
        "{error}"
    );
}

#[test]
fn a_file_that_cannot_be_read_does_not_hide_errors_of_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let directory = dir.path().join("c.toml.d");
    std::fs::create_dir_all(directory.join("30.toml")).expect("made");
    for (name, text) in
        [("10.toml", &b"x = [\n"[..]), ("20.toml", b"[log\n"), ("40.toml", b"\xff"), ("50.toml", b"sokcet = \"/x\"")]
    {
        std::fs::write(directory.join(name), text).expect("written");
    }
    let error = Config::load(Some(&dir.path().join("c.toml"))).expect_err("refused").to_string();
    let starts: Vec<String> = ["c.toml: cannot be read: No such file", "c.toml.d/10.toml:1: ", "c.toml.d/20.toml:1: "]
        .into_iter()
        .chain(["c.toml.d/30.toml: cannot be read: not a regular file", "c.toml.d/40.toml: cannot be read: not UTF-8"])
        .chain(["c.toml.d/50.toml:1: sokcet: no such key"])
        .map(|start| dir.path().join(start).display().to_string())
        .collect();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), starts.len(), "{error}");
    assert!(lines.iter().zip(&starts).all(|(line, start)| line.starts_with(start)), "{error}");
}

#[test]
fn durations_are_shown_in_the_largest_exact_unit() {
    let shown = |text: &str| {
        let config = Config::parse("", &format!("[streaming]\nidle_timeout = \"{text}\"")).expect("valid");
        serde_json::to_value(&config).expect("JSON")["streaming"]["idle_timeout"].as_str().map(str::to_owned)
    };
    for (text, exact) in [("240m", "4h"), ("90s", "90s"), ("1500ms", "1500ms"), ("86400s", "1d")] {
        assert_eq!(shown(text).as_deref(), Some(exact));
    }
}
