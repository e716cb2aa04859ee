//! A node of its own, on which pods are attached and detached as standard input requests it.

use std::{
    io::{self, BufRead},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use netns::{Namespace, PinDir};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use syscall::mount_namespace::unshare_mounts;

use super::{
    Attacher, Cycle,
    attach::{Attach, Pod},
    engine::Engine,
    lists::List,
    programs::Programs,
};
use crate::engine::Failure;

/// Arguments of `pinion-bench cni-worker`.
#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    #[arg(long, value_enum)]
    attacher: Attacher,
    #[arg(long, value_enum)]
    list: List,
    #[arg(long)]
    plugins: PathBuf,
}

/// Runs the worker. Must be called before this process has a second thread.
pub(crate) fn run(arguments: &WorkerArguments) -> Result<(), Failure> {
    isolate().map_err(|e| Failure(format!("create namespaces: {e}; run pinion-bench cni as root")))?;
    let mut attacher: Box<dyn Attach> = match arguments.attacher {
        Attacher::Engine => Box::new(Engine::new(arguments.list)?),
        Attacher::Programs => Box::new(Programs::new(arguments.list, &arguments.plugins)),
    };
    let pins = PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns"))?;
    let mut pods = 0;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| Failure(format!("read a request: {e}")))?;
        let response = match line.split_once(' ') {
            Some(("fill", count)) => {
                let count: usize = count.parse().map_err(|_| Failure(format!("{line}: not a number")))?;
                for _ in 0..count {
                    pods += 1;
                    prepare(&pins, arguments.list, pods, |pod| attacher.attach(pod), false)?;
                }
                serde_json::to_string(&())
            }
            _ => {
                let cycle = prepare(&pins, arguments.list, pods + 1, |pod| cycle(&mut *attacher, pod), true)?;
                serde_json::to_string(&cycle)
            }
        };
        println!("{}", response.map_err(|e| Failure(format!("encode a response: {e}")))?);
    }
    Ok(())
}

/// Enters new namespaces: a network with a link to the outside, and an empty `/run`.
fn isolate() -> Result<(), Failure> {
    let failed = |e: io::Error| Failure(e.to_string());
    unshare_mounts().map_err(failed)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(|e| failed(e.into()))?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).map_err(|e| failed(e.into()))?;
    let namespace = Namespace::create()?;
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), network).map_err(|e| failed(e.into()))?;
    let script = "ip link set lo up; ip link add up0 type veth peer name up1; ip addr add 192.0.2.1/24 dev up0; \
        ip link set up0 up; ip link set up1 up";
    let status = Command::new("sh").args(["-ec", script]).status().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(Failure("ip(8) failed".to_owned())) }
}

/// Creates the namespace of a pod, which is not a part of the measurement, and does the work.
fn prepare<T>(
    pins: &PinDir,
    list: List,
    number: usize,
    work: impl FnOnce(&Pod<'_>) -> Result<T, Failure>,
    is_removed: bool,
) -> Result<T, Failure> {
    let namespace = Namespace::create()?;
    let name = format!("pod-{number}");
    let path = pins.pin(&name, &namespace)?;
    let port = list.maps_ports().then(|| 10_000 + u16::try_from(number).unwrap_or(0));
    // The names of links begin with the first digits of the id, as random ids differ in them.
    let pod = Pod { id: format!("{number:08x}{:056x}", 0), namespace: &namespace, path: &path, port };
    let done = work(&pod)?;
    if is_removed {
        pins.unpin(&name)?;
    }
    Ok(done)
}

fn cycle(attacher: &mut dyn Attach, pod: &Pod<'_>) -> Result<Cycle, Failure> {
    let start = Instant::now();
    attacher.attach(pod)?;
    let attached = Instant::now();
    attacher.detach(pod)?;
    let detached = Instant::now();
    attacher.settle()?;
    let settled = Instant::now();
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    Ok(Cycle { attach_ms: ms(attached - start), detach_ms: ms(detached - attached), settle_ms: ms(settled - detached) })
}
