//! What to do. Pure functions on plain data: no I/O, no async, no clock, no randomness, no logging.
