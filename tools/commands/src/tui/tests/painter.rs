//! Successive frames on a terminal.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Style};

use super::terminal::Small;
use crate::tui::painter::Painter;

fn frame(rows: &[&str]) -> Buffer {
    Buffer::with_lines(rows.iter().copied())
}

#[test]
fn pictures_replace_each_other_and_leave_nothing_behind() {
    let mut terminal = Small::new(20, 6);
    let mut painter = Painter::new(true);
    terminal.write("$ hotrow load\r\n");
    for rows in [&["a", "longer row", "c"][..], &["x"], &["one", "two", "three", "four"], &["end"]]
    {
        terminal.write(&painter.replace(&frame(rows), 20));
        assert_eq!(terminal.screen(), format!("$ hotrow load\n{}", rows.join("\n")));
    }
    terminal.write(&painter.erase(20));
    terminal.write("the report\r\n");
    assert_eq!(terminal.screen(), "$ hotrow load\nthe report");
    assert_eq!(painter.erase(20), "", "nothing is left to erase");
}

#[test]
fn scrolled_out_rows_stay() {
    let mut terminal = Small::new(20, 4);
    let mut painter = Painter::new(false);
    terminal.write("one\r\ntwo\r\nthree\r\n");
    for _ in 0..3 {
        terminal.write(&painter.replace(&frame(&["a", "b", "c"]), 20));
    }
    let all: Vec<String> =
        terminal.lines.iter().map(|row| row.iter().collect::<String>().trim_end().into()).collect();
    assert_eq!(all, ["one", "two", "three", "a", "b", "c", ""]);
}

#[test]
fn a_row_wrapped_by_a_narrower_terminal_is_erased_too() {
    let mut painter = Painter::new(false);
    painter.replace(&frame(&["0123456789", "ab", ""]), 20);
    assert!(painter.erase(4).contains("\x1b[5A"), "three rows, one, and one that is empty");
}

#[test]
fn output_of_other_programs_is_not_overwritten() {
    let mut terminal = Small::new(20, 6);
    let mut painter = Painter::new(false);
    terminal.write(&painter.replace(&frame(&["old"]), 20));
    terminal.write("[1]+ Stopped\r\n");
    painter.forget();
    terminal.write(&painter.replace(&frame(&["new"]), 20));
    assert_eq!(terminal.screen(), "old\n[1]+ Stopped\nnew");
}

#[test]
fn colours_are_optional() {
    let mut frame = Buffer::with_lines(["red green"]);
    frame.set_style(ratatui::layout::Rect::new(0, 0, 3, 1), Style::new().fg(Color::Red));
    let with = Painter::new(true).replace(&frame, 20);
    assert!(with.contains("\x1b[31mred\x1b[0m green\x1b[0m"), "{with:?}");
    let without = Painter::new(false).replace(&frame, 20);
    assert!(without.contains("red green") && !without.contains('m'), "{without:?}");
}

#[test]
fn wide_letters_and_hostile_names_stay_in_their_place() {
    let mut frame = Buffer::with_lines(["          "]);
    frame.set_string(0, 0, "日本\x1b[2J\nx", Style::new());
    let mut terminal = Small::new(20, 3);
    let out = Painter::new(false).replace(&frame, 20);
    terminal.write(&out);
    assert_eq!(terminal.screen(), "日本[2Jx");
}
