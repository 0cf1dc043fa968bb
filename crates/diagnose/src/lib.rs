//! What the machine says about a bottleneck. Probes read, and parse apart from reading; rules judge and read nothing.
//!
//! Reading order: [`root`] (where files lie, and what could not be seen), [`probe`] (one file for each thing that the
//! kernel tells), [`sampler`] (all of them, some times a second), [`samples`] (rates between two samples), [`survey`]
//! (what costs too much for every sample), [`rules`] (what limits?), [`verdict`] (is that true?), [`doctor`] (what does this machine allow?). Older
//! than those, and used alone: [`schedstat`] (how long threads waited for a CPU), [`process`] (what processes used, and
//! who descends from whom), [`cgroup`] (where groups of processes are limited and counted), [`listeners`] (who listens on a
//! port).

pub mod cgroup;
pub mod doctor;
pub mod listeners;
pub mod probe;
pub mod process;
pub mod root;
pub mod rules;
pub mod sampler;
pub mod samples;
pub mod schedstat;
pub mod survey;
pub mod verdict;
