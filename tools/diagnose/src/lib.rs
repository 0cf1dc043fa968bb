//! Bottleneck diagnosis from the machine's counters. Probes read files and parse them separately;
//! rules only evaluate.
//!
//! Reading order: [`root`] (location of files, and probe errors), [`probe`] (one module per kernel
//! source), [`sampler`] (all of them, several times a second), [`samples`] (rates between two
//! samples), [`survey`] (probes too expensive for every sample), [`rules`] (from samples to
//! findings), [`hypothesis`] (tests of findings), [`doctor`] (limits of this machine). Used on
//! their own: [`schedstat`] (run-queue waits of threads), [`process`] (CPU times and ancestry of
//! processes), [`cgroup`] (control groups), [`listeners`] (the process that listens on a port).

pub mod cgroup;
pub mod database;
pub mod doctor;
pub mod hypothesis;
pub mod listeners;
pub mod probe;
pub mod process;
pub mod root;
pub mod rules;
pub mod sampler;
pub mod samples;
pub mod schedstat;
pub mod survey;
