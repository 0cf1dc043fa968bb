//! Manual pages and shell completions, written from the definition of a command line. Packages
//! contain them; `scripts/dist` makes them with each build, so that they cannot fall behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

use crate::help::Program;

/// Shells with completions, and the file that each loads for a program.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// Arguments of the hidden command `pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Folder for man1/ and completions/; created if missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Date in the pages, as in 2026-01-31
    // Without one the library writes a title line with a column too few.
    #[arg(long, value_name = "DATE", default_value = "undated")]
    date: String,
}

/// A page that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written: {error}")]
pub struct PagesError {
    /// The file or folder.
    path: PathBuf,
    /// The system's error.
    error: io::Error,
}

/// Writes the manual page of `program` and of each of its commands into `man1`, and the completions
/// into `completions`.
///
/// # Errors
/// A file or folder that cannot be written.
pub fn write(program: &Program, args: &PagesArgs) -> Result<(), PagesError> {
    let mut program = program.command.clone();
    let name = program.get_name().to_owned();
    let (manual, date) = (format!("Manual of {name}"), args.date.clone());
    let man = created(args.folder.join("man1"))?;
    let title = Title { source: program.render_version().trim().to_owned(), manual, date };
    write_pages(&program, &title, &man)?;
    let folder = created(args.folder.join("completions"))?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut program, &name, &folder)
            .map_err(|error| PagesError { path: folder.clone(), error })?;
    }
    Ok(())
}

fn created(folder: PathBuf) -> Result<PathBuf, PagesError> {
    match fs::create_dir_all(&folder) {
        Ok(()) => Ok(folder),
        Err(error) => Err(PagesError { path: folder, error }),
    }
}

/// What is above and below each page.
struct Title {
    source: String,
    manual: String,
    date: String,
}

/// Writes the page of a command and those of its visible commands.
fn write_pages(command: &Command, title: &Title, folder: &Path) -> Result<(), PagesError> {
    // A command without help of its own starts another program, which has its own pages.
    let documented = |inner: &&Command| !inner.is_hide_set() && !inner.is_disable_help_flag_set();
    for inner in command.get_subcommands().filter(documented) {
        write_pages(inner, title, folder)?;
    }
    let page =
        Man::new(command.clone()).date(&title.date).source(&title.source).manual(&title.manual);
    let path = folder.join(page.get_filename());
    let written = page_text(command, &page).and_then(|text| fs::write(&path, text));
    written.map_err(|error| PagesError { path, error })
}

/// Returns a page. Its examples and what follows them have sections, which the library would join.
fn page_text(command: &Command, page: &Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        page.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    let parts = [command.get_before_long_help(), command.get_after_long_help()];
    for part in parts.into_iter().flatten().map(ToString::to_string) {
        for block in part.split("\n\n").filter(|block| !block.is_empty()) {
            section(block, &mut text)?;
        }
    }
    Ok(text)
}

/// Adds a block of lines below a heading with a colon, in the lines that they were written in.
fn section(block: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let (heading, lines) = block.split_once(":\n").unwrap_or((block, ""));
    let mut roff = Roff::default();
    roff.control("SH", [heading.to_uppercase().as_str()]).control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_writer(text)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn program() -> Program {
        let serve = Command::new("serve")
            .about("Serve records")
            .arg(Arg::new("config").long("config").help("The file"))
            .after_help(
                "Examples:\n  some serve --config 'a\\b'\n  some serve .x\n\n\
                 Exit status:\n  0: fine",
            );
        let hidden = Command::new("pages").hide(true);
        let program = Command::new("some").version("1.2.3").about("A program").subcommand(serve);
        let started = Command::new("lab").disable_help_flag(true);
        Program::new(program.subcommands([started, hidden]), &[])
    }

    fn args(folder: PathBuf) -> PagesArgs {
        PagesArgs { folder, date: "2026-01-31".to_owned() }
    }

    #[test]
    fn every_visible_command_has_a_page_with_options_and_examples() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path().join("new"));
        write(&program(), &args).unwrap();
        let man = args.folder.join("man1");
        let mut names: Vec<_> =
            fs::read_dir(&man).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["some-serve.1", "some.1"]);
        let serve = fs::read_to_string(man.join("some-serve.1")).unwrap();
        assert!(serve.contains("\\-\\-config") && serve.contains("The file"), "{serve}");
        let examples = serve.split_once(".SH EXAMPLES\n.nf\n").unwrap().1;
        assert!(examples.contains("some serve \\-\\-config \\*(Aqa\\\\b\\*(Aq\n"), "{examples}");
        assert!(serve.contains(".SH \"EXIT STATUS\"\n.nf\n  0: fine\n.fi"), "{serve}");
        assert!(serve.contains(".TH some-serve 1 2026-01-31 \"some 1.2.3\" \"Manual of some\""));
        let all = fs::read_to_string(man.join("some.1")).unwrap();
        assert!(all.contains("1.2.3") && !all.contains("pages"), "{all}");
    }

    #[test]
    fn each_shell_has_completions() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path().to_owned());
        write(&program(), &args).unwrap();
        for file in ["some.bash", "some.fish", "_some"] {
            let text = fs::read_to_string(folder.path().join("completions").join(file)).unwrap();
            assert!(text.contains("serve") && text.contains("config"), "{file}: {text}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let args = args("/dev/null/pages".into());
        let error = write(&program(), &args).unwrap_err().to_string();
        assert!(error.starts_with("/dev/null/pages/man1 cannot be written: "), "{error}");
    }
}
