//! The connection of the kubelet and crictl to the runtime.

use std::path::PathBuf;

use crate::{Engine, Node, finding::Verdict, kubelet::normalized};

/// Where the kubelet's cAdvisor looks for a CRI-O.
const CADVISOR_SOCKET: &str = "/run/crio/crio.sock";

pub(super) fn endpoint(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = &node.kubelet else { return vec![Verdict::ok("the node does not have a kubelet")] };
    if node.is_switched() {
        return vec![Verdict::ok(format!("the kubelet uses {}", kubelet.endpoint()))];
    }
    let place = match kubelet.flags.get("container-runtime-endpoint") {
        Some(_) => "the flag --container-runtime-endpoint (/var/lib/kubelet/kubeadm-flags.env)".to_owned(),
        None => format!("containerRuntimeEndpoint in {}", kubelet.file().display()),
    };
    let fix = format!("set {place} to unix://{}; systemctl restart kubelet", node.settings.socket.display());
    vec![Verdict::warning(format!("the kubelet uses {}, not Pinion", kubelet.endpoint())).fix(fix)]
}

pub(super) fn image_endpoint(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = node.kubelet.as_ref().filter(|_| node.is_switched()) else {
        return vec![Verdict::ok("not needed: the kubelet does not use Pinion")];
    };
    let endpoint = kubelet.setting("image-service-endpoint", "imageServiceEndpoint").unwrap_or_default();
    let is_own = normalized(endpoint.strip_prefix("unix://").unwrap_or(&endpoint)) == node.settings.socket;
    vec![match endpoint.is_empty() || is_own {
        true => Verdict::ok("images are pulled by Pinion"),
        false => Verdict::problem(format!("the kubelet pulls images by {endpoint}"))
            .fix(format!("remove imageServiceEndpoint from {}; systemctl restart kubelet", kubelet.file().display())),
    }]
}

pub(super) fn unit(node: &Node) -> Vec<Verdict> {
    let Some(unit) = node.kubelet.as_ref().and_then(|kubelet| kubelet.unit.as_ref()) else {
        return vec![Verdict::ok("kubelet.service does not exist")];
    };
    let mut verdicts = Vec::new();
    for engine in Engine::ALL.map(Engine::unit) {
        if ["Requires", "BindsTo", "Requisite"].iter().any(|directive| unit.lists(directive, engine)) {
            verdicts.push(
                Verdict::problem(format!("kubelet.service requires {engine}"))
                    .fix(format!("systemctl edit --full kubelet, and replace {engine} by pinion.service")),
            );
        }
    }
    if !unit.lists("After", "pinion.service") {
        let drop_in = "/etc/systemd/system/kubelet.service.d/20-pinion.conf";
        let command = format!(
            "mkdir -p {} && printf '[Unit]\\nWants=pinion.service\\nAfter=pinion.service\\n' > {drop_in} && systemctl daemon-reload",
            drop_in.rsplit_once('/').map_or("/", |(directory, _)| directory)
        );
        let text = "kubelet.service is not ordered after pinion.service: at boot the kubelet may wait for the socket";
        verdicts.push(Verdict::notice(text).fix(command));
    }
    if verdicts.is_empty() { vec![Verdict::ok("kubelet.service starts after pinion.service")] } else { verdicts }
}

pub(super) fn metrics(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = &node.kubelet else { return vec![Verdict::ok("the node does not have a kubelet")] };
    if kubelet.gate("PodAndContainerStatsFromCRI") == Some(true) {
        return vec![Verdict::ok("PodAndContainerStatsFromCRI is on: all metrics come from Pinion")];
    }
    let socket = node.settings.cadvisor_socket.as_ref().map(|path| normalized(&path.to_string_lossy()));
    let gate = format!("set featureGates: {{PodAndContainerStatsFromCRI: true}} in {}", kubelet.file().display());
    let key = format!("cadvisor.socket = \"{CADVISOR_SOCKET}\" in Pinion's configuration");
    vec![match socket {
        Some(socket) if socket.as_os_str() == CADVISOR_SOCKET => Verdict::ok(format!(
            "PodAndContainerStatsFromCRI is off: cAdvisor measures Pinion's containers, and finds them by {CADVISOR_SOCKET}"
        )),
        Some(socket) => Verdict::warning(format!(
            "PodAndContainerStatsFromCRI is off, and the kubelet's cAdvisor does not look for Pinion's containers at {}",
            socket.display()
        ))
        .fix(format!("set {key}; systemctl restart pinion kubelet")),
        None => Verdict::warning(
            "the feature gate PodAndContainerStatsFromCRI is off: /metrics/cadvisor has no containers of Pinion, \
             /stats/summary has no network and process counts of pods",
        )
        .fix(format!(
            "{gate}; systemctl restart kubelet; or, without the gate, set {key}; systemctl restart pinion kubelet"
        )),
    }]
}

pub(super) fn crictl(node: &Node) -> Vec<Verdict> {
    let text = node.host.read("/etc/crictl.yaml").unwrap_or_default();
    let endpoint = text.lines().find_map(|line| line.strip_prefix("runtime-endpoint:"));
    let endpoint = endpoint.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).unwrap_or_default();
    let socket = normalized(endpoint.strip_prefix("unix://").unwrap_or(&endpoint));
    let line = format!("runtime-endpoint: unix://{}", node.settings.socket.display());
    vec![match (socket == node.settings.socket, socket == PathBuf::new()) {
        (true, _) => Verdict::ok("crictl uses Pinion"),
        (_, true) if node.host.program("crictl").is_none() => Verdict::ok("crictl is not installed"),
        (_, true) => {
            Verdict::notice("/etc/crictl.yaml names no endpoint").fix(format!("echo '{line}' > /etc/crictl.yaml"))
        }
        (false, false) => {
            Verdict::notice(format!("crictl uses {endpoint}")).fix(format!("echo '{line}' > /etc/crictl.yaml"))
        }
    }]
}
