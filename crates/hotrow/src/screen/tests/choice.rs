//! What is shown where.

use crate::screen::terminal::{How, Terminal, Way, choose};

const SCREEN: Way = Way::Screen { colours: true };

fn terminal() -> Terminal<'static> {
    Terminal { is_terminal: true, size: Some((80, 24)), term: Some("xterm-256color"), no_color: None }
}

#[test]
fn a_display_is_for_terminals_that_can_show_one() {
    let auto = |terminal| choose(How::Auto, terminal);
    assert_eq!(auto(terminal()), Ok(SCREEN));
    assert_eq!(auto(Terminal { is_terminal: false, size: None, ..terminal() }), Ok(Way::Nothing));
    for term in [None, Some(""), Some("dumb")] {
        assert_eq!(auto(Terminal { term, ..terminal() }), Ok(Way::Lines), "{term:?}");
    }
    for size in [None, Some((10, 24)), Some((80, 2))] {
        assert_eq!(auto(Terminal { size, ..terminal() }), Ok(Way::Lines), "{size:?}");
    }
}

#[test]
fn what_was_asked_for_is_shown_or_refused() {
    let pipe = Terminal { is_terminal: false, size: None, ..terminal() };
    assert_eq!(choose(How::Lines, pipe), Ok(Way::Lines));
    assert_eq!(choose(How::None, terminal()), Ok(Way::Nothing));
    assert_eq!(choose(How::Screen, Terminal { term: Some("dumb"), ..terminal() }), Ok(SCREEN));
    assert!(choose(How::Screen, pipe).is_err_and(|why| why.contains("no terminal")));
    assert!(choose(How::Screen, Terminal { size: None, ..terminal() }).is_err_and(|why| why.contains("size")));
}

#[test]
fn no_color_counts_when_it_is_not_empty() {
    for (no_color, colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
        assert_eq!(choose(How::Auto, Terminal { no_color, ..terminal() }), Ok(Way::Screen { colours }));
    }
}
