//! Plugins over real sockets: what well-behaved ones achieve, and what others cannot do.

mod bounds;
mod plugin;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use nri::{
    Config, ErrorKind, Event, Host, Known, PendingEviction, Plugins, Restrictions,
    messages::{
        Adjustment, Container, ContainerEvent, ContainerUpdate, CreateResponse, Eviction, FailurePolicy, KeyValue, Pod,
        RegisterPlugin, Subscription, Synchronize, Synchronized, UpdateContainers,
    },
};
use plugin::{Behaviour, Plugin, Reply, neutral};
use prost::Message;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_millis(300);

/// An engine without containers of its own.
#[derive(Default)]
struct Engine {
    known: Mutex<Vec<String>>,
    updates: Mutex<Vec<ContainerUpdate>>,
    /// In progress until they are dropped.
    evictions: Mutex<Vec<PendingEviction>>,
}

impl Host for Engine {
    fn known(&self) -> Known {
        Known { pods: Vec::new(), containers: self.known.lock().expect("not poisoned").clone() }
    }

    fn describe(&self, known: Known) -> BoxFuture<'static, (Vec<Pod>, Vec<Container>)> {
        // As large as containers with many environment variables are.
        let env = vec!["X=1234567890".to_owned(); 100];
        let container = |id: &String| Container { id: id.clone(), env: env.clone(), ..Container::default() };
        let containers = known.containers.iter().map(container).collect();
        Box::pin(async { (Vec::new(), containers) })
    }

    fn update(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'static, Vec<ContainerUpdate>> {
        let (known, failed): (Vec<_>, Vec<_>) =
            updates.into_iter().partition(|update| update.container_id.starts_with('c'));
        self.updates.lock().expect("not poisoned").extend(known);
        Box::pin(async { failed })
    }

    fn evict(&self, evictions: Vec<PendingEviction>) {
        self.evictions.lock().expect("not poisoned").extend(evictions);
    }
}

struct Node {
    directory: TempDir,
    socket: PathBuf,
    plugins: Arc<Plugins>,
    engine: Arc<Engine>,
}

async fn node_with(change: impl FnOnce(&mut Config)) -> Node {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("nri/nri.sock");
    let mut config = Config {
        socket: Some(socket.clone()),
        plugin_dir: directory.path().join("plugins"),
        plugin_config_dir: directory.path().join("conf.d"),
        registration_timeout: 2 * TIMEOUT,
        request_timeout: TIMEOUT,
        required: Vec::new(),
        restrictions: Restrictions::default(),
        process_record: directory.path().join("processes.json"),
        runtime_name: "test".to_owned(),
        runtime_version: "v0".to_owned(),
    };
    change(&mut config);
    let (plugins, engine) = (Plugins::new(config), Arc::<Engine>::default());
    let host: Arc<dyn Host> = engine.clone();
    plugins.start(host).await.expect("started");
    Node { directory, socket, plugins, engine }
}

