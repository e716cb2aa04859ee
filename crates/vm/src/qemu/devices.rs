use std::{
    fmt::Write,
    os::fd::{AsFd, OwnedFd},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Qemu,
    command_line::{MEMORY_BLOCK, PLUGGABLE_MEMORY},
    validate_name,
};
use crate::{
    error::{Error, ErrorKind},
    vmm::{Cpus, Memory, Tap},
};

/// Most queues of a tap.
const QUEUES_MAX: usize = 16;
/// Slots on the PCI bus of devices that are plugged: they are part of a saved state. The first ones are those of the command line.
const FILE_SERVER_SLOT: u8 = 0x10;
const FIRST_TAP_SLOT: u8 = 0x11;
/// Most taps: the bus has 32 slots.
const TAPS_MAX: u8 = 0x20 - FIRST_TAP_SLOT;
/// Size of the queues of a file system.
const FILE_SERVER_QUEUE: u32 = 1024;

impl Qemu {
    pub(super) async fn add_tap(&self, tap: Tap) -> Result<(), Error> {
        let Tap { id, index, queues, mac, mtu } = tap;
        validate_name("validate its id", &id)?;
        if !(1..=QUEUES_MAX).contains(&queues.len()) {
            let cause = format!("{} queues; 1 to {QUEUES_MAX} are possible", queues.len());
            return Err(Error::new(ErrorKind::Invalid, "validate its queues", cause));
        }
        if index >= TAPS_MAX {
            let cause = format!("it is number {index} counted from 0, and there is room for {TAPS_MAX}");
            return Err(Error::new(ErrorKind::Invalid, "choose its slot", cause));
        }
        let (backend, device) = (format!("tap-{id}"), format!("net-{id}"));
        self.add_tap_backend(&backend, &queues).await?;
        let mut arguments = json!({
            "driver": "virtio-net-pci", "id": device, "netdev": backend, "mac": format_mac(mac), "host_mtu": mtu,
            "addr": format!("{:#x}", FIRST_TAP_SLOT + index),
            // Nothing boots from it, and the file may be missing.
            "romfile": "",
        });
        if queues.len() > 1 {
            arguments["mq"] = true.into();
            // One for each direction of a queue, one for the control queue, one for changes of the configuration.
            arguments["vectors"] = (2 * queues.len() + 2).into();
        }
        let added = self.command("device_add", arguments).await;
        if added.is_err() {
            let _ = self.command("netdev_del", json!({ "id": backend })).await;
        }
        added
    }

    async fn add_tap_backend(&self, id: &str, queues: &[OwnedFd]) -> Result<(), Error> {
        let names: Vec<_> = (0..queues.len()).map(|index| format!("{id}-{index}")).collect();
        for (name, queue) in names.iter().zip(queues) {
            self.qmp.execute("getfd", json!({ "fdname": name }), &[queue.as_fd()]).await?;
        }
        let mut arguments = json!({ "type": "tap", "id": id, "vhost": false });
        // QEMU 7.2 leaks those of `fds` when it refuses them.
        let key = if names.len() == 1 { "fd" } else { "fds" };
        arguments[key] = names.join(":").into();
        let added = self.command("netdev_add", arguments).await;
        if added.is_err() {
            for name in names {
                // It has those that it has not taken.
                let _ = self.command("closefd", json!({ "fdname": name })).await;
            }
        }
        added
    }

    pub(super) async fn add_file_server(&self, tag: &str, socket: OwnedFd) -> Result<(), Error> {
        validate_name("validate its tag", tag)?;
        let (chardev, device) = (format!("fs-socket-{tag}"), format!("fs-{tag}"));
        self.add_socket_chardev(&chardev, socket.as_fd()).await?;
        let arguments = json!({
            "driver": "vhost-user-fs-pci", "id": device, "chardev": chardev, "tag": tag, "queue-size": FILE_SERVER_QUEUE,
            "addr": format!("{FILE_SERVER_SLOT:#x}"),
        });
        let added = self.command("device_add", arguments).await;
        if added.is_err() {
            let _ = self.command("chardev-remove", json!({ "id": chardev })).await;
        }
        added
    }

