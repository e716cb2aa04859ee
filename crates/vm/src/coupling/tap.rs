//! Creates the tap of an interface, and redirects what each of the two receives to the other.

use std::{io, os::fd::OwnedFd};

use rtnl::{
    Change, Link,
    flags::{ALL_MULTICAST, UP},
    netlink::{Batch, Refusal, Socket},
};
use rustix::io::Errno;

use super::{interface::TAP_PREFIX, system};
use crate::error::{Error, ErrorKind};

/// Couples an interface with a new tap; returns the name and the queues of the tap.
///
/// # Errors
/// `System` if the kernel refuses an operation, `Invalid` if the interface has a queueing discipline of another program
/// for what it receives. After an error the interface is as it was, or without a redirection of an earlier call.
pub(super) fn couple(socket: &mut Socket, link: &Link, queues: usize) -> Result<(String, Vec<OwnedFd>), Error> {
    let name = format!("{TAP_PREFIX}{}", link.index);
    // It fails while the tap of an earlier call exists: the redirections of a virtual machine that runs are left alone.
    let queues = syscall::tap::create_queues(&name, queues).map_err(|cause| creation_failed(&name, &cause))?;
    disable_ipv6(&name)?;
    remove_redirect(socket, link)?;
    let tap = rtnl::link_by_name(socket, &name)
        .and_then(|tap| tap.ok_or(Errno::NODEV.into()))
        .map_err(|refusal| system(format!("find tap {name}"), refusal))?;
    let set_up = Change { mtu: Some(link.mtu), ..Change::flag(UP, true) };
    request(socket, format!("set up tap {name} with MTU {}", link.mtu), |batch| set_up.of(batch, tap.index))?;
    let redirect = |batch: &mut Batch| {
        rtnl::redirect(batch, tap.index, link.index);
        rtnl::redirect(batch, link.index, tap.index);
        if link.kind != "veth" {
            // Groups that only the guest is a member of would be filtered by the parent of a macvlan, and by hardware.
            Change::flag(ALL_MULTICAST, true).of(batch, link.index);
        }
    };
    request(socket, format!("redirect frames between {} and {name}", link.name), redirect).inspect_err(|_| {
        super::undo(socket, std::slice::from_ref(link));
    })?;
    Ok((name, queues))
}

fn creation_failed(name: &str, cause: &io::Error) -> Error {
    let advice = match Errno::from_io_error(cause) {
        Some(Errno::BUSY) => "; an earlier virtual machine of this namespace still has it",
        Some(Errno::NOENT | Errno::NODEV) => "; load the kernel module tun",
        _ => "",
    };
    system(format!("create tap {name}"), format!("{cause}{advice}"))
}

/// Keeps the node's kernel from sending frames of its own, such as router solicitations, to the guest.
fn disable_ipv6(tap: &str) -> Result<(), Error> {
    let key = format!("net/ipv6/conf/{tap}/disable_ipv6");
    match netns::write_sysctl(&key, "1") {
        // The kernel has no IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(|error| system(format!("write sysctl {key}"), error)),
    }
}

/// Removes the redirection of an earlier call, whose tap is gone.
fn remove_redirect(socket: &mut Socket, link: &Link) -> Result<(), Error> {
    let operation = || format!("couple network interface {}", link.name);
    let ingress = rtnl::ingress(socket, link.index).map_err(|refusal| system(operation(), refusal))?;
    match ingress {
        None => Ok(()),
        Some(ingress) if ingress.is_redirect => {
            request(socket, operation(), |batch| rtnl::delete_ingress(batch, link.index))
        }
        Some(ingress) => {
            let cause = format!("it has a queueing discipline {} with filters of another program", ingress.kind);
            Err(Error::new(ErrorKind::Invalid, operation(), cause))
        }
    }
}

fn request(socket: &mut Socket, operation: String, messages: impl FnOnce(&mut Batch)) -> Result<(), Error> {
    let mut batch = Batch::new();
    messages(&mut batch);
    socket.request(batch).map_err(|refusal| system(operation, with_advice(&refusal)))
}

fn with_advice(refusal: &Refusal) -> String {
    match refusal.errno {
        Errno::NOENT | Errno::OPNOTSUPP => {
            format!("{refusal}; load the kernel modules sch_ingress, cls_u32, act_mirred")
        }
        _ => refusal.to_string(),
    }
}
