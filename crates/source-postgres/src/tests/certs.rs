//! Certificates made with openssl for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with an authority and the certificates that it signed.
pub(crate) struct Certs {
    folder: tempfile::TempDir,
}

impl Certs {
    pub(crate) fn new() -> Self {
        let certs = Self { folder: tempfile::tempdir().unwrap() };
        certs.authority("root");
        certs
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates `name.crt` and `name.key`, an authority.
    pub(crate) fn authority(&self, name: &str) {
        self.self_signed(
            name,
            &format!("/CN=authority {name}"),
            "basicConstraints=critical,CA:TRUE",
        );
    }

    /// Creates a self-signed certificate.
    pub(crate) fn self_signed(&self, name: &str, subject: &str, extension: &str) {
        let key = format!("{name}.key");
        let crt = format!("{name}.crt");
        self.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-sha256",
            "-days",
            "30",
            "-subj",
            subject,
            "-addext",
            extension,
            "-keyout",
            &key,
            "-out",
            &crt,
        ]);
    }

    /// Creates `name.crt` and `name.key`, signed by `root`, with this subject and these extensions.
    pub(crate) fn signed(&self, name: &str, subject: &str, extensions: &str, hash: &str) {
        let key = format!("{name}.key");
        let csr = format!("{name}.csr");
        let crt = format!("{name}.crt");
        std::fs::write(
            self.path("extensions"),
            format!("{extensions}\nkeyUsage=digitalSignature\n"),
        )
        .unwrap();
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        self.openssl(
            &[&["req"][..], &new_key, &["-subj", subject, "-keyout", &key, "-out", &csr]].concat(),
        );
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            "root.crt",
            "-CAkey",
            "root.key",
            "-CAcreateserial",
            "-days",
            "30",
            hash,
            "-extfile",
            "extensions",
            "-out",
            &crt,
        ]);
    }

    /// Creates a self-signed certificate with an RSA key, this hash and this padding.
    pub(crate) fn rsa(&self, name: &str, hash: &str, padding: &str) {
        let key = format!("{name}.key");
        let crt = format!("{name}.crt");
        let signing = format!("rsa_padding_mode:{padding}");
        let new_key = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", &key];
        self.openssl(
            &[&["req", "-x509", "-sigopt", &signing, hash, "-out", &crt][..], &new_key].concat(),
        );
    }

    fn openssl(&self, args: &[&str]) {
        let done = Command::new("openssl").args(args).current_dir(self.folder.path()).output();
        let done = done.expect("openssl must be installed for this test");
        assert!(
            done.status.success(),
            "openssl {args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}

/// Sets the mode that servers and clients require of keys.
pub(crate) fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
