//! What the machine says about a bottleneck. Probes read, and parse apart from reading; rules judge and read nothing.
//!
//! Reading order: [`schedstat`] (how long threads waited for a CPU), [`process`] (what processes used, and who descends
//! from whom), [`cgroup`] (where groups of processes are limited and counted), [`netdev`], [`diskstats`], [`listeners`]
//! (who listens on a port), [`cpuinfo`] and [`meminfo`] (what kind of machine it is).

pub mod cgroup;
pub mod cpuinfo;
pub mod diskstats;
pub mod listeners;
pub mod meminfo;
pub mod netdev;
pub mod process;
pub mod schedstat;
