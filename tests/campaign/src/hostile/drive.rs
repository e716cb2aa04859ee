//! What the campaign does to an attacker's pod while it attacks. The attacker's own requests may fail; what is wrong is
//! a request that is not answered in time, and a file of the node that was read or changed.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    attack::{Attack, Drive},
    cycle::Field,
};
use crate::{Client, ContainerPlan, PodPlan, Record, client::is_unanswered};

/// Bound for the answer of a request whose own deadline is a second.
const ANSWER: Duration = Duration::from_secs(10);
/// A log is rotated at this size, as kubelet does.
const LOG_MAX: u64 = 8 << 20;

type Ids<'a> = (&'a PodPlan, &'a str, &'a str);

pub(super) async fn run(field: &Field, record: &Record, attack: &Attack, ids: Ids<'_>, hold: Duration) {
    let until = Instant::now() + hold;
    let fault = |error: String| record.fault(format!("attacker {}: {error}", ids.0.name));
    let mut client = field.client.clone();
    let sessions = match attack.drive {
        Drive::Sessions(command) => {
            let mut words = vec!["exec", "-i", ids.2];
            words.extend(command);
            vec![
                field.inside.crictl(&words),
                field.inside.crictl(&words),
                field.inside.crictl(&["attach", "-i", ids.2]),
                field.inside.crictl(&["attach", ids.2]),
            ]
        }
        _ => Vec::new(),
    };
    let log = ids.0.logs.join(format!("{}.log", attack.name));
    let mut round = 0;
    while Instant::now() < until {
        let step = match attack.drive {
            Drive::Watch | Drive::Sessions(_) => Ok(()),
            Drive::Exec(command) => exec(&mut client, ids.2, command).await,
            Drive::Names => names(field, &mut client, ids, round).await,
            Drive::Checkpoint => checkpoint(field, &mut client, ids).await,
            Drive::Streaming => streaming(field).await,
        };
        if let Err(error) = step {
            fault(error);
        }
        if let Err(error) = rotate(&mut client, ids.2, &log).await {
            fault(error);
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(sessions);
}

/// Errors only where there was no answer in time. The engine may refuse a request about an attacker, such as an exec
/// where earlier ones keep its pipes locked.
fn unanswered<T>(result: Result<T, String>) -> Result<(), String> {
    match result {
        Err(error) if is_unanswered(&error) => Err(error),
        _ => Ok(()),
    }
}

async fn exec(client: &mut Client, id: &str, command: &[&str]) -> Result<(), String> {
    unanswered(client.exec(id, command, 1, ANSWER).await)
}

async fn rotate(client: &mut Client, id: &str, log: &Path) -> Result<(), String> {
    let metadata = fs::symlink_metadata(log);
    if metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > LOG_MAX) {
        fs::rename(log, log.with_extension("log.1")).map_err(|error| format!("rotate: {error}"))?;
        unanswered(client.reopen_log(id, ANSWER).await)?;
    }
    Ok(())
}

async fn names(field: &Field, client: &mut Client, ids: Ids<'_>, round: usize) -> Result<(), String> {
    unanswered(client.reopen_log(ids.2, ANSWER).await)?;
    // While it is a link to the node's file, a mount of it is what kubelet asks for and has checked: only that it hangs
    // or breaks something is looked for here.
    let part = field.dir.join("volumes").join(&ids.0.name).join("part");
    let plan = ContainerPlan {
        name: format!("second{round}"),
        command: vec!["/bin/attacker".into(), "probe".into(), "x".into()],
        mounts: vec![(part, "/part".into())],
        ..ContainerPlan::default()
    };
    match client.create(ids.1, ids.0, &plan, ANSWER).await {
        Ok(id) => {
            unanswered(client.start(&id, ANSWER).await)?;
            unanswered(client.remove(&id, ANSWER).await)?;
        }
        error => unanswered(error)?,
    }
    checkpoint(field, client, ids).await
}

async fn checkpoint(field: &Field, client: &mut Client, ids: Ids<'_>) -> Result<(), String> {
    let archive = field.dir.join(format!("{}.tar", ids.0.name));
    let answer = client.checkpoint(ids.2, &archive.to_string_lossy(), ANSWER).await;
    let holds_secret = contains(&archive, super::SECRET.as_bytes());
    let _ = fs::remove_file(&archive);
    if holds_secret {
        return Err("a file of the node is in its checkpoint".into());
    }
    unanswered(answer)
}

fn contains(file: &Path, text: &[u8]) -> bool {
    fs::read(file).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text))
}

async fn streaming(field: &Field) -> Result<(), String> {
    let (inside, victim) = (field.inside, field.victim.clone());
    let answer = tokio::task::spawn_blocking(move || {
        let begin = Instant::now();
        let session = inside.crictl(&["exec", &victim, "/bin/attacker", "probe", "streamed"]);
        (session.wait(Duration::from_secs(15)), begin.elapsed())
    });
    match answer.await.map_err(|error| error.to_string())? {
        (Some((Some(0), output)), _) if output.trim() == "streamed" => Ok(()),
        (answer, took) => Err(format!("crictl exec in a victim: {answer:?} after {} ms", took.as_millis())),
    }
}
