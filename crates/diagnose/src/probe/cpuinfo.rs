//! The processor model: `/proc/cpuinfo`.

/// The file's path.
pub const FILE: &str = "proc/cpuinfo";
/// Fields with the model name, in order of preference: x86 has the first, Arm only numbers, others
/// one of the rest.
const FIELDS: [&str; 5] = ["model name", "Model", "cpu model", "uarch", "CPU part"];
/// Longest accepted name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Returns the name of the first processor; `None` when absent.
#[must_use]
pub fn parse(text: &str) -> Option<String> {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(field, value)| field.trim() == name && !value.trim().is_empty())
            .map(|(_, value)| value.trim())
    };
    let name = FIELDS.iter().find_map(|name| field(name))?;
    (name.len() <= NAME_BYTES_MAX).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_is_taken() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon @ 2.0GHz\nflags : a \
                   b\n\nprocessor : 1\n";
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n";
        assert_eq!(parse(x86).as_deref(), Some("Xeon @ 2.0GHz"));
        assert_eq!(parse(arm).as_deref(), Some("0xd0c"));
        assert_eq!(parse("processor : 0\nmodel name :\n"), None);
        assert_eq!(parse(&format!("model name : {}", "x".repeat(NAME_BYTES_MAX + 1))), None);
    }
}
