//! The experiments that come with Hotrow, in the order in which they are listed.

/// An experiment that comes with Hotrow.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, as in `hotrow lab run NAME`.
    pub name: &'static str,
    /// Other names: those of the workloads in it.
    pub also: &'static [&'static str],
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal $also:expr),* $(,)?) => {
        /// All of them.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            also: &$also,
            text: include_str!(concat!("../../../../experiments/", $name, ".toml")),
        }),*];
    };
}

shipped![
    "w1" [],
    "w3" ["w4"],
    "w5" [],
    "w7" [],
    "w10a" ["w8", "w9", "w10", "w11", "w12", "w13"],
    "w10b" [],
    "w19" [],
    "w20" [],
    "w21" [],
    "workers" [],
    "rtt" [],
    "tls" [],
];

/// Finds one by one of its names, in whatever case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Shipped> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    SHIPPED.iter().find(|shipped| is(shipped.name) || shipped.also.iter().any(|also| is(also)))
}
