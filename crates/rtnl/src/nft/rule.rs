//! Tables, chains and rules within a transaction, and rules that are found again by their comments.

use rustix::io::Errno;

use super::{Table, Transaction, header, kind};
use crate::{
    netlink::{Batch, CREATE, EXCL, Refusal, Socket, find},
    query::retry_interrupted,
};

const NEWTABLE: u16 = 0;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;
const GETRULE: u16 = 7;
const DELRULE: u16 = 8;
const APPEND: u16 = 0x800;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_CHAIN_NAME: u16 = 3;
/// Type of a comment in the user data of a rule, as nft(8) stores it.
const COMMENT: u8 = 0;
/// Longest comment in bytes, without the final zero.
pub const COMMENT_MAX: usize = 128;

/// Where a base chain is attached.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Type: `filter` or `nat`.
    pub kind: &'static str,
    /// Number of the hook (`NF_INET_*`).
    pub number: u32,
    /// Priority; chains with smaller numbers are first.
    pub priority: i32,
}

/// A rule in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// Number of the rule in its table.
    pub handle: u64,
    /// Comment; empty if there is none.
    pub comment: String,
}

impl Transaction {
    /// Creates the table unless it exists.
    pub fn create_table(&mut self) {
        self.create(NEWTABLE, |_| {});
    }

    /// Creates a table that the kernel removes when the socket is closed that commits the transaction, also when its
    /// process is killed (Linux 5.12). Others cannot change it.
    pub fn create_owned_table(&mut self) {
        const OWNER: u32 = 2;
        self.add(NEWTABLE, CREATE | EXCL, |m| m.big_endian(2, OWNER));
    }

    /// Creates a chain unless it exists; with a hook, a base chain that accepts packets by default.
    pub fn create_chain(&mut self, name: &str, hook: Option<Hook>) {
        self.create(NEWCHAIN, |m| {
            m.text(NFTA_CHAIN_NAME, name);
            if let Some(hook) = hook {
                m.nest(4, |m| {
                    m.big_endian(1, hook.number);
                    m.big_endian(2, hook.priority.cast_unsigned());
                });
                m.text(7, hook.kind);
            }
        });
    }

    /// Deletes a chain, which must exist and be empty.
    pub fn delete_chain(&mut self, name: &str) {
        self.add(DELCHAIN, 0, |m| m.text(NFTA_CHAIN_NAME, name));
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, name: &str) {
        self.add(DELRULE, 0, |m| m.text(NFTA_RULE_CHAIN, name));
    }

    /// Appends a rule with a comment, which may be empty.
    pub fn append_rule(&mut self, chain: &str, comment: &str, expressions: impl FnOnce(&mut Batch)) {
        self.rule(CREATE | APPEND, chain, comment, expressions);
    }

    /// Inserts a rule as the first of its chain.
    pub fn insert_rule(&mut self, chain: &str, comment: &str, expressions: impl FnOnce(&mut Batch)) {
        self.rule(CREATE, chain, comment, expressions);
    }

    fn rule(&mut self, flags: u16, chain: &str, comment: &str, expressions: impl FnOnce(&mut Batch)) {
        self.add(NEWRULE, flags, |m| {
            m.text(NFTA_RULE_CHAIN, chain);
            m.nest(NFTA_RULE_EXPRESSIONS, expressions);
            if !comment.is_empty() {
                m.bytes(NFTA_RULE_USERDATA, &user_data(comment));
            }
        });
    }

    /// Deletes a rule.
    pub fn delete_rule(&mut self, chain: &str, handle: u64) {
        self.add(DELRULE, 0, |m| {
            m.text(NFTA_RULE_CHAIN, chain);
            m.bytes(NFTA_RULE_HANDLE, &handle.to_be_bytes());
        });
    }
}

/// Returns a comment in the format of user data: type, length, text with a final zero.
fn user_data(comment: &str) -> Vec<u8> {
    let text: Vec<u8> = comment.bytes().take(COMMENT_MAX).collect();
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[COMMENT, length], &text[..], &[0]].concat()
}

fn comment(mut data: &[u8]) -> String {
    while let [kind, length, rest @ ..] = data {
        let Some(value) = rest.get(..usize::from(*length)) else { break };
        if *kind == COMMENT {
            return crate::netlink::text(value);
        }
        data = &rest[usize::from(*length)..];
    }
    String::new()
}

/// Returns the rules of a chain in their order; none if the chain or its table does not exist.
pub fn rules(socket: &mut Socket, table: &Table, chain: &str) -> Result<Vec<ListedRule>, Refusal> {
    let listed = retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(kind(GETRULE), 0, &header(table.family.number()), |m| {
            m.text(1, &table.name);
            m.text(NFTA_RULE_CHAIN, chain);
        });
        let mut rules = Vec::new();
        socket.dump(batch, |_, body| {
            let all = body.get(4..).unwrap_or_default();
            // Kernels before 5.x filter by the table only.
            let is_of_chain = find(all, NFTA_RULE_CHAIN).map(crate::netlink::text).as_deref() == Some(chain);
            let handle = find(all, NFTA_RULE_HANDLE).and_then(|h| h.try_into().ok()).map(u64::from_be_bytes);
            if let Some(handle) = handle.filter(|_| is_of_chain) {
                let comment = find(all, NFTA_RULE_USERDATA).map(comment).unwrap_or_default();
                rules.push(ListedRule { handle, comment });
            }
        })?;
        Ok(rules)
    });
    match listed {
        Err(refusal) if refusal.errno == Errno::NOENT => Ok(Vec::new()),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_as_they_were_written() {
        assert_eq!(comment(&user_data("a pod")), "a pod");
        assert_eq!(comment(&user_data(&"x".repeat(500))).len(), COMMENT_MAX);
        // Another type before the comment, and lengths beyond the end.
        assert_eq!(comment(&[&[7, 2, 1, 1][..], &user_data("b")].concat()), "b");
        assert_eq!(comment(&[0, 9, b'a']), "");
        assert_eq!(comment(&[0]), "");
    }
}
