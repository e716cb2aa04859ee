use monitor_api::{Reply, Target};
use oci::TerminalSize;
use rustix::termios::{Winsize, tcsetwinsize};

use super::Answer;
use crate::{
    failure::{no_container, state, system},
    monitor::Monitor,
};

/// Changes the window size of a terminal. The kernel sends SIGWINCH to its foreground processes.
pub(super) fn resize_terminal(monitor: &Monitor, target: &Target, size: TerminalSize) -> Answer {
    let (Target::Container(id) | Target::Exec(id)) = target;
    let terminal = match target {
        Target::Container(id) => {
            let output = monitor.containers.find(id).and_then(|(serial, _)| monitor.outputs.map.get(serial));
            output.ok_or_else(|| no_container("resize terminal of", id))?.terminal()
        }
        Target::Exec(id) => {
            let (_, exec) = monitor.execs.find(id).ok_or_else(|| no_container("resize terminal of exec in", id))?;
            exec.terminal.as_ref()
        }
    };
    let terminal = terminal.ok_or_else(|| state("resize terminal of", id, "it has no terminal"))?;
    let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).map_err(|e| system(format!("resize terminal of {id}"), e))?;
    Ok(Some(Reply::Done))
}
