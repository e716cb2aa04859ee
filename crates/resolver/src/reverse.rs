//! Names of reverse look-ups (RFC 1035, section 3.5; RFC 3596, section 2.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address that a name such as `2.0.1.10.in-addr.arpa` stands for.
pub(crate) fn address(name: &str) -> Option<IpAddr> {
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let mut bytes = [0u8; 4];
        let mut parts = labels.rsplit('.');
        for byte in &mut bytes {
            *byte = parts.next()?.parse().ok()?;
        }
        return parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(bytes)));
    }
    let mut number = 0u128;
    let mut parts = name.strip_suffix(".ip6.arpa")?.rsplit('.');
    for _ in 0..32 {
        let nibble = parts.next().filter(|part| part.len() == 1)?;
        number = number << 4 | u128::from_str_radix(nibble, 16).ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V6(Ipv6Addr::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_addresses() {
        assert_eq!(address("2.0.1.10.in-addr.arpa"), "10.1.0.2".parse().ok());
        let six = format!("2.{}d.f.ip6.arpa", "0.".repeat(29));
        assert_eq!(address(&six), "fd00::2".parse().ok());
        for wrong in [
            "",
            "in-addr.arpa",
            "1.2.3.in-addr.arpa",
            "1.2.3.4.5.in-addr.arpa",
            "x.2.3.4.in-addr.arpa",
            "1.ip6.arpa",
            "256.1.1.1.in-addr.arpa",
        ] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
