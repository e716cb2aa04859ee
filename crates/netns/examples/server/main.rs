//! Serves TCP echo and static files over HTTP to many tenants, on the same address in the network namespace of each, by
//! one process. Tenants are the pins of a directory, and may come and go. Run it as root:
//!
//! ```console
//! # cargo run --release -p pinion-netns --example server -- --pins /run/netns --metrics 127.0.0.1:9464
//! # ip netns add blue && ip -n blue link set lo up && ip netns exec blue curl http://127.0.0.1/
//! tenant blue
//! ```
//!
//! ```text
//! Control: Watch of the pins ─ opens listeners ─▶ Mailbox ─▶ Shard: one EventLoop, accept, read, write
//!          metrics page ◀─ counters of the tenants ────────── (one, or one for each of several threads)
//! ```
//! Without shards everything is one loop: that of the tenants waits for that of the control, too.
//!
//! What a tenant can take is bounded: connections, the kernel's buffers of each, the length of a request, and the work that is
//! done for it before the others have their turn.

mod content;
mod control;
mod echo;
mod http;
mod mailbox;
mod metrics;
mod options;
mod page;
mod request;
mod shard;
mod tenant;

use std::{error::Error, process::ExitCode, sync::Arc, thread};

use content::Content;
use control::Control;
use mailbox::Mailbox;
pub(crate) use options::Options;
use shard::Shard;

fn main() -> ExitCode {
    let served = Options::parse(std::env::args_os().skip(1)).and_then(|options| serve(&options));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until an error that concerns all tenants.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    raise_limit_of_descriptors();
    let content = Arc::new(options.content.as_deref().map_or(Ok(Content::default()), Content::load)?);
    let mailboxes = (0..options.shards.max(1)).map(|_| Mailbox::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let mut control = Control::new(options, mailboxes.clone())?;
    let count = control.open_present()?;
    let mut mailboxes = mailboxes.into_iter();
    if options.shards == 0 {
        let mailbox = mailboxes.next().ok_or("a shard is missing")?;
        let mut shard = Shard::new(mailbox, content, options.connections)?;
        println!("listening in {count} namespaces");
        return Ok(shard.run(Some(&mut control))?);
    }
    for (number, mailbox) in mailboxes.enumerate() {
        let (content, connections) = (Arc::clone(&content), options.connections);
        let run = move || -> Result<(), netns::Error> { Shard::new(mailbox, content, connections)?.run(None) };
        let run = move || run().unwrap_or_else(|error| eprintln!("server: shard {number}: {error}"));
        thread::Builder::new().name(format!("shard-{number}")).spawn(run)?;
    }
    println!("listening in {count} namespaces");
    loop {
        control.wait()?;
        control.turn()?;
    }
}

/// Each connection takes a descriptor.
fn raise_limit_of_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A process may always raise its limit to the maximum.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
