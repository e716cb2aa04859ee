//! Detaching a pod, by what is on record of it: its network may be configured otherwise by now, its namespace gone.
//!
//! ```text
//! record marked as leaving → ports unmapped, plugins' DEL in reverse → link queued to go ─ ─→ addresses free → record
//! gone
//! ```

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tracing::Instrument;

use crate::{
    Error, Network,
    attach::valid_sandbox,
    bridge::host_link,
    cni::{Call, Chain, Element, end_all_of},
    ledger::Record,
    network::{Inner, lock},
};

impl Network {
    /// Detaches a pod; unknown ones succeed, and so does one whose namespace is gone. Ports are free when it returns;
    /// the link and its address within some 50 ms, in the background, with the ledger keeping the intent
    /// ([`Network::settle`] waits for it). It goes on to its end when the caller stops waiting.
    ///
    /// # Errors
    /// When a plugin's `DEL` fails: call again. What did succeed is not undone.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let (inner, id) = (Arc::clone(&self.inner), sandbox.to_owned());
        let work = async move { undo(&inner, &id, None).await };
        let began = Instant::now();
        let finished = tokio::spawn(work.in_current_span()).await;
        let figures = &self.inner.figures;
        figures.detach_took.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(()))) {
            figures.detach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("detach", sandbox, std::io::Error::other(e)))?
    }

    /// Asks the plugins whether an attachment is as they left it (`CHECK`, from CNI 0.4.0 on).
    ///
    /// # Errors
    /// What a plugin finds wrong.
    pub async fn check(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let Some(record) = offload::here(|| self.inner.ledger.get(sandbox))?.and_then(|entry| entry.record) else {
            return Ok(());
        };
        let chain = self.inner.chain_of(record.list.as_ref())?;
        if chain.disable_check || !chain.is_at_least("0.4.0") {
            return Ok(());
        }
        let call = call(&record, Some(&record.ns_path));
        for plugin in chain.plugins() {
            self.inner.programs.call("CHECK", &chain, plugin, call, record.result.as_ref()).await?;
        }
        Ok(())
    }
}

fn call<'a>(record: &'a Record, ns_path: Option<&'a Path>) -> Call<'a> {
    Call { pod: &record.pod, ns_path, interface: &record.interface, ports: &record.all_ports }
}

/// Undoes an attachment, when nothing else is done to it any more.
pub(crate) async fn undo(inner: &Arc<Inner>, sandbox: &str, begun: Option<&Record>) -> Result<(), Error> {
    let _turn = inner.turns.take(sandbox).await;
    undo_in_turn(inner, sandbox, begun).await
}

/// Undoes an attachment, whole or begun, for whoever has its turn. `begun` is what a failed attachment knows beyond its
/// record.
pub(crate) async fn undo_in_turn(inner: &Arc<Inner>, sandbox: &str, begun: Option<&Record>) -> Result<(), Error> {
    let undone = undo_once(inner, sandbox, begun).await;
    if undone.is_err() {
        inner.unfinished.store(true, Ordering::Relaxed);
    }
    undone
}

async fn undo_once(inner: &Arc<Inner>, sandbox: &str, begun: Option<&Record>) -> Result<(), Error> {
    let entry = offload::here(|| {
        let entry = inner.ledger.get(sandbox)?;
        if entry.is_some() {
            inner.ledger.leave(sandbox)?;
        }
        // From here on the ledger has it, and the reconciler may try again what fails below.
        lock(&inner.session).remove(sandbox);
        // The firewall first: no packet goes to an address that another pod may get.
        inner.firewall.remove_ports(sandbox)?;
        Ok::<_, Error>(entry)
    })?;
    let known = begun.cloned().or_else(|| entry.as_ref().and_then(|entry| entry.record.clone()));
    let chain = match &known {
        Some(record) => inner.chain_of(record.list.as_ref())?,
        // Never attached, or its record cannot be read: what the built-in network may have made is taken away.
        None => Arc::clone(&inner.embedded),
    };
    if let Some(record) = &known {
        if record.result.is_none() && chain.plugins().next().is_some() {
            // A daemon that was killed left its plugin running: what that made after its DEL would be nobody's.
            let id = sandbox.to_owned();
            let _ = offload::blocking(move || end_all_of(&id)).await;
        }
        delete(inner, &chain, record).await?;
    }
    if entry.is_some() || known.as_ref().is_some_and(|record| !record.addresses.is_empty()) {
        leave(inner, &chain, sandbox);
    }
    Ok(())
}

/// `DEL` of the plugins, in reverse.
async fn delete(inner: &Arc<Inner>, chain: &Chain, record: &Record) -> Result<(), Error> {
    let looked = offload::here(|| record.ns_path.try_exists());
    let looked = looked.map_err(|e| Error::path("look for", &record.ns_path, e));
    let ns_path = looked?.then_some(record.ns_path.as_path());
    // Before 0.4.0 there was no result to give.
    let previous = record.result.as_ref().filter(|_| chain.is_at_least("0.4.0"));
    for plugin in chain.plugins().collect::<Vec<_>>().into_iter().rev() {
        inner.programs.call("DEL", chain, plugin, call(record, ns_path), previous).await?;
    }
    Ok(())
}

/// The link by and by, then what depends on its being gone.
fn leave(inner: &Arc<Inner>, chain: &Arc<Chain>, sandbox: &str) {
    let (theirs, chain, sandbox) = (Arc::clone(inner), Arc::clone(chain), sandbox.to_owned());
    if !chain.elements.iter().any(|element| matches!(element, Element::Bridge(_))) {
        return report(&theirs, &sandbox, offload::here(|| finish(&theirs, &chain, &sandbox)));
    }
    let link = host_link(&sandbox);
    // The queue is part of what it works for: a strong reference would keep both for ever.
    let weak = Arc::downgrade(&theirs);
    drop(theirs);
    inner.removal.push(link, move |gone| {
        if let Some(inner) = weak.upgrade() {
            report(&inner, &sandbox, gone.and_then(|()| finish(&inner, &chain, &sandbox)));
        }
    });
}

fn finish(inner: &Inner, chain: &Chain, sandbox: &str) -> Result<(), Error> {
    if let Some(leases) = inner.leases(chain)? {
        let addresses = inner.ledger.get(sandbox)?.and_then(|entry| entry.record).map(|record| record.addresses);
        match addresses.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => leases.release(&addresses, sandbox)?,
            None => leases.release_unless(|owner| owner != sandbox)?,
        }
    }
    inner.programs.progress.forget(sandbox);
    inner.ledger.remove(sandbox)
}

/// No one waits for this outcome; the reconciler tries again.
fn report(inner: &Inner, sandbox: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        inner.unfinished.store(true, Ordering::Relaxed);
        tracing::warn!(sandbox, %error, "a pod's network is not gone yet");
    }
}
