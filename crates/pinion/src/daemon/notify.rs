//! Words to the service manager (sd_notify(3)); without `NOTIFY_SOCKET` nobody wants them.

use std::{
    env,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The daemon answers.
pub(crate) fn ready() {
    tell("READY=1");
}

/// The daemon ends.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

fn tell(word: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &address));
    if let Err(error) = told {
        tracing::warn!("tell {word} to the service manager at {}: {error}", socket.display());
    }
}
