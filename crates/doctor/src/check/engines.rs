//! Other engines and what they left.

use crate::{Engine, Node, finding::Verdict};

/// Bridges of other engines.
const BRIDGES: [(&str, &str); 4] =
    [("cni0", "the CNI plugin bridge"), ("docker0", "Docker"), ("cni-podman0", "Podman"), ("crio0", "CRI-O")];
/// Beginnings of the names of chains, and the program that made them.
const CHAINS: [(&str, &str); 3] = [(":CNI-", "CNI plugins"), (":DOCKER", "Docker"), (":KUBE-HOSTPORT", "CRI-O")];

pub(super) fn containerd(node: &Node) -> Vec<Verdict> {
    engine(node, Engine::Containerd)
}

pub(super) fn crio(node: &Node) -> Vec<Verdict> {
    engine(node, Engine::Crio)
}

pub(super) fn docker(node: &Node) -> Vec<Verdict> {
    engine(node, Engine::Docker)
}

pub(super) fn cri_dockerd(node: &Node) -> Vec<Verdict> {
    engine(node, Engine::CriDockerd)
}

fn engine(node: &Node, engine: Engine) -> Vec<Verdict> {
    let name = engine.name();
    let Some(found) = node.engine(engine).filter(|found| found.is_present() || !found.data.is_empty()) else {
        return vec![Verdict::ok(format!("{name} is not on this node"))];
    };
    let text = format!("{name}: {}", found.describe());
    let has_docker = node.engine(Engine::Docker).is_some_and(|docker| docker.daemon.is_some());
    if engine == Engine::Containerd && has_docker && node.kubelet.as_ref().is_none_or(|_| node.is_switched()) {
        return vec![Verdict::notice(format!("{text}; Docker uses it"))];
    }
    let disable = format!("systemctl disable --now {}", engine.unit());
    let socket = node.kubelet.as_ref().map(|kubelet| kubelet.socket());
    let is_used = socket.is_some_and(|socket| engine.sockets().iter().any(|own| socket.as_os_str() == *own));
    vec![match (is_used, found.is_present(), found.containers + found.mounts > 0) {
        (true, ..) => Verdict::notice(format!("{text}; the kubelet uses it")).fix(migrate(engine)),
        (false, false, _) => {
            let data: Vec<String> = found.data.iter().map(|path| path.display().to_string()).collect();
            Verdict::notice(text).fix(format!("when you do not go back: rm -rf {}", data.join(" ")))
        }
        (false, true, false) => Verdict::notice(text).fix(disable),
        (false, true, true) => Verdict::warning(format!("{text}; the kubelet does not use it")).fix(match engine {
            Engine::Docker => {
                "docker rm -f $(docker ps -aq); systemctl disable --now docker.service docker.socket".to_owned()
            }
            engine => match engine.sockets().first() {
                Some(socket) => format!("crictl -r unix://{socket} rmp -fa; {disable}"),
                None => disable,
            },
        }),
    }]
}

fn migrate(engine: Engine) -> &'static str {
    match engine {
        Engine::Containerd => "pinion migrate containerd",
        Engine::Crio => "pinion migrate crio",
        Engine::Docker | Engine::CriDockerd => "pinion migrate docker",
    }
}

/// Whether any other engine runs or has containers.
fn has_engine(node: &Node) -> bool {
    node.engines.iter().any(|found| found.daemon.is_some() || found.containers > 0)
}

pub(super) fn interfaces(node: &Node) -> Vec<Verdict> {
    let interfaces = node.host.list("/sys/class/net");
    let first = super::cni::files(node).first().and_then(|path| node.host.read(path)).unwrap_or_default();
    let mut verdicts = Vec::new();
    for (bridge, owner) in BRIDGES.iter().filter(|(bridge, _)| interfaces.iter().any(|name| name == bridge)) {
        // The configuration that Pinion uses may name the same bridge.
        if !has_engine(node) && !first.contains(&format!("\"{bridge}\"")) {
            verdicts.push(
                Verdict::warning(format!("the bridge {bridge} of {owner} is left, and no other engine is running"))
                    .fix(format!("ip link delete {bridge}")),
            );
        }
    }
    if verdicts.is_empty() { vec![Verdict::ok("no bridge is left of another engine")] } else { verdicts }
}

pub(super) fn namespaces(node: &Node) -> Vec<Verdict> {
    // containerd and CRI-O name them cni-UUID and UUID.
    let pins = node.host.list("/run/netns").into_iter().filter(|name| name.starts_with("cni-"));
    let count = pins.count();
    vec![match count > 0 && !has_engine(node) {
        false => Verdict::ok("no network namespace is left of another engine"),
        true => Verdict::warning(format!("{count} network namespaces of another engine's pods are left in /run/netns"))
            .fix("for ns in /run/netns/cni-*; do ip netns delete ${ns##*/}; done"),
    }]
}

pub(super) fn rules(node: &Node) -> Vec<Verdict> {
    let rules = node.rules.as_deref().unwrap_or_default();
    let mut verdicts = Vec::new();
    for (chain, owner) in CHAINS.iter().filter(|_| !has_engine(node)) {
        let count = rules.lines().filter(|line| line.starts_with(chain)).count();
        if count > 0 {
            let text = format!("{count} iptables chains of {owner} are left, and no other engine is running");
            verdicts
                .push(Verdict::notice(text).fix("reboot, or remove them by iptables -F CHAIN and iptables -X CHAIN"));
        }
    }
    if verdicts.is_empty() { vec![Verdict::ok("no rules are left of another engine")] } else { verdicts }
}
