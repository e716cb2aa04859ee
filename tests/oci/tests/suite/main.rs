//! Every case, by what of the runtime specification it is about.

mod exec;
mod lifecycle;
mod mounts;
mod namespaces;
mod process;
mod terminal;
