//! nftables over netlink: transactions, our table, and its elements.
//!
//! Source: `linux/netfilter/nf_tables.h`. The expressions are those that `nft --debug=netlink` prints for the rules
//! shown in [`ruleset`].

mod element;
mod expression;
mod ruleset;
mod table;
mod transaction;

pub(crate) use element::{
    Element, Mapping, add_elements, bridge_elements, delete_elements, dump, port_elements, subnet_elements,
};
pub(crate) use ruleset::{create, delete_table};
pub(crate) use table::{Family, Table};
pub(crate) use transaction::Transaction;
