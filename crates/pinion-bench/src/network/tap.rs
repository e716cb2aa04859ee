//! The network of a virtual machine without a guest: a tap is coupled with the container's link, and frames are moved between it
//! and a tap in a namespace in the place of the guest.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use netns::Namespace;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use vm::coupling::{Coupling, couple};

use super::{namespace::NamespacePlace, node::output};
use crate::engine::Failure;

/// Largest frame with its virtio header, in bytes: segments are joined up to 64 KiB.
const FRAME_MAX: usize = (64 << 10) + 256;
/// How often a relay without frames looks whether it is to end.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Two threads that move frames between two taps. They end when this is dropped.
pub(super) struct Relay {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Couples the link of a container, and returns a place with its address at the other end of the tap.
pub(super) fn move_to_guest(place: NamespacePlace) -> Result<NamespacePlace, Failure> {
    let fail = |cause: &dyn std::fmt::Display| Failure(format!("couple the link of a container: {cause}"));
    let (couplings, network) = couple(&place.namespace, 1).map_err(|e| fail(&e))?;
    let [Coupling { interface, queues, .. }] = &couplings[..] else {
        return Err(fail(&format!("it has {} links instead of one", couplings.len())));
    };
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
    let relay = Relay::start([&queues[0], &tap[0]]).map_err(|e| fail(&e))?;
    Ok(place.moved_to(guest, relay))
}

impl Relay {
    fn start(taps: [&OwnedFd; 2]) -> std::io::Result<Self> {
        let mut relay = Self { ended: Arc::default(), threads: Vec::new() };
        for tap in taps {
            syscall::tap::accept_offloads(tap)?;
        }
        for (from, to) in [(taps[0], taps[1]), (taps[1], taps[0])] {
            let (from, to, ended) = (from.try_clone()?, to.try_clone()?, Arc::clone(&relay.ended));
            let name = format!("relay-{}", from.as_raw_fd());
            relay.threads.push(thread::Builder::new().name(name).spawn(move || move_frames(&from, &to, &ended))?);
        }
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn move_frames(from: &OwnedFd, to: &OwnedFd, ended: &AtomicBool) {
    let mut frame = vec![0; FRAME_MAX];
    while !ended.load(Ordering::Relaxed) {
        match rustix::io::read(from, &mut frame) {
            // A frame that the other side does not accept is lost, as on a wire.
            Ok(length) => drop(rustix::io::write(to, &frame[..length])),
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)], Some(&PAUSE));
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
