//! `pinion network trace`: the way of a packet from a pod.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::net::UnixStream,
    path::Path,
    str::FromStr,
    time::Duration,
};

use cri_proto::v1;
use netns::Namespace;
use packet_trace::{Answer, Place, Probe, Request};
use rustix::{
    net::sockopt::socket_peercred,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use serde_json::Value;

use super::trace_text;
use crate::{Client, Failure, command::pods, lookup, output};

/// Longest wait for an answer in seconds.
const PATIENCE_MAX: f64 = 60.0;

/// Arguments of `pinion network trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or id of the pod, or of a container
    pod: String,
    /// Address or pod, with the port of a TCP or UDP server: 10.88.0.7, web:80, [fd00::7]:53/udp. Without a port an echo
    /// request of ICMP is sent
    #[arg(value_name = "DESTINATION")]
    destination: Destination,
    /// How long the answer is waited for
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = patience)]
    timeout: Duration,
    /// Show what the answer passes, too
    #[arg(long)]
    answer: bool,
}

fn patience(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=PATIENCE_MAX).contains(&seconds) {
        return Err(format!("not between 0 and {PATIENCE_MAX} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A destination as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Destination {
    host: Host,
    probe: Probe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Pod(String),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, is_udp) = match text.rsplit_once('/') {
            Some((rest, "tcp")) => (rest, Some(false)),
            Some((rest, "udp")) => (rest, Some(true)),
            // Names of containers have a slash.
            _ => (text, None),
        };
        if rest.contains('%') {
            return Err("addresses with the name of a link are not supported".to_owned());
        }
        if let Ok(address) = rest.parse::<IpAddr>().map(|address| address.to_canonical()) {
            return match is_udp {
                None => Ok(Self { host: Host::Address(address), probe: Probe::Echo }),
                Some(_) => Err("a protocol needs a port, as in 10.88.0.7:53/udp".to_owned()),
            };
        }
        let probe = |port: u16| if is_udp == Some(true) { Probe::Udp(port) } else { Probe::Tcp(port) };
        let (host, probe) = match rest.parse::<SocketAddr>() {
            Ok(address) => (Host::Address(address.ip().to_canonical()), probe(address.port())),
            Err(_) => match rest.split_once(':') {
                None if is_udp.is_none() => (Host::Pod(rest.to_owned()), Probe::Echo),
                None => return Err("a protocol needs a port, as in web:53/udp".to_owned()),
                Some((pod, port)) => {
                    let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
                    (Host::Pod(pod.to_owned()), probe(port))
                }
            },
        };
        match (&host, probe) {
            (Host::Pod(name), _) if name.is_empty() => Err("an address or the name of a pod is needed".to_owned()),
            (_, Probe::Tcp(0) | Probe::Udp(0)) => Err("0 is not a port".to_owned()),
            _ => Ok(Self { host, probe }),
        }
    }
}

/// A pod, with its addresses and its network namespace. Pods with the node's network have none of their own.
struct Pod {
    id: String,
    name: String,
    addresses: Vec<IpAddr>,
    namespace: Option<Namespace>,
}

/// Prints the way of a packet. The exit code is 1 if no answer came.
pub(super) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    raise_descriptors();
    let from = find(&mut client, &args.pod).await?;
    let to = match &args.destination.host {
        Host::Pod(name) => Some(find(&mut client, name).await?),
        Host::Address(_) => None,
    };
    let mut all = Vec::new();
    for listed in lookup::pods(&mut client).await? {
        all.extend(read(&mut client, &listed).await?);
    }
    let at = all.iter().position(|pod| pod.id == from).ok_or_else(|| Failure::new(format!("no pod {:?}", args.pod)))?;
    let from = all.swap_remove(at);
    let Some(namespace) = from.namespace.as_ref().map(Namespace::try_clone).transpose()? else {
        return Err(Failure::new(format!("pod {} uses the network of the node; trace from another pod", from.name)));
    };
    let destination = match (&args.destination.host, to) {
        (Host::Address(address), _) => *address,
        (Host::Pod(name), to) => {
            let is_it = |pod: &&Pod| Some(&pod.id) == to.as_ref();
            let pod = all.iter().chain([&from]).find(is_it);
            let addresses = pod.map(|pod| pod.addresses.clone()).unwrap_or_default();
            address_for(&from.addresses, &addresses)
                .ok_or_else(|| Failure::new(format!("pod {name} has no address that {} can use", from.name)))?
        }
    };
    let place = |pod: Pod| Some(Place { name: pod.name, namespace: pod.namespace? });
    let others: Vec<Place> = all.into_iter().filter_map(place).collect();
    let node = namespace_of_daemon(&client.socket)?;
    let pod = Place { name: from.name, namespace };
    let request = Request {
        pod: &pod,
        node: &node,
        others: &others,
        destination,
        probe: args.destination.probe,
        patience: args.timeout,
    };
    let trace = packet_trace::trace(&request).map_err(|error| Failure::new(error.to_string()))?;
    if client.json {
        output::json(&trace)?;
    } else {
        output::lines(trace_text::lines(&trace, &pod.name, args.answer).iter().map(String::as_str))?;
    }
    Ok(u8::from(!matches!(trace.answer, Answer::Answered { .. })))
}

