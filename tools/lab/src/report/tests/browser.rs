//! The page in a real browser, if one is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{fixture, html_page};
use hotrow_report::html;

/// Script that adds measurements to the page's text. The page allows no script but its own, so the
/// test removes that rule.
const PROBE: &str = "<script>
const width = svg => svg.getBoundingClientRect().width;
const shown = [...document.querySelectorAll('svg')].filter(svg => width(svg) > 0);
const charts = document.querySelectorAll('figure.live .chart canvas').length;
const clipped = [...document.querySelectorAll('.scroll')].filter(
    table => table.scrollWidth > table.clientWidth);
const named = clipped.map(
    table => `${table.scrollWidth}/${table.clientWidth} ${table.textContent.slice(0, 80)}`);
const smallest = Math.min(...shown.map(svg => 12 * width(svg) / svg.viewBox.baseVal.width));
const overflow = document.documentElement.scrollWidth - innerWidth;
const page = getComputedStyle(document.body).backgroundColor;
parent.document.body.innerHTML =
`<p>overflow=${overflow} width=${innerWidth} drawings=${shown.length}
 charts=${charts} clipped=${clipped.length} ${named} letters=${smallest >= 10} page=${page}</p>`;
</script></body>";

/// Returns the measurements and the browser's log; `None`, with the reason printed, without a
/// browser.
fn probed(page: &str, width: u32, dark: bool) -> Option<(String, String)> {
    let (before, policy) = page.split_once("default-src").unwrap();
    let (_, after) = policy.split_once('"').unwrap();
    let probed = format!("{before}\"{after}").replace("</body>", PROBE);
    // A window has a minimum width; a frame does not.
    let frame = format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\"><body><iframe \
         style=\"width: {width}px; height: 900px; border: 0\" srcdoc=\"{}\"></iframe></body>",
        html::escape(&probed)
    );
    dumped(&frame, dark)
}

/// Returns a page as the browser has it after its scripts, and the browser's log.
fn dumped(page: &str, dark: bool) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).unwrap();
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
        command.args(["--window-size=1400,1000", &profile(folder.path())]);
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
fn pages_fit_telephones_tablets_and_desktops_in_both_modes() {
    let pages = [html_page(&fixture::results(7)), html_page(&fixture::odd_results())];
    for (width, dark) in [(390, true), (800, false), (1280, true), (1920, false)] {
        for page in &pages {
            let Some((measured, logged)) = probed(page, width, dark) else { return };
            let colour = if dark { "rgb(20, 23, 26)" } else { "rgb(255, 255, 255)" };
            let (size, page) = (format!("width={width} "), format!("page={colour}"));
            // Rows are stacked on telephones; on tablets wide tables scroll by themselves.
            let clipped = if width == 800 { "clipped=" } else { "clipped=0 " };
            for fact in ["overflow=0 ", &size, clipped, "letters=true", &page] {
                assert!(measured.contains(fact), "{fact} is not in {measured}");
            }
            for missing in ["drawings=0", "charts=0"] {
                assert!(!measured.contains(missing) && logged.is_empty(), "{measured} {logged}");
            }
        }
    }
}

/// The policy allows the page's own script: it replaces the drawings with charts.
#[test]
fn the_script_of_a_page_runs_under_its_policy() {
    let Some((page, logged)) = dumped(&html_page(&fixture::results(7)), false) else {
        return;
    };
    assert!(page.contains("<figure class=\"live\">") && page.contains("<canvas"), "{page:.2000}");
    assert!(logged.is_empty(), "{logged}");
}
