//! The database as a file: its identity, and checks that it still is a valid database.
//!
//! Nothing here opens the file. POSIX drops all locks that a process holds on a file as soon as the
//! process closes *any* descriptor of it. A separate descriptor on the database would therefore
//! release SQLite's locks, and another process could remove the write-ahead log during a read. The
//! header is read through SQLite's descriptor instead.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// Description of a path that names another file than before.
pub(crate) const FILE_REPLACED: &str = "the file was replaced by another";

/// Identity of a file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// Returns the identity of the file at `path`, links followed.
pub(crate) fn identify(path: &Path) -> rustix::io::Result<FileId> {
    let stat = rustix::fs::stat(path)?;
    Ok(FileId { dev: stat.st_dev, ino: stat.st_ino })
}

/// Returns the path of the file beside the database with this ending.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Watched fields of the database's first 100 bytes.
///
/// Source: SQLite documentation, "Database File Format", section 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    page_bytes: u64,
    change_counter: u32,
    /// Size in pages; `None` if an old writer did not update it.
    pages: Option<u64>,
    /// Size of the file, in bytes.
    file_bytes: u64,
    /// `None` in WAL mode, in which commits do not change the header.
    stamp: Option<CommitStamp>,
}

/// Bytes of the header by which SQLite itself decides, in rollback mode, whether another connection
/// has committed. Each commit increments the change counter, the first four of them.
///
/// The exception is a connection in exclusive locking mode, which increments it for its first
/// commit only. It keeps its lock, so no stamp is read between its commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitStamp([u8; 16]);

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Write version and read version of a database outside WAL mode.
const ROLLBACK_VERSIONS: [u8; 2] = [1, 1];

impl Header {
    /// Reads the header of the file that the connection has open.
    ///
    /// # Errors
    /// Returns a text that names the damage.
    pub(crate) fn read(conn: &Connection) -> Result<Self, String> {
        let (bytes, file_bytes) = raw::read_start(conn)?;
        Self::parse(&bytes, file_bytes)
    }

    fn parse(bytes: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<Self, String> {
        if file_bytes < 512 {
            return Err(format!("it has only {file_bytes} bytes"));
        }
        if !bytes.starts_with(MAGIC) {
            return Err("its header is not that of a database".into());
        }
        let u32_at = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            n => u64::from(n),
        };
        let change_counter = u32_at(24);
        let pages = (u32_at(92) == change_counter && u32_at(28) > 0).then(|| u64::from(u32_at(28)));
        let mut stamp = CommitStamp([0; 16]);
        stamp.0.copy_from_slice(&bytes[24..40]);
        let stamp = (bytes[18..20] == ROLLBACK_VERSIONS).then_some(stamp);
        Ok(Self { page_bytes, change_counter, pages, file_bytes, stamp })
    }

    /// Returns the stamp that changes with every commit; `None` in WAL mode.
    pub(crate) fn stamp(&self) -> Option<CommitStamp> {
        self.stamp
    }

    /// Returns whether the file holds all pages that its header claims. A checkpoint writes the
    /// first page before it lengthens the file, so a short file alone is no damage; see
    /// [`Header::follows`].
    pub(crate) fn is_complete(&self) -> bool {
        self.pages.is_none_or(|pages| pages * self.page_bytes <= self.file_bytes)
    }

    /// Checks that this can be a later state of the database whose header was `before`.
    ///
    /// # Errors
    /// Returns a text that gives the reason.
    pub(crate) fn follows(&self, before: &Self) -> Result<(), String> {
        if self.page_bytes != before.page_bytes {
            return Err("it was overwritten by one with another page size".into());
        }
        // The counter wraps, and each writer adds one: a step above half its range is a step back.
        if self.change_counter.wrapping_sub(before.change_counter) > u32::MAX / 2 {
            return Err("it was overwritten by an older one".into());
        }
        if self.file_bytes < before.file_bytes && !self.is_complete() {
            return Err(format!(
                "it was cut from {} to {} bytes",
                before.file_bytes, self.file_bytes
            ));
        }
        Ok(())
    }
}

#[allow(
    unsafe_code,
    reason = "SQLite's file is accessible only through its C interface; \
              a separate descriptor would release its locks"
)]
mod raw {
    use std::ffi::c_void;

    use rusqlite::{Connection, ffi};

    use crate::file::HEADER_BYTES;

