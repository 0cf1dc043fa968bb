//! `hotrow lab run`: measurements, stored results, and reports of misbehaving services.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A Python service that answers `/hello`, `/served` and `/healthz`, with a thread per connection.
const SERVICE: &str = r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

served = 0
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global served
        if self.path == "/served":
            body = str(served).encode()
        else:
            body = b"hello from " + sys.argv[2].encode()
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

/// Returns an experiment with that service; `rest` has its deployments and loads.
fn experiment(service: &str, rest: &str) -> String {
    format!(
        "title = \"A test\"\nquestion = \"Does it work?\"\n\
         [run]\nrounds = 2\nrequests = 20\nwarmup = \"20ms\"\n\
         [services.app]\n{service}\n{rest}"
    )
}

fn python() -> String {
    format!(
        "command = [\"python3\", \"{{dir}}/service.py\", \"{{port}}\", \"{{instance}}\"]\n\
         ready = \"/healthz\"\ncount = \"/served\"\n\
         files.\"service.py\" = '''{SERVICE}'''"
    )
}

const DIRECT: &str = "[[deployments]]\nname = \"direct\"\nservice = \"app\"\n";
const HELLO: &str = "[[loads]]\nname = \"hello\"\npath = \"/hello\"\nconnections = [2]\n\
    expect = { status = 200, body_contains = \"hello from\" }\n";

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
        command.args(["run"]).arg(self.folder.path().join("test.toml"));
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
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

/// Returns the command lines of all processes that contain this folder's name.
fn processes_of(folder: &Path) -> Vec<String> {
    let wanted = folder.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&wanted)).collect()
}

