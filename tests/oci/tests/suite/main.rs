//! Every case, by what of the runtime specification it is about.

mod cgroups;
mod command_line;
mod exec;
mod hooks;
mod known;
mod lifecycle;
mod mounts;
mod namespaces;
mod process;
mod seccomp;
mod terminal;
