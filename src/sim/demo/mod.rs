//! The demo: the real daemon on the simulator, with a timeline in the terminal.

pub mod timeline;
