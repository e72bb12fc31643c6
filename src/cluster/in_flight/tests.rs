//! The ends of proposals, for the answers and records in any order.

use bytes::Bytes;
use tidings_actors::shared_log::LoggedResource;

use super::own_records::TOLD_EARLY_MAX;
use super::*;
use crate::{Etag, Line, LineState};

const SECOND: Duration = Duration::from_secs(1);

/// A table, with the time at which it was made.
struct Table {
    table: InFlight,
    now: Instant,
}

fn operation(number: u64) -> OperationId {
    OperationId { node: 1, number }
}

fn entry(uri: &str, version: u64, former: &[u64]) -> LogEntry {
    LogEntry::Resource(Box::new(LoggedResource {
        uri: ResourceUri::new(uri).unwrap(),
        line: Line {
            etag: Etag {
                version,
                updated_at: 1,
                life: 0,
            },
            digest: None,
            state: LineState::Live,
            offset: 0,
            owner: None,
            unclaimed_since: None,
        },
        resource: None,
        former: former.iter().map(|number| operation(*number)).collect(),
        announces: true,
    }))
}

fn stored(sequence: u64) -> RecordAnswer {
    RecordAnswer::Stored {
        sequence,
        is_duplicate: false,
    }
}

fn ended(number: u64, verdict: Verdict) -> String {
    format!("{:?}", Heard::Ended(operation(number), verdict))
}

fn shown(heard: impl IntoIterator<Item = Heard>) -> Vec<String> {
    heard.into_iter().map(|heard| format!("{heard:?}")).collect()
}

impl Table {
    fn new() -> Table {
        let now = Instant::now();
        Table {
            table: InFlight::new(ClusterMetrics::new(), now),
            now,
        }
    }

    /// Adds a proposal of version 1 that expires after 10 seconds.
    fn add(&mut self, number: u64, uri: &str, expected: u64) {
        self.add_entry(number, expected, entry(uri, 1, &[]));
    }

    fn add_entry(&mut self, number: u64, expected: u64, entry: LogEntry) {
        let proposal = Proposal {
            operation: operation(number),
            expected,
            entry,
            expires: self.now + 10 * SECOND,
        };
        self.add_record(proposal, false);
    }

    fn add_record(&mut self, proposal: Proposal, has_body_apart: bool) {
        let record = RecordToSend {
            subject: "subject".into(),
            frame: Bytes::new(),
            has_body_apart,
        };
        self.table.add(proposal, record, self.now);
    }

    /// Sends what waits, and returns the tokens.
    fn send(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.table.next_attempt(10, self.now))
            .map(|attempt| attempt.token)
            .collect()
    }

    fn answer(&mut self, token: u64, answer: RecordAnswer) -> Vec<String> {
        shown(self.table.answer(token, answer, self.now))
    }

    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        shown(self.table.tick(self.now))
    }

    fn tell(&mut self, sequence: u64, number: u64, entry: &LogEntry) -> Vec<String> {
        shown(self.table.told(sequence, operation(number), entry))
    }

    /// Takes out the records that can be told before they are delivered.
    fn take_next(&mut self) -> Vec<u64> {
        let mut sequences = Vec::new();
        while self.table.has_next() {
            sequences.extend(self.table.take_stored().map(|own| own.sequence));
        }
        sequences
    }
}

#[test]
fn heard_proposal_ends_without_a_verdict() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    assert_eq!(table.send(), [0]);
    assert!(table.answer(0, stored(5)).is_empty());
    assert!(table.tell(5, 1, &entry("demo://a", 1, &[])).is_empty());
    assert!(table.pass(20 * SECOND).is_empty());
    assert_eq!(table.table.room(), ENTRIES_MAX);
    // The answer may come after the record.
    table.add(2, "demo://a", 5);
    assert_eq!(table.send(), [1]);
    assert!(table.tell(6, 2, &entry("demo://a", 2, &[1])).is_empty());
    assert!(table.answer(1, stored(6)).is_empty());
}

#[test]
fn loser_is_told_after_the_winner() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.add(2, "demo://b", 0);
    table.send();
    assert!(table.answer(0, RecordAnswer::Conflict { newest: 7 }).is_empty());
    assert!(table.tell(6, 90, &entry("demo://x", 1, &[])).is_empty());
    assert_eq!(
        table.tell(7, 91, &entry("demo://a", 1, &[])),
        [ended(1, Verdict::Lost)]
    );
    // The winner of the other was told already.
    assert_eq!(
        table.answer(1, RecordAnswer::Conflict { newest: 3 }),
        [ended(2, Verdict::Lost)]
    );
}

#[test]
fn answer_that_does_not_come_is_asked_for_again() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    assert_eq!(table.send(), [0]);
    assert!(table.pass(SECOND).is_empty());
    assert!(table.send().is_empty());
    assert!(table.pass(SECOND).is_empty());
    assert_eq!(table.send(), [0], "with the same identity");
    assert_eq!(table.pass(9 * SECOND), [ended(1, Verdict::Unknown)]);
    assert!(table.send().is_empty());
}

