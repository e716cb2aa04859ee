//! Against a real etcd, which `scripts/setup test` installs.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd::{Change, Client, Condition, Error, Lease, Options};

/// A running server.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts a server of one member at a port; with zero at a free one.
    fn start(directory: &Path, port: u16) -> Self {
        Self::start_with(directory, port, "http", &[])
    }

    fn start_with(directory: &Path, port: u16, scheme: &str, options: &[&str]) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (client, peer) = (if port == 0 { free() } else { port }, free());
        let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .arg("--unsafe-no-fsync")
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd runs");
        Self { process, url }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn client(endpoints: Vec<String>) -> Client {
    client_with(Options { endpoints, ..Options::default() }).await
}

/// Returns a client of a server that responds.
async fn client_with(options: Options) -> Client {
    let client = Client::new(options).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = client.range("/").await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client
}

#[tokio::test]
async fn keys_leases_and_watches() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), 0);
    let client = client(vec!["http://127.0.0.1:1".into(), server.url.clone()]).await;
    let lease = client.grant(Duration::from_secs(60)).await.unwrap();
    assert!(client.create("/p/a", b"one", lease).await.unwrap());
    assert!(!client.create("/p/a", b"two", lease).await.unwrap());
    assert!(client.create("/q/a", b"other", lease).await.unwrap());
    let range = client.range("/p/").await.unwrap();
    let entry = &range.entries[0];
    assert_eq!(
        (range.entries.len(), &entry.key[..], &entry.value[..], entry.lease),
        (1, &b"/p/a"[..], &b"one"[..], lease.id)
    );

    // A change before and after the watch begins; one of another prefix is none.
    let timeout = |work| tokio::time::timeout(Duration::from_millis(300), work);
    assert!(timeout(client.wait_for_change("/p/", range.revision)).await.is_err());
    assert!(client.replace("/p/a", b"three", lease, entry.mod_revision).await.unwrap());
    assert!(!client.replace("/p/a", b"four", lease, entry.mod_revision).await.unwrap());
    client.wait_for_change("/p/", range.revision).await.unwrap();
    let range = client.range("/p/").await.unwrap();
    let (changed, revoked) = tokio::join!(client.wait_for_change("/p/", range.revision), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.revoke(lease).await
    });
    changed.unwrap();
    revoked.unwrap();
    assert!(client.range("/p/").await.unwrap().entries.is_empty());
    assert!(!client.renew(lease).await.unwrap());
    let error = client.create("/p/b", b"", lease).await.unwrap_err();
    assert!(error.is_lease_lost(), "{error}");
    let fresh = client.grant(Duration::from_secs(60)).await.unwrap();
    assert!(client.renew(fresh).await.unwrap());
    assert!(client.create("/p/b", b"", fresh).await.unwrap());
    let revision = client.range("/p/").await.unwrap().entries[0].mod_revision;
    assert!(!client.delete("/p/b", revision - 1).await.unwrap());
    assert!(client.delete("/p/b", revision).await.unwrap());
}

#[tokio::test]
async fn a_server_that_is_gone_and_returns() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), 0);
    let url = server.url.clone();
    let client = client(vec![url.clone()]).await;
    let lease = client.grant(Duration::from_secs(60)).await.unwrap();
    assert!(client.create("/p/a", b"one", lease).await.unwrap());
    let revision = client.range("/p/").await.unwrap().revision;
    let (changed, ()) = tokio::join!(client.wait_for_change("/p/", revision), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.kill();
    });
    assert!(matches!(changed, Err(Error::Unavailable { .. })), "{changed:?}");
    let error = client.range("/p/").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(&url), "{error}");
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let _server = Server::start(directory.path(), port);
    let again = self::client(vec![url]).await;
    assert_eq!(again.range("/p/").await.unwrap().entries[0].value, b"one");
    assert!(again.renew(Lease { id: lease.id, ttl: lease.ttl }).await.unwrap());
}

/// Makes an authority, and certificates for a server and a client.
fn certificates(directory: &Path) {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 \
        -subj /CN=ca -addext basicConstraints=critical,CA:true && for name in server client; do \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $name.key -out $name.csr -subj /CN=$name && \
        printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > $name.ext && \
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $name.pem -days 2 -extfile $name.ext \
        || exit 1; done";
    let out = Command::new("sh").args(["-c", script]).current_dir(directory).output().expect("sh runs");
    assert!(out.status.success(), "{out:?}");
}

