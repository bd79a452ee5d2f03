//! Documents of a version to come, read by types that deny what they do not know.

use std::net::IpAddr;

use serde_json::json;

use super::*;
use crate::time::{Span, Time};

#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct House {
    version: u32,
    #[serde(alias = "born")]
    built: Option<Time>,
    rooms: BTreeMap<String, Room>,
    #[serde(default)]
    doors: Vec<Door>,
    #[serde(default)]
    floors: BTreeMap<u8, Vec<IpAddr>>,
    #[serde(default)]
    heights: BTreeMap<i32, f64>,
    #[serde(default)]
    owner: Option<Box<Room>>,
    #[serde(default)]
    pair: (u8, Option<String>),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Room {
    name: String,
    #[serde(default)]
    age: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Door {
    Shut,
    Open { by: String },
    Locked(u8),
    Painted(u8, u8),
}

fn house() -> House {
    let room = |name: &str| Room {
        name: name.to_owned(),
        age: Span::minutes(5),
    };
    House {
        version: 1,
        built: Some(Time(1_795_000_000_000)),
        rooms: [
            ("a".to_owned(), room("kitchen")),
            ("b".to_owned(), room("hall")),
        ]
        .into(),
        doors: vec![
            Door::Shut,
            Door::Open {
                by: "wind".to_owned(),
            },
            Door::Locked(3),
            Door::Painted(1, 2),
        ],
        floors: [(0, vec!["192.0.2.1".parse().expect("an address")])].into(),
        heights: [(-1, 2.5), (3, -0.25)].into(),
        owner: Some(Box::new(room("study"))),
        pair: (7, None),
    }
}

fn read_house(document: &Value) -> Result<(House, UnknownParts), String> {
    read(document.to_string().as_bytes(), 1)
}

#[test]
fn what_is_known_is_read_as_ever() {
    let document = serde_json::to_value(house()).expect("plain data");
    let (found, unknown) = read_house(&document).expect("it is read");
    assert_eq!(found, house());
    assert!(unknown.is_empty(), "{unknown:?}");
    // Under an older name as well.
    let older = document.to_string().replace("\"built\"", "\"born\"");
    assert_ne!(older, document.to_string());
    let (found, unknown) = read::<House>(older.as_bytes(), 1).expect("it is read");
    assert_eq!((found, unknown.is_empty()), (house(), true));
}

#[test]
fn what_is_not_known_is_passed_over_at_any_depth_and_put_back() {
    let mut document = serde_json::to_value(house()).expect("plain data");
    let wind = json!([{"from": "west"}, null, 0.5]);
    for place in ["", "/rooms/a", "/owner", "/doors/1/open"] {
        document.pointer_mut(place).expect("it is there")["wind"] = wind.clone();
    }
    assert!(serde_json::from_value::<House>(document.clone()).is_err());
    let (mut found, unknown) = read_house(&document).expect("it is read");
    assert_eq!(found, house());
    assert!(!unknown.is_empty());

    found.rooms.get_mut("a").expect("a room").name = "larder".to_owned();
    found.owner = None;
    let mut written = serde_json::to_value(&found).expect("plain data");
    unknown.put_back(&mut written);
    assert_eq!(
        written["rooms"]["a"],
        json!({"name": "larder", "age": document["rooms"]["a"]["age"], "wind": wind})
    );
    assert_eq!(written["wind"], wind);
    assert_eq!(written["owner"], Value::Null, "its part is gone");
    // Items of a list have no place of their own.
    assert_eq!(written["doors"][1], json!({"open": {"by": "wind"}}));
    // What this version writes itself is never written over.
    let mut own = json!({"wind": 1});
    unknown.put_back(&mut own);
    assert_eq!(own, json!({"wind": 1}));
}

#[test]
fn what_is_wrong_is_refused_as_ever() {
    let right = serde_json::to_value(house()).expect("plain data");
    for (place, value, why) in [
        ("/version", json!(2), "version 2 is unknown"),
        ("/version", json!("1"), "version \"1\" is unknown"),
        ("/rooms", json!([]), "expected a map"),
        ("/rooms/a/name", json!(1), "expected a string"),
        ("/doors/0", json!("ajar"), "unknown variant `ajar`"),
        (
            "/doors/2",
            json!({"locked": 1, "shut": null}),
            "expected map with a single key",
        ),
        ("/doors/2", json!({"locked": 300}), "expected u8"),
        ("/floors", json!({"x": []}), "expected u8"),
        ("/floors", json!({"300": []}), "expected u8"),
        ("/built", json!("yesterday"), ""),
    ] {
        let mut document = right.clone();
        *document.pointer_mut(place).expect("it is there") = value.clone();
        let said = read_house(&document).expect_err(place);
        assert!(said.contains(why), "{place} {value}: {said}");
    }
    assert!(read::<House>(b"{", 1).is_err());
    assert!(read::<House>(b"[]", 1).is_err());
}

#[test]
fn entries_of_unknown_kinds_are_left_out_and_no_others() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Doors {
        #[serde(deserialize_with = "known_entries")]
        by_kind: BTreeMap<Kind, Room>,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Front,
        Back,
    }

    let document = json!({"by_kind": {
        "front": {"name": "oak", "colour": "green"},
        "trap": {"name": "iron"},
        "back": {"title": "pine"},
    }});
    let (found, _) = read::<Doors>(document.to_string().as_bytes(), 1).expect("it is read");
    let kinds: Vec<&Kind> = found.by_kind.keys().collect();
    assert_eq!(kinds, [&Kind::Front]);
    assert!(read::<Doors>(b"{\"by_kind\":[]}", 1).is_err());
}

#[test]
fn fields_that_a_type_keeps_itself_are_its_own() {
    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Label {
        name: String,
        #[serde(flatten)]
        unknown: UnknownFields,
    }

    let text = "{\"name\":\"a\",\"size\":{\"x\":[1,2.5,null]}}";
    let (label, parts) = read::<Label>(text.as_bytes(), 1).expect("it is read");
    assert!(parts.is_empty(), "{parts:?}");
    assert_eq!(label.unknown.len(), 1);
    assert_eq!(serde_json::to_string(&label).expect("plain data"), text);
}
