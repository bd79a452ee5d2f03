//! Rights and policies that are taken away one after the other, in simulated clusters in this process.

mod admission;
mod rbac;
mod token;
