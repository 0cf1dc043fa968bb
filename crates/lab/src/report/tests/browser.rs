//! The page in a real browser, if one is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{fixture, html_page};
use hotrow_report::html;

/// Script that adds measurements to the page's text. The page allows no script, so the test removes
/// that rule.
const PROBE: &str = "<script>
const width = svg => svg.getBoundingClientRect().width;
const shown = [...document.querySelectorAll('svg')].filter(svg => width(svg) > 0);
const smallest = Math.min(...shown.map(svg => 12 * width(svg) / svg.viewBox.baseVal.width));
const overflow = document.documentElement.scrollWidth - innerWidth;
const page = getComputedStyle(document.body).backgroundColor;
parent.document.body.innerHTML =
`<p>overflow=${overflow} width=${innerWidth} drawings=${shown.length}
 letters=${smallest >= 10} page=${page}</p>`;
</script></body>";

/// Returns the measurements and the browser's log; `None`, with the reason printed, without a
/// browser.
fn probed(page: &str, width: u32, dark: bool) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let probed =
        page.replace("default-src 'none'; style-src 'unsafe-inline'", "").replace("</body>", PROBE);
    assert_ne!(probed, page);
    // A window has a minimum width; a frame does not.
    let frame = format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><body><iframe \
         style=\"width: {width}px; height: 900px; border: 0\" srcdoc=\"{}\"></iframe></body>",
        html::escape(&probed)
    );
    std::fs::write(&file, frame).unwrap();
    for browser in ["chromium", "chromium-browser", "google-chrome", "chrome"] {
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--dump-dom",
        ]);
        command.args(["--window-size=1280,1000", &profile(folder.path())]);
        if dark {
            command.arg("--blink-settings=preferredColorScheme=0");
        }
        if let Ok(done) = command.arg(&file).stdin(Stdio::null()).output() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let logged: Vec<String> = text(&done.stderr)
                .lines()
                .filter(|l| l.contains("CONSOLE"))
                .map(str::to_owned)
                .collect();
            assert!(done.status.success(), "{browser}: {}", text(&done.stderr));
            return Some((text(&done.stdout), logged.join("\n")));
        }
    }
    println!("skipped: no Chromium or Chrome is installed");
    None
}

fn profile(folder: &Path) -> String {
    format!("--user-data-dir={}", folder.join("profile").display())
}

#[test]
fn a_page_fits_a_desktop_in_light_mode() {
    let Some((measured, logged)) = probed(&html_page(&fixture::results(7)), 1200, false) else {
        return;
    };
    for fact in ["overflow=0 ", "width=1200 ", "letters=true", "page=rgb(255, 255, 255)"] {
        assert!(measured.contains(fact), "{fact} is not in {measured}");
    }
    assert!(!measured.contains("drawings=0") && logged.is_empty(), "{measured} {logged}");
}

#[test]
fn a_page_with_long_names_fits_a_telephone_in_dark_mode() {
    let Some((measured, logged)) = probed(&html_page(&fixture::odd_results()), 400, true) else {
        return;
    };
    for fact in ["overflow=0 ", "width=400 ", "letters=true", "page=rgb(20, 23, 26)"] {
        assert!(measured.contains(fact), "{fact} is not in {measured}");
    }
    assert!(!measured.contains("drawings=0") && logged.is_empty(), "{measured} {logged}");
}
