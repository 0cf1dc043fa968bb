//! The script of a page with plots: uPlot with its licence, and `charts.js`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Version of the files in `assets/uplot`, as released.
pub(crate) const UPLOT_VERSION: &str = "1.6.32";
const UPLOT: &str = include_str!("../../../assets/uplot/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("../../../assets/uplot/LICENSE");
/// Style of uPlot's elements.
pub(crate) const UPLOT_STYLE: &str = include_str!("../../../assets/uplot/uPlot.min.css");
const CHARTS: &str = include_str!("charts.js");

/// Returns the whole script. The comment at uPlot's beginning, an address, makes way for its
/// licence.
pub(crate) fn text() -> String {
    let code = UPLOT.split_once("*/").map_or(UPLOT, |(_, code)| code);
    format!("\n/*! uPlot {UPLOT_VERSION}\n\n{UPLOT_LICENSE}\n*/{code}\n{CHARTS}")
}

/// Returns the source expression that allows this script alone in a content security policy.
pub(crate) fn source(script: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_contained_in_its_element_and_loads_nothing() {
        let script = text();
        for bad in
            ["</script", "<script", "<!--", "http:", "https:", "innerHTML", "eval(", "fetch("]
        {
            assert!(!script.contains(bad), "{bad} in the script");
        }
        assert!(script.contains("The MIT License") && script.contains("var uPlot="));
    }

    #[test]
    fn the_source_is_the_digest_of_the_script() {
        assert_eq!(source(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
    }
}
