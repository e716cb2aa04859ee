//! Measures attaching and detaching a pod, first alone and then with many other pods: with the built-in network, and
//! with the CNI reference plugins if their directory is given. Run it on a throwaway node:
//!
//! ```text
//! cargo build --release -p network --example attach_time
//! unshare --net --mount --propagation private \
//!     sh -c 'mount -t tmpfs t /run && target/release/examples/attach_time 200 [directory]'
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use netns::{Namespace, PinDir};
use network::{Config, Network, PodRef, PortMapping, Protocol};

const ROUNDS: u32 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let many: u32 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let plugins = arguments.next().map(PathBuf::from);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        println!("{:<28} {:>12} {:>12} {:>12} {:>12}", "µs, median [minimum]", "attach", "", "detach", "");
        let built_in = Network::open(config(None))?;
        measure("built in", &built_in, many, ROUNDS).await?;
        drop(built_in);
        if let Some(directory) = plugins {
            fs::create_dir_all("/run/net.d")?;
            // `promiscMode` is not supported by the built-in bridge: it makes the plugins run as programs.
            let list = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "bridge": "cni5",
                "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true, "promiscMode": false,
                "ipam": {"type": "host-local", "subnet": "10.5.0.0/16", "dataDir": "/run/cni"}},
                {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
            fs::write("/run/net.d/10.conflist", list)?;
            measure("reference plugins", &Network::open(config(Some(directory)))?, many, ROUNDS / 5).await?;
        }
        Ok(())
    })
}

fn config(plugins: Option<PathBuf>) -> Config {
    Config {
        cni_conf_dir: "/run/net.d".into(),
        cni_bin_dirs: plugins.into_iter().collect(),
        state_dir: "/run/pinion".into(),
        bridge: "pinion0".into(),
        subnet: "10.85.0.0/16".into(),
        subnet6: None,
        selectable: Vec::new(),
        definitions_dir: "/run/pinion-networks".into(),
        address_pools: network::DEFAULT_POOLS.map(str::to_owned).into(),
        overlay: None,
    }
}

async fn measure(name: &str, network: &Network, many: u32, rounds: u32) -> Result<(), Box<dyn std::error::Error>> {
    let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns"))?;
    let mut others = Vec::new();
    for pods in [0, many] {
        while others.len() < pods as usize {
            let number = 10_000 + u32::try_from(others.len())?;
            others.push(attach(network, &pins, number).await?.0);
        }
        let (mut attached, mut detached) = (Vec::new(), Vec::new());
        for number in 0..rounds {
            let (ns, took) = attach(network, &pins, number).await?;
            attached.push(took);
            let begin = Instant::now();
            network.detach(&sandbox(number)).await?;
            detached.push(begin.elapsed());
            network.settle().await;
            pins.unpin(&number.to_string())?;
            drop(ns);
        }
        let label = format!("{name}, {pods} others");
        println!(
            "{label:<28} {:>12} {:>12} {:>12} {:>12}",
            median(&mut attached),
            least(&attached),
            median(&mut detached),
            least(&detached)
        );
    }
    let begin = Instant::now();
    for index in 0..others.len() {
        let number = 10_000 + u32::try_from(index)?;
        network.detach(&sandbox(number)).await?;
        pins.unpin(&number.to_string())?;
    }
    network.settle().await;
    println!("{name}: {} pods detached and gone in {:?}", others.len(), begin.elapsed());
    Ok(())
}

fn sandbox(number: u32) -> String {
    format!("{number:064x}").chars().rev().collect()
}

async fn attach(
    network: &Network,
    pins: &PinDir,
    number: u32,
) -> Result<(Namespace, Duration), Box<dyn std::error::Error>> {
    let ns = Namespace::create()?;
    let path = pins.pin(&number.to_string(), &ns)?;
    let pod =
        PodRef { sandbox: sandbox(number), name: format!("p{number}"), namespace: "n".into(), ..PodRef::default() };
    let host_port = 20_000 + u16::try_from(number)?;
    let port = PortMapping { protocol: Protocol::Tcp, container_port: 80, host_port, host_ip: None };
    let begin = Instant::now();
    network.attach(&pod, &ns, &path, &[port]).await?;
    Ok((ns, begin.elapsed()))
}

fn median(times: &mut [Duration]) -> u128 {
    times.sort();
    times[times.len() / 2].as_micros()
}

fn least(times: &[Duration]) -> String {
    format!("[{}]", times.iter().min().map_or(0, Duration::as_micros))
}
