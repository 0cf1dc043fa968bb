//! Traces in virtual parts.
