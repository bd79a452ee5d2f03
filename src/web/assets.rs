//! The files of the page, which are in the program: nothing is read from disk or from elsewhere.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

/// A file of the page.
struct Asset {
    /// Where it is served.
    path: &'static str,
    /// The file's media type, its `Content-Type`.
    kind: &'static str,
    /// What is in it.
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Makes one of a file in `page/`.
macro_rules! asset {
    ($path:literal, $kind:expr, $file:literal) => {
        Asset {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("page/", $file)),
        }
    };
}

/// Every file.
const ASSETS: [Asset; 21] = [
    asset!("/", HTML, "index.html"),
    asset!("/page/look.css", CSS, "look.css"),
    asset!("/page/icon.svg", SVG, "icon.svg"),
    asset!("/page/theme.js", SCRIPT, "theme.js"),
    asset!("/page/main.js", SCRIPT, "main.js"),
    asset!("/page/live.js", SCRIPT, "live.js"),
    asset!("/page/dom.js", SCRIPT, "dom.js"),
    asset!("/page/table.js", SCRIPT, "table.js"),
    asset!("/page/format.js", SCRIPT, "format.js"),
    asset!("/page/now.js", SCRIPT, "now.js"),
    asset!("/page/stores.js", SCRIPT, "stores.js"),
    asset!("/page/why.js", SCRIPT, "why.js"),
    asset!("/page/whatif.js", SCRIPT, "whatif.js"),
    asset!("/page/login.js", SCRIPT, "login.js"),
    asset!("/page/acts.js", SCRIPT, "acts.js"),
    asset!("/page/when.js", SCRIPT, "when.js"),
    asset!("/page/chart.js", SCRIPT, "chart.js"),
    asset!("/page/starts.js", SCRIPT, "starts.js"),
    asset!("/page/keep.js", SCRIPT, "keep.js"),
    asset!("/page/demo.js", SCRIPT, "demo.js"),
    asset!("/page/legend.js", SCRIPT, "legend.js"),
];

/// Every path that a file is served at.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.path)
}

/// The file at a path. A browser that has it is told that it has not changed.
pub(super) fn serve(path: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let sum = Sha256::digest(asset.text);
    let tag = sum[..8]
        .iter()
        .fold(String::from("\""), |tag, byte| tag + &format!("{byte:02x}"));
    let tag = tag + "\"";
    let known = headers.get(header::IF_NONE_MATCH);
    let terms = [
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, terms).into_response();
    }
    (terms, [(header::CONTENT_TYPE, asset.kind)], asset.text).into_response()
}
