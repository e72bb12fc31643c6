//! Round trips, fixed bytes and hostile bytes of the encoding.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::{Etag, Line, LineState, Owner};

fn uri() -> ResourceUri {
    ResourceUri::new("demo://a").unwrap()
}

fn line(version: u64) -> Line {
    Line {
        etag: Etag {
            version,
            updated_at: 5,
            life: 0,
        },
        digest: None,
        state: LineState::Live,
        offset: 0,
        owner: Some(Owner::Api),
        unclaimed_since: None,
    }
}

fn operations() -> impl Strategy<Value = OperationId> {
    (any::<u64>(), any::<u64>()).prop_map(|(node, number)| OperationId { node, number })
}

fn resources() -> impl Strategy<Value = Arc<Resource>> {
    prop_oneof![
        ".{0,40}".prop_map(|text| Resource::text(uri(), text).unwrap()),
        vec(any::<u8>(), 0..40).prop_map(|bytes| Resource::blob(uri(), bytes).unwrap()),
    ]
    .prop_map(Arc::new)
}

prop_compose! {
    fn logged()(
        version: u64,
        resource in option::of(resources()),
        former in vec(operations(), 0..=LoggedResource::FORMER_MAX),
        announces: bool,
    ) -> LoggedResource {
        LoggedResource { uri: uri(), line: line(version), resource, former, announces }
    }
}

fn entries() -> impl Strategy<Value = LogEntry> {
    let uris = vec("[a-z]{1,5}:[a-z/]{0,10}", 0..4);
    prop_oneof![
        logged().prop_map(|logged| LogEntry::Resource(Box::new(logged))),
        Just(LogEntry::ResourceList),
        (any::<[u64; 3]>(), uris).prop_map(|([version, through, previous], uris)| LogEntry::Floor {
            version,
            through,
            previous,
            uris: uris.iter().map(|uri| ResourceUri::new(uri).unwrap()).collect(),
        }),
    ]
}

proptest! {
    #[test]
    fn record_round_trips(operation in operations(), entry in entries()) {
        let encoded = encode(operation, &entry, usize::MAX);
        prop_assert_eq!(encoded.body, None);
        let detached = None;
        prop_assert_eq!(decode(&encoded.bytes), Ok(LogRecord { operation, entry, detached }));
    }

    #[test]
    fn detached_body_is_attached_again(operation in operations(), resource in resources()) {
        let Content::Held(body) = resource.content().clone() else {
            unreachable!("the body is held");
        };
        let logged = LoggedResource {
            uri: uri(),
            line: line(1),
            resource: Some(resource),
            former: Vec::new(),
            announces: true,
        };
        let entry = LogEntry::Resource(Box::new(logged));
        let encoded = encode(operation, &entry, 0);
        let mut record = decode(&encoded.bytes).unwrap();
        if let Some(detached) = &record.detached {
            prop_assert_eq!(Some(detached.hash), encoded.body);
            prop_assert_eq!(detached.len, body.as_bytes().len() as u64);
            let body = detached.to_body(body.as_bytes().to_vec()).unwrap();
            record = record.attach(body);
        }
        prop_assert_eq!(record, LogRecord { operation, entry, detached: None });
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in vec(any::<u8>(), 0..200), kind in 0..4u8) {
        let mut framed = vec![FORMAT, kind];
        framed.extend_from_slice(&bytes);
        for input in [bytes, framed] {
            if let Ok(record) = decode(&input) {
                let encoded = encode(record.operation, &record.entry, usize::MAX);
                prop_assert!(!encoded.bytes.is_empty());
            }
        }
    }

    #[test]
    fn cut_record_is_refused(entry in entries(), cut in any::<prop::sample::Index>()) {
        let operation = OperationId { node: 1, number: 2 };
        let entry = match entry {
            // The end of a body that stands in its record is the end of the record.
            LogEntry::Resource(mut logged) => {
                logged.resource = None;
                LogEntry::Resource(logged)
            }
            other => other,
        };
        let bytes = encode(operation, &entry, usize::MAX).bytes;
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

#[test]
fn encoding_is_fixed() {
    let operation = OperationId { node: 1, number: 2 };
    let head = [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    let logged = LoggedResource {
        uri: uri(),
        line: line(3),
        resource: None,
        former: vec![OperationId { node: 4, number: 5 }],
        announces: true,
    };
    let mut expected = head.to_vec();
    expected.extend_from_slice(&[1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[8, 0, 0, 0]);
    expected.extend_from_slice(b"demo://a");
    expected.extend_from_slice(&[2, 16, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    expected.extend_from_slice(b"api");
    let entry = LogEntry::Resource(Box::new(logged));
    assert_eq!(encode(operation, &entry, 0).bytes, expected);

    let list = encode(operation, &LogEntry::ResourceList, 0).bytes;
    assert_eq!((list[1], &list[2..]), (1, &head[2..]));

    let floor = LogEntry::Floor {
        version: 3,
        through: 9,
        previous: 4,
        uris: vec![uri()],
    };
    let mut expected = vec![1, 2];
    expected.extend_from_slice(&head[2..]);
    expected.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0]);
    expected.extend_from_slice(b"demo://a");
    assert_eq!(encode(operation, &floor, 0).bytes, expected);
}

#[test]
fn newer_records_are_not_damage() {
    let mut bytes = encode(OperationId { node: 1, number: 2 }, &LogEntry::ResourceList, 0).bytes;
    bytes[1] = 9;
    assert_eq!(decode(&bytes), Err(UnreadableRecord::Newer(0x109)));
    bytes[0] = 2;
    assert_eq!(decode(&bytes), Err(UnreadableRecord::Newer(2)));
}

#[test]
fn body_beyond_all_limits_is_refused() {
    let logged = LoggedResource {
        uri: uri(),
        line: line(1),
        resource: Some(Arc::new(Resource::text(uri(), "text").unwrap())),
        former: Vec::new(),
        announces: true,
    };
    let entry = LogEntry::Resource(Box::new(logged));
    let mut bytes = encode(OperationId { node: 1, number: 2 }, &entry, 0).bytes;
    let end = bytes.len();
    bytes[end - 8..].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(decode(&bytes), Err(UnreadableRecord::Damaged(_))));
}