#[test]
fn silent_log_is_asked_more_often() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    assert_eq!(table.send(), [0]);
    table.pass(2 * SECOND);
    for _ in 0..3 {
        assert_eq!(table.send(), [0]);
        table.pass(SECOND / 2);
    }
    // Another server is asked as often, until the log answers to anything.
    table.table.reconnect(table.now);
    assert_eq!(table.send(), [0]);
    table.pass(SECOND / 2);
    table.add(2, "demo://b", 0);
    assert_eq!(table.send(), [0, 1]);
    assert!(table.answer(1, stored(1)).is_empty());
    table.pass(SECOND);
    assert!(table.send().is_empty());
    table.pass(SECOND);
    assert_eq!(table.send(), [0]);
}

#[test]
fn undecided_answers_are_no_verdict() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    for answer in [RecordAnswer::InProcess, RecordAnswer::Unavailable] {
        assert_eq!(table.send(), [0]);
        assert!(table.answer(0, answer).is_empty());
        assert!(table.send().is_empty(), "after a pause");
        assert!(table.pass(SECOND).is_empty());
    }
    assert_eq!(table.send(), [0]);
}

#[test]
fn lost_after_a_silence_is_found_by_its_name() {
    // Versions 1 to 6 of a URI; the newest record names the operations of 2 to 5.
    for (version, verdict) in [(1, Verdict::Unknown), (3, Verdict::Lost)] {
        let mut table = Table::new();
        table.add_entry(1, 0, entry("demo://a", version, &[]));
        table.send();
        table.pass(2 * SECOND);
        table.send();
        assert!(table.answer(0, RecordAnswer::Conflict { newest: 6 }).is_empty());
        let newest = entry("demo://a", 6, &[95, 94, 93, 92]);
        assert_eq!(table.tell(6, 96, &newest), [ended(1, verdict)]);
    }
    // Named among the former ones, it was stored: the record is its end.
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.send();
    table.pass(2 * SECOND);
    table.send();
    assert!(table.answer(0, RecordAnswer::Conflict { newest: 6 }).is_empty());
    assert!(table.tell(6, 96, &entry("demo://a", 2, &[1])).is_empty());
    assert!(table.pass(20 * SECOND).is_empty());
}

#[test]
fn overtaken_records_are_told_at_their_place() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.add_entry(2, 0, LogEntry::ResourceList);
    table.send();
    table.answer(0, stored(5));
    table.answer(1, stored(7));
    assert!(!table.table.has_overtaken(5));
    assert!(table.table.has_overtaken(7));
    let overtaken = table.table.take_stored().unwrap();
    assert_eq!((overtaken.sequence, overtaken.operation), (5, operation(1)));
    assert!(!table.table.has_overtaken(7));
    assert!(table.table.has_overtaken(9));
    assert_eq!(table.table.take_stored().unwrap().entry, LogEntry::ResourceList);
    assert!(table.tell(9, 90, &LogEntry::ResourceList).is_empty());
}

#[test]
fn stored_records_are_told_as_far_as_they_come_next() {
    let mut table = Table::new();
    table.tell(4, 90, &LogEntry::ResourceList);
    for (number, uri) in [(1, "demo://a"), (2, "demo://b"), (3, "demo://c")] {
        table.add(number, uri, 0);
    }
    assert_eq!(table.send(), [0, 1, 2]);
    table.answer(1, stored(6));
    table.answer(2, stored(8));
    assert!(table.take_next().is_empty(), "the place 5 is not known yet");
    table.answer(0, stored(5));
    assert_eq!(table.take_next(), [5, 6], "the record 7 is of another node");
    table.tell(7, 91, &LogEntry::ResourceList);
    assert_eq!(table.take_next(), [8]);
    assert_eq!(table.table.told_sequence(), 8);
    assert_eq!(table.table.room(), ENTRIES_MAX);
}

#[test]
fn many_proposals_wait_for_their_deliveries() {
    let mut table = Table::new();
    for number in 0..=TOLD_EARLY_MAX as u64 {
        table.add(number, &format!("demo://{number}"), 0);
    }
    table.send();
    table.answer(0, stored(1));
    table.answer(1, stored(2));
    assert!(table.take_next().is_empty());
    table.tell(1, 0, &entry("demo://0", 1, &[]));
    assert_eq!(table.take_next(), [2]);
}

#[test]
fn record_told_early_ends_the_losers_before_it() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.add(2, "demo://a", 0);
    table.send();
    table.answer(1, RecordAnswer::Conflict { newest: 1 });
    table.answer(0, stored(1));
    let own = table.table.take_stored().unwrap();
    assert_eq!(shown(own.ended), [ended(2, Verdict::Lost)]);
}

