//! What the machine says about a bottleneck. Probes read, and parse apart from reading; rules judge and read nothing.
//!
//! Reading order: [`schedstat`] (how long threads waited for a CPU), [`cpuinfo`] (what kind of CPU it is).

pub mod cpuinfo;
pub mod schedstat;
