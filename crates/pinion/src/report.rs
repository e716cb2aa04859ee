//! Compatibility of `Info` and `Why` with a daemon of another version.

use cri_proto::REPORT_FORMAT;

use crate::Failure;

/// Checks that the response of the daemon has the messages that this program knows: an older daemon sends others.
pub(crate) fn check_format(command: &str, format: u32) -> Result<(), Failure> {
    match format {
        0 => Err(Failure::new(format!(
            "{command}: the daemon is older than this command line ({}), which cannot read its response; upgrade the \
             daemon, or use the pinion of its version; see: pinion version",
            env!("CARGO_PKG_VERSION")
        ))),
        // A later format only adds fields.
        REPORT_FORMAT.. => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_of_an_older_daemon_is_refused_with_a_remedy() {
        let refused = check_format("why", 0).expect_err("it has no messages").to_string();
        assert!(refused.contains("the daemon is older") && refused.contains("upgrade the daemon"), "{refused}");
        assert!(check_format("why", REPORT_FORMAT).is_ok() && check_format("why", REPORT_FORMAT + 1).is_ok());
    }
}
