//! The choice of the progress output.

use crate::tui::terminal::{ProgressMode, ProgressOutput, Terminal, choose};

const SCREEN: ProgressOutput = ProgressOutput::Tui { colours: true };

fn terminal() -> Terminal<'static> {
    Terminal {
        is_terminal: true,
        size: Some((80, 24)),
        term: Some("xterm-256color"),
        no_color: None,
    }
}

#[test]
fn a_display_is_for_terminals_that_can_show_one() {
    let auto = |terminal| choose(ProgressMode::Auto, terminal);
    assert_eq!(auto(terminal()), Ok(SCREEN));
    assert_eq!(
        auto(Terminal { is_terminal: false, size: None, ..terminal() }),
        Ok(ProgressOutput::Nothing)
    );
    for term in [None, Some(""), Some("dumb")] {
        assert_eq!(auto(Terminal { term, ..terminal() }), Ok(ProgressOutput::Lines), "{term:?}");
    }
    for size in [None, Some((10, 24)), Some((80, 2))] {
        assert_eq!(auto(Terminal { size, ..terminal() }), Ok(ProgressOutput::Lines), "{size:?}");
    }
}

#[test]
fn a_requested_display_is_shown_or_refused() {
    let pipe = Terminal { is_terminal: false, size: None, ..terminal() };
    assert_eq!(choose(ProgressMode::Lines, pipe), Ok(ProgressOutput::Lines));
    assert_eq!(choose(ProgressMode::None, terminal()), Ok(ProgressOutput::Nothing));
    assert_eq!(
        choose(ProgressMode::Tui, Terminal { term: Some("dumb"), ..terminal() }),
        Ok(SCREEN)
    );
    assert!(choose(ProgressMode::Tui, pipe).is_err_and(|why| why.contains("no terminal")));
    assert!(
        choose(ProgressMode::Tui, Terminal { size: None, ..terminal() })
            .is_err_and(|why| why.contains("size"))
    );
}

#[test]
fn no_color_counts_when_it_is_not_empty() {
    for (no_color, colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
        assert_eq!(
            choose(ProgressMode::Auto, Terminal { no_color, ..terminal() }),
            Ok(ProgressOutput::Tui { colours })
        );
    }
}
