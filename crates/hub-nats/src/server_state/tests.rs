use hotrow_hub::codec::encode;
use hotrow_hub::message::{Body, Generation, Loss, Message, Visible, Watermark};
use hotrow_source::testkit::{Event as Recorded, Recorder};
use hotrow_types::key::{Key, KeyType};
use hotrow_types::version::{Snapshot, Version};

use super::*;

const INCARNATION: u64 = 77;

struct Server {
    state: ServerState,
    recorder: Arc<Recorder>,
    counter: u64,
}

fn tag(table: &str) -> Tag {
    Tag::of(table, &["id".to_owned()], &[KeyType::Integer])
}

/// Returns a server of two collections of one table, and one of another.
fn server() -> Server {
    let recorder = Arc::new(Recorder::default());
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let tags = vec![tag("t"), tag("t"), tag("u")];
    let schema = |id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]);
    let origins = Arc::new(Origins::default());
    let second = Duration::from_secs(1);
    let bounds = Bounds { max_staleness: second, schema_poll: second };
    let collections = HubCollections { names, tags, schemas: (0..3).map(schema).collect() };
    let mut state = ServerState::new(
        recorder.clone(),
        collections,
        Arc::clone(&origins),
        bounds,
        Rules::default(),
        5,
    );
    origins.found(Origin { name: "db".to_owned(), incarnation: INCARNATION });
    origins.confirm_shapes(Nanos::now());
    state.readers_found();
    Server { state, recorder, counter: 0 }
}

impl Server {
    fn receive(&mut self, body: Body) {
        let generation = Generation { number: 1, identity: 1 };
        let (counter, complete) = (self.counter, self.counter * 10);
        let message = Message { generation, counter, complete, landmark: None, body };
        self.counter += 1;
        self.state.receive(&encode(&message));
    }

    fn mark(&mut self, change: impl FnOnce(&mut Watermark)) {
        let mut watermark = Watermark {
            answers: Vec::new(),
            end: self.counter * 10,
            visible: Some(Visible::Snapshot(Snapshot { xmin: 8, xmax: 9, running: vec![8] })),
            hidden: Some(Vec::new()),
            gaps: Vec::new(),
            collections: vec![tag("t"), tag("u"), tag("v")],
            watched: None,
            origin: "db".to_owned(),
        };
        change(&mut watermark);
        self.receive(Body::Watermark(Box::new(watermark)));
    }

    /// Returns what was reported since the last call, without advances.
    fn reported(&self, from: &mut usize) -> Vec<Recorded> {
        let all = self.recorder.since(0);
        let new = all[*from..].to_vec();
        *from = all.len();
        new
    }
}

fn key(collection: u16, id: i64) -> Key {
    let schema = KeySchema::new(CollectionId(collection), vec![KeyType::Integer]);
    schema.parse_url(&id.to_string()).unwrap()
}

fn at(at: u64) -> Position {
    Position { incarnation: INCARNATION, at }
}

#[test]
fn a_join_starts_and_takes_hidden_changes_as_marks_of_every_key() {
    let mut server = server();
    let mut from = 0;
    server.mark(|watermark| {
        watermark.hidden = Some(vec![Mark::Transaction(8)]);
        watermark.gaps = vec![tag("u"), tag("v")];
    });
    let hidden = |id| {
        Recorded::Flush(
            CollectionId(id),
            FlushCause::Unlisted,
            Some(ChangeId::Transaction { xid: 8, commit: u64::MAX }),
        )
    };
    assert_eq!(
        server.reported(&mut from),
        [
            Recorded::Started(Some(at(0))),
            hidden(0),
            hidden(1),
            hidden(2),
            Recorded::Gap(CollectionId(2)),
        ]
    );
    assert_eq!(server.recorder.newest_advance(), None, "no own question was answered");
    // The gap ends while the server is without a chain.
    server.state.reset("why");
    server.mark(|_| ());
    assert_eq!(
        server.reported(&mut from),
        [
            Recorded::Loss(LossCause::Hub, "why".to_owned()),
            Recorded::GapClosed(CollectionId(2)),
            Recorded::Started(Some(at(10))),
        ]
    );
}

