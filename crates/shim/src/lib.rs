//! containerd's shim API, version 2: how an engine starts a shim, has it create and control containers ("tasks"), and
//! receives its events. Knows no pod and no CRI, and starts no process: its caller does.
//!
//! ```text
//! SHIM -namespace N -id ID -address A -publish-binary P start    stdin: BootstrapParams   stdout: address ([`Bootstrap`])
//!   └▶ the shim serves containerd.task.v2.Task or v3 at the address ([`Task`]), and calls Events/Forward ([`events`])
//! SHIM -info                                                     what it is, and its features ([`Info`])
//! SHIM … -bundle B delete                                        cleans up after a shim that died; stdout: exit status
//! ```
//! Every call but `Wait` has a deadline. What a shim answers is bounded and checked where it can be; the rest is for the
//! caller to verify with the kernel.
//!
//! Documentation: <https://github.com/containerd/containerd/blob/main/core/runtime/v2/README.md>, as of 2.x.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address;
mod bootstrap;
mod command;
mod error;
pub mod events;
mod info;
mod messages;
mod options;
mod task;

pub use address::Address;
pub use bootstrap::{Bootstrap, OUTPUT_MAX};
pub use command::{Command, CommandInputs, parse_exit};
pub use error::{Error, ErrorKind};
pub use info::Info;
pub use options::Options;
pub use task::{CreateTask, ExecTask, Exit, State, Status, Streams, Task};
