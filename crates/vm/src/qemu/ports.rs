use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    PAUSE, Qemu,
    command_line::{PORTS_MAX, SERIAL},
    query, validate_name,
};
use crate::{
    error::{Error, ErrorKind},
    qmp::Qmp,
};

/// QOM path of the devices with an id.
const PERIPHERAL: &str = "/machine/peripheral";
/// QOM type of a port as a child.
const CHILD: &str = "child<virtserialport>";
/// Pause until the queue of a port is looked at again, at first and at most.
const DRAIN_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));

/// Maximum number of buffers in a virtqueue.
const QUEUE_MAX: u16 = 1 << 15;

/// What a port is connected to.
pub(super) enum Backend {
    Connection(OwnedFd),
    Output(OwnedFd),
    Input(OwnedFd),
    /// Nothing: what the guest writes is discarded.
    Null,
}

/// The ports of a QEMU: numbers by name.
#[derive(Debug)]
pub(super) struct Ports {
    numbers: Mutex<BTreeMap<String, u32>>,
    max: u32,
}

/// Id of the device and of the character device of a port. The names of `getfd` are ids as well.
fn port_id(number: u32, name: &str) -> String {
    format!("port{number}.{name}")
}

fn parse_port_id(id: &str) -> Option<(u32, &str)> {
    let (number, name) = id.strip_prefix("port")?.split_once('.')?;
    let number = number.parse().ok().filter(|number| (1..PORTS_MAX).contains(number))?;
    validate_name("", name).is_ok().then_some((number, name))
}

