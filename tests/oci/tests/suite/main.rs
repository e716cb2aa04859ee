//! Every case, by what of the runtime specification it is about.

mod cgroups;
mod command_line;
mod config;
mod exec;
mod filesystems;
mod hooks;
mod known;
mod lifecycle;
mod mount_rules;
mod mounts;
mod namespaces;
mod process;
mod seccomp;
mod terminal;
