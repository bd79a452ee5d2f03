//! The words of the program: plain data that every other module speaks, with no behaviour beyond
//! arithmetic and look-ups.
//!
//! * [`quantity`], [`resources`], [`time`]: units as types; exact integers, never floats. [`words`] writes
//!   amounts as people do.
//! * [`scheduling`], [`cluster`], [`pods`]: what a decision needs of Kubernetes, compact. [`parts`] counts how much that is.
//! * [`region`]: what a decision needs of Proxmox VE. [`chosen_storages`]: where a machine's disks are made.
//! * [`mark`]: the proof that a VM is ours. [`identity`]: which node is a machine's. [`foreign`]: text that others
//!   wrote, fit to be shown.
//! * [`tolerant`]: documents of ours, read so that a newer version may have written them.
//! * [`facts`]: texts of the configuration that name what is known of a machine.
//! * [`disruption`], [`cron`]: what pools let be done to working nodes, and when. [`guard`]: what pods and nodes forbid.
//! * [`condition`]: what a person must do something about. [`notice`]: what he is told of it.
//! * [`in_place`]: what of a VM that runs is to be changed. [`drift`]: what of a machine cannot be.
//! * [`network`]: which addresses machines may get. [`on_wire`]: who else has some. [`pci`]: which devices of hosts.
//! * [`reasons`]: why, as types; their sentences are made there and nowhere else.
//! * [`snapshot`], [`policy`], [`memory`] go into the brain; [`action`], [`report`], [`decision`] come out; [`story`] is
//!   what `explain` answers.
//!
//! Everything here serialises, so that a snapshot saved by one run can be decided on by another.
//! Nothing here reads a clock, a file or a socket, and all maps are ordered.

// In one function a name stands for one thing: what shadows it is made of it.
#![cfg_attr(not(test), warn(clippy::shadow_unrelated))]

#[macro_use]
extern crate planted;

pub mod action;
pub mod change;
pub mod chosen_storages;
pub mod cluster;
pub mod condition;
pub mod cpu_loss;
pub mod cpus;
pub mod cron;
pub mod decision;
pub mod disruption;
pub mod drift;
pub mod facts;
pub mod foreign;
pub mod guard;
pub mod host_bounds;
pub mod host_choice;
pub mod hosts;
pub mod identity;
pub mod in_place;
pub mod label_list;
pub mod lacking;
pub mod mark;
pub mod memory;
pub mod network;
pub mod notice;
pub mod on_wire;
pub mod parts;
pub mod pci;
pub mod pods;
pub mod policy;
pub mod quantity;
pub mod reasons;
pub mod region;
pub mod report;
pub mod resources;
pub mod rows;
pub mod scheduling;
pub mod shared;
pub mod snapshot;
pub mod store_states;
pub mod story;
pub mod time;
pub mod tolerant;
pub mod topology;
pub mod words;
