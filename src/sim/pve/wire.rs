//! PVE's wire: how a request's parameters are read and how answers and errors are written.
//!
//! Forms and queries are split on `&` and `;`, a repeated key becomes a list, `+` is a blank; JSON
//! bodies keep their numbers and booleans. Errors carry a message in the status line and, but for
//! early ones, in the body.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// Largest body in bytes (AnyEvent.pm).
pub(super) const MAX_BODY: usize = 512 * 1024;
/// How long pveproxy holds back an answer to a call that did not authenticate.
const UNAUTHORISED_DELAY: Duration = Duration::from_secs(3);

/// One parameter's value as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParamValue {
    /// One value.
    Text(String),
    /// A number or boolean of a JSON body.
    Number(String),
    /// A repeated key or a JSON array.
    List(Vec<String>),
}

/// Parameters by name.
pub(super) type ParamValues = BTreeMap<String, ParamValue>;

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorAnswer {
    /// HTTP status.
    pub(super) status: u16,
    /// Message, without the newline that PVE ends it with.
    pub(super) message: String,
    /// What was wrong with which parameter.
    pub(super) errors: BTreeMap<String, String>,
    /// The body stays empty.
    pub(super) bare: bool,
    /// Held back for so long.
    pub(super) delay: Duration,
}

impl ErrorAnswer {
    fn new(status: u16, message: impl Into<String>) -> ErrorAnswer {
        ErrorAnswer {
            status,
            message: message.into(),
            errors: BTreeMap::new(),
            bare: false,
            delay: Duration::ZERO,
        }
    }

    /// `die`: 500.
    pub(super) fn die(message: impl Into<String>) -> ErrorAnswer {
        ErrorAnswer::new(500, message)
    }

    /// One parameter is wrong: 400.
    pub(super) fn parameter(name: &str, why: impl Into<String>) -> ErrorAnswer {
        ErrorAnswer::parameters([(name.to_owned(), why.into())].into())
    }

    /// Several parameters are wrong: 400.
    pub(super) fn parameters(errors: BTreeMap<String, String>) -> ErrorAnswer {
        ErrorAnswer {
            errors,
            ..ErrorAnswer::new(400, "Parameter verification failed.")
        }
    }

    /// Authenticated, but not allowed: 403.
    pub(super) fn forbidden(message: impl Into<String>) -> ErrorAnswer {
        ErrorAnswer::new(403, message)
    }

    /// Not authenticated: 401 with an empty body, after three seconds.
    pub(super) fn unauthorised(message: &str) -> ErrorAnswer {
        ErrorAnswer {
            bare: true,
            delay: UNAUTHORISED_DELAY,
            ..ErrorAnswer::new(401, message)
        }
    }

    /// The login failed: 401 with a body, after three seconds.
    pub(super) fn login() -> ErrorAnswer {
        ErrorAnswer {
            delay: UNAUTHORISED_DELAY,
            ..ErrorAnswer::new(401, "authentication failure")
        }
    }

    /// Neither path nor method exists: 501.
    pub(super) fn not_implemented(method: &str, path: &str) -> ErrorAnswer {
        ErrorAnswer::new(501, format!("Method '{method} {path}' not implemented"))
    }

    /// An answer of the proxy or of its HTTP layer: empty body.
    pub(super) fn bare(status: u16, reason: &str) -> ErrorAnswer {
        ErrorAnswer {
            bare: true,
            ..ErrorAnswer::new(status, reason)
        }
    }

    fn body(&self) -> Body {
        if self.bare {
            return Body::empty();
        }
        let mut body = json!({ "data": null, "message": format!("{}\n", self.message) });
        if !self.errors.is_empty() {
            body["errors"] = json!(self.errors);
        }
        Body::from(body.to_string())
    }
}

