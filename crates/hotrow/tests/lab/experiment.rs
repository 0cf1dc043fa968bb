//! `hotrow lab run` as its users see it: what it measures, what it keeps, what it says of services that misbehave.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for something that will come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service in Python that answers `/hello`, `/served` and `/healthz`, one thread per connection.
const SERVICE: &str = r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

served = 0
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global served
        body = str(served).encode() if self.path == "/served" else b"hello from " + sys.argv[2].encode()
        served += self.path == "/hello"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
server.serve_forever()
"#;

/// An experiment with that service; `{rest}` is what it does with it.
fn experiment(service: &str, rest: &str) -> String {
    format!(
        "title = \"A test\"\nquestion = \"Does it work?\"\n[run]\nrounds = 2\nrequests = 20\nwarmup = \"20ms\"\n\
         [services.app]\n{service}\n{rest}"
    )
}

fn python() -> String {
    format!(
        "command = [\"python3\", \"{{dir}}/service.py\", \"{{port}}\", \"{{instance}}\"]\nready = \"/healthz\"\ncount = \"/served\"\n\
         files.\"service.py\" = '''{SERVICE}'''"
    )
}

const DIRECT: &str = "[[setups]]\nname = \"direct\"\nservice = \"app\"\n";
const HELLO: &str = "[[loads]]\nname = \"hello\"\npath = \"/hello\"\nconnections = [2]\nexpect = { status = 200, body_contains = \"hello from\" }\n";

struct Run {
    folder: TempDir,
}

impl Run {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("test.toml"), text).expect("a file");
        Self { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
        command.args(["lab", "run"]).arg(self.folder.path().join("test.toml"));
        command.arg("--out").arg(self.out()).args(arguments);
        command
    }

    fn done(&self, arguments: &[&str]) -> (Option<i32>, String) {
        ended(self.command(arguments).output().expect("it starts"))
    }

    fn results(&self) -> Value {
        results(&self.out())
    }
}

fn ended(output: Output) -> (Option<i32>, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

fn results(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("results.json")).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

/// Command lines of all processes that name this folder: what a run left behind.
fn left(folder: &Path) -> Vec<String> {
    let wanted = folder.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&wanted)).collect()
}

