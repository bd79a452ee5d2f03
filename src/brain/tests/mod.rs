//! Tests of decisions, in small worlds. Names begin with the scenario that they hold.

mod batching;
mod bound;
mod brake;
mod carry;
mod claims;
mod consolidating;
mod constraints;
mod crashing;
mod draining;
mod existing;
mod explaining;
mod growing;
pub(super) mod lab;
mod leaving;
mod lifecycle;
mod living;
mod naive;
mod optimum;
mod placing;
mod preempting;
mod properties;
mod shrinking;
mod steady;
mod stock;
mod wide;
mod wished;
mod wishes;
