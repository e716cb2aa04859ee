use super::Reference;

fn parse(text: &str) -> Result<String, String> {
    Reference::parse(text, "docker.io").map(|r| r.to_string()).map_err(|error| error.message)
}

#[test]
fn missing_parts_are_filled_in_as_by_docker() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (text, complete) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("user/app", "docker.io/user/app:latest"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("localhost:5000/x:y", "localhost:5000/x:y"),
        ("quay.io/a/b/c:v1.0-2", "quay.io/a/b/c:v1.0-2"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
    ] {
        assert_eq!(parse(text).unwrap(), complete);
    }
    assert_eq!(parse(&format!("busybox@{digest}")).unwrap(), format!("docker.io/library/busybox@{digest}"));
    assert_eq!(parse(&format!("busybox:1@{digest}")).unwrap(), format!("docker.io/library/busybox:1@{digest}"));
}

#[test]
fn references_that_docker_refuses_are_refused() {
    for text in [
        "",
        ":x",
        "Busybox",
        "a//b",
        "a/../b",
        "../x",
        "-a",
        "a:",
        "a:.x",
        "a@sha256:12",
        "a@md5:00",
        "host:port/x",
        "host:99999/x",
        "-bad.host/x",
        "a___b",
        "a..b",
        "a b",
        &"a".repeat(300),
        &"f".repeat(64),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("image reference"), "{text}: {error}");
    }
}

#[test]
fn a_digest_takes_precedence_over_a_tag() {
    let text = format!("localhost:5000/x:tag@sha256:{}", "0".repeat(64));
    let reference = Reference::parse(&text, "docker.io").unwrap();
    assert_eq!(reference.tagged(), None);
    assert_eq!(reference.target(), reference.digest().unwrap().as_str());
}
