//! The network of a virtual machine without a guest: a tap is coupled with the container's link, and frames are moved between it
//! and a tap in a namespace in the place of the guest.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command},
    sync::Arc,
    thread,
};

use netns::Namespace;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Pid,
};
use vm::coupling::{Coupling, couple};

use super::{namespace::NamespacePlace, node::output};
use crate::engine::Failure;

/// Largest frame with its virtio header, in bytes: segments are joined up to 64 KiB.
const FRAME_MAX: usize = (64 << 10) + 256;
/// How often a relay without frames looks whether its parent has ended.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A process that moves frames between two taps. It ends when this is dropped.
pub(super) struct Relay(Child);

/// Couples the link of a container, and returns a place with its address at the other end of the tap.
pub(super) fn move_to_guest(place: NamespacePlace) -> Result<NamespacePlace, Failure> {
    let fail = |cause: &dyn std::fmt::Display| Failure(format!("couple the link of a container: {cause}"));
    let (couplings, network) = couple(&place.namespace, 1).map_err(|e| fail(&e))?;
    let [Coupling { interface, queues, .. }] = <[Coupling; 1]>::try_from(couplings)
        .map_err(|couplings| fail(&format!("it has {} links instead of one", couplings.len())))?;
    let guest = Namespace::create()?;
    let tap = guest.enter(|| syscall::tap::create_queues("eth0", 1))?.map_err(|e| fail(&e))?;
    let mac: Vec<String> = interface.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut script =
        format!("ip link set lo up; ip link set eth0 address {} mtu {} up; ", mac.join(":"), interface.mtu);
    for (address, prefix) in interface.addresses.iter().filter(|(address, _)| address.is_ipv4()) {
        script.push_str(&format!("ip address add {address}/{prefix} dev eth0; "));
    }
    for route in network.routes.iter().filter(|route| route.destination.0.is_ipv4()) {
        let (destination, prefix) = route.destination;
        let via = route.gateway.map_or(String::new(), |gateway| format!("via {gateway} "));
        script.push_str(&format!("ip route replace {destination}/{prefix} {via}dev eth0; "));
    }
    let mut command = Command::new("sh");
    command.args(["-ec", &script]);
    guest.enter(move || output(&mut command, "configure the place of a guest"))??;
    let (Some(queue), Some(tap)) = (queues.into_iter().next(), tap.into_iter().next()) else {
        return Err(fail(&"a tap has no queue"));
    };
    let relay = Relay::start([queue, tap], place.cgroup()).map_err(|e| fail(&e))?;
    Ok(place.moved_to(guest, relay))
}

impl Relay {
    /// Starts it in the cgroup of the container, in whose place a virtual machine monitor would be.
    fn start(taps: [OwnedFd; 2], cgroup: &Path) -> std::io::Result<Self> {
        for tap in &taps {
            syscall::tap::accept_offloads(tap)?;
        }
        let program = format!("/proc/{}/exe", std::process::id());
        let mut command = Command::new("sh");
        command
            .args(["-ec", "echo $$ > \"$0/cgroup.procs\"; exec \"$@\""])
            .arg(cgroup)
            .args([&program, "network-relay"]);
        let [one, other] = taps;
        command.stdin(one).stdout(other).process_group(0).spawn().map(Self)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Moves frames between the taps that are standard input and output, until the process that started this ends.
pub(crate) fn relay() -> Result<(), Failure> {
    let fail = |cause: &dyn std::fmt::Display| Failure(format!("relay frames: {cause}"));
    let parent = rustix::process::getppid();
    let taps = [std::io::stdin().as_fd().try_clone_to_owned(), std::io::stdout().as_fd().try_clone_to_owned()];
    let [one, other] = taps.map(|tap| tap.map_err(|e| fail(&e)).map(Arc::new));
    let (one, other) = (one?, other?);
    let (from, to) = (Arc::clone(&other), Arc::clone(&one));
    let back = thread::Builder::new().name("relay".to_owned()).spawn(move || move_frames(&from, &to, parent));
    let back = back.map_err(|e| fail(&e))?;
    move_frames(&one, &other, parent);
    drop(back.join());
    Ok(())
}

fn move_frames(from: &OwnedFd, to: &OwnedFd, parent: Option<Pid>) {
    let mut frame = vec![0; FRAME_MAX];
    loop {
        match rustix::io::read(from, &mut frame) {
            // A frame that the other side does not accept is lost, as on a wire.
            Ok(length) => drop(rustix::io::write(to, &frame[..length])),
            Err(Errno::AGAIN) if rustix::process::getppid() == parent => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)], Some(&PAUSE));
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
