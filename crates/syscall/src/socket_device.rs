//! Sockets that use one network device only: `SO_BINDTODEVICE` of socket(7).

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// Restricts a socket to a device of its network namespace. For a VRF device, addresses and routes are those of the VRF,
/// and accepted connections are in it, too.
///
/// # Errors
/// `ENODEV` if the device does not exist. [`io::ErrorKind::InvalidInput`] for one that no device can have: the kernel
/// would truncate it, or remove the restriction.
pub fn bind_to_device(socket: impl AsFd, device: &str) -> io::Result<()> {
    if device.is_empty() || device.len() >= libc::IFNAMSIZ || device.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let length = libc::socklen_t::try_from(device.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open for the call, and the kernel reads `length` bytes of the name, which outlives it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            device.as_ptr().cast(),
            length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

    use super::bind_to_device;

    #[test]
    fn only_devices_that_exist_are_accepted() {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("socket");
        bind_to_device(&socket, "lo").expect("every network namespace has this device");
        let error = bind_to_device(&socket, "none0").expect_err("the device does not exist");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for name in ["", "lo\0", "a-name-of-16-byte"] {
            let error = bind_to_device(&socket, name).expect_err("no device can have this name");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
