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
fn what_is_shown_can_be_read_again() {
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
fn values_are_checked_for_meaning() {
    for (text, key) in [
        ("state_dir = \"run\"", "state_dir"),
        ("data_dir = \"/a/../b\"", "data_dir"),
        ("cgroup_parent = \"pinion\"", "cgroup_parent"),
        ("[log]\nlevel = \"a=b=c\"", "log.level"),
        ("[network]\nbridge = \"a-very-long-name-of-a-bridge\"", "network.bridge"),
        ("[network]\nsubnet6 = \"10.0.0.0/8\"", "network.subnet6"),
        ("[network]\npool = 100000", "network.pool"),
        ("[registries]\nplain_http = [\"http://x\"]", "registries.plain_http"),
        ("[registries.mirrors]\nx = [\"mirror\"]", "registries.mirrors.\"x\""),
    ] {
        let error = error(text);
        assert!(error.contains(&format!(": {key}: ")), "{error}");
    }
    let long = format!("socket = \"/{}\"", "x".repeat(200));
    assert!(error(&long).contains(": socket: "));
}
