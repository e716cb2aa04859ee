use std::process::ExitCode;

use crate::{arguments::Global, failure::Failure};

pub(crate) fn run(_global: &Global, _arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    todo!()
}
