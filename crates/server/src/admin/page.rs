//! `/`: a page that an operator leaves open. It reads `/history`, `/status` and `/hot-keys`, and
//! loads nothing from elsewhere. Style and scripts are separate files, so that [`POLICY`] can
//! forbid everything inline. Charts are drawn by uPlot, of which the crate `report` has the one
//! copy.

/// A path of the page, its content type and its content.
type Part = (&'static str, &'static str, &'static str);

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All files of the page.
const PARTS: [Part; 7] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", STYLE, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/tables.js", SCRIPT, include_str!("page/tables.js")),
    ("/uplot.js", SCRIPT, include_str!("../../../../assets/uplot/uPlot.iife.min.js")),
    ("/uplot.css", STYLE, include_str!("../../../../assets/uplot/uPlot.min.css")),
];

/// `Content-Security-Policy` of every answer of the admin side: resources from this address only,
/// and no framing.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns content type and content of a file of the page.
pub(super) fn part(path: &str) -> Option<(&'static str, &'static str)> {
    PARTS
        .iter()
        .find(|(at, ..)| *at == path)
        .map(|(_, content_type, content)| (*content_type, *content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most bytes of all files of the page.
    const PAGE_BYTES_MAX: usize = 110 << 10;

    #[test]
    fn the_page_complies_with_its_policy() {
        for (path, _, content) in PARTS.iter().filter(|(path, ..)| !path.starts_with("/uplot")) {
            for forbidden in ["http://", "https://", "eval(", "new Function", "innerHTML", ".style"]
            {
                assert!(!content.contains(forbidden), "{forbidden} in {path}");
            }
        }
        let (_, html) = part("/").expect("a page");
        for (path, ..) in PARTS.iter().skip(1) {
            let name = path.trim_start_matches('/');
            let is_loaded = html.contains(&format!("src=\"{name}\""))
                || html.contains(&format!("href=\"{name}\""));
            assert!(is_loaded, "{path} is not used");
        }
        for inline in ["<style", "style=", "<script>", "onclick", "onload", "javascript:"] {
            assert!(!html.contains(inline), "{inline} in {html}");
        }
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = PARTS.iter().map(|(.., content)| content.len()).sum();
        assert!(bytes <= PAGE_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn a_change_sends_its_token_in_a_header_only() {
        let (_, script) = part("/tables.js").expect("a script");
        for storage in ["localStorage", "sessionStorage", "document.cookie", "?token", "&token"] {
            assert!(!script.contains(storage), "{storage}");
        }
        assert!(script.contains("credentials: \"omit\"") && script.contains("Hotrow-Admin"));
    }

    #[test]
    fn the_policy_names_each_directive_once() {
        let names: Vec<&str> =
            POLICY.split("; ").filter_map(|directive| directive.split(' ').next()).collect();
        let expected = [
            "default-src",
            "script-src",
            "style-src",
            "connect-src",
            "img-src",
            "base-uri",
            "form-action",
            "frame-ancestors",
        ];
        assert_eq!(names, expected);
    }
}
