//! Caches in front of Hotrow, with the files of examples/purge.

use std::net::SocketAddr;
use std::process::Command;

use hotrow_testkit::harness::Config;

use crate::overload::fronts::{Running, nginx_command, nginx_places};

const VCL: &str = include_str!("../../../../../examples/purge/varnish.vcl");
const NGINX: &str = include_str!("../../../../../examples/purge/nginx.conf");
/// Where Debian's packages put modules of nginx.
const MODULES: &str = "/usr/lib/nginx/modules";

/// A cache in front that can be purged.
pub(crate) trait Front: Sized {
    /// Starts it in front of `hotrow`.
    fn start(hotrow: SocketAddr) -> Self;

    /// Returns the settings of Hotrow that purge it at this port.
    fn target(config: Config, port: u16) -> Config;

    fn address(&self) -> SocketAddr;
}

fn with_target(config: Config, kind: &str, port: u16) -> Config {
    config
        .set("purge.targets.front.kind", &format!("{kind:?}"))
        .set("purge.targets.front.url", &format!("\"http://127.0.0.1:{port}\""))
}

pub(crate) struct Varnish(Running);

impl Front for Varnish {
    fn start(hotrow: SocketAddr) -> Self {
        Self(Running::start(|folder, address| {
            let file = folder.join("front.vcl");
            let port = hotrow.port().to_string();
            let text = VCL.replace("8080", &port).replace("10.0.0.1", "127.0.0.1");
            std::fs::write(&file, text).expect("write the configuration");
            let path = std::env::var("PATH").unwrap_or_default();
            let mut command = Command::new("varnishd");
            command.env("PATH", format!("{path}:/usr/sbin"));
            // In the foreground, as our own user, with memory as the only store.
            command.args(["-F", "-j", "none", "-s", "malloc,16m", "-a", &address.to_string()]);
            command.arg("-n").arg(folder.join("varnish")).arg("-f").arg(file);
            command
        }))
    }

    fn target(config: Config, port: u16) -> Config {
        with_target(config, "varnish_xkey", port)
    }

    fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

pub(crate) struct Nginx(Running);

impl Front for Nginx {
    fn start(hotrow: SocketAddr) -> Self {
        Self(Running::start(|folder, address| {
            let places = nginx_places(folder);
            let folder_name = folder.display();
            let recipe = NGINX
                .replace("10.0.0.1:8080", &hotrow.to_string())
                .replace("10.0.0.1", "127.0.0.1")
                .replace("/var/cache/nginx/hotrow", &format!("{folder_name}/cache"))
                .replace("listen 8000", &format!("listen {address}"));
            let modules = ["ndk_http", "ngx_http_lua"]
                .map(|name| format!("load_module {MODULES}/{name}_module.so;\n"))
                .concat();
            let text = format!(
                "{modules}daemon off; master_process off; pid {folder_name}/pid; error_log \
                 {folder_name}/errors;\nevents {{ worker_connections 256; }}\nhttp {{\naccess_log \
                 off;\n{places}{recipe}}}\n"
            );
            nginx_command(folder, &text)
        }))
    }

    fn target(config: Config, port: u16) -> Config {
        with_target(config, "purge", port)
            .set("purge.targets.front.purge_all", "\"/purge-all/{collection}\"")
    }

    fn address(&self) -> SocketAddr {
        self.0.address()
    }
}
