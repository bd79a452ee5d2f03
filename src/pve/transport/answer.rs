//! Reading an HTTP answer of PVE: data, or an error that says whether the call was carried out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{CallEffect, CallError};
use crate::model::foreign::ForeignText;
use crate::pve::perl::{self, Fields};
use crate::pve::texts;

/// What came back.
#[derive(Debug)]
pub(crate) struct HttpAnswer<'a> {
    /// Status code.
    pub(crate) status: u16,
    /// Reason phrase; carries the message where the body is empty.
    pub(crate) reason: String,
    /// Body.
    pub(crate) body: &'a [u8],
}

/// The reason phrase of a response, from the wire.
pub(crate) fn reason(extensions: &http::Extensions, status: http::StatusCode) -> String {
    extensions.get::<hyper::ext::ReasonPhrase>().map_or_else(
        || status.canonical_reason().unwrap_or_default().to_owned(),
        |reason| String::from_utf8_lossy(reason.as_bytes()).into_owned(),
    )
}

impl HttpAnswer<'_> {
    /// The answer's data or what it means that there is none.
    pub(crate) fn read(&self) -> Result<Value, CallError> {
        if (200..300).contains(&self.status) {
            return self.data();
        }
        Err(self.error(outcome_of(self.status)))
    }

    fn data(&self) -> Result<Value, CallError> {
        match serde_json::from_slice::<Value>(self.body) {
            Ok(Value::Object(mut answer)) => Ok(answer.remove("data").unwrap_or(Value::Null)),
            Ok(_) => Err(self.unreadable("it is no JSON object")),
            Err(error) => Err(self.unreadable(&error.to_string())),
        }
    }

    fn unreadable(&self, why: &str) -> CallError {
        CallError {
            status: Some(self.status),
            ..CallError::new(
                CallEffect::Unknown,
                format!("cannot read the answer ({} bytes): {why}", self.body.len()),
            )
        }
    }

    /// The error the answer carries, with the outcome the caller knows.
    pub(crate) fn error(&self, outcome: CallEffect) -> CallError {
        let body = serde_json::from_slice::<Value>(self.body).unwrap_or(Value::Null);
        let fields = Fields::of(&body);
        let told = fields.text("message").unwrap_or_default();
        let message = [told.trim(), self.reason.trim(), pseudo_code(self.status)]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or("no message");
        let errors: BTreeMap<ForeignText, ForeignText> = fields
            .get("errors")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((said(key), said(&perl::text(value)?))))
            .collect();
        CallError {
            status: Some(self.status),
            errors,
            ..CallError::new(outcome, said(message))
        }
    }
}

fn said(text: &str) -> ForeignText {
    ForeignText::from(texts::told(text))
}

/// 595 means that pveproxy did not reach the host; every other code of AnyEvent::HTTP, and a
/// gateway's, leaves open what the host behind did (semantics of pve-http-server AnyEvent.pm:833).
pub(crate) fn outcome_of(status: u16) -> CallEffect {
    match status {
        595 => CallEffect::NotSent,
        502..=504 | 590..=599 => CallEffect::Unknown,
        _ => CallEffect::Refused,
    }
}

fn pseudo_code(status: u16) -> &'static str {
    match status {
        595 => "the PVE host does not reach the host in the path",
        596 => "the connection to the host in the path broke mid-way",
        599 => "the call through the PVE host failed",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, reason: &str, body: &str) -> Result<Value, CallError> {
        HttpAnswer {
            status,
            reason: reason.to_owned(),
            body: body.as_bytes(),
        }
        .read()
    }

    #[test]
    fn data_comes_out_whatever_stands_beside_it() {
        assert_eq!(read(200, "OK", r#"{"data":[1],"total":1}"#), Ok(json!([1])));
        assert_eq!(read(200, "OK", r#"{"data":null}"#), Ok(Value::Null));
        assert_eq!(read(200, "OK", "{}"), Ok(Value::Null));
    }

    #[test]
    fn the_outcome_follows_the_status() {
        for (status, outcome) in [
            (400, CallEffect::Refused),
            (401, CallEffect::Refused),
            (403, CallEffect::Refused),
            (500, CallEffect::Refused),
            (501, CallEffect::Refused),
            (502, CallEffect::Unknown),
            (504, CallEffect::Unknown),
            (595, CallEffect::NotSent),
            (596, CallEffect::Unknown),
            (599, CallEffect::Unknown),
        ] {
            let error = read(status, "why", "").expect_err("an error");
            assert_eq!((error.outcome, error.status), (outcome, Some(status)));
            assert_eq!(error.message, "why");
        }
    }

    #[test]
    fn the_body_says_more_than_the_reason() {
        let error = read(
            400,
            "Parameter verification failed.",
            r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"newid":"VM 9 already exists"}}"#,
        )
        .expect_err("an error");
        assert_eq!(error.message, "Parameter verification failed.");
        assert_eq!(error.errors["newid"], "VM 9 already exists");
        assert_eq!(error.cause(), crate::pve::FailureCause::VmidTaken);
        let old = read(500, "VM is locked (backup)", r#"{"data":null}"#).expect_err("an error");
        assert_eq!(
            old.cause(),
            crate::pve::FailureCause::Locked("backup".into())
        );
    }

    #[test]
    fn a_good_status_with_an_unreadable_body_may_have_been_carried_out() {
        for body in ["", "<html>", "[]", "{\"data\":"] {
            let error = read(200, "OK", body).expect_err("an error");
            assert_eq!(error.outcome, CallEffect::Unknown, "{body}");
        }
    }
}
