use std::{os::fd::OwnedFd, time::Duration};

use serde_json::json;

use super::{Qemu, ports::Backend};
use crate::{
    error::Error,
    vmm::{Cpus, Memory, Status, Tap, Vmm},
};

impl Vmm for Qemu {
    async fn add_connection(&self, name: &str, socket: OwnedFd) -> Result<(), Error> {
        self.add_port(name, Backend::Connection(socket)).await
    }

    async fn add_output(&self, name: &str, fifo: OwnedFd) -> Result<(), Error> {
        self.add_port(name, Backend::Output(fifo)).await
    }

    async fn add_input(&self, name: &str, fifo: OwnedFd) -> Result<(), Error> {
        self.add_port(name, Backend::Input(fifo)).await
    }

    async fn remove_port(&self, name: &str) -> Result<(), Error> {
        self.delete_port(name).await
    }

    async fn drain(&self, name: &str, timeout: Duration) -> Result<(), Error> {
        self.drain_port(name, timeout).await
    }

    fn ports(&self) -> Vec<String> {
        self.port_names()
    }

    async fn attach_tap(&self, tap: Tap) -> Result<(), Error> {
        let operation = format!("attach tap {}", tap.id);
        self.add_tap(tap).await.map_err(|error| error.during(operation))
    }

    async fn attach_file_server(&self, tag: &str, socket: OwnedFd) -> Result<(), Error> {
        let operation = || format!("attach file server {tag}");
        self.add_file_server(tag, socket).await.map_err(|error| error.during(operation()))
    }

    async fn resume(&self) -> Result<(), Error> {
        self.command("cont", json!({})).await?;
        // A paused QEMU keeps the descriptors of removed sets open.
        self.remove_descriptor_sets().await
    }

    async fn pause(&self) -> Result<(), Error> {
        self.command("stop", json!({})).await
    }

    async fn status(&self) -> Result<Status, Error> {
        self.vm_status().await
    }

    async fn powerdown(&self) -> Result<(), Error> {
        self.command("system_powerdown", json!({})).await
    }

    async fn quit(&self) -> Result<(), Error> {
        self.exit().await
    }

    async fn plug_memory(&self, requested: u64) -> Result<(), Error> {
        let operation = || format!("plug {requested} bytes of memory");
        self.request_memory(requested).await.map_err(|error| error.during(operation()))
    }

    async fn memory(&self) -> Result<Memory, Error> {
        self.memory_size().await
    }

    async fn plug_cpus(&self, count: u32) -> Result<u32, Error> {
        let operation = || format!("plug processors up to {count}");
        self.add_cpus(count).await.map_err(|error| error.during(operation()))
    }

    async fn cpus(&self) -> Result<Cpus, Error> {
        self.cpu_counts().await
    }

    fn close(&self) {
        self.qmp.close();
    }

    fn is_gone(&self) -> bool {
        self.qmp.is_closed()
    }

    async fn closed(&self) {
        self.qmp.closed().await;
    }
}
