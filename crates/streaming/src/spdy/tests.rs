use proptest::prelude::*;

use super::*;

/// Encodes a control frame of a client.
fn frame(kind: u16, flags: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 3];
    bytes.extend(kind.to_be_bytes());
    bytes.extend((u32::from(flags) << 24 | content.len() as u32).to_be_bytes());
    bytes.extend(content);
    bytes
}

fn syn(deflater: &mut Deflater, id: u32, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut content = id.to_be_bytes().to_vec();
    content.extend([0; 6]);
    content.extend(deflater.block(headers));
    frame(1, 0, &content)
}

#[test]
fn streams_and_their_headers_are_decoded() {
    let mut deflater = Deflater::default();
    let mut bytes = syn(&mut deflater, 1, &[("StreamType", "error"), ("port", "80\x0081")]);
    bytes.extend(syn(&mut deflater, 3, &[]));
    bytes.extend([0, 0, 0, 1, 1, 0, 0, 2, b'h', b'i']);
    bytes.extend(frame(6, 0, &[0, 0, 0, 9]));
    bytes.extend(frame(99, 0, b"of a later version"));
    bytes.extend([0x80, 3, 0]);
    let frames = Decoder::default().frames(&bytes).expect("well formed");
    let Frame::SynStream { stream: 1, headers, .. } = &frames[0] else { panic!("{frames:?}") };
    assert_eq!((headers.get("streamtype"), headers.get("port"), headers.get("x")), (Some("error"), Some("80"), None));
    assert!(matches!(frames[1], Frame::SynStream { stream: 3, .. }));
    assert_eq!(frames[2..], [Frame::Data { stream: 1, fin: true, length: 2 }, Frame::Ping { id: 9 }, Frame::Unknown]);
}

/// All clients compress their headers; only our own encoder does not.
#[test]
fn compressed_headers_are_decoded() {
    let mut compressor = flate2::Compress::new(flate2::Compression::best(), true);
    compressor.set_dictionary(&super::dictionary::DICTIONARY).expect("a dictionary");
    let mut inflater = Inflater::default();
    for n in 0..50 {
        let value = format!("value {n}").repeat(n);
        let mut plain = Deflater::default().block(&[("streamtype", "data"), ("requestid", &value)]);
        // Without the zlib header, the header of the stored block and the empty block after it.
        plain.drain(..11);
        plain.truncate(plain.len() - 5);
        let mut block = Vec::with_capacity(10_000);
        compressor.compress_vec(&plain, &mut block, flate2::FlushCompress::Sync).expect("compress");
        let headers = inflater.block(&block).expect("headers");
        assert_eq!(headers.get("requestid"), Some(value.as_str()));
    }
}

#[test]
fn a_decompression_bomb_is_refused() {
    let mut compressor = flate2::Compress::new(flate2::Compression::best(), true);
    compressor.set_dictionary(&super::dictionary::DICTIONARY).expect("a dictionary");
    let mut block = Vec::with_capacity(100_000);
    compressor.compress_vec(&vec![0; 10_000_000], &mut block, flate2::FlushCompress::Sync).expect("compress");
    assert_eq!(Inflater::default().block(&block), Err(Malformed("headers that are too large")));
}

#[test]
fn invalid_lengths_are_refused() {
    for bad in [
        frame(6, 0, &[0; 5]),
        frame(3, 0, &[0; 7]),
        frame(3, 0, &[0; 8]),
        frame(9, 0, &[0; 8]),
        frame(1, 0, &[0, 0, 0, 1]),
        frame(4, 0, &[0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 1]),
        vec![0x80, 3, 0, 6, 0, 0xff, 0xff, 0xff],
        vec![0x80, 2, 0, 6, 0, 0, 0, 4],
        vec![0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert!(Decoder::default().frames(&bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_give_frames_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Decoder::default().frames(&bytes);
    }

    #[test]
    fn arbitrary_headers_are_transferred(all in proptest::collection::hash_map("[a-z]{1,12}", "[ -~]{0,40}", 0..10)) {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        let list: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for _ in 0..3 {
            let headers = inflater.block(&deflater.block(&list)).expect("headers");
            for (name, value) in &list {
                prop_assert_eq!(headers.get(name), Some(*value));
            }
        }
    }

    #[test]
    fn a_corrupted_block_gives_headers_or_an_error(at in 0usize..60, to: u8) {
        let mut block = Deflater::default().block(&[("streamtype", "stdin"), ("port", "8080")]);
        let at = at % block.len();
        block[at] = to;
        let _ = Inflater::default().block(&block);
    }
}
