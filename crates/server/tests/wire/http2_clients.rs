//! Obedient clients of HTTP/2 that are not ours: h2load with small windows, and HAProxy.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::{Client, Server, limits, wait_until};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::transport::Transport;

fn server() -> Server {
    Server::start_over(limits(), 1, Transport { http2: true, ..Transport::default() })
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts HAProxy with few connections of HTTP/2 to the server, which many clients share.
fn haproxy(server: SocketAddr, folder: &std::path::Path) -> (Program, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = folder.join("haproxy.cfg");
    let text = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  retries 0\n  http-reuse always\n  timeout \
         connect 20s\n  timeout client 20s\n  timeout server 20s\nlisten all\n  bind {address}\n  \
         server hotrow {server} proto h2 pool-max-conn 4\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin")).arg("-db").arg("-f").arg(file);
    let program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until(|| TcpStream::connect(address).is_ok());
    (program, address)
}

#[test]
fn h2load_with_small_windows_gets_every_answer() {
    let server = server();
    let output = Command::new("h2load")
        .args(["-n", "3000", "-c", "2", "-m", "10", "-w16", "-W24"])
        .arg(format!("http://{}/long", server.address))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{printed}");
}

/// Some clients ask for a target that no server can have, which HAProxy passes on.
#[test]
fn clients_that_share_a_connection_of_haproxy_get_every_answer() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let (_haproxy, address) = haproxy(server.address, folder.path());
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..250 {
                    let (target, status) = if number == 0 { ("*", 400) } else { ("/long", 200) };
                    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(client.send(request).next_status(), status);
                }
            });
        }
    });
    for cause in [CloseCause::Refused, CloseCause::Broken] {
        assert_eq!(server.metrics().closed_count(cause), 0, "{cause:?}");
    }
}
