use hotrow_types::version::Version;
use proptest::prelude::*;

use super::*;
use crate::message::CHANGES_BYTES_MAX;

fn any_generation() -> impl Strategy<Value = Generation> {
    (any::<u64>(), any::<u64>()).prop_map(|(number, identity)| Generation { number, identity })
}

fn any_mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        any::<u64>().prop_map(Mark::Transaction),
        any::<u64>().prop_map(Mark::Commit),
        any_gtid().prop_map(Mark::Gtid)
    ]
}

fn any_gtid() -> impl Strategy<Value = Gtid> {
    (any::<u128>(), "([a-z_][a-z0-9_]{0,31})?", any::<u64>()).prop_map(|(server, tag, number)| {
        Gtid { source: SourceId::new(server, &tag).expect("a tag"), number }
    })
}

fn any_tag() -> impl Strategy<Value = Tag> {
    any::<u128>().prop_map(Tag)
}

fn any_event() -> impl Strategy<Value = Event> {
    let cause = prop_oneof![
        Just(FlushReason::Bulk),
        Just(FlushReason::Schema),
        Just(FlushReason::Unlisted)
    ];
    prop_oneof![
        (any_tag(), prop::collection::vec(any::<u8>(), 0..40), any_mark()).prop_map(
            |(collection, key, mark)| Event::Change { collection, key: key.into(), mark }
        ),
        (any_tag(), cause, prop::option::of(any_mark()))
            .prop_map(|(collection, cause, mark)| Event::Flush { collection, cause, mark }),
        (any_tag(), ".{0,20}")
            .prop_map(|(collection, detail)| Event::OpenGap { collection, detail }),
        any_tag().prop_map(|collection| Event::CloseGap { collection }),
    ]
}

fn any_visible() -> impl Strategy<Value = Visible> {
    let running = prop::collection::btree_set(any::<u64>(), 0..9);
    prop_oneof![
        (any::<u64>(), any::<u64>(), running).prop_map(|(xmin, xmax, running)| {
            Visible::Snapshot(Snapshot { xmin, xmax, running: running.into_iter().collect() })
        }),
        any::<u64>().prop_map(Visible::Through),
        any::<u128>().prop_map(|server| {
            let [a, b, c, d] = [server >> 96, server >> 80, server >> 64, server >> 48];
            let text = format!(
                "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}:1-3:7-7",
                a as u32,
                b as u16,
                c as u16,
                d as u16,
                server as u64 & 0xffff_ffff_ffff
            );
            Visible::Gtids(Arc::new(GtidSet::parse(&text).expect("a set")))
        }),
    ]
}

fn any_option() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(any::<u64>())
}

fn any_body() -> impl Strategy<Value = Body> {
    let predecessor = (any_generation(), any::<u64>())
        .prop_map(|(generation, counter)| Predecessor { generation, counter });
    let beginning =
        (prop::option::of(predecessor), any_option(), any_option(), ".{0,20}", ".{0,20}").prop_map(
            |(predecessor, resumed_at, watched, origin, reason)| {
                Body::Beginning(Beginning { predecessor, resumed_at, watched, origin, reason })
            },
        );
    let watermark = (
        prop::collection::vec(any::<u128>(), 0..5),
        any::<u64>(),
        prop::option::of(any_visible()),
        prop::option::of(prop::collection::vec(any_mark(), 0..5)),
        prop::collection::vec(any_tag(), 0..3),
        prop::collection::vec(any_tag(), 0..3),
        any_option(),
        ".{0,20}",
    )
        .prop_map(|(answers, end, visible, hidden, gaps, collections, watched, origin)| {
            Body::Watermark(Box::new(Watermark {
                answers,
                end,
                visible,
                hidden,
                gaps,
                collections,
                watched,
                origin,
            }))
        });
    prop_oneof![
        beginning,
        prop::collection::vec(any_event(), 0..9).prop_map(Body::Changes),
        watermark,
        (any::<u8>(), ".{0,20}").prop_map(|(cause, detail)| Body::Loss(Loss { cause, detail })),
    ]
}

fn any_landmark() -> impl Strategy<Value = Landmark> {
    let gtid = prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u64>())
            .prop_map(|(domain, server, sequence)| CommitId::MariaDb(domain, server, sequence)),
        any_gtid().prop_map(CommitId::MySql),
    ];
    let commit = (gtid, any::<u64>()).prop_map(|(gtid, end)| CommitMark { gtid, end });
    (any::<u64>(), any::<u32>(), prop::option::of(commit))
        .prop_map(|(at, file_created_s, commit)| Landmark { at, file_created_s, commit })
}

