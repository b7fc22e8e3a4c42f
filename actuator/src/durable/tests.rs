use super::*;
use crate::interruption::Interruption;
use crate::ledger::Removal;
use crate::ports::FleetRequest;
use crate::state::launch_group::GroupKey;
use serde_json::json;

/// Simulates a document of a later release with one more field.
fn of_a_later_version(text: &str) -> String {
    let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap();
    fields.insert("added".to_owned(), json!({"later": true}));
    serde_json::to_string(&fields).unwrap()
}

#[test]
fn older_release_reads_newer_documents() {
    let group = GroupKey { id: "g".to_owned(), size: 2 };
    let text = write(&group).unwrap();
    assert_eq!(text, r#"{"v":1,"id":"g","size":2}"#);
    assert_eq!(read::<GroupKey>(&of_a_later_version(&text)).unwrap(), group);

    let interruption =
        Interruption { kind: "spot_interrupted".to_owned(), heard: plimsoll_model::time::Timestamp(7), ends: None };
    let text = of_a_later_version(&write(&interruption).unwrap());
    assert_eq!(read::<Interruption>(&text).unwrap(), interruption);

    let removal = json!({"action": "a", "node": "n", "reason": "Drifted", "replacements": [], "evictions": {},
                         "rooms": {}, "pods": ["p"], "admitted": 5});
    let removal: Removal = read(&removal.to_string()).unwrap();
    let text = of_a_later_version(&write(&removal).unwrap());
    assert_eq!(read::<Removal>(&text).unwrap(), removal);
}

#[test]
fn newer_version_is_rejected() {
    let error = read::<GroupKey>(r#"{"v":2,"id":"g","size":1}"#).unwrap_err().to_string();
    assert_eq!(error, "v: 2 is newer than version 1, the newest that is known here");
    for wrong in [r#"{"v":0,"id":"g","size":1}"#, r#"{"v":"1","id":"g","size":1}"#, r#"{"v":-1,"id":"g","size":1}"#] {
        assert!(matches!(read::<GroupKey>(wrong), Err(FormError::BadVersion)), "{wrong}");
    }
    assert!(matches!(read::<GroupKey>("[]"), Err(FormError::Json(_))));
}

/// A document of each kind as released versions have written it. A text may be added, but never changed: it is on
/// NodeClaims of clusters that are upgraded or rolled back.
const RELEASED: [(&str, &str); 4] = [
    ("launch-group", r#"{"v":1,"id":"g-1","size":2}"#),
    ("interrupted", r#"{"v":1,"kind":"spot_interrupted","heard":1700000000000,"ends":1700000120000}"#),
    (
        "removal",
        r#"{"v":1,"action":"a-1","node":"n-1","reason":"Drifted","replacements":["a-2"],"evictions":{"shop/web":1},"rooms":{"n-2":{"cpu":500,"memory":1073741824}},"pods":["u-1"],"admitted":1700000000000}"#,
    ),
    (
        "launch-request",
        r#"{"v":1,"client_token":"g-1-1","capacity_type":"spot","total_target_capacity":2,"launch_template_configs":[{"launch_template_name":"karpenter.k8s.aws/1","version":3,"overrides":[{"instance_type":"m6i.large","zone":"us-east-1a","subnet_id":"subnet-1","image_id":"ami-1","priority":7}]}],"prioritized":false,"context":null,"tags":{"plimsoll.dev/owner":"plimsoll"}}"#,
    ),
];

fn as_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The document as this version writes it again, of the kind that the annotation holds.
fn written_again(kind: &str, text: &str) -> String {
    match kind {
        "launch-group" => write(&read::<GroupKey>(text).unwrap()),
        "interrupted" => write(&read::<Interruption>(text).unwrap()),
        "removal" => write(&read::<Removal>(text).unwrap()),
        "launch-request" => write(&read::<FleetRequest>(text).unwrap()),
        other => panic!("{other}"),
    }
    .unwrap()
}

#[test]
fn released_documents_are_read_and_written_without_change() {
    for (kind, text) in RELEASED {
        assert_eq!(as_json(&written_again(kind, text)), as_json(text), "{kind}");
    }
}

/// An earlier release reads what this version writes: no field that it needs is missing, renamed or of another type,
/// and only documents that it may ignore fields of have more.
#[test]
fn an_earlier_release_can_read_what_is_written() {
    for (kind, text) in RELEASED {
        let written = written_again(kind, text);
        let (written, released) = (as_json(&written), as_json(text));
        assert_eq!(written["v"], json!(1), "{kind}");
        for (field, value) in released.as_object().unwrap() {
            assert_eq!(&written[field], value, "{kind}: {field}");
        }
        let more = written.as_object().unwrap().len() - released.as_object().unwrap().len();
        assert!(more == 0 || kind != "launch-request", "an unknown field makes a launch request unreadable");
    }
}

#[test]
fn numbers_and_lists_without_a_version_keep_their_format() {
    let amounts = [("cpu", 1500), ("memory", 2 << 30)].into();
    assert_eq!(crate::ledger::reserved_text(&amounts), r#"{"cpu":"1500m","memory":"2Gi"}"#);
    let pods: std::collections::BTreeSet<plimsoll_model::identity::PodUid> =
        serde_json::from_str(r#"["u-1","u-2"]"#).unwrap();
    assert_eq!(serde_json::to_string(&pods).unwrap(), r#"["u-1","u-2"]"#);
}
