use std::process::ExitCode;

use crate::{arguments::Global, failure::Failure};

pub(crate) fn run(_global: &Global, _arguments: lexopt::Parser) -> Result<ExitCode, Failure> {
    todo!()
}
