//! A page of another origin, in a real browser that can reach the admin address: its attempts
//! change nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use hotrow_testkit::browser::await_rendered;
use hotrow_testkit::harness::{Config, Database, Server};

/// Text that the page shows when all its attempts have ended.
const DONE: &str = "all attempts have ended";

/// Returns a page that attempts a change in every way that needs no permission, and in those that
/// need one.
fn page(admin: SocketAddr) -> String {
    format!(
        r#"<!doctype html><title>foreign</title><p id="p">begun</p><script>
const url = "http://{admin}/purge/products", ways = [
  {{mode: "no-cors"}},
  {{mode: "no-cors", body: "x"}},
  {{mode: "no-cors", body: new URLSearchParams("a=b")}},
  {{mode: "no-cors", body: new Blob(["{{}}"])}},
  {{mode: "cors"}},
  {{mode: "cors", headers: {{"Hotrow-Admin": "1"}}}},
  {{mode: "cors", headers: {{"Content-Type": "application/json"}}, body: "{{}}"}},
];
const attempt = way =>
  fetch(url, {{method: "POST", credentials: "include", ...way}}).catch(() => null);
navigator.sendBeacon(url, "x");
Promise.all(ways.map(attempt)).then(() => document.getElementById("p").textContent = "{DONE}");
</script>"#
    )
}

/// Serves the page on every connection until `over`.
fn serve(listener: &TcpListener, page: &str, over: &AtomicBool) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    );
    for stream in listener.incoming() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let mut request = [0; 4096];
        // One read returns the whole request of a browser; its content does not matter.
        let _ = stream.read(&mut request);
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// Ends the other origin's server, also when the test fails.
struct End<'a> {
    over: &'a AtomicBool,
    of: SocketAddr,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Ends the wait for a connection.
        drop(TcpStream::connect(self.of));
    }
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let mut client = server.client();
    client.get("/products/1");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let foreign = listener.local_addr().expect("an address");
    let page = page(server.admin);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End { over: &over, of: foreign };
        scope.spawn(|| serve(&listener, &page, &over));
        await_rendered(&format!("http://{foreign}/"), &[&format!(">{DONE}<")]);
    });
    assert_eq!(client.get("/products/1").cache(), "hit", "nothing was purged");
}
