//! Sizes of terminals, as JSON, one after the other.

use serde::Deserialize;

use crate::{Control, Size, channel::Inbox};

/// Most bytes of one that is not whole.
const MAX: usize = 1024;

#[derive(Debug, Deserialize)]
struct Told {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// Changes the terminal as the client tells, until the client tells no more.
pub(crate) async fn follow(inbox: &mut Inbox, control: &dyn Control) {
    let mut text = Vec::new();
    while let Some(piece) = inbox.next().await {
        text.extend_from_slice(&piece);
        match newest(&mut text) {
            Ok(Some(size)) => control.resize(size).await,
            Ok(None) if text.len() <= MAX => {}
            // What follows cannot be understood either.
            Ok(None) | Err(()) => return inbox.discard().await,
        }
    }
}

/// Takes whole ones from the text; the last of them counts.
fn newest(text: &mut Vec<u8>) -> Result<Option<Size>, ()> {
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Told>();
    let (mut size, mut read) = (None, 0);
    loop {
        match stream.next() {
            Some(Ok(told)) => {
                size = Some(Size { columns: told.width, rows: told.height });
                read = stream.byte_offset();
            }
            Some(Err(error)) if error.is_eof() => break,
            Some(Err(_)) => return Err(()),
            None => {
                read = text.len();
                break;
            }
        }
    }
    text.drain(..read);
    Ok(size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_newest_counts_and_a_piece_waits() {
        let mut text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":90,\"Height\":30}\n{\"Wid".to_vec();
        assert_eq!(newest(&mut text), Ok(Some(Size { columns: 90, rows: 30 })));
        assert_eq!(newest(&mut text), Ok(None));
        text.extend(b"th\":1,\"Height\":2}");
        assert_eq!(newest(&mut text), Ok(Some(Size { columns: 1, rows: 2 })));
        assert!(text.is_empty());
    }

    #[test]
    fn nonsense_is_an_error() {
        assert_eq!(newest(&mut b"{\"Width\":-1}".to_vec()), Err(()));
        assert_eq!(newest(&mut b"ls\n".to_vec()), Err(()));
        assert_eq!(newest(&mut b" \n".to_vec()), Ok(None));
    }

    proptest! {
        #[test]
        fn cut_anywhere_it_is_the_same(width: u16, height: u16, cut in 0usize..20) {
            let whole = format!("{{\"Width\":{width},\"Height\":{height}}}");
            let cut = cut.min(whole.len() - 1);
            let mut text = whole.as_bytes()[..cut].to_vec();
            prop_assert_eq!(newest(&mut text), Ok(None));
            text.extend(&whole.as_bytes()[cut..]);
            prop_assert_eq!(newest(&mut text), Ok(Some(Size { columns: width, rows: height })));
        }
    }
}