fn any_message() -> impl Strategy<Value = Message> {
    let landmark = prop::option::of(any_landmark());
    (any_generation(), any::<u64>(), any::<u64>(), landmark, any_body()).prop_map(
        |(generation, counter, complete, landmark, body)| Message {
            generation,
            counter,
            complete,
            landmark,
            body,
        },
    )
}

proptest! {
    #[test]
    fn what_was_written_is_read(message in any_message()) {
        let bytes = encode(&message);
        prop_assert_eq!(decode(&bytes), Ok(message));
        // A message that was cut, or has something behind it, is not another message.
        for end in 0..bytes.len() {
            prop_assert!(decode(&bytes[..end]).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        prop_assert!(decode(&longer).is_err());
    }

    #[test]
    fn no_bytes_are_trusted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = decode(&bytes);
        _ = decode_nonce(&bytes);
    }

    #[test]
    fn no_changed_byte_is_trusted(
        message in any_message(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = encode(&message);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(other) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&other)), Ok(other));
        }
    }

    #[test]
    fn a_nonce_has_one_form(instance in any::<u64>(), question in any::<u128>()) {
        let nonce = Nonce { instance, question };
        let bytes = encode_nonce(nonce);
        prop_assert_eq!(decode_nonce(&bytes), Some(nonce));
        prop_assert_eq!(decode_nonce(&bytes[1..]), None);
    }

    #[test]
    fn an_event_is_no_longer_than_promised(event in any_event()) {
        let bound = event.bytes_max();
        let message = |events| Message {
            generation: Generation { number: 1, identity: 2 },
            counter: 3,
            complete: 4,
            landmark: None,
            body: Body::Changes(events),
        };
        let empty = encode(&message(Vec::new())).len();
        prop_assert!(encode(&message(vec![event])).len() - empty <= bound);
    }
}

#[test]
fn the_longest_messages_fit() {
    let tags: Vec<Tag> = (0..COLLECTIONS_MAX as u128).map(Tag).collect();
    let watermark = |visible, mark| Watermark {
        answers: vec![1; ANSWERS_MAX],
        end: 1,
        visible: Some(visible),
        hidden: Some(vec![mark; HIDDEN_MAX]),
        gaps: tags.clone(),
        collections: tags.clone(),
        watched: Some(1),
        origin: "x".repeat(9 * TEXT_BYTES_MAX),
    };
    let message = |body| Message {
        generation: Generation { number: 1, identity: 2 },
        counter: 3,
        complete: 4,
        landmark: Some(Landmark {
            at: 1,
            file_created_s: 2,
            commit: Some(CommitMark { gtid: CommitId::MariaDb(0, 1, 2), end: 3 }),
        }),
        body,
    };
    let snapshot = Snapshot { xmin: 1, xmax: 2, running: vec![1; RUNNING_MAX] };
    let gtid = Gtid { source: SourceId::new(1, &"t".repeat(32)).expect("a tag"), number: 1 };
    // Each interval takes at most 14 bytes.
    let intervals: String =
        (0..GTIDS_BYTES_MAX / 14 - 9).map(|n| format!(":{}", 100_000 + 2 * n)).collect();
    let set = format!("00000000-0000-0000-0000-000000000001{intervals}");
    let set = Version::Gtids(Arc::new(GtidSet::parse(&set).expect("a set")));
    let set = Visible::of(&set);
    for (visible, mark) in [
        (Visible::Snapshot(snapshot), Mark::Transaction(1)),
        (set.expect("not longer than allowed"), Mark::Gtid(gtid)),
    ] {
        let bytes = encode(&message(Body::Watermark(Box::new(watermark(visible, mark)))));
        assert!(bytes.len() < MESSAGE_BYTES_MAX && decode(&bytes).is_ok(), "{}", bytes.len());
    }
    let longest_key = hotrow_types::key::KEY_BYTES_MAX;
    assert!(CHANGES_BYTES_MAX + longest_key + 100 < MESSAGE_BYTES_MAX);
    assert_eq!(
        decode(&vec![FORM; MESSAGE_BYTES_MAX + 1]),
        Err(DecodeError::TooLong(MESSAGE_BYTES_MAX + 1))
    );
    assert_eq!(decode(&[9]), Err(DecodeError::Form(9)));
}
