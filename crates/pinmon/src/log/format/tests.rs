use super::*;

fn pieces(data: &[u8], line_max: usize, flush: bool) -> (Vec<(String, bool)>, usize) {
    let mut pieces = Vec::new();
    let used = cut(data, line_max, flush, &mut pieces);
    let text = |p: &Piece| (String::from_utf8_lossy(&data[p.start..p.end]).into_owned(), p.full);
    (pieces.iter().map(text).collect(), used)
}

fn owned(list: &[(&str, bool)]) -> Vec<(String, bool)> {
    list.iter().map(|(text, full)| ((*text).to_owned(), *full)).collect()
}

#[test]
fn whole_lines_are_cut_and_the_rest_stays() {
    assert_eq!(pieces(b"a\n\nbc\nrest", 100, false), (owned(&[("a\n", true), ("\n", true), ("bc\n", true)]), 6));
    assert_eq!(pieces(b"rest", 100, false), (vec![], 0));
    assert_eq!(pieces(b"", 100, true), (vec![], 0));
}

#[test]
fn the_rest_is_partial_when_flushed() {
    assert_eq!(pieces(b"a\nrest", 100, true), (owned(&[("a\n", true), ("rest", false)]), 6));
}

#[test]
fn long_lines_are_cut_into_pieces_of_the_maximum_length() {
    assert_eq!(pieces(b"abcde", 4, false), (owned(&[("abcd", false)]), 4));
    assert_eq!(pieces(b"abcd", 4, false), (vec![], 0));
    assert_eq!(pieces(b"abcd\n", 4, false), (owned(&[("abcd\n", true)]), 5));
    assert_eq!(pieces(b"abcdefghi\n", 4, false), (owned(&[("abcd", false), ("efgh", false), ("i\n", true)]), 10));
}

#[test]
fn a_batch_has_a_maximum_number_of_pieces() {
    let data = b"\n".repeat(PIECES_MAX + 5);
    let (list, used) = pieces(&data, 100, true);
    assert_eq!((list.len(), used), (PIECES_MAX, PIECES_MAX));
}

#[test]
fn times_are_rfc_3339_in_utc() {
    let text = |at, stream| String::from_utf8(Prefix::new(at, stream).bytes().to_vec()).expect("ascii");
    assert_eq!(text(0, StreamKind::Stdout), "1970-01-01T00:00:00.000000000Z stdout F ");
    assert_eq!(text(951_827_696_123_456_789, StreamKind::Stderr), "2000-02-29T12:34:56.123456789Z stderr F ");
    assert_eq!(text(1_709_251_199_999_999_999, StreamKind::Stdout), "2024-02-29T23:59:59.999999999Z stdout F ");
    assert_eq!(text(4_107_542_399_000_000_000, StreamKind::Stdout), "2100-02-28T23:59:59.000000000Z stdout F ");
    assert_eq!(text(4_107_542_400_000_000_000, StreamKind::Stdout), "2100-03-01T00:00:00.000000000Z stdout F ");
    let partial = Prefix::new(0, StreamKind::Stdout).partial();
    assert!(partial.bytes().ends_with(b"stdout P "));
}
