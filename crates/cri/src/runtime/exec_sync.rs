use std::time::Duration;

use cri_proto::{MESSAGE_MAX, v1};

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Bytes of a response that are not output: the exit code, and the tags and lengths of the fields.
const FRAMING: usize = 64;

/// Executes a command in a container and returns its output. It is killed if the client disconnects.
pub(super) async fn handle(state: Shared, request: v1::ExecSyncRequest) -> Outcome<v1::ExecSyncResponse> {
    if request.cmd.is_empty() {
        return Err(Failure::invalid("cmd", "is empty"));
    }
    let timeout = u64::try_from(request.timeout)
        .map_err(|_| Failure::invalid("timeout", "must not be negative; 0 means no limit"))?;
    let output = state.engine.exec_sync(&request.container_id, request.cmd, Duration::from_secs(timeout)).await?;
    let (mut stdout, mut stderr) = (output.stdout, output.stderr);
    fit(&mut stdout, &mut stderr, MESSAGE_MAX - FRAMING);
    Ok(v1::ExecSyncResponse { stdout, stderr, exit_code: output.exit_code })
}

/// Truncates both outputs so that together they fit into a message that kubelet accepts. Each gets half of the space,
/// plus what the other does not use.
fn fit(stdout: &mut Vec<u8>, stderr: &mut Vec<u8>, space: usize) {
    let half = space / 2;
    let (out, err) = (stdout.len(), stderr.len());
    stdout.truncate(half.max(space.saturating_sub(err)));
    stderr.truncate(half.max(space.saturating_sub(out)));
}

#[cfg(test)]
mod tests {
    use cri_proto::v1::ExecSyncResponse;
    use prost::Message;

    use super::*;

    #[test]
    fn outputs_are_truncated_only_as_far_as_necessary() {
        for (out, err) in (0..30).flat_map(|out| (0..30).map(move |err| (out, err))) {
            let (mut stdout, mut stderr) = (vec![0; out], vec![0; err]);
            fit(&mut stdout, &mut stderr, 20);
            assert_eq!(stdout.len() + stderr.len(), (out + err).min(20), "{out} {err}");
            assert!(stdout.len() >= out.min(10) && stderr.len() >= err.min(10), "{out} {err}");
        }
    }

    #[test]
    fn the_largest_response_fits_into_a_message() {
        let (mut stdout, mut stderr) = (vec![0; MESSAGE_MAX], vec![0; MESSAGE_MAX]);
        fit(&mut stdout, &mut stderr, MESSAGE_MAX - FRAMING);
        let response = ExecSyncResponse { stdout, stderr, exit_code: -1 };
        assert!(response.encoded_len() <= MESSAGE_MAX, "{}", response.encoded_len());
    }
}
