use std::time::Duration;

use tokio::io::{AsyncWriteExt, duplex};

use super::*;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

#[test]
fn messages_are_assembled_from_any_pieces() {
    let bytes = [message(b'd', b"one"), message(b'Z', b""), message(b'd', b"three")].concat();
    for piece in 1..bytes.len() {
        run(async {
            let (ours, mut theirs) = duplex(piece);
            let writing = async {
                theirs.write_all(&bytes).await.unwrap();
                drop(theirs);
            };
            let reading = async {
                let mut wire = Wire::new(ours);
                let mut got = Vec::new();
                while let Ok(frame) = wire.recv().await {
                    got.push((frame.tag, frame.body.to_vec()));
                }
                assert_eq!(
                    got,
                    [(b'd', b"one".to_vec()), (b'Z', Vec::new()), (b'd', b"three".to_vec())]
                );
            };
            tokio::join!(writing, reading);
        });
    }
}

#[test]
fn a_message_that_is_too_long_is_cut_or_refused() {
    run(async {
        let (ours, mut theirs) = duplex(1 << 20);
        let writing = async {
            theirs.write_all(&message(b'd', &vec![7; MESSAGE_BYTES_MAX + 70_000])).await.unwrap();
            theirs.write_all(&message(b'd', b"next")).await.unwrap();
            theirs
                .write_all(&message(b'T', &vec![0; MESSAGE_BYTES_MAX + 1]))
                .await
                .unwrap_or_default();
        };
        let reading = async {
            let mut wire = Wire::new(ours);
            let cut = wire.recv().await.unwrap();
            assert!(cut.is_cut && cut.body.len() == MESSAGE_BYTES_MAX);
            let next = wire.recv().await.unwrap();
            assert!(!next.is_cut && next.body == "next");
            assert!(matches!(wire.recv().await, Err(WireError::Protocol(_))));
        };
        tokio::join!(writing, reading);
    });
}

#[test]
fn a_silent_server_causes_a_timeout() {
    run(async {
        let (ours, _theirs) = duplex(64);
        let mut wire = Wire::new(ours);
        let answer = wire.query("SELECT 1", deadline(Duration::from_secs(5)), "a question").await;
        assert!(matches!(answer, Err(WireError::Timeout("a question"))), "{answer:?}");
    });
    run(async {
        // Nor does a server that reads nothing block the client.
        let (ours, _theirs) = duplex(4);
        let answer =
            Wire::new(ours).query("SELECT 1", deadline(Duration::from_secs(5)), "a question").await;
        assert!(matches!(answer, Err(WireError::Timeout("sending"))), "{answer:?}");
    });
}

#[test]
fn broken_answers_are_errors() {
    use super::error::ServerError;
    use super::frame::Row;
    for body in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0\0\0\x05abc"] {
        assert!(Row::parse(body).is_err(), "{body:?}");
    }
    let row = Row::parse(b"\0\x02\xff\xff\xff\xff\0\0\0\x02ok").unwrap();
    assert!(row.text(0).is_err() && row.text(2).is_err());
    assert_eq!(row.text(1).unwrap(), "ok");
    let error = ServerError::parse(b"SFATAL\0C57P01\0Mgone\0Hcome back\0\0");
    assert_eq!(error.to_string(), "FATAL: gone (SQLSTATE 57P01); hint: come back");
    assert_eq!(ServerError::parse(b"Mcut").message, "");
}

#[test]
fn positions_are_parsed_as_printed() {
    use super::replication::Lsn;
    assert_eq!("16/B374D848".parse::<Lsn>().unwrap(), Lsn(0x16_b374_d848));
    assert_eq!(Lsn(0x1_0000_0000).to_string(), "1/0");
    for bad in ["", "/", "1", "1/", "x/1", "1/100000000"] {
        assert!(bad.parse::<Lsn>().is_err(), "{bad}");
    }
}