/// Each pod of the node takes a descriptor.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Without it only large nodes cannot be traced, and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the id of a pod with this name or id, or of the pod of such a container.
async fn find(client: &mut Client, name: &str) -> Result<String, Failure> {
    if let Some(pod) = lookup::find_pod(client, name).await? {
        return Ok(pod.id);
    }
    match lookup::find_container(client, name).await? {
        Some(container) => Ok(container.pod_sandbox_id),
        None => Err(Failure::new(format!("no pod {name:?}; see: pinion pods"))),
    }
}

/// Returns a pod that runs; `None` if it does not, or was removed since it was listed.
async fn read(client: &mut Client, listed: &v1::PodSandbox) -> Result<Option<Pod>, Failure> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: listed.id.clone(), verbose: true };
    let Ok(response) = client.runtime.pod_sandbox_status(request).await else { return Ok(None) };
    let response = response.into_inner();
    let info: Value = response.info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let status = response.status.unwrap_or_default();
    if status.state() != v1::PodSandboxState::SandboxReady {
        return Ok(None);
    }
    // A pod that is removed in the meantime is left out.
    let namespace = info["netns"].as_str().and_then(|path| Namespace::open(Path::new(path)).ok());
    let addresses = pods::addresses(status.network.unwrap_or_default());
    Ok(Some(Pod {
        id: listed.id.clone(),
        name: lookup::pod_name(listed).to_owned(),
        addresses: addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        namespace,
    }))
}

/// Returns the address of the destination that is nearest to one of the pod: in the network that both have.
fn address_for(from: &[IpAddr], to: &[IpAddr]) -> Option<IpAddr> {
    let common = |to: IpAddr| from.iter().filter_map(|from| common_bits(*from, to)).max();
    let mut best = None;
    for (bits, address) in to.iter().filter_map(|to| Some((common(*to)?, *to))) {
        if best.is_none_or(|(most, _)| bits > most) {
            best = Some((bits, address));
        }
    }
    best.map(|(_, address)| address)
}

/// Returns the number of leading bits that two addresses of one family have in common.
fn common_bits(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// Returns the network namespace that the daemon runs in: that of the node.
fn namespace_of_daemon(socket: &Path) -> Result<Namespace, Failure> {
    let path = socket.to_str().and_then(|text| text.strip_prefix("unix://")).map_or(socket, Path::new);
    let fail = |error: std::io::Error| Failure::new(format!("connect to {}: {error}", path.display()));
    let stream = UnixStream::connect(path).map_err(fail)?;
    let pid = socket_peercred(&stream).map_err(|errno| fail(errno.into()))?.pid.as_raw_pid();
    let namespace = format!("/proc/{pid}/ns/net");
    // A daemon in another PID namespace is not visible here.
    let visible = fs::exists(&namespace).unwrap_or(false);
    Ok(Namespace::open(Path::new(if visible { namespace.as_str() } else { "/proc/self/ns/net" }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(host: Host, probe: Probe) -> Result<Destination, String> {
        Ok(Destination { host, probe })
    }

    #[test]
    fn destinations_are_parsed_as_people_write_them() {
        let v4 = || Host::Address([10, 88, 0, 7].into());
        let v6 = || Host::Address("fd00::7".parse().unwrap());
        let pod = |name: &str| Host::Pod(name.to_owned());
        assert_eq!("10.88.0.7".parse(), destination(v4(), Probe::Echo));
        assert_eq!("10.88.0.7:80".parse(), destination(v4(), Probe::Tcp(80)));
        assert_eq!("10.88.0.7:53/udp".parse(), destination(v4(), Probe::Udp(53)));
        assert_eq!("::ffff:10.88.0.7".parse(), destination(v4(), Probe::Echo));
        assert_eq!("fd00::7".parse(), destination(v6(), Probe::Echo));
        assert_eq!("[fd00::7]:80/tcp".parse(), destination(v6(), Probe::Tcp(80)));
        assert_eq!("web".parse(), destination(pod("web"), Probe::Echo));
        assert_eq!("web:80".parse(), destination(pod("web"), Probe::Tcp(80)));
        assert_eq!("web/server:80/udp".parse(), destination(pod("web/server"), Probe::Udp(80)));
        for wrong in ["", ":80", "web:", "web:x", "web:0", "web:65536", "10.88.0.7/udp", "web/udp", "fe80::1%eth0"] {
            assert!(wrong.parse::<Destination>().is_err(), "{wrong}");
        }
    }
}
