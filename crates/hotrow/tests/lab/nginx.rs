//! nginx.
