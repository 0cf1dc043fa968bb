//! A small HTML checker: closed tags, quoted attributes, unique ids, no external content.

use std::collections::BTreeSet;

/// Void elements.
const VOID: [&str; 2] = ["meta", "br"];
/// Attributes that would load or run something.
const LOADING: [&str; 8] =
    ["src", "href", "srcset", "data", "action", "style", "onload", "onerror"];

/// Returns the problems of a page.
pub(super) fn complaints(html: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut open, mut ids, mut references) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap_or_else(|| {
        complaints.push("no doctype".to_owned());
        html
    });
    while let Some(at) = rest.find(['<', '>']) {
        let Some((tag, after)) = rest[at..].strip_prefix('<').and_then(|tag| tag.split_once('>'))
        else {
            complaints.push(format!("a bare > or < near {:.60?}", &rest[at..]));
            break;
        };
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                complaints.push(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let (name, attributes) = tag
            .trim_end_matches('/')
            .split_once([' ', '\n'])
            .unwrap_or((tag.trim_end_matches('/'), ""));
        if ["link", "iframe", "img"].contains(&name) {
            complaints.push(format!("there is a <{name}>"));
        }
        attributes_of(name, attributes, &mut complaints, &mut ids, &mut references);
        if name == "style" {
            let (css, after) = rest.split_once("</style>").unwrap_or((rest, ""));
            if ["url(", "@import", "<"].iter().any(|bad| css.contains(bad)) {
                complaints.push("the style loads something".to_owned());
            }
            rest = after;
        } else if name == "script" {
            let (text, after) = rest.split_once("</script>").unwrap_or((rest, ""));
            complaints.extend(script_complaint(attributes, text));
            rest = after;
        } else if !VOID.contains(&name) && !tag.ends_with('/') {
            open.push(name);
        }
    }
    complaints.extend(open.iter().map(|name| format!("<{name}> is not closed")));
    complaints.extend(
        references.iter().filter(|id| !ids.contains(*id)).map(|id| format!("there is no id {id}")),
    );
    complaints
}

/// Returns what is wrong with a script: it is data that is no JSON or could end early, or code that
/// is not the renderer's own.
fn script_complaint(attributes: &str, text: &str) -> Option<String> {
    let is_data = attributes == "type=\"application/json\"";
    if is_data {
        let json = serde_json::from_str::<serde_json::Value>(text).is_ok();
        let wrong = !json || text.contains(['<', '>', '&']);
        return wrong.then(|| "the data of a script is wrong".to_owned());
    }
    let own = attributes.is_empty() && text.starts_with("\n/*! uPlot ");
    let loads = ["http:", "https:", "fetch(", "XMLHttpRequest", "import("];
    let wrong = !own || loads.iter().any(|bad| text.contains(bad));
    wrong.then(|| "there is a foreign <script>".to_owned())
}

fn attributes_of<'a>(
    name: &str,
    mut attributes: &'a str,
    complaints: &mut Vec<String>,
    ids: &mut BTreeSet<&'a str>,
    references: &mut Vec<&'a str>,
) {
    while let Some((attribute, quoted)) = attributes.trim_start().split_once("=\"") {
        let Some((value, after)) = quoted.split_once('"') else {
            complaints.push(format!("an open quote in <{name}>"));
            return;
        };
        if LOADING.contains(&attribute)
            || attribute.starts_with("on")
            || attribute.contains(char::is_whitespace)
        {
            complaints.push(format!("<{name}> has {attribute}"));
        }
        match attribute {
            "id" if !ids.insert(value) => complaints.push(format!("two have the id {value}")),
            "aria-labelledby" => references.extend(value.split(' ')),
            "d" | "x" | "y" | "x1" | "x2" | "y1" | "y2" | "width" | "height" | "viewBox"
                if value.contains("NaN") || value.contains("inf") =>
            {
                complaints.push(format!("{attribute}={value} in <{name}>"));
            }
            _ => {}
        }
        attributes = after;
    }
    if !attributes.trim().is_empty() {
        complaints.push(format!("<{name}> has {attributes:?}"));
    }
}

#[test]
fn the_checker_finds_each_problem() {
    let page = |body: &str| complaints(&format!("<!DOCTYPE html><p id=\"a\">{body}</p>"));
    assert_eq!(page("<br><b>x</b><line x1=\"1\"/>&lt;"), Vec::<String>::new());
    for (bad, why) in [
        ("<b>", "closes nothing"),
        ("</b>", "closes nothing"),
        ("a < b", "is not closed"),
        ("a > b", "bare"),
        ("<script></script>", "a foreign <script>"),
        ("<script>\n/*! uPlot */fetch(1)</script>", "a foreign <script>"),
        ("<script type=\"application/json\">{</script>", "the data of a script"),
        ("<script type=\"application/json\">\"<!--\"</script>", "the data of a script"),
        ("<i onclick=\"x\"></i>", "has onclick"),
        ("<i href=\"x\"></i>", "has href"),
        ("<i id=\"a\"></i>", "two have the id a"),
        ("<i aria-labelledby=\"b\"></i>", "no id b"),
        ("<i x=1></i>", "x=1"),
        ("<i x=\"NaN\"></i>", "NaN"),
        ("<style>a{b:url(c)}</style>", "the style loads"),
    ] {
        let got = page(bad);
        assert!(got.iter().any(|complaint| complaint.contains(why)), "{bad}: {got:?}");
    }
}
