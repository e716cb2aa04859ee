//! Terminal sizes, which the client sends as a sequence of JSON objects.

use oci::TerminalSize;
use serde::Deserialize;

use crate::{Control, channel::Inbox};

/// Maximum size of an incomplete object in bytes.
const MAX: usize = 1024;

/// `TerminalSize` of Kubernetes' remotecommand: as the runtime specification's, but with capital names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ResizeMessage {
    width: u16,
    height: u16,
}

impl From<ResizeMessage> for TerminalSize {
    fn from(ResizeMessage { width, height }: ResizeMessage) -> Self {
        Self { height, width }
    }
}

/// Applies the terminal sizes that the client sends, until it sends no more.
pub(crate) async fn follow(inbox: &mut Inbox, control: &dyn Control) {
    let mut text = Vec::new();
    while let Some(piece) = inbox.next().await {
        text.extend_from_slice(&piece);
        match newest(&mut text) {
            Ok(Some(size)) => control.resize(size).await,
            Ok(None) if text.len() <= MAX => {}
            // After invalid input the position of the next object is unknown.
            Ok(None) | Err(()) => return inbox.discard().await,
        }
    }
}

/// Removes complete objects from the text, and returns the last one.
fn newest(text: &mut Vec<u8>) -> Result<Option<TerminalSize>, ()> {
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<ResizeMessage>();
    let (mut size, mut read) = (None, 0);
    loop {
        match stream.next() {
            Some(Ok(parsed)) => {
                size = Some(parsed.into());
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
    fn the_last_size_is_returned_and_an_incomplete_one_kept() {
        let mut text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":90,\"Height\":30}\n{\"Wid".to_vec();
        assert_eq!(newest(&mut text), Ok(Some(TerminalSize { width: 90, height: 30 })));
        assert_eq!(newest(&mut text), Ok(None));
        text.extend(b"th\":1,\"Height\":2}");
        assert_eq!(newest(&mut text), Ok(Some(TerminalSize { width: 1, height: 2 })));
        assert!(text.is_empty());
    }

    #[test]
    fn invalid_input_is_an_error() {
        assert_eq!(newest(&mut b"{\"Width\":-1}".to_vec()), Err(()));
        assert_eq!(newest(&mut b"ls\n".to_vec()), Err(()));
        assert_eq!(newest(&mut b" \n".to_vec()), Ok(None));
    }

    proptest! {
        #[test]
        fn an_object_may_be_split_anywhere(width: u16, height: u16, cut in 0usize..20) {
            let whole = format!("{{\"Width\":{width},\"Height\":{height}}}");
            let cut = cut.min(whole.len() - 1);
            let mut text = whole.as_bytes()[..cut].to_vec();
            prop_assert_eq!(newest(&mut text), Ok(None));
            text.extend(&whole.as_bytes()[cut..]);
            prop_assert_eq!(newest(&mut text), Ok(Some(TerminalSize { width, height })));
        }
    }
}
