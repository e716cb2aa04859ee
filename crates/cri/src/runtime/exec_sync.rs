use std::time::Duration;

use cri_proto::{MESSAGE_MAX, v1};

use crate::{
    Failure,
    answer::{Outcome, Shared},
};

/// As much of an answer is not output: its exit code, the tags and lengths of its fields.
const FRAMING: usize = 64;

/// Runs a command in a container and answers with its output; a client that hangs up ends it.
pub(super) async fn answer(state: Shared, request: v1::ExecSyncRequest) -> Outcome<v1::ExecSyncResponse> {
    if request.cmd.is_empty() {
        return Err(Failure::invalid("cmd", "is empty"));
    }
    let timeout =
        u64::try_from(request.timeout).map_err(|_| Failure::invalid("timeout", "is negative; 0 is no limit"))?;
    let output = state.engine.exec_sync(&request.container_id, request.cmd, Duration::from_secs(timeout)).await?;
    let (mut stdout, mut stderr) = (output.stdout, output.stderr);
    fit(&mut stdout, &mut stderr, MESSAGE_MAX - FRAMING);
    Ok(v1::ExecSyncResponse { stdout, stderr, exit_code: output.exit_code })
}

/// Both together must fit into what kubelet takes of an answer: each has half of it, and what the other leaves.
fn fit(stdout: &mut Vec<u8>, stderr: &mut Vec<u8>, room: usize) {
    let half = room / 2;
    let (out, err) = (stdout.len(), stderr.len());
    stdout.truncate(half.max(room.saturating_sub(err)));
    stderr.truncate(half.max(room.saturating_sub(out)));
}

#[cfg(test)]
mod tests {
    use cri_proto::v1::ExecSyncResponse;
    use prost::Message;

    use super::*;

    #[test]
    fn both_fit_and_nothing_is_cut_without_need() {
        for (out, err) in (0..30).flat_map(|out| (0..30).map(move |err| (out, err))) {
            let (mut stdout, mut stderr) = (vec![0; out], vec![0; err]);
            fit(&mut stdout, &mut stderr, 20);
            assert_eq!(stdout.len() + stderr.len(), (out + err).min(20), "{out} {err}");
            assert!(stdout.len() >= out.min(10) && stderr.len() >= err.min(10), "{out} {err}");
        }
    }

    #[test]
    fn the_largest_answer_is_taken() {
        let (mut stdout, mut stderr) = (vec![0; MESSAGE_MAX], vec![0; MESSAGE_MAX]);
        fit(&mut stdout, &mut stderr, MESSAGE_MAX - FRAMING);
        let answer = ExecSyncResponse { stdout, stderr, exit_code: -1 };
        assert!(answer.encoded_len() <= MESSAGE_MAX, "{}", answer.encoded_len());
    }
}
