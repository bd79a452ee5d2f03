//! `metav1.Status`: how the API server says no, with its true reasons and texts.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::resources::Res;

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Value,
    /// Seconds for the `Retry-After` header; 0 sends none.
    pub(super) retry_after: u32,
}

fn details(res: Res, name: &str) -> Value {
    let row = res.row();
    let mut details = json!({"kind": row.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !row.group.is_empty() {
        details["group"] = json!(row.group);
    }
    details
}

impl Status {
    fn new(code: u16, reason: &'static str, message: String, details: Value) -> Status {
        Status {
            code,
            reason,
            message,
            details,
            retry_after: 0,
        }
    }

    /// 404 of an object.
    pub(super) fn not_found(res: Res, name: &str) -> Status {
        Status::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", res.row().qualified()),
            details(res, name),
        )
    }

    /// 404 of a path.
    pub(super) fn no_such_path() -> Status {
        Status::new(
            404,
            "NotFound",
            "the server could not find the requested resource".to_owned(),
            json!({}),
        )
    }

    /// 409: the name is taken.
    pub(super) fn already_exists(res: Res, name: &str) -> Status {
        Status::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", res.row().qualified()),
            details(res, name),
        )
    }

    /// 409: a precondition or the resourceVersion does not hold.
    pub(super) fn conflict(res: Res, name: &str, why: &str) -> Status {
        Status::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                res.row().qualified()
            ),
            details(res, name),
        )
    }

    /// 409: the object moved on since it was read.
    pub(super) fn modified(res: Res, name: &str) -> Status {
        Status::conflict(
            res,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: the UID precondition does not hold.
    pub(super) fn other_uid(res: Res, name: &str, wanted: &str, found: &str) -> Status {
        Status::conflict(
            res,
            name,
            &format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
            ),
        )
    }

    /// 409: the resourceVersion precondition does not hold.
    pub(super) fn other_version(res: Res, name: &str, wanted: &str, found: &str) -> Status {
        Status::conflict(
            res,
            name,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object might have been modified"
            ),
        )
    }

    /// 422, as a ValidatingAdmissionPolicy denies.
    pub(super) fn denied(res: Res, name: &str, why: &str) -> Status {
        Status::new(
            422,
            "Invalid",
            format!("{} \"{name}\" is forbidden: {why}", res.row().qualified()),
            details(res, name),
        )
    }

    /// 422 with one field at fault.
    pub(super) fn invalid(res: Res, name: &str, field: &str, why: &str) -> Status {
        let row = res.row();
        let kind = if row.group.is_empty() {
            row.kind.to_owned()
        } else {
            format!("{}.{}", row.kind, row.group)
        };
        let mut details = details(res, name);
        details["kind"] = json!(row.kind);
        details["causes"] =
            json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        Status::new(
            422,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {field}: {why}"),
            details,
        )
    }

    /// 400.
    pub(super) fn bad_request(message: impl Into<String>) -> Status {
        Status::new(400, "BadRequest", message.into(), Value::Null)
    }

    /// 401.
    pub(super) fn unauthorized() -> Status {
        Status::new(401, "Unauthorized", "Unauthorized".to_owned(), Value::Null)
    }

    /// 403.
    pub(super) fn forbidden(res: Res, name: &str, why: &str) -> Status {
        let shown = if name.is_empty() {
            res.row().qualified()
        } else {
            format!("{} \"{name}\"", res.row().qualified())
        };
        Status::new(
            403,
            "Forbidden",
            format!("{shown} is forbidden: {why}"),
            details(res, name),
        )
    }

    /// 403 of a path that is no resource.
    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Status {
        Status::new(
            403,
            "Forbidden",
            format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\""),
            json!({}),
        )
    }

    /// 405.
    pub(super) fn not_allowed() -> Status {
        Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".to_owned(),
            json!({}),
        )
    }

    /// 406: the caller takes no answer that this server can write.
    pub(super) fn not_acceptable() -> Status {
        Status::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json".to_owned(),
            Value::Null,
        )
    }

    /// 410: the resourceVersion lies before what is kept.
    pub(super) fn expired(message: String) -> Status {
        Status::new(410, "Expired", message, Value::Null)
    }

    /// 415: the request's body has a form that this server cannot read there; `taken` are those that it can.
    pub(super) fn media_type(taken: &[&str]) -> Status {
        Status::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                taken.join(", ")
            ),
            Value::Null,
        )
    }

    /// 413.
    pub(super) fn too_large() -> Status {
        Status::new(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728".to_owned(),
            json!({}),
        )
    }

    /// 429 of a disruption budget. `wait`: seconds for Retry-After, 0 for none.
    pub(super) fn budget(cause: &str, wait: u32) -> Status {
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        if wait > 0 {
            details["retryAfterSeconds"] = json!(wait);
        }
        Status {
            retry_after: wait,
            ..Status::new(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
                details,
            )
        }
    }

    /// 500.
    pub(super) fn internal(message: &str) -> Status {
        Status::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
            json!({"causes": [{"message": message}]}),
        )
    }

    /// 504: the server does not know that resourceVersion yet.
    pub(super) fn from_the_future(wanted: u64, current: u64) -> Status {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        Status {
            retry_after: 1,
            ..Status::new(
                504,
                "Timeout",
                format!("Timeout: {message}"),
                json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}),
            )
        }
    }

    /// The body.
    pub(super) fn json(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

/// A `Status` that says success, as DELETE and the eviction answer.
pub(super) fn success(res: Option<(Res, &str, &str)>) -> Value {
    let mut body =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    match res {
        Some((res, name, uid)) => {
            let mut details = details(res, name);
            details["uid"] = json!(uid);
            body["details"] = details;
        }
        None => body["code"] = json!(201),
    }
    body
}

/// A JSON answer.
pub(super) fn answer(code: u16, body: &Value) -> Response {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = HeaderValue::from_static("application/json");
    (code, [(header::CONTENT_TYPE, kind)], body.to_string()).into_response()
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        let mut response = answer(self.code, &self.json());
        if self.retry_after > 0 {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        response
    }
}