impl Ports {
    /// Reads the ports that QEMU has.
    pub(super) async fn recover(qmp: &Qmp) -> Result<Self, Error> {
        let property = json!({ "path": backend_path(), "property": "max_ports" });
        let max = query::<u32>(qmp, "qom-get", property).await?.min(PORTS_MAX);
        let ids = port_devices(qmp).await?;
        let numbers = ids.iter().filter_map(|id| parse_port_id(id)).map(|(number, name)| (name.to_owned(), number));
        Ok(Self { numbers: Mutex::new(numbers.collect()), max })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses the lowest free number. Port 0 is for a console.
    fn reserve(&self, name: &str) -> Result<u32, String> {
        let mut numbers = self.lock();
        if numbers.contains_key(name) {
            return Err("there is a port of this name".to_owned());
        }
        let used: BTreeSet<u32> = numbers.values().copied().collect();
        let free = (1..self.max).find(|number| !used.contains(number));
        let number = free.ok_or_else(|| format!("all {} ports are in use", self.max.saturating_sub(1)))?;
        numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Reserves the number that a port has in a saved state.
    fn reserve_number(&self, number: u32, name: &str) -> Result<u32, String> {
        let mut numbers = self.lock();
        if !(1..self.max).contains(&number) {
            return Err(format!("its number {number} is not one of 1 to {}", self.max.saturating_sub(1)));
        }
        if numbers.contains_key(name) || numbers.values().any(|other| *other == number) {
            return Err("there is a port of this name or number".to_owned());
        }
        numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.lock().get(name).copied()
    }
}

/// QOM path of the virtio device of the ports.
fn backend_path() -> String {
    format!("{PERIPHERAL}/{SERIAL}/virtio-backend")
}

/// Returns the ids of the devices that are ports.
async fn port_devices(qmp: &Qmp) -> Result<BTreeSet<String>, Error> {
    #[derive(Deserialize)]
    struct Property {
        name: String,
        r#type: String,
    }
    let properties: Vec<Property> = query(qmp, "qom-list", json!({ "path": PERIPHERAL })).await?;
    Ok(properties.into_iter().filter(|property| property.r#type == CHILD).map(|property| property.name).collect())
}

/// Returns the ids of the character devices that belong to ports.
async fn port_chardevs(qmp: &Qmp) -> Result<Vec<String>, Error> {
    #[derive(Deserialize)]
    struct Chardev {
        label: String,
    }
    let chardevs: Vec<Chardev> = query(qmp, "query-chardev", json!({})).await?;
    Ok(chardevs.into_iter().map(|chardev| chardev.label).filter(|label| parse_port_id(label).is_some()).collect())
}

impl Qemu {
    pub(super) fn port_names(&self) -> Vec<String> {
        self.ports.lock().keys().cloned().collect()
    }

    /// Returns the numbers of the ports by their names.
    pub(super) fn port_numbers(&self) -> BTreeMap<String, u32> {
        self.ports.lock().clone()
    }

    /// Adds a port. When that fails, what was added of it is removed.
    pub(super) async fn add_port(&self, name: &str, backend: Backend) -> Result<(), Error> {
        self.add_port_at(None, name, backend).await
    }

    /// Adds a port with this number, or with the lowest free one. When that fails, what was added of it is removed.
    pub(super) async fn add_port_at(&self, number: Option<u32>, name: &str, backend: Backend) -> Result<(), Error> {
        let operation = format!("add port {name}");
        validate_name(&operation, name)?;
        let reserved = match number {
            Some(number) => self.ports.reserve_number(number, name),
            None => self.ports.reserve(name),
        };
        let number = reserved.map_err(|cause| Error::new(ErrorKind::Invalid, &operation, cause))?;
        let id = port_id(number, name);
        let added = self.add_port_devices(&id, number, name, backend).await;
        if added.is_err() {
            // If this fails too, the name stays reserved until it is removed.
            let _ = self.delete_port(name).await;
        }
        added.map_err(|error| error.during(operation))
    }

    async fn add_port_devices(&self, id: &str, number: u32, name: &str, backend: Backend) -> Result<(), Error> {
        match backend {
            Backend::Connection(socket) => self.add_socket_chardev(id, socket.as_fd()).await?,
            Backend::Output(fifo) => self.add_file_chardev(id, None, fifo.as_fd()).await?,
            Backend::Input(fifo) => {
                let null = openat(CWD, "/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
                let null = null.map_err(|error| Error::new(ErrorKind::System, "open /dev/null", error))?;
                self.add_file_chardev(id, Some(fifo.as_fd()), null.as_fd()).await?;
            }
            Backend::Null => {
                let null = json!({ "id": id, "backend": { "type": "null", "data": {} } });
                self.command("chardev-add", null).await?;
            }
        }
        let device = json!({
            "driver": "virtserialport", "bus": format!("{SERIAL}.0"), "chardev": id, "id": id, "name": name, "nr": number,
        });
        self.command("device_add", device).await
    }

    /// Adds a character device that is a connected socket.
    pub(super) async fn add_socket_chardev(&self, id: &str, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.qmp.execute("getfd", json!({ "fdname": id }), &[socket]).await?;
        let socket = json!({ "addr": { "type": "fd", "data": { "str": id } }, "server": false });
        self.command("chardev-add", json!({ "id": id, "backend": { "type": "socket", "data": socket } })).await
    }

    /// Adds a character device that writes into a descriptor, and reads from another one.
    async fn add_file_chardev(
        &self,
        id: &str,
        input: Option<BorrowedFd<'_>>,
        output: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let _descriptor_sets = self.descriptor_sets.lock().await;
        // Without `append`, QEMU truncates the file, which FIFOs and devices refuse.
        let mut data = json!({ "append": true });
        let mut sets = Vec::new();
        for (direction, descriptor) in [("in", input), ("out", Some(output))] {
            let Some(descriptor) = descriptor else { continue };
            let set = self.add_descriptor_set(descriptor).await?;
            data[direction] = format!("/dev/fdset/{set}").into();
            sets.push(set);
        }
        let added = self.command("chardev-add", json!({ "id": id, "backend": { "type": "file", "data": data } })).await;
        // The character device has duplicates: nothing but them keeps the FIFOs open.
        for set in sets {
            self.remove_descriptor_set(set).await?;
        }
        added
    }

    /// Passes a descriptor in a set of its own, whose number QEMU chooses: it does not use one that is in use.
    async fn add_descriptor_set(&self, descriptor: BorrowedFd<'_>) -> Result<u64, Error> {
        let nonblocking = fcntl_getfl(descriptor).and_then(|flags| fcntl_setfl(descriptor, flags | OFlags::NONBLOCK));
        nonblocking.map_err(|error| Error::new(ErrorKind::System, "set O_NONBLOCK", error))?;
        let added: DescriptorSet = serde_json::from_value(self.qmp.execute("add-fd", json!({}), &[descriptor]).await?)
            .map_err(|error| Error::new(ErrorKind::Protocol, "answer of QMP command add-fd", error))?;
        Ok(added.id)
    }

    async fn remove_descriptor_set(&self, set: u64) -> Result<(), Error> {
        match self.command("remove-fd", json!({ "fdset-id": set })).await {
            // It is removed with its last descriptor.
            Err(error) if error.is_refusal("GenericError") => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes all sets of descriptors. Character devices have duplicates.
    pub(super) async fn remove_descriptor_sets(&self) -> Result<(), Error> {
        let _descriptor_sets = self.descriptor_sets.lock().await;
        let sets: Vec<DescriptorSet> = self.query("query-fdsets", json!({})).await?;
        for DescriptorSet { id } in sets {
            self.remove_descriptor_set(id).await?;
        }
        Ok(())
    }

    /// Removes a port, if there is one.
    pub(super) async fn delete_port(&self, name: &str) -> Result<(), Error> {
        let Some(number) = self.ports.number(name) else { return Ok(()) };
        let id = port_id(number, name);
        let operation = |error: Error| error.during(format!("remove port {name}"));
        match self.command("device_del", json!({ "id": id })).await {
            Err(error) if error.is_refusal("DeviceNotFound") => {}
            outcome => outcome.map_err(operation)?,
        }
        self.remove_chardev(&id).await.map_err(operation)?;
        self.ports.lock().remove(name);
        Ok(())
    }

    /// Removes a character device, if there is one. QEMU refuses it until its device is freed, some 50 ms after the removal
    /// of that (an RCU grace period).
    async fn remove_chardev(&self, id: &str) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let Err(error) = self.command("chardev-remove", json!({ "id": id })).await else { return Ok(()) };
            if !error.is_refusal("GenericError") || begin.elapsed() > self.qmp.timeout() {
                return Err(error);
            }
            // The class of both errors is the same.
            if !port_chardevs(&self.qmp).await?.iter().any(|label| label == id) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Removes what a process that ended while it added or removed ports has left: character devices without a port, and
    /// descriptors.
    pub(super) async fn remove_partial_ports(&self) -> Result<(), Error> {
        let devices = port_devices(&self.qmp).await?;
        for id in port_chardevs(&self.qmp).await? {
            if !devices.contains(&id) {
                self.remove_chardev(&id).await?;
            }
        }
        self.remove_descriptor_sets().await
    }

    /// Waits until what is in the transmit queue of a port now is written. More may follow: a process that outlives a command
    /// may write forever.
    pub(super) async fn drain_port(&self, name: &str, timeout: Duration) -> Result<(), Error> {
        let operation = || format!("drain port {name}");
        let number = self.ports.number(name);
        let number =
            number.ok_or_else(|| Error::new(ErrorKind::Invalid, operation(), "the guest does not have this port"))?;
        let deadline = Instant::now() + timeout;
        let (mut pause, pause_max) = DRAIN_PAUSES;
        let mut first = None;
        loop {
            let indices = self.transmit_indices(number).await.map_err(|error| error.during(operation()))?;
            let Some(indices) = indices else { return Ok(()) };
            let unsent = indices.unsent_before(*first.get_or_insert(indices.added));
            if unsent == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let cause = format!("{unsent} buffers are not written after {} s", timeout.as_secs_f32());
                return Err(Error::new(ErrorKind::Timeout, operation(), cause));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(pause_max);
        }
    }

    /// Returns the state of the transmit queue of a port. `None`: the guest has not set it up.
    async fn transmit_indices(&self, number: u32) -> Result<Option<TransmitIndices>, Error> {
        // Port 0 has the queues 0 and 1, the control queues are 2 and 3, and port n has 2n + 2 and 2n + 3.
        let queue: Value = json!({ "path": backend_path(), "queue": 2 * number + 3 });
        let QueueStatus { ring, taken, in_use } = self.query("x-query-virtio-queue-status", queue.clone()).await?;
        if ring == 0 {
            // QEMU refuses to return an element.
            return Ok(None);
        }
        let QueueElement { avail } = self.query("x-query-virtio-queue-element", queue).await?;
        Ok(Some(TransmitIndices { added: avail.index, taken, in_use }))
    }
}

/// How far a transmit queue is, in numbers of buffers modulo 2^16.
///
/// The number of those that QEMU has returned to the guest (`used.idx`) is not compared: a buffer that QEMU was writing when
/// a port was removed is never returned, and the next port of this number has the same queue.
#[derive(Clone, Copy, Debug)]
struct TransmitIndices {
    /// Added by the guest, as its memory has it: QEMU does not know those for which a notification is pending.
    added: u16,
    /// Taken by QEMU.
    taken: u16,
    /// Taken by QEMU, and not written completely.
    in_use: u16,
}

impl TransmitIndices {
    /// Returns how many of the buffers before the one with this number are not written completely.
    fn unsent_before(self, end: u16) -> u16 {
        match end.wrapping_sub(self.taken) {
            // More than a queue can have: QEMU has taken buffers after `end`, which it does in order.
            waiting if waiting > QUEUE_MAX => 0,
            waiting => waiting.saturating_add(self.in_use),
        }
    }
}

/// A set of descriptors.
#[derive(Deserialize)]
struct DescriptorSet {
    #[serde(rename = "fdset-id")]
    id: u64,
}

/// State of a virtqueue.
#[derive(Deserialize)]
struct QueueStatus {
    /// Address of its descriptors.
    #[serde(rename = "vring-desc")]
    ring: u64,
    #[serde(rename = "last-avail-idx")]
    taken: u16,
    #[serde(rename = "inuse")]
    in_use: u16,
}

/// Head of a virtqueue.
#[derive(Deserialize)]
struct QueueElement {
    avail: Ring,
}

/// A ring of a virtqueue.
#[derive(Deserialize)]
struct Ring {
    #[serde(rename = "idx")]
    index: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_ports_have_their_number_and_name() {
        assert_eq!(parse_port_id(&port_id(7, "web.stdout-1")), Some((7, "web.stdout-1")));
        for other in ["serial", "port", "port1", "port0.a", "port-1.a", "port511.a", "port1.", "port1.a,b", "port1.-"] {
            assert_eq!(parse_port_id(other), None, "{other}");
        }
    }

    #[test]
    fn only_earlier_buffers_are_waited_for() {
        for end in [0, 5, 100, u16::MAX] {
            let unsent = |taken, in_use| TransmitIndices { added: end, taken, in_use }.unsent_before(end);
            assert_eq!([0, 1, 127].map(|waiting| unsent(end.wrapping_sub(waiting), 0)), [0, 1, 127]);
            assert_eq!([0, 1, 127].map(|waiting| unsent(end.wrapping_sub(waiting), 1)), [1, 2, 128]);
            assert_eq!([1, 127, 4000].map(|more| unsent(end.wrapping_add(more), 1)), [0, 0, 0]);
        }
    }

    #[test]
    fn the_lowest_free_number_is_chosen() {
        let ports = Ports { numbers: Mutex::default(), max: 4 };
        assert_eq!([1, 2, 3].map(Ok), ["a", "b", "c"].map(|name| ports.reserve(name)));
        assert!(ports.reserve("d").expect_err("full").contains("all 3 ports"));
        ports.lock().remove("b");
        assert!(ports.reserve("a").is_err());
        assert_eq!((ports.reserve("d"), ports.number("d")), (Ok(2), Some(2)));
    }
}
