//! The test cases, one module per subject of the runtime specification.

mod budgets;
mod cgroups;
mod command_line;
mod config;
mod exec;
mod filesystems;
mod hooks;
mod known_failures;
mod lifecycle;
mod mount_rules;
mod mounts;
mod namespaces;
mod process;
mod seccomp;
mod terminal;
