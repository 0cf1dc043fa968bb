//! What is refused first when there is too much of everything.
