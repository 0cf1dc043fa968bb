use std::os::unix::net::UnixStream;

use super::*;

/// A socket in a folder of its own, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("hotrow-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn socket(&self) -> UnixSocket {
        UnixSocket { path: self.0.join("data.sock"), mode: 0o640 }
    }

    fn files(&self) -> Vec<std::ffi::OsString> {
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().file_name()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_file_has_its_permissions_and_is_removed_at_the_end() {
    let folder = Folder::new("unix-mode");
    let socket = folder.socket();
    let endpoint = UnixEndpoint::bind(&socket).unwrap();
    let mode = std::fs::metadata(&socket.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(folder.files(), ["data.sock"], "no temporary name is left");
    UnixStream::connect(&socket.path).unwrap();
    drop(endpoint);
    assert!(folder.files().is_empty());
}

#[test]
fn a_file_without_a_listener_is_replaced() {
    let folder = Folder::new("unix-stale");
    let socket = folder.socket();
    // A listener of the standard library leaves its file, as a killed process does.
    drop(UnixListener::bind(&socket.path).unwrap());
    assert!(socket.path.exists());
    let _endpoint = UnixEndpoint::bind(&socket).unwrap();
    UnixStream::connect(&socket.path).unwrap();
}

#[test]
fn a_socket_in_use_is_refused_and_stays() {
    let folder = Folder::new("unix-used");
    let socket = folder.socket();
    let first = UnixEndpoint::bind(&socket).unwrap();
    let error = UnixEndpoint::bind(&socket).unwrap_err();
    assert!(matches!(error, UnixListenError::InUse { .. }), "{error}");
    UnixStream::connect(&socket.path).unwrap();
    drop(first);
}

#[test]
fn a_file_that_is_no_socket_is_refused_and_stays() {
    let folder = Folder::new("unix-file");
    let socket = folder.socket();
    std::fs::write(&socket.path, "kept").unwrap();
    let error = UnixEndpoint::bind(&socket).unwrap_err();
    assert!(matches!(error, UnixListenError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&socket.path).unwrap(), b"kept");
}

#[test]
fn a_missing_folder_is_named() {
    let folder = Folder::new("unix-none");
    let path = folder.0.join("none").join("data.sock");
    let error = UnixEndpoint::bind(&UnixSocket { path, mode: 0o600 }).unwrap_err().to_string();
    assert!(error.contains("none/data.sock") && error.contains("folder must exist"), "{error}");
}

#[test]
fn the_file_of_a_successor_is_not_removed() {
    let folder = Folder::new("unix-successor");
    let socket = folder.socket();
    let first = UnixEndpoint::bind(&socket).unwrap();
    // The first has stopped listening and still finishes requests.
    let (listener, file) = first.into_listener();
    drop(listener);
    let _second = UnixEndpoint::bind(&socket).unwrap();
    drop(file);
    UnixStream::connect(&socket.path).unwrap();
}
