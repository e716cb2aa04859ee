//! Converts messages to valid configurations. Every error names the field as it is called in the message.

mod capability;
mod cdi;
mod container;
mod field;
mod mount;
mod namespace;
mod port;
mod resources;
mod sandbox;
mod security;
mod signal;
mod user_namespace;

pub(crate) use container::container;
pub(crate) use field::absolute_path;
pub(crate) use resources::limits;
pub(crate) use sandbox::sandbox;
pub(crate) use signal::message as signal_message;

#[cfg(test)]
mod tests;
