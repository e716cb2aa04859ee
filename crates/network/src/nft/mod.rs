//! nftables over netlink: transactions, our table, and its elements.
//!
//! Source: `linux/netfilter/nf_tables.h`; the expressions are those `nft --debug=netlink` prints for the rules shown in
//! [`table`].

mod expression;
mod table;
mod transaction;

pub(crate) use table::{
    Element, Family, Mapping, TABLE, add_elements, bridge_elements, create, delete_elements, delete_table, dump,
    port_elements, subnet_elements,
};
pub(crate) use transaction::Transaction;
