//! The program `hotrow serve` and the checker `hotrow verify`, as real processes over real servers.
//!
//! One binary, so that it is linked once and all suites share the machine.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

/// Makes tests of generic functions, for one engine; attributes precede a function.
macro_rules! tests {
    ($engine:ty: $($(#[$attribute:meta])* $module:ident::$name:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                $module::$name::<$engine>();
            }
        )+
    };
}

mod backend;
mod contract;
mod e2e;
mod mongodb;
mod mysql;
mod overload;
mod postgres;
mod shop;
mod verify;
