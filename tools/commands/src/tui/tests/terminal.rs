//! A minimal terminal emulator for the display's output.

/// Rows of characters, and a cursor. Rows scrolled out at the top are kept.
pub(super) struct Small {
    columns: usize,
    rows: usize,
    /// All rows since the beginning; the last `rows` of them are the screen.
    pub(super) lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Small {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, lines: vec![Vec::new()], row: 0, column: 0 }
    }

    pub(super) fn write(&mut self, text: &str) {
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\x1b' => {
                    assert_eq!(letters.next(), Some('['), "only CSI is understood");
                    let mut number = String::new();
                    while let Some(digit) =
                        letters.next_if(|c| c.is_ascii_digit() || "?;".contains(*c))
                    {
                        number.push(digit);
                    }
                    self.control(letters.next().expect("an end"), &number);
                }
                '\r' => self.column = 0,
                '\n' => self.line_feed(),
                letter => self.put(letter),
            }
        }
    }

    /// Returns the screen's text, without trailing blanks and trailing empty rows.
    pub(super) fn screen(&self) -> String {
        let rows: Vec<String> =
            self.lines[self.top()..].iter().map(|row| row.iter().collect::<String>()).collect();
        rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    fn top(&self) -> usize {
        self.lines.len().saturating_sub(self.rows)
    }

    fn control(&mut self, what: char, number: &str) {
        match what {
            'A' => {
                self.row =
                    self.row.saturating_sub(number.parse().expect("a number")).max(self.top())
            }
            'K' => self.lines[self.row].truncate(self.column),
            'J' => {
                self.lines[self.row].truncate(self.column);
                self.lines.truncate(self.row + 1);
            }
            'm' => {}
            'h' | 'l' => assert_eq!(number, "?2026", "nothing else is switched"),
            other => unreachable!("{other} is not used"),
        }
    }

    fn put(&mut self, letter: char) {
        assert!(self.column < self.columns, "a row of {} columns would be broken", self.columns);
        let row = &mut self.lines[self.row];
        if row.len() <= self.column {
            row.resize(self.column + 1, ' ');
        }
        row[self.column] = letter;
        self.column += 1;
    }

    fn line_feed(&mut self) {
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push(Vec::new());
        }
    }
}