#[tokio::test]
async fn certificates_of_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let file = |name: &str| directory.path().join(name);
    let text = |name: &str| file(name).display().to_string();
    let options = [
        "--cert-file",
        &text("server.pem"),
        "--key-file",
        &text("server.key"),
        "--trusted-ca-file",
        &text("ca.pem"),
        "--client-cert-auth",
    ];
    let server = Server::start_with(directory.path(), 0, "https", &options);
    let endpoints = vec![server.url.clone()];
    let ca_file = Some(file("ca.pem"));
    let client_files = Some((file("client.pem"), file("client.key")));
    let client =
        client_with(Options { endpoints: endpoints.clone(), ca_file: ca_file.clone(), client_files, user: None }).await;
    assert!(client.grant(Duration::from_secs(60)).await.is_ok());
    for options in [
        Options { endpoints: endpoints.clone(), ca_file, ..Options::default() },
        Options { endpoints, ca_file: Some(file("client.pem")), ..Options::default() },
    ] {
        let error = Client::new(options).unwrap().range("/").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_user_with_a_password() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), 0);
    let endpoints = vec![server.url.clone()];
    client(endpoints.clone()).await;
    let curl = |path: &str, body: &str| {
        let out = Command::new("curl")
            .args(["-sf", &format!("{}{path}", server.url), "-d", body])
            .output()
            .expect("curl runs");
        assert!(out.status.success(), "{path}: {out:?}");
    };
    curl("/v3/auth/user/add", r#"{"name": "root", "password": "secret"}"#);
    curl("/v3/auth/role/add", r#"{"name": "root"}"#);
    curl("/v3/auth/user/grant", r#"{"user": "root", "role": "root"}"#);
    curl("/v3/auth/enable", "{}");
    let anonymous = Client::new(Options { endpoints: endpoints.clone(), ..Options::default() }).unwrap();
    let error = anonymous.range("/").await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let password = |text: &str| {
        let file = directory.path().join("password");
        std::fs::write(&file, text).unwrap();
        Options { endpoints: endpoints.clone(), user: Some(("root".into(), file)), ..Options::default() }
    };
    client_with(password("secret\n")).await;
    let error = Client::new(password("wrong")).unwrap().range("/").await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_etcd_is_an_error() {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let responses = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        "HTTP/1.1 500 x\r\nContent-Length: 3\r\n\r\nbad",
        "garbage\r\n\r\n",
    ];
    std::thread::spawn(move || {
        for (stream, response) in listener.incoming().zip(responses) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    let client = Client::new(Options { endpoints: vec![url], ..Options::default() }).unwrap();
    for _ in responses {
        let error = client.range("/p/").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    let missing = Options {
        endpoints: vec!["https://127.0.0.1:1".into()],
        ca_file: Some("/nonexistent".into()),
        user: None,
        client_files: None,
    };
    assert!(matches!(Client::new(missing), Err(Error::File { .. })));
}

#[tokio::test]
async fn transactions_change_all_or_nothing_and_changes_are_found_by_revision() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), 0);
    let client = client(vec![server.url.clone()]).await;
    let lease = client.grant(Duration::from_secs(60)).await.unwrap();
    let both = [Change::Put("/t/name", b"n", None), Change::Put("/t/members/1", b"", Some(lease))];
    assert!(client.change(&[Condition::Absent("/t/name"), Condition::NoneBelow("/t/members/")], &both).await.unwrap());
    assert!(!client.change(&[Condition::Absent("/t/name")], &[Change::Put("/t/x", b"", None)]).await.unwrap());
    assert_eq!(client.get("/t/x").await.unwrap(), None);
    let name = client.get("/t/name").await.unwrap().unwrap();
    assert_eq!((&name.value[..], name.lease), (&b"n"[..], 0));
    let delete = [Change::Delete("/t/name")];
    let unchanged = Condition::Unchanged("/t/name", name.mod_revision);
    assert!(!client.change(&[unchanged, Condition::NoneBelow("/t/members/")], &delete).await.unwrap());
    let all = client.changed("/t/", 0).await.unwrap();
    assert_eq!((all.keys.len(), all.entries.len()), (2, 2));
    client.put("/t/name", b"other", lease).await.unwrap();
    client.revoke(lease).await.unwrap();
    client.create("/t/new", b"", client.grant(Duration::from_secs(60)).await.unwrap()).await.unwrap();
    let changed = client.changed("/t/", all.revision).await.unwrap();
    assert_eq!(changed.keys, [b"/t/new".to_vec()]);
    assert_eq!(changed.entries.len(), 1);
    assert!(!client.change(&[unchanged], &delete).await.unwrap());
    let below = |revision| [Condition::UnchangedBelow("/t/", revision)];
    assert!(!client.change(&below(all.revision), &delete).await.unwrap());
    assert!(client.change(&below(changed.revision), &[]).await.unwrap());
    assert!(client.change(&[Condition::UnchangedBelow("/none/", 0)], &[]).await.unwrap());
    assert!(client.change(&[Condition::NoneBelow("/t/members/")], &delete).await.unwrap());
}
