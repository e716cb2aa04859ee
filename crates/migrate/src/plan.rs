//! What a switch stops, and the steps there and back.

use doctor::Node;
use serde::Serialize;

use crate::{Inventory, Pod, Source, runtimes};

/// A step that a person performs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it does.
    pub purpose: String,
    /// The command.
    pub command: String,
}

fn step(purpose: &str, command: impl Into<String>) -> Step {
    Step { purpose: purpose.to_owned(), command: command.into() }
}

/// The consequences of a switch, and its steps.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Pods that the kubelet creates again.
    pub pods: Vec<Pod>,
    /// Files of static pods, which the kubelet starts again by itself.
    pub static_pods: Vec<String>,
    /// Runtime handlers that Pinion does not serve: pods with their RuntimeClass are refused.
    pub handlers: Vec<String>,
    /// What stops or changes, for people.
    pub consequences: Vec<String>,
    /// The commands of the switch, in order.
    pub steps: Vec<Step>,
    /// The commands to go back.
    pub back: Vec<Step>,
}

/// Plans the switch of a node from the engine of an inventory.
#[must_use]
pub fn plan(node: &Node, inventory: &Inventory) -> Plan {
    let mut handlers = runtimes::handlers(&node.host, inventory.source);
    // Runtimes that containers use, other than the shim of runc.
    let used = inventory.pods.iter().flat_map(|pod| &pod.runtimes).filter(|name| !name.contains(".runc."));
    handlers.extend(used.cloned());
    handlers.sort();
    handlers.dedup();
    let directory = node.kubelet.as_ref().and_then(|kubelet| kubelet.static_pods());
    let static_pods: Vec<String> = directory
        .iter()
        .flat_map(|directory| {
            node.host.list(directory).into_iter().map(|name| directory.join(name).display().to_string())
        })
        .collect();
    Plan {
        consequences: consequences(inventory, &static_pods, &handlers),
        steps: steps(node, inventory.source),
        back: back(node, inventory.source),
        pods: inventory.pods.clone(),
        static_pods,
        handlers,
    }
}

fn consequences(inventory: &Inventory, static_pods: &[String], handlers: &[String]) -> Vec<String> {
    let containers: usize = inventory.pods.iter().map(|pod| pod.containers).sum();
    let mut lines = vec![
        format!(
            "{} pods with {containers} containers stop; the kubelet creates those that are still assigned to the node again",
            inventory.pods.len()
        ),
        "pods get new addresses; connections and port-forwards end; restart counts begin at 0".to_owned(),
        "writable layers and logs of the old containers are lost; volumes (emptyDir, hostPath, claims) stay".to_owned(),
        "the CNI configuration in /etc/cni/net.d is used as it is; addresses are released by the old engine when it \
         removes its pods, so remove them before you stop it"
            .to_owned(),
    ];
    if !static_pods.is_empty() {
        lines.push(format!(
            "{} static pods stop, too; on a control plane the API server is away until the kubelet has started it again",
            static_pods.len()
        ));
    }
    if !handlers.is_empty() {
        lines.push(format!(
            "pods whose RuntimeClass has one of these handlers are refused: {}; schedule them elsewhere first",
            handlers.join(", ")
        ));
    }
    lines
}

/// Returns the command that sets the kubelet's endpoint.
fn set_endpoint(node: &Node, endpoint: &str) -> Step {
    let kubelet = node.kubelet.as_ref();
    let purpose = "point the kubelet to the other socket";
    if kubelet.is_some_and(doctor::Kubelet::has_endpoint_flag) {
        let file = "/var/lib/kubelet/kubeadm-flags.env";
        let change = format!("s#--container-runtime-endpoint=[^ \"]*#--container-runtime-endpoint={endpoint}#");
        return step(purpose, format!("cp {file} {file}.old && sed -i '{change}' {file}"));
    }
    let file = kubelet.map_or("/var/lib/kubelet/config.yaml".into(), doctor::Kubelet::file);
    let is_json = node.host.read(&file).is_some_and(|text| text.trim_start().starts_with('{'));
    let file = quoted(&file.display().to_string());
    if is_json {
        return step(purpose, format!("# set \"containerRuntimeEndpoint\" to \"{endpoint}\" in {file}"));
    }
    step(
        purpose,
        format!(
            "cp {file} {file}.old && sed -i '/^containerRuntimeEndpoint:/d' {file} && printf '\\ncontainerRuntimeEndpoint: {endpoint}\\n' >> {file}"
        ),
    )
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn annotate(endpoint: &str) -> Step {
    let annotation = format!("kubeadm.alpha.kubernetes.io/cri-socket={endpoint}");
    step(
        "record the socket for kubeadm, if it made the node",
        format!("kubectl annotate node NODE {annotation} --overwrite"),
    )
}

/// Returns the socket that kubelets use with the engine.
fn old_endpoint(node: &Node, source: Source) -> String {
    match (&node.kubelet, node.is_switched()) {
        (Some(kubelet), false) => kubelet.endpoint(),
        _ => {
            let engine = if source == Source::Docker { doctor::Engine::CriDockerd } else { source.engine() };
            format!("unix://{}", engine.sockets().first().copied().unwrap_or_default())
        }
    }
}

fn units(source: Source) -> &'static str {
    match source {
        Source::Containerd => "containerd",
        Source::Crio => "crio",
        Source::Docker => "cri-docker.socket cri-docker docker.socket docker",
    }
}

fn steps(node: &Node, source: Source) -> Vec<Step> {
    let own = format!("unix://{}", node.settings.socket.display());
    let name = match source {
        Source::Containerd => "containerd",
        Source::Crio => "crio",
        Source::Docker => "docker",
    };
    vec![
        step("check the node", "pinion doctor"),
        step("start Pinion next to the old engine", "systemctl enable --now pinion"),
        step("import the images while pods still run", format!("pinion migrate {name} --images")),
        step("move the pods to other nodes", "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"),
        step("stop the kubelet", "systemctl stop kubelet"),
        step("remove the pods that are left", format!("crictl -r {} rmp -fa", old_endpoint(node, source))),
        step("stop the old engine", format!("systemctl disable --now {}", units(source))),
        set_endpoint(node, &own),
        step("start the kubelet", "systemctl start kubelet"),
        annotate(&own),
        step("check the node again", "pinion doctor"),
        step("accept pods", "kubectl uncordon NODE"),
    ]
}

fn back(node: &Node, source: Source) -> Vec<Step> {
    let old = old_endpoint(node, source);
    vec![
        step("move the pods to other nodes", "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"),
        step("stop the kubelet", "systemctl stop kubelet"),
        step("remove the pods that are left", "pinion pods rm -f --all"),
        step("stop Pinion", "systemctl disable --now pinion"),
        step("start the old engine", format!("systemctl enable --now {}", units(source))),
        set_endpoint(node, &old),
        step("start the kubelet", "systemctl start kubelet"),
        annotate(&old),
        step("accept pods", "kubectl uncordon NODE"),
    ]
}
