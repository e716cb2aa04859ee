//! Which interfaces of a namespace are coupled.

use rtnl::{
    Link,
    flags::{NO_ARP, UP},
};

use super::INTERFACES_MAX;
use crate::error::{Error, ErrorKind};

/// Beginning of the names of taps; the index of the interface follows.
pub(super) const TAP_PREFIX: &str = "vmtap";

/// Devices that the kernel adds to each namespace when the module of a tunnel is loaded
/// (`net.core.fb_tunnels_only_for_init_net`).
const FALLBACK_TUNNELS: [&str; 10] =
    ["tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0", "ip6erspan0"];

/// Returns the interfaces that are coupled.
///
/// # Errors
/// `Invalid` for the first one that cannot be coupled, or if there are too many.
pub(super) fn select(mut links: Vec<Link>) -> Result<Vec<Link>, Error> {
    links.retain(|link| !is_skipped(link));
    if links.len() > INTERFACES_MAX {
        let cause = format!("the namespace has {}; at most {INTERFACES_MAX} are possible", links.len());
        return Err(Error::new(ErrorKind::Invalid, "couple network interfaces", cause));
    }
    for (index, link) in links.iter().enumerate() {
        let (earlier, _) = links.split_at(index);
        if let Some(obstacle) = obstacle(link).or_else(|| conflict(link, earlier, &links)) {
            let cause = format!("{obstacle}; a pod with the VM handler cannot use it");
            return Err(Error::new(ErrorKind::Invalid, format!("couple network interface {}", link.name), cause));
        }
    }
    Ok(links)
}

fn is_skipped(link: &Link) -> bool {
    let is_tap =
        link.kind == "tun" && link.name.strip_prefix(TAP_PREFIX).is_some_and(|index| index.parse::<u32>().is_ok());
    let is_fallback = link.flags & UP == 0 && FALLBACK_TUNNELS.contains(&link.name.as_str());
    link.loopback || is_tap || is_fallback
}

/// Returns the reason why an interface cannot be coupled.
fn obstacle(link: &Link) -> Option<String> {
    let kind = match link.kind.as_str() {
        "" => "device",
        kind => kind,
    };
    if kind == "ipvlan" {
        // In modes L3 and L3S it carries no Ethernet frames; mode L2 could not be tested.
        return Some("it is an ipvlan, which shares its parent's MAC address".into());
    }
    if <[u8; 6]>::try_from(link.mac.as_slice()).map_or(true, |mac| mac == [0; 6]) {
        return Some(format!("it has no MAC address (kind {kind})"));
    }
    if link.flags & NO_ARP != 0 {
        return Some(format!("it has no ARP (kind {kind})"));
    }
    if link.master != 0 {
        return Some("it is a port of another interface".into());
    }
    (link.flags & UP == 0).then(|| "it is down".into())
}

/// Returns the reason why an interface cannot be coupled together with another one.
fn conflict(link: &Link, earlier: &[Link], all: &[Link]) -> Option<String> {
    if let Some(other) = earlier.iter().find(|other| other.mac == link.mac) {
        return Some(format!("it has the MAC address of {}, and the guest finds interfaces by these", other.name));
    }
    // The ends of a veth pair are parents of each other, and get frames of their own.
    let has_parent_here = link.kind != "veth" && link.parent != 0 && !link.is_parent_elsewhere;
    let parent = all.iter().find(|other| has_parent_here && other.index == link.parent)?;
    Some(format!("it is on top of {}, all of whose frames the guest gets", parent.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: &str, flags: u32, mac: u8) -> Link {
        Link { name: name.into(), kind: kind.into(), flags, mac: vec![2, 0, 0, 0, 0, mac], ..Link::default() }
    }

    #[test]
    fn loopback_taps_and_fallback_tunnels_are_skipped() {
        let links = vec![
            Link { loopback: true, ..link("lo", "", UP, 0) },
            link("vmtap2", "tun", UP, 1),
            link("eth0", "veth", UP, 2),
            link("tunl0", "ipip", NO_ARP, 3),
            link("net1", "macvlan", UP, 4),
        ];
        let names: Vec<String> = select(links).expect("links").into_iter().map(|link| link.name).collect();
        assert_eq!(names, ["eth0", "net1"]);
    }

    #[test]
    fn interfaces_that_cannot_be_coupled_are_refused_by_name() {
        for (link, cause) in [
            (link("net1", "veth", 0, 2), "it is down"),
            (link("net1", "ipvlan", UP, 2), "ipvlan"),
            (link("net1", "dummy", UP | NO_ARP, 2), "no ARP (kind dummy)"),
            (Link { mac: Vec::new(), ..link("net1", "wireguard", UP, 2) }, "no MAC address (kind wireguard)"),
            (Link { mac: vec![0; 20], ..link("net1", "", UP, 2) }, "no MAC address (kind device)"),
            (Link { master: 3, ..link("net1", "veth", UP, 2) }, "a port"),
            (link("net1", "tun", UP, 1), "the MAC address of eth0"),
            (Link { parent: 2, ..link("net1", "vlan", UP, 2) }, "on top of eth0"),
            (link("vmtap", "veth", 0, 2), "it is down"),
        ] {
            let name = link.name.clone();
            let eth0 = Link { index: 2, ..self::link("eth0", "veth", UP, 1) };
            let error = select(vec![eth0, link]).expect_err("refused");
            assert_eq!(
                (error.kind.clone(), &*error.operation),
                (ErrorKind::Invalid, &*format!("couple network interface {name}"))
            );
            assert!(error.cause.contains(cause) && error.cause.ends_with("cannot use it"), "{error}");
        }
    }

    #[test]
    fn a_parent_in_another_namespace_is_none_of_the_pods() {
        let eth0 = Link { index: 2, ..link("eth0", "veth", UP, 1) };
        let net1 = Link { index: 3, parent: 2, is_parent_elsewhere: true, ..link("net1", "macvlan", UP, 2) };
        let peer = Link { index: 4, parent: 2, ..link("net2", "veth", UP, 3) };
        assert_eq!(select(vec![eth0, net1, peer]).expect("links").len(), 3);
    }

    #[test]
    fn there_are_at_most_32() {
        let links = |count: u8| (0..count).map(|n| link(&format!("net{n}"), "veth", UP, n)).collect();
        assert_eq!(select(links(32)).expect("links").len(), 32);
        assert!(select(links(33)).expect_err("refused").cause.contains("33"));
    }
}
