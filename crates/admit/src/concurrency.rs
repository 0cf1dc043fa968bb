//! How many reads the database is given at once, and who waits for the others.