async fn node() -> Node {
    node_with(|_| ()).await
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Node {
    /// Connects a plugin and waits until it is synchronized.
    async fn add(&self, index: &str, name: &str, behaviour: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) {
        Plugin::connect(&self.socket, Arc::new(behaviour)).await.run(index, name);
        let full = format!("{index}-{name}");
        let listed = || self.plugins.list().iter().any(|info| info.name == full && info.synchronized);
        until(&format!("{full} is usable"), listed).await;
    }

    /// Has the plugins adjust a new container; returns the environment variables that they set.
    async fn create(&self, id: &str, required: &[&str]) -> Result<Vec<String>, nri::Error> {
        let required: Vec<String> = required.iter().map(|name| (*name).to_owned()).collect();
        let container = Container { id: id.to_owned(), ..Container::default() };
        let Some(round) = self.plugins.admit(id, &AtomicBool::new(false)) else {
            return self.plugins.check(&required).map(|()| Vec::new());
        };
        let (adjust, _) = round.create_container(&Pod::default(), container, &required).await?;
        Ok(adjust.env.into_iter().map(|variable| format!("{}={}", variable.key, variable.value)).collect())
    }

    fn names(&self) -> Vec<String> {
        self.plugins.list().into_iter().map(|info| info.name).collect()
    }
}

/// A plugin that sets an environment variable.
fn setting(key: &'static str, value: &'static str) -> impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static {
    move |method, argument| match method {
        "CreateContainer" => {
            let env = vec![KeyValue { key: key.to_owned(), value: value.to_owned() }];
            let adjust = Some(Adjustment { env, ..Adjustment::default() });
            Reply::message(&CreateResponse { adjust, ..CreateResponse::default() })
        }
        _ => neutral(method, argument),
    }
}

/// A plugin that does something else with one request.
fn breaking(at: &'static str, reply: impl Fn() -> Reply + Send + Sync + 'static) -> Behaviour {
    Arc::new(move |method, argument| if method == at { reply() } else { neutral(method, argument) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_are_called_in_the_order_of_their_indices_and_see_each_others_adjustments() {
    let node = node().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_second = Arc::clone(&seen);
    node.add("20", "second", move |method, argument| {
        if method == "CreateContainer" {
            let event = ContainerEvent::decode(argument).expect("an event");
            seen_by_second.lock().expect("not poisoned").extend(event.container.unwrap_or_default().env);
        }
        setting("B", "2")(method, argument)
    })
    .await;
    node.add("10", "first", setting("A", "1")).await;
    assert_eq!(node.names(), ["10-first", "20-second"]);
    assert_eq!(node.create("c1", &[]).await.expect("created"), ["A=1", "B=2"]);
    assert_eq!(*seen.lock().expect("not poisoned"), ["A=1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contradiction_between_plugins_and_a_refusal_fail_the_creation_and_name_the_plugin() {
    let node = node().await;
    node.add("10", "first", setting("A", "1")).await;
    node.add("20", "second", setting("A", "2")).await;
    let error = node.create("c1", &[]).await.expect_err("a conflict");
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("10-first") && error.message.contains("20-second"), "{error}");
    let node = self::node().await;
    let refuse: Behaviour = breaking("CreateContainer", || Reply::Refuse(2, "not on my node"));
    node.add("10", "strict", move |method, argument| refuse(method, argument)).await;
    let error = node.create("c1", &[]).await.expect_err("refused");
    assert!(error.message.contains("10-strict") && error.message.contains("not on my node"), "{error}");
    assert_eq!(node.names(), ["10-strict"], "a refusal is not a failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_hangs_dies_or_sends_garbage_costs_one_timeout_and_is_gone() {
    let failures: [fn() -> Reply; 5] = [
        || Reply::Hang,
        || Reply::Die,
        || Reply::Raw(vec![0xff; 64]),
        || Reply::Raw([&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0xff; 10]].concat()),
        || Reply::Answer(vec![0xff; 64]),
    ];
    for failure in failures {
        let node = node().await;
        node.add("10", "good", setting("A", "1")).await;
        let broken = breaking("CreateContainer", failure);
        node.add("20", "broken", move |method, argument| broken(method, argument)).await;
        let began = Instant::now();
        assert_eq!(node.create("c1", &[]).await.expect("created without it"), ["A=1"]);
        assert!(began.elapsed() < 3 * TIMEOUT, "{:?}", began.elapsed());
        until("the broken plugin is gone", || node.names() == ["10-good"]).await;
        let began = Instant::now();
        assert_eq!(node.create("c2", &[]).await.expect("created"), ["A=1"]);
        assert!(began.elapsed() < TIMEOUT, "the next request does not wait: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_fails_without_a_required_plugin_and_by_the_policy_of_a_plugin() {
    let node = node().await;
    let error = node.create("c1", &["guard"]).await.expect_err("absent");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("guard is required"), "{error}");
    node.add("10", "guard", setting("G", "1")).await;
    assert_eq!(node.create("c1", &["guard"]).await.expect("created"), ["G=1"]);

    let node = self::node().await;
    let dies = breaking("CreateContainer", || Reply::Die);
    node.add("10", "guard", move |method, argument| dies(method, argument)).await;
    let error = node.create("c1", &["guard"]).await.expect_err("it died during the request");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");

    let node = self::node().await;
    let strict = |method: &str, argument: &[u8]| match method {
        "Configure" => {
            let failure_policy = Some(FailurePolicy { fail_request: true, keep_connected: true });
            Reply::message(&Subscription { events: 0, failure_policy })
        }
        "CreateContainer" => Reply::Hang,
        _ => neutral(method, argument),
    };
    node.add("10", "strict", strict).await;
    let error = node.create("c1", &[]).await.expect_err("its policy");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert_eq!(node.names(), ["10-strict"], "and it stays connected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_waits_for_a_required_plugin_that_is_about_to_register() {
    let node = node_with(|config| {
        config.required = vec!["guard".to_owned()];
        config.registration_timeout = Duration::from_secs(5);
    })
    .await;
    let plugins = Arc::clone(&node.plugins);
    let waiting = tokio::spawn(async move { plugins.require(&BTreeMap::new(), "web").await });
    node.add("10", "guard", setting("G", "1")).await;
    assert_eq!(waiting.await.expect("no panic").expect("it is present"), ["guard"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_breaks_off_while_it_joins_blocks_nobody() {
    let node = node().await;
    node.add("50", "good", setting("A", "1")).await;
    let replies: [fn() -> Reply; 3] = [|| Reply::Hang, || Reply::Die, || Reply::Raw(vec![0xff; 64])];
    for at in ["Configure", "Synchronize"] {
        for reply in replies {
            Plugin::connect(&node.socket, breaking(at, reply)).await.run("10", "joiner");
            let began = Instant::now();
            assert_eq!(node.create("c1", &[]).await.expect("created"), ["A=1"]);
            assert!(began.elapsed() < 2 * TIMEOUT, "{at}: {:?}", began.elapsed());
        }
    }
    // Connects and registers nothing at all.
    let _silent = Plugin::connect(&node.socket, Arc::new(neutral)).await;
    assert_eq!(node.create("c2", &[]).await.expect("created"), ["A=1"]);
    until("only the good plugin is left", || node.names() == ["50-good"]).await;
    let bad = [("1", "name"), ("ab", "name"), ("10", ""), ("10", "a/b")];
    for (index, name) in bad {
        Plugin::connect(&node.socket, Arc::new(neutral)).await.run(index, name).await.expect("it is disconnected");
    }
    assert_eq!(node.names(), ["50-good"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_container_is_either_synchronized_or_goes_through_the_plugin() {
    let node = Arc::new(node().await);
    let (synchronized, created) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let creating = {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            for n in 0..300 {
                let id = format!("c{n:03}");
                // Known from the moment of the mark, as in the engine.
                node.engine.known.lock().expect("not poisoned").push(id.clone());
                node.create(&id, &[]).await.expect("created");
                tokio::task::yield_now().await;
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (to_synchronized, to_created) = (Arc::clone(&synchronized), Arc::clone(&created));
    node.add("10", "observer", move |method, argument| {
        match method {
            "Synchronize" => {
                let request = Synchronize::decode(argument).expect("a synchronization");
                let ids = request.containers.into_iter().map(|container| container.id);
                to_synchronized.lock().expect("not poisoned").extend(ids);
            }
            "CreateContainer" => {
                let event = ContainerEvent::decode(argument).expect("an event");
                to_created.lock().expect("not poisoned").push(event.container.unwrap_or_default().id);
            }
            _ => {}
        }
        neutral(method, argument)
    })
    .await;
    creating.await.expect("no panic");
    node.create("c999", &[]).await.expect("created");
    let mut all = synchronized.lock().expect("not poisoned").clone();
    all.extend(created.lock().expect("not poisoned").clone());
    all.sort();
    let expected: Vec<String> = (0..300).chain([999]).map(|n| format!("c{n:03}")).collect();
    assert_eq!(all, expected, "each exactly once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_containers_are_synchronized_in_several_messages() {
    let node = node_with(|config| config.request_timeout = Duration::from_secs(5)).await;
    *node.engine.known.lock().expect("not poisoned") = (0..5000).map(|n| format!("c{n}")).collect();
    let (messages, containers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (to_messages, to_containers) = (Arc::clone(&messages), Arc::clone(&containers));
    let update = ContainerUpdate { container_id: "c7".to_owned(), ..ContainerUpdate::default() };
    node.add("10", "observer", move |method, argument| {
        if method == "Synchronize" {
            let request = Synchronize::decode(argument).expect("a synchronization");
            to_messages.fetch_add(1, Ordering::Relaxed);
            to_containers.fetch_add(request.containers.len(), Ordering::Relaxed);
            let update = if request.more { Vec::new() } else { vec![update.clone()] };
            return Reply::message(&Synchronized { more: request.more, update });
        }
        neutral(method, argument)
    })
    .await;
    assert_eq!(containers.load(Ordering::Relaxed), 5000);
    assert!(messages.load(Ordering::Relaxed) > 1, "they do not fit into one");
    until("the update of the synchronization is made", || {
        !node.engine.updates.lock().expect("not poisoned").is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_can_update_and_evict_containers_once_it_is_registered() {
    let node = node().await;
    let registration =
        RegisterPlugin { plugin_name: "x".to_owned(), plugin_idx: "10".to_owned(), ..Default::default() };
    let update = |id: &str| ContainerUpdate { container_id: id.to_owned(), ..ContainerUpdate::default() };
    let evict = vec![Eviction { container_id: "c3".to_owned(), reason: "noisy".to_owned() }];
    let request = UpdateContainers { update: vec![update("c1"), update("unknown")], evict };
    let mut plugin = Plugin::connect(&node.socket, Arc::new(neutral)).await;
    let early = plugin.call("UpdateContainers", &request).await.expect_err("not registered");
    assert!(early.contains("not registered"), "{early}");
    let mut plugin = Plugin::connect(&node.socket, Arc::new(neutral)).await;
    plugin.call("RegisterPlugin", &registration).await.expect("registered");
    tokio::spawn(async move {
        // Serves Configure and Synchronize, then requests updates.
        let _ = tokio::time::timeout(TIMEOUT / 2, plugin.serve_all()).await;
        let failed = plugin.call("UpdateContainers", &request).await.expect("answered");
        let failed = nri::messages::FailedUpdates::decode(&*failed).expect("an answer");
        assert_eq!(failed.failed.len(), 1);
    })
    .await
    .expect("no panic");
    assert_eq!(node.engine.updates.lock().expect("not poisoned").len(), 1);
    assert_eq!(node.engine.evictions.lock().expect("not poisoned").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_without_a_method_for_an_event_gets_it_in_the_old_form() {
    let node = node().await;
    let changes = Arc::new(Mutex::new(Vec::new()));
    let to_changes = Arc::clone(&changes);
    node.add("10", "old", move |method, argument| match method {
        "RunPodSandbox" => Reply::Refuse(12, "unknown method"),
        "StateChange" => {
            let change = nri::messages::StateChange::decode(argument).expect("an event");
            to_changes.lock().expect("not poisoned").push(change.event);
            Reply::empty()
        }
        _ => neutral(method, argument),
    })
    .await;
    for _ in 0..2 {
        let round = node.plugins.round().expect("a plugin");
        round.pod_event(Event::RunPodSandbox, &Pod::default(), &[]).await.expect("delivered");
    }
    assert_eq!(*changes.lock().expect("not poisoned"), [1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_of_a_running_engine_is_not_taken_over_and_a_leftover_one_is() {
    let first = node().await;
    let mut config = first.plugins.config().clone();
    let host: Arc<dyn Host> = first.engine.clone();
    let refused = Plugins::new(config.clone()).start(Arc::clone(&host)).await.expect_err("it is served");
    assert!(refused.contains("another engine"), "{refused}");
    let leftover = first.directory.path().join("leftover.sock");
    drop(std::os::unix::net::UnixListener::bind(&leftover).expect("a socket"));
    config.socket = Some(leftover);
    Plugins::new(config).start(host).await.expect("started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launched_program_that_does_not_register_is_killed_and_one_of_a_killed_daemon_too() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let (plugins, pids) = (directory.path().join("plugins"), directory.path().join("pids"));
    std::fs::create_dir(&plugins).expect("a directory");
    let program = plugins.join("10-sleeper");
    std::fs::write(&program, format!("#!/bin/sh\necho $$ >> {}\nexec sleep 1000\n", pids.display())).expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("executable");
    std::fs::write(plugins.join("README"), "not a plugin").expect("written");
    // What a daemon that was killed leaves over.
    let mut leftover = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", leftover.id())).expect("its stat");
    let start = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19).expect("a start time").to_owned();
    let record = directory.path().join("processes.json");
    std::fs::write(&record, format!("{{\"{}\":{start}}}", leftover.id())).expect("written");
    let node = node_with(|config| {
        config.plugin_dir = plugins;
        config.process_record = record;
    })
    .await;
    // It is a child of this process, so it is reaped, too.
    leftover.wait().expect_err("it is reaped already");
    let launched = || std::fs::read_to_string(&pids).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    until("it is launched again", || launched().len() >= 2).await;
    let first = &launched()[0];
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists(), "{first} was killed");
    assert!(node.names().is_empty());
}
