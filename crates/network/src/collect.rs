//! `GC` (CNI 1.1.0): plugins remove what belongs to none of the attachments that the ledger has.
//!
//! The specification demands that no `ADD` or `DEL` runs in the meantime. `GC` never waits for them: if one is in
//! progress, it is left to the next pass, because a plugin may take minutes for an `ADD` and other pods would wait, too.
//! An `ADD` or `DEL` waits for a `GC` in progress, at most for the timeout of `GC`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    Error,
    attachment_key::AttachmentKey,
    cni::Chain,
    network::{Inner, lock},
};

impl Inner {
    /// Runs `GC` of the network of all pods and of every other network with an attachment, unless the attachments are the
    /// same as the last time. One that another `ADD` or `DEL` delays is tried in the next pass.
    pub(crate) async fn collect_garbage(&self) -> Result<(), Error> {
        let primary = self.chain().ok().filter(|chain| chain.is_collected());
        if primary.is_none() && lock(&self.multihomed).is_empty() {
            return Ok(());
        }
        let Some(_exclusion) = self.activity.exclude() else {
            tracing::debug!("GC of the CNI plugins is postponed: pods are being attached or detached");
            return Ok(());
        };
        let (mut chains, attachments) = offload::in_place(|| self.attachments_by_network())?;
        chains.extend(primary.map(|chain| (chain.name.clone(), chain)));
        let mut failures = Vec::new();
        for (name, chain) in chains.iter().filter(|(_, chain)| chain.is_collected()) {
            let mut valid = attachments.get(name).cloned().unwrap_or_default();
            // A damaged record may be one of any network.
            valid.extend(attachments.get("").into_iter().flatten().cloned());
            valid.sort();
            if !self.collected.is_due(name, &valid) {
                continue;
            }
            let before = failures.len();
            for plugin in chain.plugins() {
                failures.extend(self.programs.collect(chain, plugin, &valid).await.err());
            }
            let succeeded = failures.len() == before;
            self.collected.note(name, succeeded.then_some(valid));
        }
        Error::join(failures)
    }

    /// Returns the networks and the attachments of all records; those of damaged records under an empty name. An
    /// attachment that is being undone is among them: its plugins' `DEL` may be repeated, and `GC` does not replace it.
    #[expect(clippy::type_complexity, reason = "two maps by the name of the network")]
    fn attachments_by_network(
        &self,
    ) -> Result<(BTreeMap<String, Arc<Chain>>, HashMap<String, Vec<AttachmentKey>>), Error> {
        let (mut chains, mut attachments) = (BTreeMap::new(), HashMap::<String, Vec<AttachmentKey>>::new());
        for (key, _) in self.ledger.names()? {
            let Some(entry) = self.ledger.get(&key)? else { continue };
            let name = match &entry.record {
                Some(record) => match record.network() {
                    Some(name) => name.to_owned(),
                    // The built-in network.
                    None => continue,
                },
                None => String::new(),
            };
            if let Some(record) = &entry.record
                && !chains.contains_key(&name)
                && let Ok(chain) = self.chain_of(record.list.as_ref())
            {
                chains.insert(name.clone(), chain);
            }
            attachments.entry(name).or_default().push(key);
        }
        Ok((chains, attachments))
    }
}
