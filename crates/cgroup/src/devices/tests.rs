use super::*;

fn rule(allow: bool, text: &str) -> DeviceRule {
    let words: Vec<&str> = text.split(' ').collect();
    let (major, minor) = words[1].split_once(':').unwrap();
    let number = |n: &str| n.parse::<i64>().ok();
    DeviceRule {
        allow,
        kind: Some(words[0].into()),
        major: number(major),
        minor: number(minor),
        access: Some(words[2].into()),
    }
}

fn lines(rules: &[DeviceRule]) -> Vec<String> {
    let policy = DevicePolicy::from_spec(rules).unwrap().unwrap();
    let mut lines: Vec<String> = policy.exceptions.iter().map(Exception::line).collect();
    if !policy.allow {
        lines.retain(|line| !ALWAYS.iter().any(|always| always.line() == *line));
    }
    lines
}

#[test]
fn rules_are_reduced() {
    let deny = rule(false, "a *:* rwm");
    assert_eq!(lines(std::slice::from_ref(&deny)), Vec::<String>::new());
    assert_eq!(lines(&[deny.clone(), rule(true, "c 10:200 rw"), rule(true, "c 10:200 m")]), ["c 10:200 rwm"]);
    assert_eq!(lines(&[rule(true, "b 8:* r")]), ["b 8:* r"], "an allow list without a deny rule starts from deny all");
    assert_eq!(lines(&[deny.clone(), rule(true, "c 10:200 rwm"), rule(false, "c 10:* w")]), ["c 10:200 rm"]);
    assert_eq!(lines(&[rule(true, "a *:* rwm"), rule(false, "b 8:0 rwm")]), ["b 8:0 rwm"]);
    assert_eq!(DevicePolicy::from_spec(&[rule(true, "a *:* rwm")]).unwrap(), None, "privileged");
    assert_eq!(DevicePolicy::from_spec(&[]).unwrap(), None);
    assert!(DevicePolicy::default().exceptions.len() == ALWAYS.len() && !DevicePolicy::default().allow);
}

#[test]
fn a_denial_that_cannot_be_expressed_is_refused() {
    let deny = rule(false, "a *:* rwm");
    let error = DevicePolicy::from_spec(&[deny, rule(true, "c 1:* rwm"), rule(false, "c 1:11 w")]).unwrap_err();
    assert!(error.to_string().contains("c 1:11 w"), "{error}");
}

#[test]
fn invalid_rules_are_refused() {
    let bad = [rule(true, "x 1:1 r"), rule(true, "c 1:1 rx"), rule(true, "c -2:1 r"), rule(true, "c 5000000000:1 r")];
    for bad in bad {
        assert!(DevicePolicy::from_spec(std::slice::from_ref(&bad)).is_err(), "{bad:?}");
    }
    let many: Vec<_> = (0..500).map(|n| rule(true, &format!("c 7:{n} r"))).collect();
    assert!(DevicePolicy::from_spec(&many).is_err());
}

#[test]
fn program_fits_the_kernel_limit() {
    let many: Vec<_> = (0..380).map(|n| rule(true, &format!("c 7:{n} r"))).collect();
    let policy = DevicePolicy::from_spec(&many).unwrap().unwrap();
    assert!(policy.program().len() < 4096);
}
