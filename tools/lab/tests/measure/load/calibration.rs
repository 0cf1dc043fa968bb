//! `--calibrate`, and its use in later runs.

use super::*;

#[test]
fn later_runs_report_the_used_share_of_the_ceiling() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let run = |arguments: &[&str]| {
        outcome(command(arguments).env("XDG_CACHE_HOME", cache.path()).output().expect("it starts"))
    };
    let (address, _) = server(OK);
    let url = format!("http://{address}/");
    let measured = ["--json", "-n", "200", "-c", "2", "-t", "1", &url];
    assert_eq!(json(&run(&measured).1)["generator"]["headroom"], Value::Null, "not calibrated yet");
    let (status, out, err) = run(&["--calibrate", "-c", "4", "-t", "1", "--json"]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let calibration = json(&out);
    let ceiling = calibration["closed"]["ceiling_rps_per_thread"].as_f64().expect("a number");
    assert!(ceiling > 1000.0, "{calibration:#}");
    assert!(
        calibration["open"]["cpu_us_per_request"].as_f64().is_some_and(|us| us > 0.1),
        "{calibration:#}"
    );
    let report = json(&run(&measured).1);
    let headroom = &report["generator"]["headroom"];
    assert_eq!(headroom["ceiling_rps_per_thread"].as_f64(), Some(ceiling), "{headroom}");
    let used = headroom["used_share"].as_f64().expect("a number");
    let throughput = report["throughput_rps"].as_f64().expect("a number");
    assert!((used - throughput / ceiling).abs() < 1e-3, "{used} is {throughput} of {ceiling}");
    let (_, out, _) = run(&measured[1..]);
    assert!(out.contains("calibrated 20"), "{out}");
    // New connections are not calibrated.
    let (_, out, _) = run(&["--json", "-n", "20", "-c", "2", "--no-keepalive", &url]);
    assert_eq!(json(&out)["generator"]["headroom"], Value::Null);
}

#[test]
fn without_a_home_the_calibration_is_printed_and_not_saved() {
    let mut command = command(&["--calibrate", "-c", "2", "-t", "1", "-q"]);
    let (status, out, err) = outcome(
        command.env_remove("XDG_CACHE_HOME").env_remove("HOME").output().expect("it starts"),
    );
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("closed loop") && out.contains("shared the machine's cores"), "{out}");
    assert!(err.contains("not saved for later runs: neither XDG_CACHE_HOME nor HOME"), "{err}");
}
