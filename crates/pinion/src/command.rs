//! The CLI commands, one file each: the arguments of a command and its implementation.

pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod exec;
pub(crate) mod images;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod kill;
pub(crate) mod load;
pub(crate) mod logs;
pub(crate) mod pods;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod reset;
pub(crate) mod rm;
pub(crate) mod rmi;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod serve;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod upgrade;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod why;
