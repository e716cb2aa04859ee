//! The driver of a virtual machine monitor: what a pod with a kernel of its own needs of one that runs.
//!
//! A *port* is a byte stream between the host and the guest, which finds it under its name. A connection goes both ways;
//! an output goes from the guest to a FIFO, an input from a FIFO to the guest. The virtual machine monitor keeps the
//! descriptors that it gets, so that ports survive the process that added them.
//!
//! Every method has a time limit. One that is cancelled or fails may have been executed in part: [`Vmm::remove_port`]
//! undoes the part of a port.

use std::{future::Future, os::fd::OwnedFd, time::Duration};

use crate::error::Error;

/// State of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It waits for the first [`Vmm::resume`].
    Created,
    /// It is running.
    Running,
    /// It is paused.
    Paused,
    /// The guest shut down.
    Stopped,
    /// It was stopped by a failure, and does not continue.
    Failed(Fault),
}

/// What stopped a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The kernel of the guest panicked.
    #[error("the kernel of the guest panicked")]
    Panic,
    /// The virtual machine monitor, or the hypervisor in the kernel of the node.
    #[error("an internal error of the virtual machine monitor")]
    Internal,
    /// A device.
    #[error("an I/O error of a device")]
    Io,
    /// The watchdog expired.
    #[error("the watchdog of the guest expired")]
    Watchdog,
}

/// Memory of a virtual machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What it booted with.
    pub boot: u64,
    /// What the guest is requested to have in addition.
    pub requested: u64,
    /// What the guest has plugged in addition.
    pub plugged: u64,
    /// Upper limit of `requested`.
    pub pluggable: u64,
}

/// Processors of a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// What it booted with.
    pub boot: u32,
    /// What it has, whether the guest has set them online or not.
    pub present: u32,
    /// What it can have at most.
    pub max: u32,
}

/// A tap device that becomes a network interface of the guest.
#[derive(Debug)]
pub struct Tap {
    /// Name of the interface in the virtual machine monitor, unique in it.
    pub id: String,
    /// Its number, counted from 0: that of its place on the bus.
    pub index: u8,
    /// A descriptor for each queue.
    pub queues: Vec<OwnedFd>,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// MTU of the interface.
    pub mtu: u16,
}

/// A running virtual machine monitor. A name of a port, tap or file server has 1 to 64 ASCII letters, digits, `.`, `_` and
/// `-`, and begins with a letter or digit.
pub trait Vmm: Send + Sync {
    /// Adds a connection, whose host end is the peer of `socket`.
    ///
    /// # Errors
    /// `Invalid` if there is a port of this name or no further one is possible, and those of the virtual machine monitor.
    fn add_connection(&self, name: &str, socket: OwnedFd) -> impl Future<Output = Result<(), Error>> + Send;

    /// Adds an output: what the guest writes goes into `fifo`, the write end of a FIFO that is opened `O_WRONLY`. It becomes
    /// nonblocking. When it is full, writes of the guest wait.
    ///
    /// The read end must stay open until the port is removed: without a reader, QEMU polls the FIFO in a loop.
    ///
    /// # Errors
    /// Those of [`Vmm::add_connection`].
    fn add_output(&self, name: &str, fifo: OwnedFd) -> impl Future<Output = Result<(), Error>> + Send;

    /// Adds an input: the guest reads from `fifo`, the read end of a FIFO that is opened `O_RDONLY`. It becomes nonblocking.
    /// When all writers have closed it, the guest reads an end of file.
    ///
    /// # Errors
    /// Those of [`Vmm::add_connection`].
    fn add_input(&self, name: &str, fifo: OwnedFd) -> impl Future<Output = Result<(), Error>> + Send;

    /// Removes a port, and closes its descriptors. What the host has not received yet is lost, see [`Vmm::drain`].
    /// Idempotent.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn remove_port(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits until everything that the guest has written into a port so far has reached the descriptor of the host, for at most
    /// `timeout`. Proves nothing about what processes in the guest have not written into the port yet.
    ///
    /// # Errors
    /// `Timeout` if the host does not read, `Invalid` if the guest does not have this port, and those of the virtual machine monitor.
    fn drain(&self, name: &str, timeout: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the names of the ports, sorted.
    fn ports(&self) -> Vec<String>;

    /// Adds a network interface.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn attach_tap(&self, tap: Tap) -> impl Future<Output = Result<(), Error>> + Send;

    /// Adds a file system with a tag, served by the virtiofsd at the other end of `socket`, which must be running.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn attach_file_server(&self, tag: &str, socket: OwnedFd) -> impl Future<Output = Result<(), Error>> + Send;

    /// Starts the virtual machine, or continues a paused one.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn resume(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Pauses the virtual machine.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn pause(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the state of the virtual machine.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn status(&self) -> impl Future<Output = Result<Status, Error>> + Send;

    /// Notifies the guest to shut down. Does not wait for it.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn powerdown(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends the virtual machine monitor, and waits until it has closed the connection.
    ///
    /// # Errors
    /// `Timeout` if it does not.
    fn quit(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Requests the guest to have `requested` bytes of memory in addition to what it booted with, rounded up to what can be
    /// plugged. Returns before it has; see [`Vmm::memory`].
    ///
    /// # Errors
    /// `Refused` if it is more than the upper limit, and those of the virtual machine monitor.
    fn plug_memory(&self, requested: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the size of the memory.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn memory(&self) -> impl Future<Output = Result<Memory, Error>> + Send;

    /// Plugs processors until there are `count`, which may be fewer than there are. Returns their number. The guest sets
    /// them online.
    ///
    /// # Errors
    /// `Invalid` if there cannot be so many, and those of the virtual machine monitor.
    fn plug_cpus(&self, count: u32) -> impl Future<Output = Result<u32, Error>> + Send;

    /// Returns the numbers of processors.
    ///
    /// # Errors
    /// Those of the virtual machine monitor.
    fn cpus(&self) -> impl Future<Output = Result<Cpus, Error>> + Send;

    /// Closes the connection for all who use it. The virtual machine keeps running, and its monitor serves another client.
    fn close(&self);

    /// Whether the connection is closed.
    fn is_gone(&self) -> bool;

    /// Waits until the connection is closed.
    fn closed(&self) -> impl Future<Output = ()> + Send;
}