    pub(super) async fn request_memory(&self, requested: u64) -> Result<(), Error> {
        let rounded = requested.checked_next_multiple_of(MEMORY_BLOCK).unwrap_or(u64::MAX - (MEMORY_BLOCK - 1));
        let path = format!("/machine/peripheral/{PLUGGABLE_MEMORY}");
        self.command("qom-set", json!({ "path": path, "property": "requested-size", "value": rounded })).await
    }

    pub(super) async fn memory_size(&self) -> Result<Memory, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Summary {
            base_memory: u64,
        }
        #[derive(Deserialize)]
        struct Device {
            data: Value,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct VirtioMem {
            id: String,
            size: u64,
            max_size: u64,
            requested_size: u64,
        }
        let Summary { base_memory } = self.query("query-memory-size-summary", json!({})).await?;
        let devices: Vec<Device> = self.query("query-memory-devices", json!({})).await?;
        let plugs = devices.into_iter().filter_map(|device| serde_json::from_value::<VirtioMem>(device.data).ok());
        let plug = plugs.into_iter().find(|device| device.id == PLUGGABLE_MEMORY);
        Ok(plug.map_or(Memory { boot: base_memory, ..Memory::default() }, |plug| Memory {
            boot: base_memory,
            requested: plug.requested_size,
            plugged: plug.size,
            pluggable: plug.max_size,
        }))
    }

    pub(super) async fn cpu_counts(&self) -> Result<Cpus, Error> {
        let slots: Vec<CpuSlot> = self.query("query-hotpluggable-cpus", json!({})).await?;
        let count = |is_counted: &dyn Fn(&str) -> bool| {
            let paths = slots.iter().filter_map(|slot| slot.qom_path.as_deref());
            u32::try_from(paths.filter(|path| is_counted(path)).count()).unwrap_or(u32::MAX)
        };
        Ok(Cpus {
            boot: count(&|path| !path.starts_with(PLUGGED)),
            present: count(&|_| true),
            max: u32::try_from(slots.len()).unwrap_or(u32::MAX),
        })
    }

    pub(super) async fn add_cpus(&self, count: u32) -> Result<u32, Error> {
        let slots: Vec<CpuSlot> = self.query("query-hotpluggable-cpus", json!({})).await?;
        let (present, free): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| slot.qom_path.is_some());
        let mut present = u32::try_from(present.len()).unwrap_or(u32::MAX);
        let missing = usize::try_from(count.saturating_sub(present)).unwrap_or(usize::MAX);
        if missing > free.len() {
            let cause = format!("there are {present}, and {} can be added", free.len());
            return Err(Error::new(ErrorKind::Invalid, "validate their number", cause));
        }
        // QEMU lists the last one first.
        for slot in free.into_iter().rev().take(missing) {
            let mut arguments = slot.props;
            arguments.insert("driver".to_owned(), slot.r#type.into());
            arguments.insert("id".to_owned(), format!("cpu{present}").into());
            self.command("device_add", arguments.into()).await?;
            present += 1;
        }
        Ok(present)
    }
}

/// Beginning of the path of a device that was plugged.
const PLUGGED: &str = "/machine/peripheral/";

/// A possible processor.
#[derive(Deserialize)]
struct CpuSlot {
    props: Map<String, Value>,
    r#type: String,
    /// Present if the processor is.
    #[serde(rename = "qom-path")]
    qom_path: Option<String>,
}

fn format_mac(mac: [u8; 6]) -> String {
    let mut text = String::new();
    for (index, byte) in mac.iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_written_in_hexadecimal() {
        assert_eq!(format_mac([2, 0, 0xab, 0xcd, 0xef, 0xff]), "02:00:ab:cd:ef:ff");
    }
}
