//! The experiments that come with Hotrow, in the order in which they are listed.

/// An experiment that comes with Hotrow.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, as in `hotrow lab run NAME`.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All of them.
        pub const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../../../../experiments/", $name, ".toml")) }),*];
    };
}

shipped![];

/// Finds one by its name, in whatever case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name.eq_ignore_ascii_case(name))
}
