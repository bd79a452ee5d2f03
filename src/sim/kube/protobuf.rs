//! Kubernetes' protobuf, as far as kubectl sends it: what it deletes and evicts with, a Namespace, a Deployment. The field numbers are those of the
//! `generated.proto` beside each kind in k8s.io/api. What is set and is not in these tables is refused: a part that is left out would go unseen.

use serde_json::{Map, Value, json};

/// `k8s` and a zero byte: every message of the API begins so.
const PREFIX: &[u8] = b"k8s\0";
/// Messages within messages; the deepest here has eight.
const DEEPEST: usize = 16;

/// A field of a message: its number, its name in JSON, and what it holds.
type ProtobufField = (u64, &'static str, FieldContent);

/// What a field holds.
#[derive(Clone, Copy)]
enum FieldContent {
    Text,
    Texts,
    Whole,
    Flag,
    /// A map of texts.
    Labels,
    Message(&'static [ProtobufField]),
    Messages(&'static [ProtobufField]),
}

use FieldContent::{Flag, Labels, Message, Messages, Text, Texts, Whole};

const PRECONDITIONS: &[ProtobufField] = &[(1, "uid", Text), (2, "resourceVersion", Text)];
const DELETE_OPTIONS: &[ProtobufField] = &[
    (1, "gracePeriodSeconds", Whole),
    (2, "preconditions", Message(PRECONDITIONS)),
    (3, "orphanDependents", Flag),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];
const OBJECT_META: &[ProtobufField] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (8, "creationTimestamp", Message(&[])),
    (11, "labels", Labels),
    (12, "annotations", Labels),
    (14, "finalizers", Texts),
];
const EVICTION: &[ProtobufField] = &[
    (1, "metadata", Message(OBJECT_META)),
    (2, "deleteOptions", Message(DELETE_OPTIONS)),
];
const NAMESPACE: &[ProtobufField] = &[
    (1, "metadata", Message(OBJECT_META)),
    (2, "spec", Message(&[])),
    (3, "status", Message(&[])),
];
const CONTAINER_PORT: &[ProtobufField] = &[
    (1, "name", Text),
    (3, "containerPort", Whole),
    (4, "protocol", Text),
];
const CONTAINER: &[ProtobufField] = &[
    (1, "name", Text),
    (2, "image", Text),
    (3, "command", Texts),
    (4, "args", Texts),
    (6, "ports", Messages(CONTAINER_PORT)),
    (8, "resources", Message(&[])),
    (14, "imagePullPolicy", Text),
];
const POD_SPEC: &[ProtobufField] = &[
    (2, "containers", Messages(CONTAINER)),
    (3, "restartPolicy", Text),
    (4, "terminationGracePeriodSeconds", Whole),
    (7, "nodeSelector", Labels),
    (8, "serviceAccountName", Text),
];
const POD_TEMPLATE: &[ProtobufField] = &[
    (1, "metadata", Message(OBJECT_META)),
    (2, "spec", Message(POD_SPEC)),
];
const DEPLOYMENT_SPEC: &[ProtobufField] = &[
    (1, "replicas", Whole),
    (2, "selector", Message(&[(1, "matchLabels", Labels)])),
    (3, "template", Message(POD_TEMPLATE)),
    (4, "strategy", Message(&[(1, "type", Text)])),
];
const DEPLOYMENT: &[ProtobufField] = &[
    (1, "metadata", Message(OBJECT_META)),
    (2, "spec", Message(DEPLOYMENT_SPEC)),
    (3, "status", Message(&[])),
];

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProtobufError {
    /// It is of a kind that is not in the tables above.
    OtherKind,
    /// It is no message, or it sets what is not in the tables.
    Wrong(String),
}

/// One field as it is on the wire.
enum ProtobufValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The object that a body in protobuf says, as JSON has it.
pub(super) fn read_object(body: &[u8]) -> Result<Value, ProtobufError> {
    let cut = || ProtobufError::Wrong("proto: unexpected end of the message".to_owned());
    let envelope = body.strip_prefix(PREFIX).ok_or_else(|| {
        ProtobufError::Wrong(format!(
            "provided data does not appear to be a protobuf message, expected prefix {PREFIX:?}"
        ))
    })?;
    let (mut version, mut kind) = (String::new(), String::new());
    let mut raw: &[u8] = &[];
    for (number, wire) in fields_of(envelope).ok_or_else(cut)? {
        match (number, wire) {
            (1, ProtobufValue::Bytes(bytes)) => {
                for part in fields_of(bytes).ok_or_else(cut)? {
                    match part {
                        (1, ProtobufValue::Bytes(of)) => version = text(of)?,
                        (2, ProtobufValue::Bytes(of)) => kind = text(of)?,
                        _ => {}
                    }
                }
            }
            (2, ProtobufValue::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let table = match kind.as_str() {
        "DeleteOptions" => DELETE_OPTIONS,
        "Eviction" => EVICTION,
        "Namespace" => NAMESPACE,
        "Deployment" => DEPLOYMENT,
        _ => return Err(ProtobufError::OtherKind),
    };
    let mut object = message(raw, table, &kind, 0)?;
    object.insert("apiVersion".to_owned(), json!(version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// A message by its table; `path` names it where something of it is refused.
fn message(
    bytes: &[u8],
    table: &[ProtobufField],
    path: &str,
    depth: usize,
) -> Result<Map<String, Value>, ProtobufError> {
    let malformed = || ProtobufError::Wrong(format!("proto: {path} is no message of its kind"));
    if depth > DEEPEST {
        return Err(malformed());
    }
    let mut object = Map::new();
    for (number, wire) in fields_of(bytes).ok_or_else(malformed)? {
        let Some((_, name, holds)) = table.iter().find(|(known, ..)| *known == number) else {
            if is_unset(&wire, depth) {
                continue;
            }
            return Err(ProtobufError::Wrong(format!(
                "field {number} of {path} is set, and this simulator does not read it in protobuf: send the object as JSON \
                 (kubectl … --dry-run=client -o json | kubectl apply --validate=false -f -)"
            )));
        };
        let within = || format!("{path}.{name}");
        match (*holds, wire) {
            (Text, ProtobufValue::Bytes([])) => {}
            (Text, ProtobufValue::Bytes(of)) => put(&mut object, name, json!(text(of)?)),
            (Texts, ProtobufValue::Bytes(of)) => push(&mut object, name, json!(text(of)?)),
            // An int64 below zero is written as the number that has its bits.
            (Whole, ProtobufValue::Number(bits)) => {
                put(&mut object, name, json!(bits.cast_signed()));
            }
            (Flag, ProtobufValue::Number(bits)) => put(&mut object, name, json!(bits != 0)),
            (Labels, ProtobufValue::Bytes(of)) => {
                const ENTRY: &[ProtobufField] = &[(1, "key", Text), (2, "value", Text)];
                let entry = message(of, ENTRY, &within(), depth + 1)?;
                let part = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
                let labels = object.entry(*name).or_insert_with(|| json!({}));
                labels[part("key")] = json!(part("value"));
            }
            (Message(parts), ProtobufValue::Bytes(of)) => {
                let inner = message(of, parts, &within(), depth + 1)?;
                if !parts.is_empty() {
                    put(&mut object, name, Value::Object(inner));
                }
            }
            (Messages(parts), ProtobufValue::Bytes(of)) => {
                let inner = message(of, parts, &within(), depth + 1)?;
                push(&mut object, name, Value::Object(inner));
            }
            _ => return Err(malformed()),
        }
    }
    Ok(object)
}

fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.insert(name.to_owned(), value);
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.push(value);
    }
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    let of = String::from_utf8(bytes.to_vec());
    of.map_err(|_| ProtobufError::Wrong("proto: a text is not UTF-8".to_owned()))
}

/// Kubernetes writes each field that is no pointer, whatever it has: zero, nothing, or a message of such.
fn is_unset(wire: &ProtobufValue, depth: usize) -> bool {
    match wire {
        ProtobufValue::Number(number) => *number == 0,
        ProtobufValue::Bytes([]) => true,
        ProtobufValue::Bytes(_) if depth > DEEPEST => false,
        ProtobufValue::Bytes(bytes) => fields_of(bytes)
            .is_some_and(|of| of.iter().all(|(_, inner)| is_unset(inner, depth + 1))),
    }
}

/// The fields of a message in their order; nothing where it is none.
fn fields_of(mut bytes: &[u8]) -> Option<Vec<(u64, ProtobufValue<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = take_number(&mut bytes)?;
        let wire = match tag & 7 {
            0 => ProtobufValue::Number(take_number(&mut bytes)?),
            1 => ProtobufValue::Bytes(take(&mut bytes, 8)?),
            2 => {
                let long = usize::try_from(take_number(&mut bytes)?).ok()?;
                ProtobufValue::Bytes(take(&mut bytes, long)?)
            }
            5 => ProtobufValue::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        fields.push((tag >> 3, wire));
    }
    Some(fields)
}

fn take<'a>(bytes: &mut &'a [u8], long: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(long)?;
    *bytes = rest;
    Some(taken)
}

/// A number of at most ten bytes, seven bits in each, the lowest first.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for at in 0..10 {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let long = u8::try_from(bytes.len()).expect("a short field");
        [&[(number << 3) | 2, long][..], bytes].concat()
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let of = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [PREFIX.to_vec(), field(1, &of), field(2, raw)].concat()
    }

    #[test]
    fn options_of_a_deletion_keep_their_zeros_and_signs() {
        let grace = [&[8, 0][..], &field(4, b"Background")].concat();
        assert_eq!(
            read_object(&envelope("v1", "DeleteOptions", &grace)),
            Ok(
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            )
        );
        let least = [&[8][..], &[0xff; 9], &[1]].concat();
        let read = read_object(&envelope("v1", "DeleteOptions", &least));
        assert_eq!(read.map(|o| o["gracePeriodSeconds"].clone()), Ok(json!(-1)));
    }

    #[test]
    fn what_is_set_and_not_known_is_refused_and_what_is_unset_is_nothing() {
        // Field 6: a flag that the table has not.
        let unset = envelope("v1", "DeleteOptions", &[6 << 3, 0]);
        assert!(read_object(&unset).is_ok(), "{:?}", read_object(&unset));
        let set = read_object(&envelope("v1", "DeleteOptions", &[6 << 3, 1]));
        assert!(
            matches!(&set, Err(ProtobufError::Wrong(why)) if why.starts_with("field 6 of DeleteOptions is set")),
            "{set:?}"
        );
        assert_eq!(
            read_object(&envelope("v1", "Secret", &[])),
            Err(ProtobufError::OtherKind)
        );
    }

    #[test]
    fn no_bytes_end_it_otherwise_than_by_a_refusal() {
        let whole = envelope("policy/v1", "Eviction", &field(1, &field(1, b"a")));
        assert!(read_object(&whole).is_ok());
        for end in 0..whole.len() {
            let _ = read_object(&whole[..end]);
            let mut other = whole.clone();
            other[end] ^= 0x80;
            let _ = read_object(&other);
        }
        // A message within a message, and so on, in a field that is not known.
        let mut deep = Vec::new();
        for _ in 0..60 {
            deep = field(15, &deep);
        }
        let deep = read_object(&envelope("v1", "DeleteOptions", &deep));
        assert!(matches!(deep, Err(ProtobufError::Wrong(_))), "{deep:?}");
        for body in [&b""[..], b"k8s", b"{}"] {
            assert!(
                matches!(read_object(body), Err(ProtobufError::Wrong(_))),
                "{body:?}"
            );
        }
    }
}
