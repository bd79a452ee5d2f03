//! End to end in this process.
