use super::*;

fn hosts(text: &str) -> Result<Vec<Host>, String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("hosts.toml"), text).unwrap();
    read(directory.path(), "docker.io").map_err(|error| error.message.replace(directory.path().to_str().unwrap(), ""))
}

#[test]
fn hosts_are_tried_in_the_order_of_the_file_and_the_server_last() {
    let text = r#"
        server = "https://registry-1.docker.io"
        [host."https://z.example"]
          capabilities = ["pull"]
          ca = "ca.pem"
          client = [["c.cert", "c.key"], ["both.pem"]]
          skip_verify = true
        [host."a.example/v2/hub"]
          override_path = true
          header.x-tenant = ["one", "two"]
    "#;
    let all = hosts(text).unwrap();
    let urls: Vec<&str> = all.iter().map(|host| host.url.as_str()).collect();
    assert_eq!(urls, ["https://z.example", "a.example/v2/hub", "https://registry-1.docker.io"]);
    assert!(all[0].pulls() && !all[0].resolves() && all[0].skip_verify && !all[0].is_server);
    assert!(all[0].ca[0].ends_with("ca.pem") && all[0].ca[0].is_absolute());
    assert_eq!(all[0].client.len(), 2);
    assert!(all[0].client[0].1.is_some() && all[0].client[1].1.is_none());
    assert!(all[1].override_path && all[1].pulls() && all[1].resolves());
    assert_eq!(all[1].headers.get_all("x-tenant").iter().count(), 2);
    assert!(all[2].is_server);
}

#[test]
fn without_a_server_the_host_itself_is_tried_last() {
    let all = hosts("skip_verify = true\n").unwrap();
    assert_eq!((all.len(), all[0].url.as_str(), all[0].skip_verify), (1, "docker.io", true));
}

#[test]
fn errors_name_line_and_key() {
    for (text, message) in [
        ("server = 3", "/hosts.toml:1: server: a string is expected"),
        ("\n[host.a]\nca = 3", "/hosts.toml:3: host.\"a\".ca: a string is expected"),
        ("[host.a]\ncapabilities = [\"fly\"]", "/hosts.toml:2: host.\"a\".capabilities: \"fly\" is not one of"),
        ("[host.a]\nskipverify = true", "/hosts.toml:2: host.\"a\".skipverify: no such key"),
        ("[host.a.header]\n\"a b\" = \"x\"", "/hosts.toml:2: host.\"a\".header.\"a b\": not a valid name"),
        ("host = [", "/hosts.toml:1: "),
    ] {
        let error = hosts(text).expect_err(text);
        assert!(error.starts_with(&format!("registry configuration {message}")), "{error}");
    }
}

#[test]
fn directories_are_found_by_host_and_port_then_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let name = |host: &str| {
        directory(dir.path(), host, true).map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
    };
    assert_eq!(name("a:5000"), None);
    fs::create_dir(dir.path().join("_default")).unwrap();
    assert_eq!(name("a:5000").as_deref(), Some("_default"));
    fs::create_dir(dir.path().join("a:5000")).unwrap();
    assert_eq!(name("a:5000").as_deref(), Some("a:5000"));
    fs::create_dir(dir.path().join("a_5000_")).unwrap();
    assert_eq!(name("a:5000").as_deref(), Some("a_5000_"));
    assert_eq!(name("a").as_deref(), Some("_default"));
    assert_eq!(directory(dir.path(), "..", false), None);
}

#[test]
fn dockers_certificates_are_used_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["ca.crt", "client.cert", "client.key", "readme"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let all = read(dir.path(), "r:1").unwrap();
    assert_eq!((all.len(), all[0].ca.len(), all[0].client.len()), (1, 1, 1));
    fs::remove_file(dir.path().join("client.key")).unwrap();
    assert!(read(dir.path(), "r:1").unwrap_err().message.contains("has no key"));
}
