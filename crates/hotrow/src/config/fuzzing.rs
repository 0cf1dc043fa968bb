//! Entry point of the fuzz target: any bytes as a file of grants. Not in ordinary builds.

use std::env::VarError;
use std::sync::OnceLock;

use hotrow_access::certificate::CertificateTable;
use hotrow_access::grant::Grants;
use hotrow_access::key::KeyTable;
use hotrow_config::access::GrantsFile;

use super::{Overrides, parse};

const COLLECTIONS: usize = 2;
const CONFIGURATION: &str = "source.url = 'sqlite:x'\n[collections.products]\n\
    [collections.prices]\n[limits.rate.all]\nrate = '9/s'\nclasses = ['paid']\n\
    [access]\ngrants_file = 'grants.toml'\n";

/// Parses bytes as a file of grants, for a service with two collections and a rate class.
///
/// # Panics
/// If a file is refused without a reason, or accepted with grants that the server cannot use.
pub fn grants_file(input: &[u8]) {
    static FILE: OnceLock<Option<GrantsFile>> = OnceLock::new();
    let file = FILE.get_or_init(file).as_ref().expect("the configuration names a file");
    match (file.parse)(input) {
        Err(why) => assert!(!why.is_empty()),
        Ok(granted) => {
            let grants = Grants::new(&granted.roles, COLLECTIONS);
            assert!(grants.is_ok() && !granted.roles.is_empty());
            assert!(KeyTable::new(granted.keys).is_ok(), "keys are unique");
            assert!(CertificateTable::new(granted.certificates).is_ok(), "subjects are unique");
        }
    }
}

fn file() -> Option<GrantsFile> {
    let unset = |_: &str| Err(VarError::NotPresent);
    let resolved = parse(CONFIGURATION, "hotrow.toml", &unset, &Overrides::default()).ok()?;
    resolved.server.access?.grants_file
}

#[cfg(test)]
mod tests {
    use hotrow_testkit::mutate;

    #[test]
    fn a_file_of_grants_survives_mutations() {
        let pieces: [&[u8]; 8] = [
            b"[roles.x]\ncollections = '*'\n",
            b"[keys.x]\n",
            b"[certificates.x]\nsubject = 'CN=x'\nroles = 'x'\n",
            b"columns.products.names = ['id']\n",
            b"[\"",
            b"= {",
            b"\"\"\"",
            b"${X}",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/grants_file");
        mutate::run(folder, 20_000, &pieces, super::grants_file);
    }
}
