//! Starting a monitor: `pinmon serve --socket-fd 3 --state <state>`, in a session of its own.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

use rustix::process::Pid;

use crate::{Error, error::failed};

/// What a monitor says outside of its contract.
const LOG: &str = "pinmon.log";
/// A log that is longer when a monitor starts is emptied, bytes: it is on the state tmpfs.
const LOG_MAX: u64 = 1 << 20;
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Binds the socket and starts the program on it. The listener is then the monitor's alone, so that nobody can connect
/// to a monitor that is dead.
pub(super) fn launch(program: &Path, state: &Path) -> Result<Pid, Error> {
    let listener = monitor_api::bind(state).map_err(|e| Error::internal(format!("start the monitor: {e}")))?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed("open /dev/null"))?;
    let log = match open_log(&state.join(LOG)) {
        Ok(log) => log,
        // On a full file system a monitor is needed more than what it says.
        Err(error) => {
            tracing::warn!("the monitor starts without {LOG}: {error}");
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

/// Opens the monitor's log to append to it; one that became too long begins again.
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
