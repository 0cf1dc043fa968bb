//! The page in a real browser, where there is one.

#[test]
fn dump() {
    let Some(dir) = std::env::var_os("DUMP") else { return };
    let dir = std::path::Path::new(&dir);
    for (name, results) in [
        ("w12", super::fixture::results(7)),
        ("odd", super::fixture::odd_results()),
        ("one", super::fixture::results(1)),
    ] {
        std::fs::write(dir.join(format!("{name}.html")), super::html(&results)).unwrap();
        std::fs::write(dir.join(format!("{name}.md")), super::markdown(&results)).unwrap();
    }
}
