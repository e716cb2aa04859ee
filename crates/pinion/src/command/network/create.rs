use cri_proto::pinion::{CreateNetworkRequest, NetworkSubnet};
use serde_json::json;

use crate::{Client, Failure, output};

/// Arguments of `pinion network create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Driver: bridge, macvlan, ipvlan or overlay
    #[arg(short, long, value_name = "DRIVER", default_value = "bridge")]
    driver: String,
    /// Subnet: ADDRESS/BITS, at most one of IPv4 and one of IPv6 [default: one that is free]
    #[arg(long, value_name = "SUBNET")]
    subnet: Vec<String>,
    /// Gateway of a subnet [default: its first address]
    #[arg(long, value_name = "ADDRESS")]
    gateway: Vec<std::net::IpAddr>,
    /// Part of a subnet that containers get addresses of: ADDRESS/BITS
    #[arg(long, value_name = "RANGE")]
    ip_range: Vec<String>,
    /// Address that containers do not get: NAME=ADDRESS
    #[arg(long, value_name = "NAME=ADDRESS")]
    aux_address: Vec<String>,
    /// Add an IPv6 subnet
    #[arg(long)]
    ipv6: bool,
    /// Do not connect the network with anything else
    #[arg(long)]
    internal: bool,
    /// Accepted for Docker's users; has no effect
    #[arg(long)]
    attachable: bool,
    /// Add a label
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Option of the driver, such as parent=eth0 or com.docker.network.driver.mtu=1400
    #[arg(short, long = "opt", value_name = "KEY[=VALUE]")]
    options: Vec<String>,
    /// Name of the network
    name: String,
}

pub(super) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let request = request(args).map_err(Failure::usage)?;
    let network = client.native.create_network(request).await?.into_inner().network.unwrap_or_default();
    match client.json {
        true => output::json(&json!({"id": network.id, "name": network.name}))?,
        false => output::line(&network.id)?,
    }
    Ok(0)
}

fn request(args: Args) -> Result<CreateNetworkRequest, String> {
    let mut subnets: Vec<NetworkSubnet> =
        args.subnet.iter().map(|subnet| NetworkSubnet { subnet: subnet.clone(), ..NetworkSubnet::default() }).collect();
    for gateway in args.gateway {
        let subnet = of_family(&mut subnets, gateway.is_ipv6()).ok_or("--gateway without a --subnet of its family")?;
        if !std::mem::replace(&mut subnet.gateway, gateway.to_string()).is_empty() {
            return Err("--gateway twice for one subnet".to_owned());
        }
    }
    for range in args.ip_range {
        let subnet =
            of_family(&mut subnets, range.contains(':')).ok_or("--ip-range without a --subnet of its family")?;
        if !std::mem::replace(&mut subnet.ip_range, range).is_empty() {
            return Err("--ip-range twice for one subnet".to_owned());
        }
    }
    for (name, address) in
        args.aux_address.iter().map(|text| pair("--aux-address", text)).collect::<Result<Vec<_>, _>>()?
    {
        let subnet = of_family(&mut subnets, address.contains(':'));
        subnet.ok_or("--aux-address without a --subnet of its family")?.reserved.insert(name, address);
    }
    let label = |text: &String| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (text.clone(), String::new()),
    };
    Ok(CreateNetworkRequest {
        name: args.name,
        driver: args.driver,
        subnets,
        ipv6: args.ipv6,
        internal: args.internal,
        attachable: args.attachable,
        labels: args.label.iter().map(label).collect(),
        options: args.options.iter().map(|text| option(text)).collect::<Result<_, _>>()?,
    })
}

fn of_family(subnets: &mut [NetworkSubnet], ipv6: bool) -> Option<&mut NetworkSubnet> {
    subnets.iter_mut().find(|subnet| subnet.subnet.contains(':') == ipv6)
}

/// Parses an option of a driver; without a value, as `encrypted`, it is empty.
fn option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        None if !text.is_empty() => Ok((text.to_owned(), String::new())),
        _ => pair("-o", text),
    }
}

fn pair(option: &str, text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or_else(|| format!("{option} {text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}
