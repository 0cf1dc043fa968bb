//! The consistency contract (docs/consistency.md), checked from outside: the real binary over sockets, the database written
//! by this process, every answer judged by a checker that knows the contract and nothing of the service.

mod explain;
mod history;
mod observation;
mod rules;
