//! The web server: metrics and health.
