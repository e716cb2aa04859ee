//! Standard streams of containers and of commands in them: FIFOs and pipes, terminals, logs.
//!
//! The other end of each belongs to a container, which may keep it locked inside the kernel. Therefore pipes are used
//! by threads of their own ([`shared_pipe`]), terminals are closed by such threads ([`terminal`]), and logs are opened
//! without following links ([`log_file`]).

mod attached_clients;
pub(crate) mod fifos;
pub(crate) mod log_file;
mod log_tail;
pub(crate) mod pipe_holders;
pub(crate) mod pipe_record;
pub(crate) mod shared_pipe;
mod stream;
pub(crate) mod terminal;

pub use attached_clients::AttachedClient;
pub(crate) use attached_clients::AttachedClients;
pub(crate) use fifos::{Stdio, StreamUser};
pub(crate) use log_tail::log_tail;
pub(crate) use pipe_record::PipeRecord;
pub(crate) use shared_pipe::{PipeReader, SharedPipe};
pub(crate) use stream::{Input, Output, TerminalStream};
pub(crate) use terminal::Terminal;
