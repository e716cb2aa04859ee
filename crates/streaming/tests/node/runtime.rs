//! A runtime that executes commands on this machine instead of in containers.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
};

use streaming::{Attach, Control, Error, Exec, Reader, Runtime, Session, Writer};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

type Later<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Executes the requested commands. A sandbox is an address of this machine.
#[derive(Clone, Default)]
pub(crate) struct LocalRuntime {
    /// Terminal sizes that were set.
    pub(crate) sizes: Arc<Mutex<Vec<oci::TerminalSize>>>,
    /// Sessions for attach requests, one each.
    pub(crate) attached: Arc<Mutex<Vec<Session>>>,
}

struct RunningCommand {
    child: tokio::sync::Mutex<Child>,
    sizes: Arc<Mutex<Vec<oci::TerminalSize>>>,
}

impl Control for RunningCommand {
    fn resize(&self, size: oci::TerminalSize) -> Later<'_, ()> {
        self.sizes.lock().expect("not poisoned").push(size);
        Box::pin(async {})
    }

    fn wait(&self) -> Later<'_, Result<i32, Error>> {
        Box::pin(async { Ok(self.child.lock().await.wait().await?.code().unwrap_or(255)) })
    }
}

fn piped(requested: bool) -> Stdio {
    if requested { Stdio::piped() } else { Stdio::null() }
}

impl Runtime for LocalRuntime {
    async fn exec(&self, request: &Exec) -> Result<Session, Error> {
        let streams = request.streams;
        let mut child = Command::new(&request.command[0])
            .args(&request.command[1..])
            .stdin(piped(streams.stdin))
            .stdout(piped(streams.stdout))
            .stderr(piped(streams.stderr))
            .kill_on_drop(true)
            .spawn()?;
        Ok(Session {
            stdin: child.stdin.take().map(|pipe| Box::new(pipe) as Writer),
            stdout: child.stdout.take().map(|pipe| Box::new(pipe) as Reader),
            stderr: child.stderr.take().map(|pipe| Box::new(pipe) as Reader),
            control: Box::new(RunningCommand { child: child.into(), sizes: Arc::clone(&self.sizes) }),
            ends_with_input: false,
        })
    }

    async fn attach(&self, _: &Attach) -> Result<Session, Error> {
        self.attached.lock().expect("not poisoned").pop().ok_or_else(|| "not running".into())
    }

    async fn connect(&self, sandbox: &str, port: u16) -> Result<(Reader, Writer), Error> {
        let (reader, writer) = TcpStream::connect((sandbox, port)).await?.into_split();
        Ok((Box::new(reader), Box::new(writer)))
    }
}
