//! A node with NRI plugins.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nri::messages::{Adjustment, ContainerEvent, CreateResponse, PodEvent, Synchronize};
use pod::Engine;
use prost::Message;

use crate::{
    node::{Node, TIMEOUT},
    plugin::{Plugin, Reply, neutral},
};

/// How long a plugin has to answer a request.
pub(crate) const REQUEST: Duration = Duration::from_millis(500);

/// Enables the interface.
pub(crate) fn enable(node: &mut Node) {
    node.config.plugins = Some(pod::PluginConfig {
        socket: Some(node.dir.join("nri.sock")),
        plugin_dir: node.dir.join("plugins"),
        plugin_config_dir: node.dir.join("conf.d"),
        registration_timeout: Duration::from_secs(1),
        request_timeout: REQUEST,
        required: Vec::new(),
        restrictions: pod::PluginRestrictions::default(),
        process_record: node.dir.join("nri-plugins.json"),
        runtime_name: "pinion".to_owned(),
        runtime_version: "v0".to_owned(),
    });
}

/// Connects a plugin and waits until it is synchronized.
pub(crate) async fn add(
    node: &Node,
    engine: &Engine,
    (index, name): (&str, &str),
    behaviour: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static,
) {
    Plugin::connect(&node.dir.join("nri.sock"), Arc::new(behaviour)).await.run(index, name);
    let full = format!("{index}-{name}");
    let deadline = Instant::now() + TIMEOUT;
    while !engine.plugins().iter().any(|info| info.name == full && info.synchronized) {
        assert!(Instant::now() < deadline, "{full} is not registered");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn respond(adjust: Adjustment) -> Reply {
    Reply::message(&CreateResponse { adjust: Some(adjust), ..CreateResponse::default() })
}

pub(crate) fn text(text: &str) -> String {
    text.to_owned()
}

/// What a plugin of [`logger`] has received.
pub(crate) type Events = Arc<Mutex<Vec<String>>>;

/// Returns a plugin that records its requests: each method with the pod and the container that it is about.
pub(crate) fn logger(events: &Events) -> impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static {
    let events = Arc::clone(events);
    move |method, argument| {
        let name = match method {
            "Configure" | "ValidateContainerAdjustment" => return neutral(method, argument),
            "Synchronize" => {
                let all = Synchronize::decode(argument).expect("a synchronization");
                format!("{} pods, {} containers", all.pods.len(), all.containers.len())
            }
            _ if method.contains("Pod") => PodEvent::decode(argument).expect("an event").pod.unwrap_or_default().name,
            _ => {
                let event = ContainerEvent::decode(argument).expect("an event");
                format!("{}/{}", event.pod.unwrap_or_default().name, event.container.unwrap_or_default().name)
            }
        };
        events.lock().expect("not poisoned").push(format!("{method} {name}"));
        neutral(method, argument)
    }
}

/// Returns what was recorded, and forgets it.
pub(crate) fn take(events: &Events) -> Vec<String> {
    std::mem::take(&mut *events.lock().expect("not poisoned"))
}