fn await_none_left(folder: &Path) {
    let begin = Instant::now();
    while !processes_of(folder).is_empty() {
        assert!(begin.elapsed() < WAIT_MAX, "left behind: {:?}", processes_of(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_service_is_measured_directly_and_behind_nginx() {
    let deployments = format!(
        "{DIRECT}[[deployments]]\nname = \"two\"\nservice = \"app\"\nweights = [3, 1]\n\
         proxy = {{ kind = \"nginx\", profile = \"tuned\", balance = \"weights\" }}\n{HELLO}\
         [[published]]\ndeployment = \"two\"\nload = \"hello\"\nconnections = 2\nrps = 100\n\
         [[compare]]\nrow = \"two/hello/2\"\nwith = \"direct/hello/2\"\nclaim = \"Two make it\"\n"
    );
    let run = Run::new(&experiment(&python(), &deployments));
    let (code, output_text) = run.done(&["--verbose"]);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(output_text.contains("4 of 4  "), "{output_text}");
    let results = run.results();
    assert_eq!(results["complete"], Value::Bool(true));
    assert!(
        output_text.contains("4 measurements, 2 rounds of 20 requests: about "),
        "{output_text}"
    );
    // Weights are set, or a warning says why not.
    let weights = results["host"]["cpu_weights"].as_str().expect("weights");
    let warned = results["warnings"].to_string().contains("CPU weight");
    assert!(weights.starts_with("deployment") || warned, "{weights}: {results:#}");
    let measurements = list(&results, "/measurements");
    assert_eq!(measurements.len(), 4, "{results:#}");
    for measurement in measurements {
        assert_eq!(measurement["failed"], Value::Null, "{measurement:#}");
        let machine = &measurement["machine"];
        assert!(
            machine["interval_s"].as_f64() >= measurement["load"]["window_s"].as_f64()
                && machine["others_cores"].as_f64() >= Some(0.0),
            "{measurement:#}"
        );
        let ok = &measurement["load"]["ok"];
        let backends = list(measurement, "/backends");
        assert!(ok.as_u64() > Some(0), "{measurement:#}");
        let served: u64 = backends.iter().filter_map(|backend| backend["requests"].as_u64()).sum();
        // Responses after the window count at the backends only: at most one per connection.
        assert!(
            served >= ok.as_u64().unwrap_or(0) && served <= ok.as_u64().unwrap_or(0) + 2,
            "{measurement:#}"
        );
        let kinds: Vec<&str> =
            list(measurement, "/tiers").iter().filter_map(|tier| tier["kind"].as_str()).collect();
        match measurement["row"].as_str() {
            Some("direct/hello/2") => assert_eq!(kinds, ["service", "generator"]),
            _ => assert_eq!(kinds, ["service", "service", "proxy", "generator"]),
        }
    }
    assert!(
        run.out().join("report.html").exists() && run.out().join("report.md").exists(),
        "{output_text}"
    );
    assert!(!run.out().join("work").exists(), "its working folder is removed");
    await_none_left(run.folder.path());
}

/// A minimal nginx configuration written by a user.
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
fn a_database_and_an_own_nginx_configuration_are_used() {
    let database = "[services.db]\n\
        command = [\"python3\", \"-m\", \"http.server\", \"--bind\", \"127.0.0.1\", \"{port}\"]\n\
        ready_command = [\"true\"]\n";
    let prepared =
        "prepare = [[\"sh\", \"-c\", \"test ! -e made && echo {database_port} > made\"]]\n";
    let deployments = format!(
        "{prepared}{database}[[deployments]]\nname = \"own\"\n\
         service = \"app\"\ndatabase = \"db\"\ndelay = \"2ms\"\n\
         proxy = {{ kind = \"nginx\", template = \"own.conf\" }}\n{HELLO}"
    );
    let run = Run::new(&experiment(&python(), &deployments));
    std::fs::write(run.folder.path().join("own.conf"), TEMPLATE).expect("a template");
    let (code, output_text) = run.done(&[]);
    assert_eq!(code, Some(0), "{output_text}");
    let results = run.results();
    let measurements = list(&results, "/measurements");
    // Two rounds with one preparation: a second one would have failed.
    assert_eq!(measurements.len(), 2, "{results:#}");
    let kinds: Vec<&str> =
        list(&measurements[1], "/tiers").iter().filter_map(|tier| tier["kind"].as_str()).collect();
    assert_eq!(kinds, ["database", "service", "proxy", "proxy", "generator"]);
    assert_eq!(results.pointer("/rows/0/proxy"), Some(&Value::from("nginx, own configuration")));
    assert!(
        measurements[1]["load"]["p50_us"].as_f64() >= Some(2000.0),
        "the relay delays: {measurements:#?}"
    );
    await_none_left(run.folder.path());

    std::fs::write(
        run.folder.path().join("own.conf"),
        TEMPLATE.replace("events {}", "no_such_word on;"),
    )
    .expect("a template");
    std::fs::remove_dir_all(run.out()).expect("the first run's folder");
    let (code, output_text) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{output_text}");
    assert!(output_text.contains("no_such_word"), "nginx's own message: {output_text}");
}

#[test]
fn failed_services_are_reported_and_the_others_measured() {
    let python = python();
    let service = |name: &str, text: &str| format!("[services.{name}]\n{text}\n");
    let services = [
        service("early", "command = [\"sh\", \"-c\", \"echo no licence; exit 3\"]"),
        service(
            "never",
            "command = [\"sleep\", \"1000\"]\nready = \"/healthz\"\nready_within = \"300ms\"",
        ),
        service("missing", "command = [\"no-such-program-anywhere\"]"),
    ];
    let deployment =
        |name: &str| format!("[[deployments]]\nname = \"{name}\"\nservice = \"{name}\"\n");
    let wrong = "[[loads]]\nname = \"wrong\"\npath = \"/hello\"\nconnections = [1]\n\
        deployments = [\"direct\"]\nexpect = { body_contains = \"goodbye\" }\n";
    let deployments =
        format!("{}{}{}", deployment("early"), deployment("never"), deployment("missing"));
    let text =
        experiment(&python, &format!("{}{DIRECT}{deployments}{HELLO}{wrong}", services.concat()));
    let run = Run::new(&text);
    let (code, output_text) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{output_text}");
    let results = run.results();
    let why = |row: &str| {
        let found = list(&results, "/measurements").iter().find(|m| m["row"] == row);
        found.and_then(|m| m["failed"].as_str()).unwrap_or("measured").to_owned()
    };
    assert!(why("early/hello/2").contains("exited with status 3"), "{}", why("early/hello/2"));
    assert!(why("early/hello/2").contains("no licence"), "{}", why("early/hello/2"));
    assert!(
        why("never/hello/2").contains("never was not ready within 300ms"),
        "{}",
        why("never/hello/2")
    );
    assert!(
        why("missing/hello/2").contains("no-such-program-anywhere"),
        "{}",
        why("missing/hello/2")
    );
    assert!(
        why("direct/wrong/1").contains("a body without \"goodbye\""),
        "{}",
        why("direct/wrong/1")
    );
    assert_eq!(why("direct/hello/2"), "measured");
    assert!(output_text.contains("4 of 5 measurements failed"), "{output_text}");
    await_none_left(run.folder.path());
}

#[test]
fn a_port_in_use_is_reported_with_its_holder() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = holder.local_addr().expect("bound").port();
    let service = format!("port = {port}\n{}", python());
    let run = Run::new(&experiment(&service, &format!("{DIRECT}{HELLO}")));
    let (code, output_text) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(1), "{output_text}");
    assert!(output_text.contains(&format!("port {port} is in use by ")), "{output_text}");
}

#[test]
fn an_interrupted_run_keeps_its_measurements_and_can_be_resumed() {
    let run = Run::new(&experiment(&python(), &format!("{DIRECT}{HELLO}")));
    let child = run.command(&["--rounds", "3", "--duration", "700ms"]);
    let child = spawn(child);
    await_measurements(&run.out(), 1);
    interrupt(&child);
    let (code, output_text) = ended(child.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(130), "{output_text}");
    assert!(output_text.contains("--resume"), "{output_text}");
    let saved = run.results();
    assert_eq!(saved["complete"], Value::Bool(false), "{saved:#}");
    let before = list(&saved, "/measurements").clone();
    assert!((1..3).contains(&before.len()), "{saved:#}");
    await_none_left(run.folder.path());

    let resume = |file: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
        command.args(["run", "--resume"]).arg(run.out()).args(file);
        ended(command.output().expect("it starts"))
    };
    let file = run.folder.path().join("test.toml");
    let text = std::fs::read_to_string(&file).expect("its file");
    std::fs::write(&file, text.replace("A test", "Another test")).expect("a file");
    let (code, output_text) = resume(Some(&file));
    assert_eq!((code, output_text.contains("has changed since")), (Some(2), true), "{output_text}");
    let (code, output_text) = resume(None);
    assert_eq!(code, Some(0), "{output_text}");
    let after = run.results();
    assert_eq!(after["complete"], Value::Bool(true), "{after:#}");
    assert_eq!(list(&after, "/measurements").len(), 3);
    assert_eq!(list(&after, "/measurements")[..before.len()], before[..]);
    let (code, output_text) = resume(None);
    assert_eq!((code, output_text.contains("is complete")), (Some(2), true), "{output_text}");
}

#[test]
fn a_full_disk_loses_no_measurement() {
    // A file size limit replaces a full disk: writes fail in the same way, at a known point.
    let run = Run::new(&experiment(&python(), &format!("{DIRECT}{HELLO}")));
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -f 24; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_hotrow-lab"),
        "run",
    ]);
    command
        .arg(run.folder.path().join("test.toml"))
        .arg("--out")
        .arg(run.out())
        .args(["--rounds", "100"]);
    let (code, output_text) = ended(command.output().expect("it starts"));
    assert_eq!(code, Some(1), "{output_text}");
    assert!(output_text.contains("results.json cannot be written"), "{output_text}");
    let saved = run.results();
    assert!(!list(&saved, "/measurements").is_empty(), "{output_text}");
    assert!(!run.out().join("results.json.part").exists());
    await_none_left(run.folder.path());
}

