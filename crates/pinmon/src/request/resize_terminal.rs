use monitor_api::{Reply, Target, TerminalSize};
use rustix::termios::{Winsize, tcsetwinsize};

use super::Answer;
use crate::{
    failure::{no_container, state, system},
    monitor::Monitor,
};

impl Monitor {
    /// Changes a terminal's window size; the kernel tells its foreground processes (SIGWINCH).
    pub(super) fn resize_terminal(&mut self, target: &Target, size: TerminalSize) -> Answer {
        let (Target::Container(id) | Target::Exec(id)) = target;
        let terminal = match target {
            Target::Container(id) => {
                let child = self.find(id).and_then(|serial| self.containers.get(&serial));
                child.ok_or_else(|| no_container("resize terminal of", id))?.output.terminal()
            }
            Target::Exec(id) => {
                let command = self.find_command(id).and_then(|serial| self.commands.get(&serial));
                command.ok_or_else(|| no_container("resize terminal of command in", id))?.terminal.as_ref()
            }
        };
        let terminal = terminal.ok_or_else(|| state("resize terminal of", id, "it has none"))?;
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal, size).map_err(|e| system(format!("resize terminal of {id}"), e))?;
        Ok(Some(Reply::Done))
    }
}