#[test]
fn floors_and_bodies_apart_wait_for_deliveries() {
    let mut table = Table::new();
    let floor = LogEntry::Floor {
        version: 1,
        through: 0,
        previous: 0,
        uris: Vec::new(),
    };
    table.add_entry(1, 0, floor.clone());
    let proposal = Proposal {
        operation: operation(2),
        expected: 0,
        entry: entry("demo://a", 1, &[]),
        expires: table.now + 10 * SECOND,
    };
    table.add_record(proposal, true);
    table.send();
    table.answer(0, stored(1));
    assert!(table.take_next().is_empty());
    table.tell(1, 1, &floor);
    table.answer(1, stored(2));
    assert!(table.take_next().is_empty());
}

#[test]
fn answer_after_its_place_was_told_is_unknown() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.send();
    assert!(table.tell(9, 90, &entry("demo://a", 7, &[])).is_empty());
    assert_eq!(table.answer(0, stored(5)), [ended(1, Verdict::Unknown)]);
}

#[test]
fn skipped_place_ends_what_waits_for_it() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.send();
    table.answer(0, RecordAnswer::Conflict { newest: 4 });
    assert_eq!(shown(table.table.skipped(4)), [ended(1, Verdict::Lost)]);
}

#[test]
fn log_that_went_back_is_doubted_first() {
    let mut table = Table::new();
    table.add(1, "demo://a", 9);
    table.send();
    assert!(table.answer(0, RecordAnswer::Conflict { newest: 0 }).is_empty());
    let doubted = table.table.doubted();
    assert_eq!(doubted, [0]);
    assert_eq!(shown(table.table.settle(&doubted)), [ended(1, Verdict::Lost)]);
    assert!(!table.table.has_doubted());
}

#[test]
fn doubted_proposal_is_sent_to_the_next_server() {
    let mut table = Table::new();
    let begin = table.now;
    table.add(1, "demo://a", 9);
    table.send();
    table.now += SECOND;
    table.answer(0, RecordAnswer::Conflict { newest: 4 });
    // A server that was cut off answers so, too, and is left like one that does not answer.
    assert!(!table.table.is_decided_since(begin));
    assert!(table.table.is_stuck(SECOND, table.now));
    table.table.reconnect(table.now);
    assert!(!table.table.has_doubted());
    assert_eq!(table.send(), [0]);
    table.answer(0, stored(12));
    assert!(table.table.is_decided_since(begin));
    assert_eq!(
        table.tell(12, 1, &entry("demo://a", 1, &[])),
        Vec::<String>::new()
    );
}

#[test]
fn refusal_after_a_silence_is_unknown() {
    let refused = RecordAnswer::Refused {
        is_full: true,
        reason: "maximum bytes exceeded".to_owned(),
    };
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    table.send();
    let end = table.answer(0, refused.clone());
    assert!(end[0].contains("full: true"), "{end:?}");
    table.add(2, "demo://a", 0);
    table.send();
    table.pass(2 * SECOND);
    table.send();
    assert_eq!(table.answer(1, refused), [ended(2, Verdict::Unknown)]);
}

#[test]
fn attempts_are_bounded_and_begin_anew_elsewhere() {
    let mut table = Table::new();
    for number in 0..15 {
        table.add(number, &format!("demo://{number}"), 0);
    }
    assert_eq!(table.send().len(), 10);
    assert!(table.send().is_empty());
    table.answer(3, stored(1));
    assert_eq!(table.send(), [10]);
    table.table.reconnect(table.now);
    assert_eq!(table.send().len(), 10);
    assert!(table.pass(2 * SECOND).is_empty());
    assert_eq!(table.send().len(), 10);
}

#[test]
fn server_without_answers_is_left() {
    let mut table = Table::new();
    let limit = 3 * SECOND;
    assert!(
        !table.table.is_stuck(limit, table.now + 9 * SECOND),
        "nothing waits"
    );
    table.add(1, "demo://a", 0);
    table.send();
    table.pass(2 * SECOND);
    assert!(!table.table.is_stuck(limit, table.now));
    table.pass(2 * SECOND);
    assert!(table.table.is_stuck(limit, table.now));
    table.table.reconnect(table.now);
    assert!(
        !table.table.is_stuck(limit, table.now),
        "the next server has its time"
    );
}

#[test]
fn proposal_whose_time_is_up_is_not_sent() {
    let mut table = Table::new();
    table.add(1, "demo://a", 0);
    assert_eq!(table.send(), [0]);
    // The node hangs before it can send the second, and the first again.
    table.add(2, "demo://b", 0);
    table.now += 10 * SECOND;
    table.table.reconnect(table.now);
    assert!(table.send().is_empty());
    let unknown = [ended(1, Verdict::Unknown), ended(2, Verdict::Unknown)];
    assert_eq!(table.pass(Duration::ZERO), unknown);
}

#[test]
fn waiting_list_forgets_what_has_ended() {
    let mut table = Table::new();
    for number in 0..1_000 {
        table.add(number, "demo://a", 0);
        assert_eq!(table.pass(11 * SECOND).len(), 1);
    }
    assert!(table.table.waiting.len() < 3);
}
