use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of the reasons below (`google.rpc.ErrorInfo`).
const DOMAIN: &str = "pinion.v1";
const NOT_FOUND: &str = "COMMAND_NOT_FOUND";
const NOT_EXECUTABLE: &str = "COMMAND_NOT_EXECUTABLE";

/// Why the program of a container or exec cannot be executed, as the details of a gRPC status carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The program, its interpreter or its dynamic loader does not exist.
    NotFound,
    /// The program exists, but cannot be executed.
    NotExecutable,
}

impl CommandError {
    /// Returns a status with this reason in its details (`grpc-status-details-bin`).
    pub fn status(self, code: Code, message: impl Into<String>) -> Status {
        let reason = match self {
            Self::NotFound => NOT_FOUND,
            Self::NotExecutable => NOT_EXECUTABLE,
        };
        let details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
        Status::with_error_details(code, message, details)
    }

    /// Returns the reason in the details of a status, if it has one.
    pub fn of(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
        match info.reason.as_str() {
            NOT_FOUND => Some(Self::NotFound),
            NOT_EXECUTABLE => Some(Self::NotExecutable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_in_the_details_of_the_status_and_changes_nothing_else() {
        for reason in [CommandError::NotFound, CommandError::NotExecutable] {
            let status = reason.status(Code::InvalidArgument, "exec \"x\": no");
            assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "exec \"x\": no"));
            assert_eq!(CommandError::of(&status), Some(reason));
        }
        assert_eq!(CommandError::of(&Status::invalid_argument("exec \"x\": no such file")), None);
    }

    #[test]
    fn reasons_of_other_domains_and_invalid_details_are_ignored() {
        let details = ErrorDetails::with_error_info(NOT_FOUND, "example.com", HashMap::new());
        assert_eq!(CommandError::of(&Status::with_error_details(Code::Internal, "x", details)), None);
        assert_eq!(CommandError::of(&Status::with_details(Code::Internal, "x", b"\xff\xff"[..].into())), None);
    }
}
