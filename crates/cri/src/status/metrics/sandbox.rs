use cri_proto::encoded::Row;
use pod::{Counters, SandboxStats};

use super::{
    Filesystem, container,
    families::{
        NETWORK_RX_BYTES, NETWORK_RX_DROPPED, NETWORK_RX_ERRORS, NETWORK_RX_PACKETS, NETWORK_TX_BYTES,
        NETWORK_TX_DROPPED, NETWORK_TX_ERRORS, NETWORK_TX_PACKETS,
    },
    writer::{Writer, nested, text},
};

/// Value of the label `container` for a metric of the pod itself.
const POD: &str = "POD";
/// Tag in `PodSandboxMetrics`.
const ID: u32 = 1;
const CONTAINER_METRICS: u32 = 3;

/// Encodes the `PodSandboxMetrics` of a pod.
pub(crate) fn of_sandbox(stats: &SandboxStats, filesystem: &Filesystem) -> Row {
    let (sandbox, mut out) = (&stats.sample.sandbox, Vec::with_capacity(16 * 1024));
    text(ID, sandbox.id.as_str(), &mut out);
    let name = &sandbox.config.name;
    let labels = [POD, sandbox.id.as_str(), "", name.namespace.as_str(), name.name.as_str()];
    let mut writer = Writer::new(&mut out, labels, stats.sample.at);
    stats.sample.network.iter().for_each(|interface| network(&mut writer, interface));
    let mut metrics = Vec::with_capacity(16 * 1024);
    for container in &stats.containers {
        metrics.clear();
        container::write(&mut metrics, container, name, filesystem);
        nested(CONTAINER_METRICS, &metrics, &mut out);
    }
    Row::from_encoded(&[&out])
}

fn network(writer: &mut Writer<'_>, counters: &Counters) {
    let interface = counters.interface.as_str();
    for (family, value) in [
        (&NETWORK_RX_BYTES, counters.rx_bytes),
        (&NETWORK_RX_PACKETS, counters.rx_packets),
        (&NETWORK_RX_DROPPED, counters.rx_dropped),
        (&NETWORK_RX_ERRORS, counters.rx_errors),
        (&NETWORK_TX_BYTES, counters.tx_bytes),
        (&NETWORK_TX_PACKETS, counters.tx_packets),
        (&NETWORK_TX_DROPPED, counters.tx_dropped),
        (&NETWORK_TX_ERRORS, counters.tx_errors),
    ] {
        writer.add(family, [interface], value);
    }
}