/// The answer to a call.
pub(super) fn answer(result: Result<Value, ErrorAnswer>) -> Response<Body> {
    match result {
        Ok(data) => {
            let body = match total_of(&data) {
                // A total of none is not said.
                Some((rows, total)) if *total != json!(0) => {
                    json!({ "data": rows, "total": total })
                }
                Some((rows, _)) => json!({ "data": rows }),
                None => json!({ "data": data }),
            };
            let mut response = Response::new(Body::from(body.to_string()));
            set_json(&mut response);
            response
        }
        Err(fault) => {
            let mut response = Response::new(fault.body());
            *response.status_mut() =
                StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if !fault.bare {
                set_json(&mut response);
            }
            // Every answer of 400 and above ends the connection (AnyEvent.pm).
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
            let line = fault.message.lines().next().unwrap_or_default().to_owned();
            if let Ok(reason) = hyper::ext::ReasonPhrase::try_from(line.into_bytes()) {
                response.extensions_mut().insert(reason);
            }
            response
        }
    }
}

/// The key under which a handler hands a list with its `total` to [`answer`].
const PAGED: &str = "\u{0}paged";

/// A list whose answer carries the number of all rows beside `data`.
pub(super) fn paged(rows: &[Value], total: usize) -> Value {
    json!({ PAGED: { "rows": rows, "total": total } })
}

fn total_of(data: &Value) -> Option<(&Value, &Value)> {
    let page = data.get(PAGED)?;
    Some((page.get("rows")?, page.get("total")?))
}

fn set_json(response: &mut Response<Body>) {
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json;charset=UTF-8"),
    );
}

/// A value of a form, for who looks at it on its way.
pub(in crate::sim) fn form_field(form: &str, name: &str) -> Option<String> {
    let mut fields = form.split('&').filter_map(|part| part.split_once('='));
    let (_, value) = fields.find(|(key, _)| *key == name)?;
    Some(decode(value, true))
}

/// Parameters of a query or form: split on `&` and `;`, `+` is a blank, a repeated key is a list.
pub(super) fn urlencoded(text: &str) -> ParamValues {
    let mut params = ParamValues::new();
    for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        add(
            &mut params,
            decode(name, true),
            ParamValue::Text(decode(value, true)),
        );
    }
    params
}

fn add(params: &mut ParamValues, name: String, value: ParamValue) {
    let ParamValue::Text(text) = value else {
        params.insert(name, value);
        return;
    };
    let joined = match params.remove(&name) {
        None => ParamValue::Text(text),
        Some(ParamValue::Text(first) | ParamValue::Number(first)) => {
            ParamValue::List(vec![first, text])
        }
        Some(ParamValue::List(mut list)) => {
            list.push(text);
            ParamValue::List(list)
        }
    };
    params.insert(name, joined);
}

/// Parameters of a body.
pub(super) fn body(
    content_type: Option<&HeaderValue>,
    body: &Bytes,
) -> Result<ParamValues, ErrorAnswer> {
    let kind = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    if kind.starts_with("application/json") {
        return from_json(body);
    }
    Ok(urlencoded(&String::from_utf8_lossy(body)))
}

fn from_json(body: &Bytes) -> Result<ParamValues, ErrorAnswer> {
    if body.is_empty() {
        return Ok(ParamValues::new());
    }
    let value: Value = serde_json::from_slice(body).map_err(|_| {
        ErrorAnswer::die(
            "malformed JSON string, neither tag, array, object, number, string or atom",
        )
    })?;
    let Value::Object(object) = value else {
        return Err(ErrorAnswer::die("JSON body is not an object"));
    };
    let given = object
        .into_iter()
        .filter_map(|(name, value)| Some((name, scalar(value)?)));
    Ok(given.collect())
}

fn scalar(value: Value) -> Option<ParamValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => ParamValue::Number(u8::from(flag).to_string()),
        Value::Number(number) => ParamValue::Number(number.to_string()),
        Value::String(text) => ParamValue::Text(text),
        Value::Array(items) => ParamValue::List(
            items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => text,
                    other => other.to_string(),
                })
                .collect(),
        ),
        // A hash has no place in any call: shown as Perl would, and refused by the type check.
        Value::Object(_) => ParamValue::Text("HASH".to_owned()),
    })
}

/// Undoes percent-encoding; `plus`: `+` is a blank.
pub(super) fn decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes
            .get(at + 1..at + 3)
            .filter(|_| byte == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(if plus && byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes all but unreserved characters, as PVE writes descriptions and keys.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
