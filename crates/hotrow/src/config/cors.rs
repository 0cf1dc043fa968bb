//! `[cors]`: pages of other origins that may read answers.
//!
//! Reference `configuration`: `[cors]`
//!
//! [Pages of other origins](access.md#pages-of-other-origins) may read answers.
//!
//! - `allowed_origins`: As browsers write them: `"https://shop.example"`.
//! - `allow_credentials`: With the visitor's client certificate.
//! - `max_age`: Preflight answers may be kept.

use std::time::Duration;

use hotrow_config::cors::{Cors, Origin, OriginError, Origins};

use super::problem::shown;
use super::reader::Section;
use super::units::{ms, s};

/// Origins of every page.
const ANY: &str = "*";
/// Most origins: each request with one is compared with all.
const ORIGINS_MAX: usize = 64;

/// Reads the section; `None` if the file has none, or a problem was recorded.
pub(super) fn cors(mut section: Section<'_>) -> Option<Cors> {
    const RANGE: &str = "a list of up to 64 origins, or \"*\" for all";
    let names = section.texts("allowed_origins", "required", RANGE);
    let allow_credentials = section.flag("allow_credentials", false);
    let max_age = section.duration("max_age", s(600), ms(0)..=Duration::from_hours(24));
    if !section.is_present() {
        return None;
    }
    let origins = match names.as_deref() {
        None if section.has("allowed_origins") => None,
        None | Some([]) => {
            section.refuse("allowed_origins", format!("is required: {RANGE}"));
            None
        }
        Some([any]) if any == ANY => {
            if allow_credentials {
                let what = "cannot be combined with allowed_origins = \"*\": every page could read \
                    what its visitor may read; name the origins";
                section.refuse("allow_credentials", what);
            }
            Some(Origins::Any)
        }
        Some(names) => listed(&section, names).map(Origins::Listed),
    };
    section.finish();
    Some(Cors { origins: origins?, allow_credentials, max_age })
}

fn listed(section: &Section<'_>, names: &[String]) -> Option<Vec<Origin>> {
    if names.len() > ORIGINS_MAX {
        let count = names.len();
        section.refuse("allowed_origins", format!("may be at most {ORIGINS_MAX}, not {count}"));
        return None;
    }
    let parse = |name: &String| {
        name.parse().map_err(|error: OriginError| {
            section.refuse("allowed_origins", format!("{error}, not {}", shown(name)));
        })
    };
    names.iter().map(parse).collect::<Result<Vec<Origin>, ()>>().ok()
}
