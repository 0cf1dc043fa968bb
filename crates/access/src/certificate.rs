//! Client certificates that are credentials. The connection has verified the certificate; here its
//! subject is looked up.

use crate::grant::Roles;
use crate::identity::Identity;
use hotrow_types::tenant::Tenants;

/// Most certificates of one service.
pub const CERTIFICATES_MAX: usize = 10_000;
/// Most bytes of a subject.
pub const SUBJECT_BYTES_MAX: usize = 1024;

/// A subject with its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateHolder {
    /// Distinguished name (RFC 4514), compared byte by byte.
    pub subject: String,
    /// Roles of its holder.
    pub roles: Roles,
    /// Tenants whose records its holder sees.
    pub tenants: Tenants,
}

/// All subjects of a service.
#[derive(Clone, Debug, Default)]
pub struct CertificateTable {
    /// In the order of their subjects.
    holders: Box<[(CertificateHolder, Identity)]>,
}

/// A subject that is listed twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two certificates have the subject {0:?}")]
pub struct DuplicateSubject(pub String);

impl CertificateTable {
    /// Creates the table.
    ///
    /// # Errors
    /// [`DuplicateSubject`]
    pub fn new(mut holders: Vec<CertificateHolder>) -> Result<Self, DuplicateSubject> {
        holders.sort_by(|a, b| a.subject.cmp(&b.subject));
        if let Some(pair) = holders.windows(2).find(|pair| pair[0].subject == pair[1].subject) {
            return Err(DuplicateSubject(pair[0].subject.clone()));
        }
        let with_identity = |holder: CertificateHolder| {
            let identity = Identity::of_certificate(&holder.subject);
            (holder, identity)
        };
        Ok(Self { holders: holders.into_iter().map(with_identity).collect() })
    }

    /// Returns the holder of a subject, and its identity.
    #[must_use]
    pub fn find(&self, subject: &str) -> Option<(&CertificateHolder, Identity)> {
        let found =
            self.holders.binary_search_by(|(holder, _)| holder.subject.as_str().cmp(subject));
        let (holder, identity) = self.holders.get(found.ok()?)?;
        Some((holder, *identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(subject: &str, role: usize) -> CertificateHolder {
        let (roles, tenants) = (Roles::single(role), Tenants::NONE);
        CertificateHolder { subject: subject.to_owned(), roles, tenants }
    }

    #[test]
    fn only_a_whole_subject_is_found() {
        let table = CertificateTable::new(vec![holder("CN=b", 1), holder("CN=a,O=x", 0)]);
        let table = table.expect("two subjects");
        let roles = |subject| table.find(subject).map(|(holder, _)| holder.roles);
        assert_eq!(roles("CN=a,O=x"), Some(Roles::single(0)));
        assert_eq!(roles("CN=b"), Some(Roles::single(1)));
        for other in ["", "CN=a", "CN=a,O=x,C=y", "cn=b", "CN=b ", "O=x,CN=a"] {
            assert_eq!(roles(other), None, "{other}");
        }
        let twice = CertificateTable::new(vec![holder("CN=b", 1), holder("CN=b", 0)]);
        assert_eq!(twice.map(|_| ()), Err(DuplicateSubject("CN=b".to_owned())));
    }
}
