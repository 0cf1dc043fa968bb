//! When a database that fails is left alone for a while.
