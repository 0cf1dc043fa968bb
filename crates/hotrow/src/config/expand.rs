//! Expansion of `${VAR}` in strings.

use std::env::VarError;

/// Source of the variables: [`std::env::var`] outside tests.
pub type Env<'a> = dyn Fn(&str) -> Result<String, VarError> + 'a;

/// Replaces `${VAR}` by the variable's value and `$$` by a dollar sign. The value itself is not
/// expanded again.
///
/// # Errors
/// Returns the rule that was broken, for the user.
pub(super) fn expand(text: &str, env: &Env<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = after.strip_prefix('{').and_then(|a| a.split_once('}')) else {
            return Err(
                "a dollar sign must begin ${VARIABLE}; write $$ for the sign itself".to_owned()
            );
        };
        out.push_str(&variable(name, env)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(name: &str, env: &Env<'_>) -> Result<String, String> {
    let name_is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if name.is_empty() || !name_is_plain || name.as_bytes()[0].is_ascii_digit() {
        return Err(format!(
            "{} is no name of a variable; use letters, digits and _ between ${{ and }}",
            super::problem::shown(name)
        ));
    }
    env(name).map_err(|e| match e {
        VarError::NotPresent => {
            format!("the environment variable {name} is not set; set it or write the value here")
        }
        VarError::NotUnicode(_) => format!("the environment variable {name} is not valid UTF-8"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(name: &str) -> Result<String, VarError> {
        match name {
            "HOST" => Ok("db${X}$".to_owned()),
            "EMPTY" => Ok(String::new()),
            _ => Err(VarError::NotPresent),
        }
    }

    #[test]
    fn variables_and_dollar_signs() {
        assert_eq!(expand("a${HOST}b${EMPTY}", &env), Ok("adb${X}$b".to_owned()));
        assert_eq!(expand("cost $$5 $${HOST}", &env), Ok("cost $5 ${HOST}".to_owned()));
        assert_eq!(expand("ünï", &env), Ok("ünï".to_owned()));
        for (bad, fragment) in [
            ("$HOST", "write $$"),
            ("${HOST", "write $$"),
            ("${}", "no name"),
            ("${1A}", "no name"),
            ("${MISSING}", "MISSING is not set"),
        ] {
            let e = expand(bad, &env).expect_err(bad);
            assert!(e.contains(fragment), "{bad}: {e}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r"[ -~$\{\}é]{0,40}") {
            let _ = expand(&text, &env);
        }
    }
}
