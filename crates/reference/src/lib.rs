//! The reference service that experiments measure, as a good engineer would write it with common libraries.
