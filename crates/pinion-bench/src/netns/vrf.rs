//! One namespace with a VRF device for each tenant: the other way to have the same address many times.

use std::{
    fmt::Write as _,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
};

use netns::{Namespace, PinGroup};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use syscall::socket_device::bind_to_device;

use super::plan::PORT;
use crate::engine::Failure;

/// Name of the pin of the namespace with all devices.
pub(super) const NAMESPACE: &str = "vrf";
/// Number of the routing table of the first VRF; those of the kernel are below 256.
const FIRST_TABLE: usize = 1000;

/// Returns the name of a tenant's device.
fn device(number: usize) -> String {
    format!("vrf{number}")
}

/// Pins a namespace with a VRF device for each tenant, each with the address 127.0.0.1.
///
/// # Errors
/// When the kernel does not have VRF devices (`CONFIG_NET_VRF`), or ip(8) is not installed.
pub(super) fn create(group: &PinGroup, tenants: usize) -> Result<(), Failure> {
    let namespace = Namespace::create()?;
    // Addresses of the VRFs must be found before that of `lo`: the rule of the table `local` comes after that of the VRFs
    // (Documentation/networking/vrf.rst of the kernel).
    let mut batch = "rule add pref 32765 lookup local\nrule del pref 0\n".to_owned();
    for number in 0..tenants {
        let (device, table) = (device(number), FIRST_TABLE + number);
        let _ = writeln!(batch, "link add {device} type vrf table {table}");
        let _ = writeln!(batch, "addr add 127.0.0.1/8 dev {device}");
        let _ = writeln!(batch, "link set {device} up");
    }
    namespace.enter(move || run_batch(&batch))??;
    group.pins().pin(NAMESPACE, &namespace)?;
    Ok(())
}

fn run_batch(batch: &str) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure(format!("run ip -batch: {e}"));
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(fail)?;
    let input = process.stdin.take();
    // It fails when ip(8) has ended; its message says why.
    let written = input.map_or(Ok(()), |mut input| input.write_all(batch.as_bytes()));
    let output = process.wait_with_output().map_err(fail)?;
    if output.status.success() {
        return written.map_err(fail);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let first = message.lines().next().unwrap_or("no message").trim_start_matches("Error: ").trim_end_matches('.');
    Err(Failure(format!("create VRF devices: {first}")))
}

/// Listens in a VRF of the calling thread's namespace.
pub(super) fn listener(number: usize) -> std::io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind_to_device(&socket, &device(number))?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))?;
    listen(&socket, 4096)?;
    Ok(socket.into())
}

/// Connects to the server in a VRF of the calling thread's namespace.
pub(super) fn stream(number: usize) -> std::io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind_to_device(&socket, &device(number))?;
    connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))?;
    Ok(socket.into())
}