#[test]
fn invalid_files_are_refused_before_anything_starts() {
    let run = Run::new(&experiment("command = [\"x\"]\nredy = \"/\"", &format!("{DIRECT}{HELLO}")));
    let (code, output_text) = run.done(&[]);
    assert_eq!(code, Some(2), "{output_text}");
    assert!(
        output_text.contains("test.toml:9: services.app.redy: unknown key; did you mean `ready`?"),
        "{output_text}"
    );
    assert!(!run.out().exists());
    let unknown = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .args(["run", "w99"])
        .output()
        .expect("it starts");
    let (code, output_text) = ended(unknown);
    assert_eq!(
        (code, output_text.contains("there is no experiment \"w99\"; there are small-responses, ")),
        (Some(2), true),
        "{output_text}"
    );
}

#[test]
fn shipped_experiments_are_listed() {
    let list =
        Command::new(env!("CARGO_BIN_EXE_hotrow-lab")).args(["list"]).output().expect("it starts");
    let (code, output_text) = ended(list);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(
        output_text.lines().count() >= 12 && output_text.contains("backends-shared-cpu "),
        "{output_text}"
    );
    let one = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .args(["list", "w12"])
        .output()
        .expect("it starts");
    let (code, output_text) = ended(one);
    assert_eq!((code, output_text.starts_with("title = ")), (Some(0), true), "{output_text}");
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
        assert!(begin.elapsed() < WAIT_MAX, "no {wanted} measurements in time: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The shipped topologies with a few requests each: responses, shares and the cache are correct.
#[test]
fn every_topology_works_in_a_short_form() {
    let shipped = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"))
        .args(["list", "backends-shared-cpu"])
        .output()
        .expect("it starts");
    let (_, text) = ended(shipped);
    // One number of connections and the published loads are enough here.
    let (text, published) = text.split_once("[[published]]").expect("it has published figures");
    assert!(published.contains("weights"), "{published}");
    let (text, _) =
        text.split_once("[[loads]]\nname = \"date-kept\"").expect("it has further loads");
    let text = text
        .replace("connections = [1, 6]", "connections = [2]")
        .replace("duration = \"3s\"", "requests = 40");
    let run = Run::new(&text);
    let (code, output_text) = run.done(&["--rounds", "1"]);
    assert_eq!(code, Some(0), "{output_text}");
    let results = run.results();
    let measurements = list(&results, "/measurements");
    assert_eq!(measurements.len(), 16, "9 deployments, 7 of them with both loads: {output_text}");
    for measurement in measurements {
        let row = measurement["row"].as_str().expect("a row");
        let served: Vec<u64> = list(measurement, "/backends")
            .iter()
            .filter_map(|backend| backend["requests"].as_u64())
            .collect();
        match row.split('/').next() {
            // nginx's workers rotate independently, each from the beginning: the counts differ by a
            // few.
            Some("round-robin" | "round-robin-tuned") => {
                assert!(served.iter().all(|n| (16..=24).contains(n)), "{row}: {served:?}")
            }
            Some("weights" | "weights-tuned") => {
                assert!((28..=36).contains(&served[0]), "{row}: {served:?}")
            }
            Some("round-robin-cache" | "round-robin-cache-tuned") => {
                assert!(served.iter().sum::<u64>() < 20, "{row}: {served:?}");
                assert!(measurement["cache"][0][1].as_u64() > Some(20), "{measurement:#}");
            }
            _ => assert_eq!(served, [40], "{row}"),
        }
    }
    await_none_left(run.folder.path());
}
