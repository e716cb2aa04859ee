//! How a command's end is told.

use serde::Serialize;

use crate::handshake::Version;

/// What is written to the error stream.
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

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With this exit code; an attached client's always with 0.
    Exited(i32),
    /// It could not be, for this reason.
    Failed(String),
}

impl Outcome {
    /// What the error stream says; nothing where a version says nothing.
    pub(crate) fn text(&self, version: Version) -> String {
        let message = match self {
            Self::Exited(0) => String::new(),
            Self::Exited(code) => format!("command terminated with non-zero exit code: exit code {code}"),
            Self::Failed(why) => format!("Internal error occurred: {why}"),
        };
        if version < Version::V4 {
            return message;
        }
        let none = Status { status: "Failure", message: &message, reason: "", details: None, code: 0 };
        let status = match self {
            Self::Exited(0) => Status { status: "Success", ..none },
            Self::Exited(code) => {
                let causes = [Cause { reason: "ExitCode", message: code.to_string() }];
                Status { reason: "NonZeroExitCode", details: Some(Details { causes }), ..none }
            }
            Self::Failed(_) => Status { reason: "InternalError", code: 500, ..none },
        };
        // Strings and numbers only: it cannot fail.
        serde_json::to_string(&status).unwrap_or(message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_a_cause_since_v4_and_a_sentence_before() {
        let three = Outcome::Exited(3);
        assert_eq!(
            three.text(Version::V4),
            r#"{"status":"Failure","message":"command terminated with non-zero exit code: exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
        );
        assert_eq!(three.text(Version::V3), "command terminated with non-zero exit code: exit code 3");
    }

    #[test]
    fn success_is_told_since_v4_and_silence_before() {
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
