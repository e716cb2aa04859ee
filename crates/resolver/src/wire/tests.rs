use super::*;

/// Returns a query of type A for labels, with the flags of a usual client.
fn query(labels: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend(*label);
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

#[test]
fn a_name_is_answered_with_its_addresses() {
    let parsed = Query::parse(&query(&[b"Web", b"shop"])).expect("a query");
    assert_eq!((parsed.name.as_deref(), parsed.kind, parsed.class), (Some("web.shop"), A, IN));
    let response = parsed.with_addresses(&["10.1.0.2".parse().expect("ip"), "fd00::2".parse().expect("ip")]);
    assert_eq!(response[..12], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    let record = &response[12 + 10 + 4..];
    assert_eq!(record, [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 1, 0, 2]);
    assert!(parsed.is_answered_by([0x12, 0x34], &response));
    assert!(!parsed.is_answered_by([0x12, 0x35], &response), "another id");
    assert!(!parsed.is_answered_by([0x12, 0x34], &query(&[b"Web", b"shop"])), "a query");
    let other = Query::parse(&query(&[b"wex", b"shop"])).expect("a query");
    assert!(!other.is_answered_by([0x12, 0x34], &response), "another question");
}

#[test]
fn many_addresses_fit_into_the_smallest_response() {
    let mut message = query(&[b"web"]);
    message[12 + 5..12 + 7].copy_from_slice(&AAAA.to_be_bytes());
    message[11] = 1;
    message.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
    let parsed = Query::parse(&message).expect("a query");
    let addresses: Vec<IpAddr> = (0..100u16).map(|n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n])).collect();
    let response = parsed.with_addresses(&addresses);
    assert!(response.len() <= 512 && response.len() > 450, "{}", response.len());
    assert_eq!(response[response.len() - 11..][..5], [0, 0, 41, 0x04, 0xd0], "EDNS is answered");
    assert_eq!(usize::from(response[7]) * 28 + 12 + 9 + 11, response.len());
}

#[test]
fn hostile_messages_are_refused() {
    let refused = |message: &[u8]| Query::parse(message).expect_err("refused");
    let code = |message: &[u8]| match refused(message) {
        Refusal::Response(response) => response[3] & 0x0f,
        Refusal::Ignored => 255,
    };
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = query(&[b"web"]);
        change(&mut message);
        message
    };
    assert_eq!(refused(&[]), Refusal::Ignored);
    assert_eq!(refused(&query(&[b"web"])[..11]), Refusal::Ignored);
    assert_eq!(refused(&changed(&|m| m[2] |= 0x80)), Refusal::Ignored, "a response");
    assert_eq!(code(&changed(&|m| m[2] |= 0x28)), 4, "an update");
    assert_eq!(code(&changed(&|m| m[5] = 0)), 1, "no question");
    assert_eq!(code(&changed(&|m| m[5] = 2)), 1, "two questions");
    assert_eq!(code(&changed(&|m| m[7] = 1)), 1, "an answer");
    assert_eq!(code(&changed(&|m| m.truncate(20))), 1, "cut off");
    // A name that points to itself.
    assert_eq!(code(&changed(&|m| m.splice(12.., [0xc0, 12, 0, 1, 0, 1]).for_each(drop))), 1);
    let label: &[u8] = &[b'x'; 63];
    assert_eq!(code(&query(&[label; 4])), 1, "longer than 255 bytes");
    Query::parse(&query(&[label, label, label, &[b'x'; 61]])).expect("255 bytes");
    assert_eq!(code(&changed(&|m| m[12] = 64)), 1, "a label of 64 bytes");
}

#[test]
fn names_that_no_host_has_are_not_text() {
    for labels in [&[b"a.b".as_slice()][..], &[b"\xff"], &[b"a b"], &[]] {
        assert_eq!(Query::parse(&query(labels)).expect("a query").name, None, "{labels:?}");
    }
}

#[test]
fn any_bytes_are_parsed_or_refused() {
    // xorshift64, so that every run has the same messages.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut parsed = 0;
    for _ in 0..20_000 {
        let mut message = query(&[b"web", b"shop", b"example"]);
        for _ in 0..=next() % 4 {
            let at = next() % message.len();
            match next() % 3 {
                0 => message[at] = (next() % 256) as u8,
                1 => message.truncate(at.max(1)),
                _ => message.extend_from_within(at..),
            }
        }
        if let Ok(query) = Query::parse(&message) {
            parsed += 1;
            assert!(query.with_addresses(&["10.0.0.1".parse().expect("ip")]).len() <= 512);
            assert!(query.with_name("web.shop").len() <= 600 && query.question.len() <= 259);
        }
    }
    assert!(parsed > 1000, "{parsed}");
}