fn none_left(folder: &Path) {
    let begin = Instant::now();
    while !left(folder).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "left behind: {:?}", left(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_service_of_ones_own_is_measured_directly_and_behind_nginx() {
    let setups = format!(
        "{DIRECT}[[setups]]\nname = \"two\"\nservice = \"app\"\nweights = [3, 1]\n\
         proxy = {{ kind = \"nginx\", form = \"tuned\", balance = \"weights\" }}\n{HELLO}\
         [[originals]]\nsetup = \"two\"\nload = \"hello\"\nconnections = 2\nrps = 100\n\
         [[compare]]\nrow = \"two/hello/2\"\nwith = \"direct/hello/2\"\nsays = \"Two make it\"\n"
    );
    let run = Run::new(&experiment(&python(), &setups));
    let (code, said) = run.done(&["--verbose"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 of 4  "), "{said}");
    let results = run.results();
    assert_eq!(results["complete"], Value::Bool(true));
    let measurements = list(&results, "/measurements");
    assert_eq!(measurements.len(), 4, "{results:#}");
    for measurement in measurements {
        assert_eq!(measurement["failed"], Value::Null, "{measurement:#}");
        let (ok, backends) = (&measurement["load"]["ok"], list(measurement, "/backends"));
        assert!(ok.as_u64() > Some(0), "{measurement:#}");
        let served: u64 = backends.iter().filter_map(|backend| backend["requests"].as_u64()).sum();
        // Answers that came after the window count at the backends, not in it: at most one per connection.
        assert!(served >= ok.as_u64().unwrap_or(0) && served <= ok.as_u64().unwrap_or(0) + 2, "{measurement:#}");
        let parts: Vec<&str> = list(measurement, "/tiers").iter().filter_map(|tier| tier["part"].as_str()).collect();
        match measurement["row"].as_str() {
            Some("direct/hello/2") => assert_eq!(parts, ["service", "generator"]),
            _ => assert_eq!(parts, ["service", "service", "proxy", "generator"]),
        }
    }
    assert!(run.out().join("report.html").exists() && run.out().join("report.md").exists(), "{said}");
    assert!(!run.out().join("work").exists(), "its working folder is gone");
    none_left(run.folder.path());
}

/// A configuration of one's own, as short as nginx takes it.
const TEMPLATE: &str = "{user}
pid {folder}/nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream app { {backends} }
    server {
        listen {listen};
        location / { proxy_pass http://app; }
    }
}
";

#[test]
fn a_database_and_a_configuration_of_ones_own_take_part() {
    let database = "[services.db]\ncommand = [\"python3\", \"-m\", \"http.server\", \"--bind\", \"127.0.0.1\", \"{port}\"]\n\
                    ready_command = [\"true\"]\n";
    let prepared = "prepare = [[\"sh\", \"-c\", \"test ! -e made && echo {database_port} > made\"]]\n";
    let setups = format!(
        "{prepared}{database}[[setups]]\nname = \"own\"\nservice = \"app\"\ndatabase = \"db\"\ndelay = \"2ms\"\n\
         proxy = {{ kind = \"nginx\", template = \"own.conf\" }}\n{HELLO}"
    );
    let run = Run::new(&experiment(&python(), &setups));
    std::fs::write(run.folder.path().join("own.conf"), TEMPLATE).expect("a template");
    let (code, said) = run.done(&[]);
    assert_eq!(code, Some(0), "{said}");
    let results = run.results();
    let measurements = list(&results, "/measurements");
    // Two rounds with one preparation: a second one would have failed.
    assert_eq!(measurements.len(), 2, "{results:#}");
    let parts: Vec<&str> = list(&measurements[1], "/tiers").iter().filter_map(|tier| tier["part"].as_str()).collect();
    assert_eq!(parts, ["database", "service", "proxy", "proxy", "generator"]);
    assert_eq!(results.pointer("/rows/0/proxy"), Some(&Value::from("nginx, own configuration")));
    assert!(measurements[1]["load"]["p50_us"].as_f64() >= Some(2000.0), "the relay holds back: {measurements:#?}");
    none_left(run.folder.path());

    std::fs::write(run.folder.path().join("own.conf"), TEMPLATE.replace("events {}", "no_such_word on;"))
        .expect("a template");
    std::fs::remove_dir_all(run.out()).expect("the first run's folder");
    let (code, said) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no_such_word"), "nginx's own message: {said}");
}

#[test]
fn services_that_misbehave_are_told_and_the_rest_goes_on() {
    let python = python();
    let service = |name: &str, text: &str| format!("[services.{name}]\n{text}\n");
    let services = [
        service("early", "command = [\"sh\", \"-c\", \"echo no licence; exit 3\"]"),
        service("never", "command = [\"sleep\", \"1000\"]\nready = \"/healthz\"\nready_within = \"300ms\""),
        service("missing", "command = [\"no-such-program-anywhere\"]"),
    ];
    let setup = |name: &str| format!("[[setups]]\nname = \"{name}\"\nservice = \"{name}\"\n");
    let wrong = "[[loads]]\nname = \"wrong\"\npath = \"/hello\"\nconnections = [1]\nsetups = [\"direct\"]\n\
                 expect = { body_contains = \"goodbye\" }\n";
    let setups = format!("{}{}{}", setup("early"), setup("never"), setup("missing"));
    let text = experiment(&python, &format!("{}{DIRECT}{setups}{HELLO}{wrong}", services.concat()));
    let run = Run::new(&text);
    let (code, said) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{said}");
    let results = run.results();
    let why = |row: &str| {
        let found = list(&results, "/measurements").iter().find(|m| m["row"] == row);
        found.and_then(|m| m["failed"].as_str()).unwrap_or("measured").to_owned()
    };
    assert!(why("early/hello/2").contains("exited with status 3"), "{}", why("early/hello/2"));
    assert!(why("early/hello/2").contains("no licence"), "{}", why("early/hello/2"));
    assert!(why("never/hello/2").contains("never was not ready within 300ms"), "{}", why("never/hello/2"));
    assert!(why("missing/hello/2").contains("no-such-program-anywhere"), "{}", why("missing/hello/2"));
    assert!(why("direct/wrong/1").contains("a body without \"goodbye\""), "{}", why("direct/wrong/1"));
    assert_eq!(why("direct/hello/2"), "measured");
    assert!(said.contains("4 of 5 measurements failed"), "{said}");
    none_left(run.folder.path());
}

#[test]
fn a_port_in_use_is_told_with_its_holder() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = holder.local_addr().expect("bound").port();
    let service = format!("port = {port}\n{}", python());
    let run = Run::new(&experiment(&service, &format!("{DIRECT}{HELLO}")));
    let (code, said) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("port {port} is in use by ")), "{said}");
}

#[test]
fn an_interrupted_run_keeps_what_was_measured_and_goes_on() {
    let run = Run::new(&experiment(&python(), &format!("{DIRECT}{HELLO}")));
    let child = run.command(&["--rounds", "3", "--duration", "700ms"]);
    let child = spawn(child);
    await_measurements(&run.out(), 1);
    interrupt(&child);
    let (code, said) = ended(child.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("--resume"), "{said}");
    let kept = run.results();
    assert_eq!(kept["complete"], Value::Bool(false), "{kept:#}");
    let before = list(&kept, "/measurements").clone();
    assert!((1..3).contains(&before.len()), "{kept:#}");
    none_left(run.folder.path());

    let resume = |file: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
        command.args(["lab", "run", "--resume"]).arg(run.out()).args(file);
        ended(command.output().expect("it starts"))
    };
    let file = run.folder.path().join("test.toml");
    let text = std::fs::read_to_string(&file).expect("its file");
    std::fs::write(&file, text.replace("A test", "Another test")).expect("a file");
    let (code, said) = resume(Some(&file));
    assert_eq!((code, said.contains("is not as it was")), (Some(2), true), "{said}");
    let (code, said) = resume(None);
    assert_eq!(code, Some(0), "{said}");
    let after = run.results();
    assert_eq!(after["complete"], Value::Bool(true), "{after:#}");
    assert_eq!(list(&after, "/measurements").len(), 3);
    assert_eq!(list(&after, "/measurements")[..before.len()], before[..]);
    let (code, said) = resume(None);
    assert_eq!((code, said.contains("is complete")), (Some(2), true), "{said}");
}

