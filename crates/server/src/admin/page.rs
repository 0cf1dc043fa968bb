//! `/`: a status page that refreshes itself. It reads `/status` and loads nothing from elsewhere.
//! Style and script are separate files, so that [`POLICY`] can forbid everything inline.

/// A path of the page, its content type and its content.
type Part = (&'static str, &'static str, &'static str);

/// All files of the page.
const PARTS: [Part; 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
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

    #[test]
    fn the_page_complies_with_its_policy() {
        for (path, _, content) in PARTS {
            assert!(
                !content.contains("http://") && !content.contains("https://"),
                "{path} loads from elsewhere"
            );
        }
        let (_, html) = part("/").expect("a page");
        assert!(html.contains("src=\"page.js\"") && html.contains("href=\"page.css\""), "{html}");
        for inline in ["<style", "style=", "<script>", "onclick", "onload", "javascript:"] {
            assert!(!html.contains(inline), "{inline} in {html}");
        }
        let (_, script) = part("/page.js").expect("a script");
        for forbidden in ["eval(", "new Function", "innerHTML", ".style"] {
            assert!(!script.contains(forbidden), "{forbidden} in {script}");
        }
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
