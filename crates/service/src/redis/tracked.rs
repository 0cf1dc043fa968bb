//! State of a client that tracks, and the options of `CLIENT TRACKING`. The texts of errors are
//! those of Redis where it has the same rule.

use hotrow_push::tracking::Prefixes;
#[cfg(feature = "failpoints")]
use hotrow_push::tracking::TrackedKey;

use crate::tracking::ClientGuard;

pub(super) const SYNTAX: &str = "ERR syntax error";
const ONE_TARGET: &str = "ERR A client can only redirect to a single other client";
const PREFIX_WITHOUT_BCAST: &str = "ERR PREFIX option requires BCAST mode to be enabled";
const SWITCHED_BCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for \
    this client, and then re-enabling it with a different mode.";
const OPT_WITH_BCAST: &str = "ERR OPTIN and OPTOUT are not compatible with BCAST";
const BOTH_OPTS: &str = "ERR You can't specify both OPTIN mode and OPTOUT mode";
const SWITCHED_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for \
    this client, and then re-enabling it with a different mode.";
/// Most prefixes of one client.
const PREFIXES_MAX: usize = 64;

/// A client that tracks.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) guard: ClientGuard,
    pub(super) options: Options,
    /// What `CLIENT CACHING` has said of the next command.
    pub(super) caching: Option<bool>,
    /// Keys of a command that a planted mistake registers after the lookup.
    #[cfg(feature = "failpoints")]
    pub(super) unregistered: Vec<TrackedKey>,
}

impl Tracked {
    pub(crate) fn new(guard: ClientGuard, options: Options) -> Self {
        Self {
            guard,
            options,
            caching: None,
            #[cfg(feature = "failpoints")]
            unregistered: Vec::new(),
        }
    }
}

/// Options of `CLIENT TRACKING`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The connection that gets the invalidations; 0: its own.
    pub(super) redirect: i64,
    pub(super) is_broadcast: bool,
    pub(super) prefixes: Prefixes,
    pub(super) is_opt_in: bool,
    pub(super) is_opt_out: bool,
    /// Without effect: no client writes.
    pub(super) is_no_loop: bool,
}

impl Options {
    pub(super) fn is_redirected(&self) -> bool {
        self.redirect != 0
    }

    /// Reads the arguments behind `ON` or `OFF`.
    pub(crate) fn parse<'a>(mut arguments: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            match &*argument.to_ascii_lowercase() {
                b"redirect" => {
                    let number = arguments.next().ok_or(SYNTAX)?;
                    if options.redirect != 0 {
                        return Err(ONE_TARGET.to_owned());
                    }
                    let number = std::str::from_utf8(number).ok().and_then(|n| n.parse().ok());
                    options.redirect =
                        number.ok_or("ERR value is not an integer or out of range")?;
                }
                b"prefix" => {
                    options.prefixes.0.push(arguments.next().ok_or(SYNTAX)?.into());
                    if options.prefixes.0.len() > PREFIXES_MAX {
                        return Err(format!("ERR more than {PREFIXES_MAX} prefixes"));
                    }
                }
                b"bcast" => options.is_broadcast = true,
                b"optin" => options.is_opt_in = true,
                b"optout" => options.is_opt_out = true,
                b"noloop" => options.is_no_loop = true,
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        Ok(options)
    }

    /// Checks them, and against those in force.
    pub(crate) fn check(&self, before: Option<&Self>) -> Result<(), String> {
        let is_both = self.is_opt_in && self.is_opt_out;
        let has_opt = self.is_opt_in || self.is_opt_out;
        let switches_opt = |before: &Self| {
            self.is_opt_in && before.is_opt_out || self.is_opt_out && before.is_opt_in
        };
        Err(match before {
            _ if !self.is_broadcast && !self.prefixes.0.is_empty() => PREFIX_WITHOUT_BCAST,
            Some(before) if before.is_broadcast != self.is_broadcast => SWITCHED_BCAST,
            _ if self.is_broadcast && has_opt => OPT_WITH_BCAST,
            _ if is_both => BOTH_OPTS,
            Some(before) if switches_opt(before) => SWITCHED_OPT,
            _ => return self.check_prefixes(before),
        }
        .to_owned())
    }

    /// Checks that no two prefixes overlap. One that was given before may be given again.
    fn check_prefixes(&self, before: Option<&Self>) -> Result<(), String> {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let Prefixes(own) = &self.prefixes;
        for (at, prefix) in own.iter().enumerate() {
            let known = before.and_then(|before| before.prefixes.overlap(prefix));
            if let Some(known) = known.filter(|known| *known != &**prefix) {
                return Err(format!(
                    "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single \
                     client must not overlap.",
                    shown(prefix),
                    shown(known)
                ));
            }
            if let Some(other) = Prefixes(own[at + 1..].to_vec()).overlap(prefix) {
                return Err(format!(
                    "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a \
                     single client must not overlap.",
                    shown(prefix),
                    shown(other)
                ));
            }
        }
        Ok(())
    }
}
