//! `hotrow top` against the real server: snapshots as text and JSON, and the display in a terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server, await_until, program};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use super::carriers::Carriers;

const TOKEN: &str = "0123456789abcdefSECRET";

fn top(arguments: &[&str]) -> Ended {
    Ended::run(&[&["top"], arguments].concat(), SOON)
}

/// Starts a server and waits for its first sample.
fn start(token: Option<&str>) -> (Database, Server) {
    let database = Database::with_products(3);
    let mut config = Config::new(database.path()).collection("products");
    if let Some(token) = token {
        config = config.set("admin.token", &format!("\"{token}\""));
    }
    let server = Server::start(&config);
    let authorization = format!("Bearer {}", token.unwrap_or_default());
    await_until("a sample", SOON, || {
        let mut admin = server.admin_client();
        let answer = admin.get_with("/history", &[("Authorization", &authorization)]);
        answer.json()["next"].as_u64() > Some(0)
    });
    (database, server)
}

fn url(server: &Server) -> String {
    format!("http://{}", server.admin)
}

#[test]
fn a_snapshot_has_every_instance_and_says_which_do_not_answer() {
    let (_one, first) = start(None);
    let (_two, second) = start(None);
    let (_three, third) = start(None);
    third.signal(Signal::TERM);
    let gone = url(&third);
    assert_eq!(third.ended(SOON).code(), 0);
    let urls = [url(&first), url(&second), gone];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    // Standard output is no terminal here: without --once too.
    for once in [&["--once"][..], &[]] {
        let ended = top(&[once, &urls[..]].concat());
        assert_eq!((ended.code(), ended.log.as_str()), (0, ""), "{ended:?}");
        let lines: Vec<&str> = ended.output.lines().collect();
        assert_eq!(lines.len(), 5, "{}", ended.output);
        assert!(lines[0].starts_with("INSTANCE") && lines[0].contains("REQ/S"), "{}", lines[0]);
        assert!(lines[1].starts_with("total of 2") && lines[1].contains("2/3"), "{}", lines[1]);
        assert!(lines[2].contains("ready") && lines[3].contains("ready"), "{}", ended.output);
        assert!(lines[4].contains("unreachable: ") && lines[4].contains("refused"), "{}", lines[4]);
        assert!(!ended.output.contains('\x1b'), "no escape codes");
    }
    let ended = top(&[&["--json"][..], &urls[..]].concat());
    let document: Value = serde_json::from_str(&ended.output).expect("JSON");
    let reachable = |i: usize| document["instances"][i]["reachable"].as_bool();
    assert_eq!([reachable(0), reachable(1), reachable(2)], [Some(true), Some(true), Some(false)]);
    assert_eq!(document["totals"]["ready"], 2);
    assert!(document["instances"][0]["memory_bytes"].as_f64() > Some(1e6), "{document:#}");
    let alone = top(&["--once", urls[2]]);
    assert_eq!(alone.code(), 1, "no instance reports: {alone:?}");
}

#[test]
fn tokens_tls_and_sockets_are_those_of_other_commands() {
    let (database, server) = start(Some(TOKEN));
    let url = url(&server);
    let without = top(&["--once", &url]);
    assert!(without.code() == 1 && without.output.contains("--token-file"), "{without:?}");
    let file = database.folder().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("writable");
    let with = top(&["--once", "--token-file", file.to_str().expect("UTF-8"), &url]);
    assert!(with.code() == 0 && with.output.contains("ready"), "{with:?}");
    // The data address has no /history, but it answers.
    let database = Database::with_products(3);
    let carriers = Carriers::new(&database);
    let server = Server::start(&carriers.config);
    let socket = format!("unix:{}", carriers.text("data.sock"));
    let secure = format!("https://127.0.0.1:{}", server.data.port());
    for arguments in [&["--once", &socket][..], &["--once", "--insecure", &secure]] {
        let ended = top(arguments);
        assert!(ended.code() == 1 && ended.output.contains("404"), "{ended:?}");
    }
    let refused = top(&["--once", &secure]);
    assert!(refused.code() == 1 && refused.output.contains("certificate"), "{refused:?}");
    for wrong in [&["ftp://a"][..], &["--interval", "0s"], &["--token-file", "/no/file", &url]] {
        assert_eq!(top(wrong).code(), 2, "{wrong:?}");
    }
}

/// The program in a terminal of its own.
struct InTerminal {
    child: Child,
    controller: OwnedFd,
    terminal: OwnedFd,
    drawn: Receiver<Vec<u8>>,
    text: String,
}

impl InTerminal {
    fn start(arguments: &[&str]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("a terminal");
        let name = ptsname(&controller, Vec::new()).expect("a name");
        let open = || {
            let path = name.to_str().expect("ASCII");
            File::options().read(true).write(true).open(path).expect("the terminal")
        };
        let terminal = OwnedFd::from(open());
        let size = Winsize { ws_row: 20, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let child = Command::new(program("hotrow"))
            .arg("top")
            .args(arguments)
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let (sender, drawn) = channel();
        let mut output = File::from(controller.try_clone().expect("a descriptor"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, controller, terminal, drawn, text: String::new() }
    }

    fn awaits(&mut self, fragment: &str) {
        await_until(fragment, SOON, || {
            for bytes in self.drawn.try_iter() {
                self.text.push_str(&String::from_utf8_lossy(&bytes));
            }
            self.text.contains(fragment)
        });
        self.text.clear();
    }

    fn presses(&self, key: u8) {
        rustix::io::write(&self.controller, &[key]).expect("a key");
    }

    fn reads_lines(&self) -> bool {
        let modes = tcgetattr(self.terminal.as_fd()).expect("a mode").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end; returns the status, if it ended by itself.
    fn ended(mut self) -> Option<i32> {
        let mut status = None;
        await_until("the end", SOON, || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(self.reads_lines(), "the terminal's mode was not restored");
        status.and_then(|status| status.code())
    }
}

#[test]
fn the_display_obeys_keys_and_restores_the_terminal() {
    let (_database, server) = start(None);
    let url = url(&server);
    let mut shown = InTerminal::start(&[&url]);
    shown.awaits("ready");
    assert!(!shown.reads_lines());
    shown.awaits("sort (by as given)");
    shown.presses(b's');
    shown.awaits("sort (by requests)");
    server.get("/products/1");
    shown.awaits("Enter collections");
    shown.presses(b'\n');
    shown.awaits("products: collection 1 of 1");
    shown.awaits("HOT KEYS");
    shown.presses(0x1b);
    shown.awaits("sort (by requests)");
    shown.presses(b'q');
    assert_eq!(shown.ended(), Some(0));
    let mut shown = InTerminal::start(&[&url]);
    shown.awaits("ready");
    let pid = Pid::from_raw(i32::try_from(shown.child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::TERM).expect("running");
    assert_eq!(shown.ended(), Some(0));
    // An instance that ends while it is shown.
    let mut shown = InTerminal::start(&[&url]);
    shown.awaits("ready");
    server.signal(Signal::TERM);
    shown.awaits("unreachable");
    shown.presses(b'q');
    assert_eq!(shown.ended(), Some(0));
}
