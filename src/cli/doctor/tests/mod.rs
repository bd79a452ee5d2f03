//! Rights that are taken away one after the other, in simulated clusters in this process.

mod rbac;
mod token;