#[test]
fn an_answer_counts_from_the_time_of_its_question() {
    let mut server = server();
    let asked = [(); 3].map(|()| server.state.ask().unwrap().question);
    assert!(asked[0] != asked[1] && asked[1] != asked[2]);
    server.state.origins.confirm_shapes(Nanos::now());
    let times: Vec<Nanos> = server.state.questions.iter().map(|(_, at)| *at).collect();
    // What others asked, or what was never asked, proves nothing.
    server.mark(|watermark| watermark.answers = vec![3, asked[2].wrapping_add(1)]);
    assert_eq!(server.recorder.newest_advance(), None);
    server.mark(|watermark| watermark.answers = vec![3, asked[1]]);
    assert_eq!(server.recorder.newest_advance(), Some(times[1]));
    let Version::Snapshot { incarnation, .. } = server.recorder.visible() else { panic!() };
    assert_eq!(incarnation, INCARNATION, "of this process's readers");
    // A change moves the position, not the time.
    server.receive(Body::Changes(Vec::new()));
    assert_eq!(server.recorder.newest_advance(), Some(times[1]));
    server.mark(|watermark| watermark.answers = vec![asked[2]]);
    assert_eq!(server.recorder.newest_advance(), Some(times[2]));
    // A late look at the catalogue holds freshness back.
    let before = server.state.origins.shapes_confirmed_at();
    let late = Nanos(before.0 + 3_600_000_000_000);
    server.state.questions.push_back((9, late));
    server.mark(|watermark| watermark.answers = vec![9]);
    assert_eq!(server.recorder.newest_advance(), Some(before));
}

#[test]
fn events_reach_every_collection_of_their_table() {
    let mut server = server();
    server.mark(|_| ());
    let mut from = 1;
    let mark = Mark::Transaction(9);
    let change = |table: &str, key: Key| Event::Change {
        collection: tag(table),
        key: key.encoded_columns().into(),
        mark,
    };
    let flush = Event::Flush { collection: tag("u"), cause: FlushReason::Schema, mark: Some(mark) };
    let broken = Event::Change { collection: tag("u"), key: [7].into(), mark };
    let unknown = change("w", key(0, 1));
    server.receive(Body::Changes(vec![change("t", key(9, 4)), flush, broken, unknown]));
    let xid = ChangeId::Transaction { xid: 9, commit: u64::MAX };
    assert_eq!(
        server.reported(&mut from),
        [
            Recorded::Change(Change { key: key(0, 4), mark: xid }),
            Recorded::Change(Change { key: key(1, 4), mark: xid }),
            Recorded::Flush(CollectionId(2), FlushCause::Schema, Some(xid)),
            Recorded::Flush(CollectionId(2), FlushCause::Bulk, Some(xid)),
        ]
    );
}

#[test]
fn losses_keep_their_cause() {
    let mut server = server();
    let newest = |server: &Server| {
        server.recorder.since(0).iter().rev().find_map(|event| match event {
            Recorded::Loss(cause, _) => Some(*cause),
            _ => None,
        })
    };
    server.mark(|_| ());
    let loss = Loss { cause: LossCause::LogPruned as u8, detail: "why".to_owned() };
    server.receive(Body::Loss(loss));
    assert_eq!(newest(&server), Some(LossCause::LogPruned));
    server.mark(|_| ());
    server.counter += 1;
    server.receive(Body::Changes(Vec::new()));
    assert_eq!(newest(&server), Some(LossCause::Hub), "a gap");
    server.mark(|_| ());
    server.state.readers_lost(LossCause::Unavailable, "why");
    assert_eq!(newest(&server), Some(LossCause::Unavailable));
    server.state.readers_found();
    server.mark(|_| ());
    server.state.receive(b"nonsense");
    assert_eq!(newest(&server), Some(LossCause::Hub), "what cannot be read");
}

#[test]
fn the_readers_must_lead_to_the_relays_database() {
    let mut server = server();
    server.mark(|watermark| watermark.origin = "other".to_owned());
    assert!(server.recorder.since(0).is_empty(), "it does not join");
    let why = server.state.origins.refusal("db").unwrap();
    assert!(why.contains("follows other"), "{why}");
    server.mark(|_| ());
    assert_eq!(server.state.origins.refusal("db"), None);
}
