//! Requests of the campaign about the pod of an attacker during its attack. They may fail; faults are requests that
//! time out, and files of the node that were read or changed.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    attack::{Attack, Drive},
    cycle::AttackContext,
};
use crate::{Client, ContainerPlan, PodPlan, Record, client::is_timeout};

/// Timeout of requests, whose own deadline is a second.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Size at which a log is rotated, as the kubelet does.
const LOG_MAX: u64 = 8 << 20;

type Ids<'a> = (&'a PodPlan, &'a str, &'a str);

pub(super) async fn run(context: &AttackContext, record: &Record, attack: &Attack, ids: Ids<'_>, hold: Duration) {
    let deadline = Instant::now() + hold;
    let fault = |error: String| record.fault(format!("attacker {}: {error}", ids.0.name));
    let mut client = context.client.clone();
    let sessions = match attack.drive {
        Drive::Sessions(command) => {
            let mut words = vec!["exec", "-i", ids.2];
            words.extend(command);
            vec![
                context.namespaces.crictl(&words),
                context.namespaces.crictl(&words),
                context.namespaces.crictl(&["attach", "-i", ids.2]),
                context.namespaces.crictl(&["attach", ids.2]),
            ]
        }
        _ => Vec::new(),
    };
    let log = ids.0.logs.join(format!("{}.log", attack.name));
    let mut round = 0;
    while Instant::now() < deadline {
        let step = match attack.drive {
            Drive::Watch | Drive::Sessions(_) => Ok(()),
            Drive::Exec(command) => exec(&mut client, ids.2, command).await,
            Drive::Names => swap_names(context, &mut client, ids, round).await,
            Drive::Checkpoint => checkpoint(context, &mut client, ids).await,
            Drive::Streaming => streaming(context).await,
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

/// Returns an error only for a timeout. The engine may refuse a request about an attacker, for example an exec in a
/// container whose earlier execs keep its pipes locked.
fn timeout_only<T>(result: Result<T, String>) -> Result<(), String> {
    match result {
        Err(error) if is_timeout(&error) => Err(error),
        _ => Ok(()),
    }
}

async fn exec(client: &mut Client, id: &str, command: &[&str]) -> Result<(), String> {
    timeout_only(client.exec(id, command, 1, REQUEST_TIMEOUT).await)
}

async fn rotate(client: &mut Client, id: &str, log: &Path) -> Result<(), String> {
    let metadata = fs::symlink_metadata(log);
    if metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() > LOG_MAX) {
        fs::rename(log, log.with_extension("log.1")).map_err(|error| format!("rotate: {error}"))?;
        timeout_only(client.reopen_log(id, REQUEST_TIMEOUT).await)?;
    }
    Ok(())
}

async fn swap_names(context: &AttackContext, client: &mut Client, ids: Ids<'_>, round: usize) -> Result<(), String> {
    timeout_only(client.reopen_log(ids.2, REQUEST_TIMEOUT).await)?;
    // If the path is a link to the file of the node, a mount of it is valid: checking the path is the kubelet's task.
    // The request must only not hang or break anything.
    let part = context.dir.join("volumes").join(&ids.0.name).join("part");
    let plan = ContainerPlan {
        name: format!("second{round}"),
        command: vec!["/bin/attacker".into(), "probe".into(), "x".into()],
        mounts: vec![(part, "/part".into())],
        ..ContainerPlan::default()
    };
    match client.create(ids.1, ids.0, &plan, REQUEST_TIMEOUT).await {
        Ok(id) => {
            timeout_only(client.start(&id, REQUEST_TIMEOUT).await)?;
            timeout_only(client.remove(&id, REQUEST_TIMEOUT).await)?;
        }
        error => timeout_only(error)?,
    }
    checkpoint(context, client, ids).await
}

async fn checkpoint(context: &AttackContext, client: &mut Client, ids: Ids<'_>) -> Result<(), String> {
    let archive = context.dir.join(format!("{}.tar", ids.0.name));
    let result = client.checkpoint(ids.2, &archive.to_string_lossy(), REQUEST_TIMEOUT).await;
    let contains_secret = contains(&archive, super::SECRET.as_bytes());
    let _ = fs::remove_file(&archive);
    if contains_secret {
        return Err("its checkpoint contains a file of the node".into());
    }
    timeout_only(result)
}

fn contains(file: &Path, text: &[u8]) -> bool {
    fs::read(file).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text))
}

async fn streaming(context: &AttackContext) -> Result<(), String> {
    let (namespaces, victim) = (context.namespaces, context.victim.clone());
    let task = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        let session = namespaces.crictl(&["exec", &victim, "/bin/attacker", "probe", "streamed"]);
        (session.wait(Duration::from_secs(15)), start.elapsed())
    });
    match task.await.map_err(|error| error.to_string())? {
        (Some((Some(0), output)), _) if output.trim() == "streamed" => Ok(()),
        (result, duration) => Err(format!("crictl exec in a victim: {result:?} after {} ms", duration.as_millis())),
    }
}
