//! `COMMAND` and `INFO`: what a server reports of itself.

use hotrow_answer::commands::{SPECS, Spec, find};
use hotrow_resp::{Version, write};

use super::command_request::CommandRequest;
use super::refusal::{unknown_subcommand, wrong_arity};

/// Version of Redis whose conduct the commands follow. Clients choose by it what they send.
pub(super) const FOLLOWED_VERSION: &str = "7.4.0";

/// Serves `COMMAND`.
pub(super) fn command(request: &CommandRequest<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let (arguments, version) = (request.arguments, request.session.version.get());
    let Some(part) = arguments.get(1) else {
        write::array(out, SPECS.len());
        SPECS.iter().for_each(|spec| write_spec(spec, version, out));
        return Ok(());
    };
    let names = arguments.from(2);
    match (&*part.to_ascii_lowercase(), names.len()) {
        (b"count", 0) => write::integer(out, SPECS.len() as i64),
        (b"list", 0) => {
            write::array(out, SPECS.len());
            SPECS.iter().for_each(|spec| write::bulk(out, spec.name.as_bytes()));
        }
        (b"info", 0) => {
            write::array(out, SPECS.len());
            SPECS.iter().for_each(|spec| write_spec(spec, version, out));
        }
        (b"info", count) => {
            write::array(out, count);
            for name in names {
                match find(name) {
                    Some(spec) => write_spec(spec, version, out),
                    None => write::null(out, version),
                }
            }
        }
        (b"docs", 0) => write_docs(SPECS.iter().collect(), version, out),
        (b"docs", _) => write_docs(names.filter_map(find).collect(), version, out),
        (name @ (b"count" | b"list"), _) => {
            let name = String::from_utf8_lossy(name);
            return Err(wrong_arity(&format!("command|{name}")));
        }
        _ => return Err(unknown_subcommand(Some(part), "COMMAND")),
    }
    Ok(())
}

/// Writes a command as `COMMAND INFO` shows it. The last four of its ten parts are empty:
/// categories of access, hints, places of keys in another form, and parts of the command.
fn write_spec(spec: &Spec, version: Version, out: &mut Vec<u8>) {
    write::array(out, 10);
    write::bulk(out, spec.name.as_bytes());
    write::integer(out, spec.arity);
    write::set(out, version, spec.flags.len());
    spec.flags.iter().for_each(|flag| write::status(out, flag));
    spec.keys.iter().for_each(|place| write::integer(out, *place));
    write::set(out, version, 0);
    (0..3).for_each(|_| write::array(out, 0));
}

fn write_docs(specs: Vec<&Spec>, version: Version, out: &mut Vec<u8>) {
    write::map(out, version, specs.len());
    for spec in specs {
        write::bulk(out, spec.name.as_bytes());
        write::map(out, version, 2);
        for (name, value) in [("summary", spec.summary), ("group", spec.group)] {
            write::bulk(out, name.as_bytes());
            write::bulk(out, value.as_bytes());
        }
    }
}

/// Returns the text of `INFO`, the same for every section that is asked for: what clients look for
/// before they use a server.
pub(crate) fn info() -> String {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    format!(
        "# Server\r\nredis_version:{FOLLOWED_VERSION}\r\nserver_name:hotrow\r\n\
         hotrow_version:{version}\r\nredis_mode:standalone\r\nprocess_id:{process}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_command_is_described_in_ten_parts() {
        let get = find(b"get").unwrap();
        assert_eq!(
            written(|out| write_spec(get, Version::Resp3, out)),
            "*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~0\r\n\
             *0\r\n*0\r\n*0\r\n"
        );
        let docs = written(|out| write_docs(vec![get], Version::Resp2, out));
        assert!(docs.starts_with("*2\r\n$3\r\nget\r\n*4\r\n$7\r\nsummary\r\n"), "{docs}");
    }

    #[test]
    fn the_text_about_the_server_has_what_clients_look_for() {
        let text = info();
        for line in ["redis_version:7.4.0", "loading:0", "role:master", "cluster_enabled:0"] {
            assert!(text.contains(&format!("{line}\r\n")), "{text}");
        }
    }
}
