use crate::{exit_code::ExitCode, arguments::Global, failure::Failure};

pub(crate) fn run(_global: &Global, _arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    todo!()
}
