use cri_proto::v1;
use pod::{PortMapping, Protocol};

use super::field;
use crate::Failure;

/// Validates port mappings. Mappings without a host port have no effect and are omitted.
pub(super) fn ports(at: &str, messages: &[v1::PortMapping]) -> Result<Vec<PortMapping>, Failure> {
    let mut ports = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        ports.extend(port(&format!("{at}[{index}]"), message)?);
    }
    Ok(ports)
}

fn port(at: &str, message: &v1::PortMapping) -> Result<Option<PortMapping>, Failure> {
    let container_port = number(&format!("{at}.container_port"), message.container_port)?;
    let host_port = number(&format!("{at}.host_port"), message.host_port)?;
    let protocol = match field::known(&format!("{at}.protocol"), message.protocol)? {
        v1::Protocol::Tcp => Protocol::Tcp,
        v1::Protocol::Udp => Protocol::Udp,
        v1::Protocol::Sctp => Protocol::Sctp,
    };
    let host_ip = match message.host_ip.as_str() {
        "" => None,
        ip => Some(field::address(&format!("{at}.host_ip"), ip)?),
    };
    if host_port == 0 {
        return Ok(None);
    }
    if container_port == 0 {
        return Err(Failure::invalid(&format!("{at}.container_port"), "must be 1 to 65535"));
    }
    Ok(Some(PortMapping { protocol, container_port, host_port, host_ip }))
}

fn number(at: &str, value: i32) -> Result<u16, Failure> {
    u16::try_from(value).map_err(|_| Failure::invalid(at, format_args!("{value} is not a port (0 to 65535)")))
}
