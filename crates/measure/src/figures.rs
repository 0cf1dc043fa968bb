//! Figures as text, written in one way by all programs.

/// Formats a whole number with commas between thousands; a value that is not a number is a dash.
pub fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = vec![&digits[..first]];
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    let whole = groups.into_iter().filter(|group| !group.is_empty()).collect::<Vec<_>>().join(",");
    if value < 0.0 && whole != "0" { format!("−{whole}") } else { whole }
}