    /// Reads the first bytes and the size of the main database file, through SQLite's own
    /// descriptor.
    pub(super) fn read_start(conn: &Connection) -> Result<([u8; HEADER_BYTES], u64), String> {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        let mut bytes = [0_u8; HEADER_BYTES];
        let mut size: ffi::sqlite3_int64 = 0;
        // SAFETY: the connection is open and `&Connection` is not `Sync`, so no other thread uses
        // or closes it during the call. FILE_POINTER stores a pointer that is valid as long as the
        // connection has its file open. The methods come from SQLite's own table, are checked for
        // null, and get a buffer of the size passed to them.
        let (read, sized) = unsafe {
            let rc = ffi::sqlite3_file_control(
                conn.handle(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_FILE_POINTER,
                (&raw mut file).cast::<c_void>(),
            );
            if rc != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
                return Err("the connection has no file".into());
            }
            let methods = &*(*file).pMethods;
            let (Some(x_read), Some(x_size)) = (methods.xRead, methods.xFileSize) else {
                return Err("the file cannot be read".into());
            };
            (
                x_read(file, bytes.as_mut_ptr().cast::<c_void>(), HEADER_BYTES as i32, 0),
                x_size(file, &raw mut size),
            )
        };
        if sized != ffi::SQLITE_OK {
            return Err("its size cannot be read".into());
        }
        if read != ffi::SQLITE_OK && read != ffi::SQLITE_IOERR_SHORT_READ {
            return Err(format!("its header cannot be read (SQLite error {read})"));
        }
        Ok((bytes, u64::try_from(size).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(
        page_bytes: u16,
        counter: u32,
        pages: u32,
        file_bytes: u64,
    ) -> Result<Header, String> {
        let mut bytes = [0_u8; HEADER_BYTES];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&page_bytes.to_be_bytes());
        bytes[24..28].copy_from_slice(&counter.to_be_bytes());
        bytes[28..32].copy_from_slice(&pages.to_be_bytes());
        bytes[92..96].copy_from_slice(&counter.to_be_bytes());
        Header::parse(&bytes, file_bytes)
    }

    #[test]
    fn growth_checkpoint_and_vacuum_are_no_damage() {
        let before = header(4096, 7, 10, 40_960).unwrap();
        assert_eq!(header(4096, 7, 10, 40_960).unwrap().follows(&before), Ok(()));
        // A checkpoint in progress: the first page is written, the rest is not yet.
        assert_eq!(header(4096, 8, 20, 40_960).unwrap().follows(&before), Ok(()));
        // VACUUM.
        assert_eq!(header(4096, 9, 5, 20_480).unwrap().follows(&before), Ok(()));
        let wrapped = header(4096, u32::MAX, 10, 40_960).unwrap();
        assert_eq!(header(4096, 1, 10, 40_960).unwrap().follows(&wrapped), Ok(()));
        assert!(header(1, 1, 1, 65_536).unwrap().is_complete());
    }

    #[test]
    fn a_commit_shows_in_the_header_outside_wal_mode_only() {
        let with = |versions: [u8; 2], counter: u32| {
            let mut bytes = [0_u8; HEADER_BYTES];
            bytes[..16].copy_from_slice(MAGIC);
            bytes[18..20].copy_from_slice(&versions);
            bytes[24..28].copy_from_slice(&counter.to_be_bytes());
            Header::parse(&bytes, 40_960).unwrap().stamp()
        };
        assert!(with([1, 1], 7).is_some());
        assert_eq!(with([1, 1], 7), with([1, 1], 7));
        assert_ne!(with([1, 1], 7), with([1, 1], 8));
        for wal in [[2, 2], [1, 2], [2, 1]] {
            assert_eq!(with(wal, 7), None, "{wal:?}");
        }
    }

    #[test]
    fn damage_is_seen() {
        let before = header(4096, 7, 10, 40_960).unwrap();
        assert!(header(4096, 7, 10, 20_480).unwrap().follows(&before).is_err());
        assert!(header(4096, 6, 10, 40_960).unwrap().follows(&before).is_err());
        assert!(header(512, 8, 10, 40_960).unwrap().follows(&before).is_err());
        assert!(header(4096, 7, 10, 0).is_err());
        assert!(Header::parse(&[b'x'; HEADER_BYTES], 40_960).is_err());
    }
}
