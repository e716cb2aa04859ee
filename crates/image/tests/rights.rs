//! Permissions to pull, and the servers to which credentials are sent.

mod node;

use image::{Credentials, ErrorKind, Registries, Store};
use node::{
    busybox, open,
    server::{Answer, Request, Server, content, from},
};

const SECRET: &str = "Basic dTpw"; // u:p

fn user() -> Credentials {
    Credentials { username: "u".into(), password: "p".into(), ..Credentials::default() }
}

fn is_authorized(request: &Request) -> bool {
    request.headers.get("authorization").is_some_and(|value| value == SECRET)
}

fn challenge() -> Answer {
    Answer::new(401).header("www-authenticate", "Basic realm=\"r\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_in_the_store_is_returned_only_to_callers_that_may_pull_it() {
    let dir = tempfile::tempdir().unwrap();
    let content = content(&busybox(), "1");
    let server = Server::start(move |request| match is_authorized(request) {
        true => from(&content, request),
        false => challenge(),
    })
    .await;
    let store = open(dir.path());
    let name = server.name("a:1");
    let image = store.pull(&name, Some(&user()), None).await.unwrap();
    let by_digest = image.repo_digests[0].clone();
    for name in [&name, &by_digest] {
        let error = store.pull(name, None, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{name}: {error}");
        let wrong = Credentials { password: "x".into(), ..user() };
        let error = store.pull(name, Some(&wrong), None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{name}: {error}");
    }
    let fetched = server.count(|request| request.method == "GET" && is_authorized(request));
    assert_eq!(store.pull(&by_digest, Some(&user()), None).await.unwrap().id, image.id);
    let again = server.count(|request| request.method == "GET" && is_authorized(request));
    assert_eq!(again, fetched, "nothing is transferred again");
    // Without a registry to confirm the permission it is an error, as the kubelet expects of `imagePullPolicy: Always`.
    drop(server);
    let error = store.pull(&by_digest, Some(&user()), None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(store.find(&by_digest).unwrap().is_some(), "it stays");
}

/// A registry that requires `u:p`, and redirects requests for blobs to `target`.
async fn redirecting(target: String) -> Server {
    let content = content(&busybox(), "1");
    Server::start(move |request| match (is_authorized(request), request.is_blob()) {
        (false, _) => challenge(),
        (true, true) => Answer::new(307).header("location", format!("{target}{}", request.path)),
        (true, false) => from(&content, request),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirects_target_gets_no_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = content(&busybox(), "1");
    let storage = Server::start(move |request| from(&blobs, request)).await;
    let certs = dir.path().join("certs");
    let registries = Registries { config_dir: Some(certs.clone()), ..Registries::default() };
    let store = Store::open(&dir.path().join("store"), registries).unwrap();
    let header = |server: &Server| {
        std::fs::create_dir_all(certs.join(&server.address)).unwrap();
        let text = format!("server = \"http://{}\"\n[header]\nx-secret = \"s\"\n", server.address);
        std::fs::write(certs.join(&server.address).join("hosts.toml"), text).unwrap();
    };
    let registry = redirecting(format!("http://{}", storage.address)).await;
    header(&registry);
    let name = registry.name("a:1");
    store.pull(&name, Some(&user()), None).await.unwrap();
    store.remove(&name).await.unwrap();
    // A target that requests credentials gets none, whether by Basic or with a token service.
    for challenge in ["Basic realm=\"r\"", "Bearer realm=\"http://STEAL/token\""] {
        let thief = Server::start(move |request| {
            let challenge = challenge.replace("STEAL", &request.headers["host"]);
            Answer::new(401).header("www-authenticate", challenge)
        })
        .await;
        let registry = redirecting(format!("http://{}", thief.address)).await;
        header(&registry);
        let error = store.pull(&registry.name("a:1"), Some(&user()), None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
        assert!(error.message.contains("no credentials are sent there"), "{error}");
        assert_eq!(thief.count(|request| request.path.contains("token")), 0);
        let requests = thief.seen().into_iter().chain(storage.seen());
        for request in requests {
            assert!(!request.headers.contains_key("authorization"), "{request:?}");
            assert!(!request.headers.contains_key("x-secret"), "{request:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_redirects_and_refusals_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let circle = Server::start(|request| Answer::new(302).header("location", request.path.clone())).await;
    let error = store.pull(&circle.name("a:1"), None, None).await.unwrap_err();
    assert!(error.message.contains("more than 10 redirects"), "{error}");
    // Every client gets a token, which is never accepted.
    let server = Server::start(|request| match request.path.as_str() {
        "/token" => Answer { body: b"{\"token\":\"t\"}".to_vec(), ..Answer::new(200) },
        _ => {
            let realm = format!("Bearer realm=\"http://{}/token\"", request.headers["host"]);
            Answer::new(401).header("www-authenticate", realm)
        }
    })
    .await;
    let error = store.pull(&server.name("a:1"), None, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
    assert!(server.seen().len() <= 4, "{:?}", server.seen());
}
