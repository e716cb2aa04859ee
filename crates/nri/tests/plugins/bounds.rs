//! What a plugin can send is bounded.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use nri::{
    ErrorKind,
    messages::{Container, CreateResponse, Eviction, Pod, RegisterPlugin, UpdateContainers},
};
use prost::Message;

use crate::{
    Node, TIMEOUT, breaking, node,
    plugin::{Plugin, Reply, neutral},
    until,
};

/// Requests of a plugin that registered, one after the other, as [`Plugin::call`] answers them.
async fn request_updates(node: &Node, requests: Vec<Vec<u8>>) -> Vec<Result<Vec<u8>, String>> {
    let mut plugin = Plugin::connect(&node.socket, Arc::new(neutral)).await;
    let registration =
        RegisterPlugin { plugin_name: "x".to_owned(), plugin_idx: "10".to_owned(), ..Default::default() };
    plugin.call("RegisterPlugin", &registration).await.expect("registered");
    let _ = tokio::time::timeout(TIMEOUT / 2, plugin.serve_all()).await;
    let mut answers = Vec::new();
    for request in requests {
        answers.push(plugin.call_encoded("UpdateContainers", request).await);
    }
    answers
}

fn evictions(count: usize) -> Vec<Eviction> {
    vec![Eviction { container_id: "c1".to_owned(), reason: "noisy".to_owned() }; count]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_evictions_in_progress_of_a_plugin_are_bounded() {
    let node = node().await;
    let request = |count| UpdateContainers { evict: evictions(count), ..Default::default() }.encode_to_vec();
    let answers = request_updates(&node, vec![request(257), request(200), request(57), request(56)]).await;
    for refused in [&answers[0], &answers[2]] {
        let error = refused.as_ref().expect_err("too many");
        assert!(error.starts_with("8: ") && error.ends_with("at most 256 are allowed"), "{error}");
    }
    assert!(answers[1].is_ok() && answers[3].is_ok(), "{answers:?}");
    assert_eq!(node.engine.evictions.lock().expect("not poisoned").len(), 256);

    let node = crate::node().await;
    let evict = |count| Reply::message(&CreateResponse { evict: evictions(count), ..CreateResponse::default() });
    let count = Arc::new(AtomicUsize::new(257));
    let requested = Arc::clone(&count);
    node.add("10", "evictor", move |method, argument| match method {
        "CreateContainer" => evict(requested.load(Ordering::Relaxed)),
        _ => neutral(method, argument),
    })
    .await;
    let create = async || {
        let round = node.plugins.admit("c2", &AtomicBool::new(false)).expect("a plugin");
        let created = round.create_container(&Pod::default(), Container::default(), &[]).await;
        created.map(|(_, changes)| changes.evictions)
    };
    let error = create().await.expect_err("too many");
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("10-evictor") && error.message.contains("at most 256"), "{error}");
    count.store(256, Ordering::Relaxed);
    let in_progress = create().await.expect("within the bound");
    create().await.expect_err("they are in progress");
    drop(in_progress);
    assert_eq!(create().await.expect("they ended").len(), 256);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_many_empty_entries_is_refused_before_it_is_decoded() {
    /// Field 1 with a length of 0: an update without contents.
    const EMPTY: [u8; 2] = [0x0a, 0x00];
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
    };
    let node = node().await;
    // As long as a message may be, with its envelope.
    let message = EMPTY.repeat((2 << 20) - 100);
    let before = peak();
    let answers = request_updates(&node, vec![message.clone()]).await;
    let error = answers[0].as_ref().expect_err("too many");
    assert!(error.contains("more than 32768 entries of lists and maps in one message"), "{error}");
    let answers = breaking("StopContainer", move || Reply::Answer(message.clone()));
    node.add("10", "flooding", move |method, argument| answers(method, argument)).await;
    let changes = node.plugins.round().expect("a plugin").stop_container(None, Container::default()).await;
    assert!(changes.updates.is_empty());
    until("it is disconnected", || node.names().is_empty()).await;
    let grown = peak() - before;
    assert!(grown < 200, "{grown} MiB for a message of 4 MiB");
}
