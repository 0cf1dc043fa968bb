//! The same records from a real nginx: single ones as files with entity tags, a batch as a fixed
//! answer after the whole body has been read, so that its framing is checked.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::overload::fronts::{Running, nginx_command, nginx_places};

pub(super) struct Site {
    running: Running,
}

impl Site {
    /// Starts nginx with records 1 to `records` in `/products/`.
    pub(super) fn start(records: usize) -> Self {
        let running = Running::start(|folder, address| {
            let products = folder.join("www/products");
            std::fs::create_dir_all(&products).expect("a folder");
            for id in 1..=records {
                let record = format!(r#"{{"id":{id},"name":"p{id}","price":{}}}"#, 100 * id);
                std::fs::write(products.join(id.to_string()), record).expect("write a record");
            }
            nginx_command(folder, &configuration(folder, address))
        });
        Self { running }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.running.address()
    }
}

/// Returns a configuration with nginx's default limits; that on bodies is equal to Hotrow's.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let places = nginx_places(folder);
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n{places}  access_log off; types {{ }} default_type application/json; \
         lingering_timeout 1s;\n  \
         upstream answers {{ server unix:{folder}/answers; }}\n  \
         server {{\n    \
         listen {address}; root {folder}/www;\n    \
         proxy_ignore_client_abort on; proxy_pass_request_body off;\n    \
         proxy_set_header Content-Length \"\";\n    \
         location /products/ {{ }}\n    \
         location = /products {{ proxy_pass http://answers; }}\n  \
         }}\n  \
         server {{\n    \
         listen unix:{folder}/answers;\n    \
         return 200 '{{\"items\":{{}},\"missing\":[\"1\"]}}';\n  \
         }}\n\
         }}\n"
    )
}

/// Returns the version in the form of `nginx -v`.
pub(super) fn version() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("nginx")
        .env("PATH", format!("{path}:/usr/sbin"))
        .arg("-v")
        .output()
        .expect("nginx");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.split_whitespace().find(|word| word.starts_with("nginx/")).unwrap_or("unknown").to_owned()
}
