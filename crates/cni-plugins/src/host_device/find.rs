//! Finds the link that a configuration describes: by name, MAC address, path in sysfs, PCI address or auxiliary device.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rtnl::{Link, netlink::Socket};
use rustix::io::Errno;

use super::Options;
use crate::{Error, arguments};

const PCI: &str = "/sys/bus/pci/devices";
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";
/// Drivers whose devices have no link, because a program in user space drives them.
const USER_SPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Description of a link.
#[derive(Debug)]
pub(super) enum Device {
    Name(String),
    Mac([u8; 6]),
    /// Directory in sysfs which contains the link.
    Directory(PathBuf),
    /// A device of a driver in user space, which has no link.
    UserSpace,
}

impl Device {
    pub(super) fn parse(options: &Options) -> Result<Self, Error> {
        let id = &options.runtime.device;
        let mut pci = options.pci_address.clone();
        if !id.is_empty() {
            must_be_name("deviceID", id)?;
            if Path::new(PCI).join(id).exists() {
                pci.clone_from(id);
            } else if Path::new(AUXILIARY).join(id).exists() {
                return Ok(Self::Directory(Path::new(AUXILIARY).join(id).join("net")));
            } else {
                return Err(Error::config("runtimeConfig.deviceID", format!("device {id} does not exist")));
            }
        }
        if !pci.is_empty() {
            must_be_name("pciBusID", &pci)?;
            if is_of_user_space(&pci)? {
                return Ok(Self::UserSpace);
            }
        }
        if !options.device.is_empty() {
            Ok(Self::Name(options.device.clone()))
        } else if !options.mac.is_empty() {
            Ok(Self::Mac(arguments::mac(&options.mac)?))
        } else if !options.kernel_path.is_empty() {
            Self::of_kernel_path(&options.kernel_path)
        } else if !pci.is_empty() {
            Ok(Self::Directory(of_pci(&pci)))
        } else {
            Err(Error::config("device", "one of device, hwaddr, kernelpath, pciBusID must be set"))
        }
    }

    fn of_kernel_path(path: &str) -> Result<Self, Error> {
        let inside = path.starts_with("/sys/devices/") && !path.split('/').any(|part| part == "..");
        if !inside {
            return Err(Error::config("kernelpath", format!("{path} is not a path below /sys/devices")));
        }
        Ok(Self::Directory(Path::new(path).join("net")))
    }

    pub(super) fn is_of_user_space(&self) -> bool {
        matches!(self, Self::UserSpace)
    }

    /// Returns the link.
    pub(super) fn find(&self, socket: &mut Socket) -> Result<Link, Error> {
        let fail = |cause: io::Error| Error::kernel("find device", format!("{self:?}"), cause);
        let found = match self {
            Self::Name(name) => rtnl::link_by_name(socket, name),
            Self::Mac(mac) => rtnl::links(socket).map(|all| all.into_iter().find(|link| link.mac == mac)),
            Self::Directory(path) => {
                let name = first_entry(path).map_err(|e| Error::path("find device in", path, e))?;
                rtnl::link_by_name(socket, &name)
            }
            Self::UserSpace => Ok(None),
        };
        found.map_err(|refusal| fail(refusal.into()))?.ok_or_else(|| fail(Errno::NODEV.into()))
    }
}

fn must_be_name(key: &str, name: &str) -> Result<(), Error> {
    if name.contains('/') || name.starts_with('.') {
        return Err(Error::config(key, format!("{name:?} is not the name of a device")));
    }
    Ok(())
}

fn is_of_user_space(address: &str) -> Result<bool, Error> {
    let path = Path::new(PCI).join(address).join("driver");
    let driver = fs::read_link(&path).map_err(|e| Error::path("find driver", &path, e))?;
    Ok(driver.file_name().is_some_and(|name| USER_SPACE_DRIVERS.iter().any(|known| name == *known)))
}

/// Returns the directory of a PCI device's link; that of a virtio device is one level further down.
fn of_pci(address: &str) -> PathBuf {
    let device = Path::new(PCI).join(address);
    let direct = device.join("net");
    if direct.exists() {
        return direct;
    }
    let entries = fs::read_dir(&device).into_iter().flatten().flatten();
    let virtio = entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("virtio")));
    virtio.map_or(direct, |virtio| virtio.join("net"))
}

fn first_entry(directory: &Path) -> io::Result<String> {
    let entry = fs::read_dir(directory)?.next().ok_or(io::ErrorKind::NotFound)??;
    entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData.into())
}
