//! nftables over netlink: transactions and the expressions of rules. What tables contain is up to the caller.
//!
//! Source: `linux/netfilter/nf_tables.h`. The expressions are those that `nft --debug=netlink` prints.

pub mod expression;
mod rule;
mod table;
pub mod trace;
mod transaction;

pub use rule::{COMMENT_MAX, Hook, ListedRule, rules};
pub use table::{Family, Table};
pub use transaction::{Transaction, header, kind};