#[test]
fn a_full_disk_loses_nothing_that_was_measured() {
    // A limit on the size of files, in place of a full disk: writing fails in the same way, at a point that we choose.
    let run = Run::new(&experiment(&python(), &format!("{DIRECT}{HELLO}")));
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 24; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_hotrow"), "lab", "run"]);
    command.arg(run.folder.path().join("test.toml")).arg("--out").arg(run.out()).args(["--rounds", "100"]);
    let (code, said) = ended(command.output().expect("it starts"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("results.json cannot be written"), "{said}");
    let kept = run.results();
    assert!(!list(&kept, "/measurements").is_empty(), "{said}");
    assert!(!run.out().join("results.json.part").exists());
    none_left(run.folder.path());
}

#[test]
fn wrong_files_are_refused_before_anything_starts() {
    let run = Run::new(&experiment("command = [\"x\"]\nredy = \"/\"", &format!("{DIRECT}{HELLO}")));
    let (code, said) = run.done(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("test.toml:9: services.app.redy: unknown field"), "{said}");
    assert!(!run.out().exists());
    let unknown = Command::new(env!("CARGO_BIN_EXE_hotrow")).args(["lab", "run", "w99"]).output().expect("it starts");
    let (code, said) = ended(unknown);
    assert_eq!((code, said.contains("there is no experiment \"w99\"; there are w1, ")), (Some(2), true), "{said}");
}

#[test]
fn shipped_experiments_are_listed() {
    let list = Command::new(env!("CARGO_BIN_EXE_hotrow")).args(["lab", "list"]).output().expect("it starts");
    let (code, said) = ended(list);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().count() >= 12 && said.contains("w10a "), "{said}");
    let one = Command::new(env!("CARGO_BIN_EXE_hotrow")).args(["lab", "list", "w12"]).output().expect("it starts");
    let (code, said) = ended(one);
    assert_eq!((code, said.starts_with("title = ")), (Some(0), true), "{said}");
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

fn await_measurements(folder: &Path, wanted: usize) {
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.join("results.json")).unwrap_or_default();
        let results: Value = serde_json::from_str(&text).unwrap_or_default();
        if results["measurements"].as_array().is_some_and(|list| list.len() >= wanted) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "no {wanted} measurements in time: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The shipped topologies, each with a few requests: enough to see that answers, shares and the cache are right.
#[test]
fn every_topology_works_in_a_short_form() {
    let shipped = Command::new(env!("CARGO_BIN_EXE_hotrow")).args(["lab", "list", "w10a"]).output().expect("it starts");
    let (_, text) = ended(shipped);
    // One number of connections is enough here; so are the loads that the originals had.
    let (text, originals) = text.split_once("[[originals]]").expect("it has originals");
    assert!(originals.contains("setup-3"), "{originals}");
    let (text, _) = text.split_once("[[loads]]\nname = \"date-kept\"").expect("it has further loads");
    let text = text.replace("connections = [1, 6]", "connections = [2]").replace("duration = \"3s\"", "requests = 40");
    let run = Run::new(&text);
    let (code, said) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let results = run.results();
    let measurements = list(&results, "/measurements");
    assert_eq!(measurements.len(), 16, "9 set-ups, 7 of them with both loads: {said}");
    for measurement in measurements {
        let row = measurement["row"].as_str().expect("a row");
        let served: Vec<u64> =
            list(measurement, "/backends").iter().filter_map(|backend| backend["requests"].as_u64()).collect();
        match row.split('/').next() {
            // nginx's workers take turns each for itself, and each begins anew: a few requests more or less.
            Some("setup-2" | "setup-2-tuned") => {
                assert!(served.iter().all(|n| (16..=24).contains(n)), "{row}: {served:?}")
            }
            Some("setup-3" | "setup-3-tuned") => assert!((28..=36).contains(&served[0]), "{row}: {served:?}"),
            Some("setup-2-cache" | "setup-2-cache-tuned") => {
                assert!(served.iter().sum::<u64>() < 20, "{row}: {served:?}");
                assert!(measurement["cache"][0][1].as_u64() > Some(20), "{measurement:#}");
            }
            _ => assert_eq!(served, [40], "{row}"),
        }
    }
    none_left(run.folder.path());
}
