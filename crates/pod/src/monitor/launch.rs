//! Start of a monitor: `pinmon serve --socket-fd 3 --state <state>`, in a session of its own.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::process::Pid;

use crate::{Error, error::failed};

/// Log of what the monitor writes to its standard output and error.
const LOG: &str = "pinmon.log";
/// Size above which the log is truncated when a monitor starts, in bytes: it is on the state tmpfs.
const LOG_MAX: u64 = 1 << 20;
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Binds the socket and starts the program on it. Only the monitor keeps the listener, so that nobody can connect to a
/// dead monitor.
pub(super) fn launch(program: &Path, state: &Path) -> Result<Pid, Error> {
    let listener = monitor_api::bind(state).map_err(|e| Error::internal(format!("start the monitor: {e}")))?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed("open /dev/null"))?;
    let log = match open_log(&state.join(LOG)) {
        Ok(log) => log,
        // On a full file system the monitor is more important than its log.
        Err(error) => {
            tracing::warn!("start the monitor without {LOG}: {error}");
            null.try_clone().map_err(failed("duplicate /dev/null"))?
        }
    };
    let path = c_string(program.as_os_str().as_bytes())?;
    let arguments = [
        path.clone(),
        c"serve".to_owned(),
        c"--socket-fd".to_owned(),
        c"3".to_owned(),
        c"--state".to_owned(),
        c_string(state.as_os_str().as_bytes())?,
    ];
    let files = [null.as_fd(), log.as_fd(), log.as_fd(), listener.as_fd()];
    syscall::spawn::spawn(&path, &arguments, &[c_string(PATH.as_bytes())?], &files).map_err(|e| {
        let program = program.display();
        Error::unavailable(format!("start the monitor {program}: {e}; is `monitor` in the configuration right?"))
    })
}

/// Opens the monitor's log for appending; a log that is too long is truncated.
fn open_log(path: &Path) -> io::Result<File> {
    let log = OpenOptions::new().create(true).append(true).open(path)?;
    if log.metadata()?.len() > LOG_MAX {
        log.set_len(0)?;
    }
    Ok(log)
}

fn c_string(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::invalid("a path holds a zero byte"))
}
