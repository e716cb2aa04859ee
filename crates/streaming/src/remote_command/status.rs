//! The status of a session, which is sent on the error stream when it ends.

use serde::Serialize;

use crate::handshake::Version;

/// The part of Kubernetes' `metav1.Status` that is sent.
#[derive(Debug, Serialize)]
struct Status<'a> {
    status: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "is_zero")]
    code: u16,
}

#[derive(Debug, Serialize)]
struct Details {
    causes: [Cause; 1],
}

#[derive(Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

/// The result of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The process exited with this code; always 0 for an attached client.
    Exited(i32),
    /// The session failed for this reason.
    Failed(String),
}

impl Outcome {
    /// Returns the text for the error stream; empty for a success in versions before v4.
    pub(crate) fn text(&self, version: Version) -> String {
        let message = match self {
            Self::Exited(0) => String::new(),
            Self::Exited(code) => format!("command terminated with non-zero exit code: exit code {code}"),
            Self::Failed(reason) => format!("Internal error occurred: {reason}"),
        };
        if version < Version::V4 {
            return message;
        }
        let base = Status { status: "Failure", message: &message, reason: "", details: None, code: 0 };
        let status = match self {
            Self::Exited(0) => Status { status: "Success", ..base },
            Self::Exited(code) => {
                let causes = [Cause { reason: "ExitCode", message: code.to_string() }];
                Status { reason: "NonZeroExitCode", details: Some(Details { causes }), ..base }
            }
            Self::Failed(_) => Status { reason: "InternalError", code: 500, ..base },
        };
        // Serializing strings and numbers cannot fail.
        serde_json::to_string(&status).unwrap_or(message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_a_cause_since_v4_and_text_before() {
        let three = Outcome::Exited(3);
        assert_eq!(
            three.text(Version::V4),
            r#"{"status":"Failure","message":"command terminated with non-zero exit code: exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
        );
        assert_eq!(three.text(Version::V3), "command terminated with non-zero exit code: exit code 3");
    }

    #[test]
    fn success_is_a_status_since_v4_and_empty_before() {
        assert_eq!(Outcome::Exited(0).text(Version::V4), r#"{"status":"Success"}"#);
        assert_eq!(Outcome::Exited(0).text(Version::V1), "");
    }

    #[test]
    fn a_failure_is_an_internal_error() {
        let failed = Outcome::Failed("exec: \"no\"".into());
        assert_eq!(
            failed.text(Version::V4),
            r#"{"status":"Failure","message":"Internal error occurred: exec: \"no\"","reason":"InternalError","code":500}"#
        );
        assert_eq!(failed.text(Version::V2), "Internal error occurred: exec: \"no\"");
    }
}
