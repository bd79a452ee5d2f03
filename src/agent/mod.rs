//! The daemon: observe, decide, check, act.
