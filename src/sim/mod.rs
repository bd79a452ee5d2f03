//! A world in a box: fake Proxmox VE and fake Kubernetes that speak the true wire protocols.

pub mod broker;
pub mod demo;
pub mod faults;
pub mod guests;
pub mod judge;
pub mod kube;
pub mod listen;
pub mod pve;
pub mod wire;
pub mod workload;
pub mod world;
