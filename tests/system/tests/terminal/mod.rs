//! Runs a program on a pseudo-terminal of 24 lines and 80 columns, with script(1) of util-linux.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use system_tests::{Node, wait_until};

/// A program on a terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a command line on a terminal inside the node.
    pub(crate) fn run(node: &Node, line: &str) -> Self {
        let line = format!("stty rows 24 cols 80; exec {line}");
        let mut command = node.command("script");
        command.env("SHELL", "/bin/sh").args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start script (package bsdutils)");
        let mut output = child.stdout.take().expect("a pipe");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let output_screen = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                output_screen.lock().expect("no panic").extend_from_slice(&buffer[..count]);
            }
        });
        Self { keys: child.stdin.take(), child, screen }
    }

    /// Waits until the text is on the screen.
    #[track_caller]
    pub(crate) fn see(&self, text: &str) {
        wait_until(&format!("{text:?} is on the screen"), || {
            String::from_utf8_lossy(&self.screen.lock().expect("no panic")).contains(text)
        });
    }

    /// Types keys.
    pub(crate) fn type_in(&mut self, keys: &str) {
        let stdin = self.keys.as_mut().expect("the terminal is open");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("write to the terminal");
    }

    /// Waits until the program exits, and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut code = None;
        wait_until("the program on the terminal has exited", || {
            code = self.child.try_wait().expect("wait").and_then(|status| status.code());
            code.is_some()
        });
        self.keys = None;
        code
    }
}
