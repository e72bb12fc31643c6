//! The terminal of `tidings top`: taken over as a whole, and given back in the state in which it was.

use std::io::{Write, stdout};

use anstream::adapter::strip_str;
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{QueueableCommand, cursor, event};
use tokio::sync::mpsc;
use unicode_width::UnicodeWidthChar;

use crate::cli::{CliError, output};

/// The keys that may wait; a user presses few.
const KEYS: usize = 16;

/// The size of a terminal that does not tell its own.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// The meaning of an input.
pub(super) enum TopKey {
    Quit,
    /// The terminal has another size, or the user wants it drawn again.
    Redraw,
}

/// The terminal. Dropping it gives it back.
pub(super) struct Screen {
    keys: mpsc::Receiver<TopKey>,
}

impl Screen {
    pub(super) fn open() -> Result<Screen, CliError> {
        let (sender, keys) = mpsc::channel(KEYS);
        terminal::enable_raw_mode()?;
        // From here on dropping it undoes everything.
        let screen = Screen { keys };
        stdout()
            .queue(EnterAlternateScreen)?
            .queue(cursor::Hide)?
            .flush()?;
        // A thread, since reading a terminal blocks; it ends with the process.
        std::thread::spawn(move || read_keys(&sender));
        Ok(screen)
    }

    /// Shows as many of the lines as there is room for, the first one highlighted. The only escape sequences
    /// in them are those of our own colours.
    pub(super) fn show(&mut self, lines: &[String]) -> Result<(), CliError> {
        let (columns, rows) = terminal::size().unwrap_or(SIZE_DEFAULT);
        let has_color = output::has_color();
        let mut out = stdout().lock();
        for (row, line) in (0..rows).zip(lines) {
            let plain = match has_color {
                true => line.clone(),
                false => strip_str(line).to_string(),
            };
            out.queue(cursor::MoveTo(0, row))?;
            if row == 0 {
                out.queue(SetAttribute(Attribute::Reverse))?;
            }
            out.queue(Print(cut(&plain, usize::from(columns))))?
                .queue(SetAttribute(Attribute::Reset))?
                // The rest of each line is cleared after it is written, so that the screen does not flicker.
                .queue(Clear(ClearType::UntilNewLine))?;
        }
        if lines.len() < usize::from(rows) {
            out.queue(cursor::MoveTo(0, u16::try_from(lines.len()).unwrap_or(rows)))?
                .queue(Clear(ClearType::FromCursorDown))?;
        }
        Ok(out.flush()?)
    }

    /// Waits for an input. Cancel safe.
    pub(super) async fn key(&mut self) -> TopKey {
        // The thread ends when the terminal is gone.
        self.keys.recv().await.unwrap_or(TopKey::Quit)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = stdout();
        let left = out
            .queue(LeaveAlternateScreen)
            .and_then(|out| out.queue(cursor::Show))
            .and_then(Write::flush);
        if let Err(error) = left.and_then(|()| terminal::disable_raw_mode()) {
            tracing::debug!(%error, "the terminal could not be given back");
        }
    }
}

fn read_keys(keys: &mpsc::Sender<TopKey>) {
    while let Ok(input) = event::read() {
        let Some(key) = key_of(&input) else { continue };
        if keys.blocking_send(key).is_err() {
            return;
        }
    }
}

/// Returns the meaning of an input; in raw mode Ctrl-C is a key like others.
fn key_of(input: &Event) -> Option<TopKey> {
    match input {
        Event::Resize(..) => Some(TopKey::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(TopKey::Quit),
            KeyCode::Char('q') | KeyCode::Esc => Some(TopKey::Quit),
            KeyCode::Char(_) => Some(TopKey::Redraw),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the part of a line that fits into this many columns. Colours take no room.
fn cut(line: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut in_color = false;
    for (at, letter) in line.char_indices() {
        match letter {
            '\u{1b}' => in_color = true,
            'm' if in_color => in_color = false,
            _ if in_color => {}
            letter => used += letter.width().unwrap_or(0),
        }
        if used > columns {
            return &line[..at];
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyEvent;

    #[test]
    fn line_is_cut_by_its_width() {
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("日本", 3), "日");
        assert_eq!(cut("日本", 4), "日本");
        assert_eq!(cut("\u{1b}[31mab\u{1b}[0mcd", 3), "\u{1b}[31mab\u{1b}[0mc");
    }

    #[test]
    fn q_and_interrupt_quit() {
        let key = |code, modifiers| key_of(&Event::Key(KeyEvent::new(code, modifiers)));
        let none = KeyModifiers::NONE;
        assert!(matches!(key(KeyCode::Char('q'), none), Some(TopKey::Quit)));
        assert!(matches!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(TopKey::Quit)
        ));
        assert!(matches!(key(KeyCode::Char('c'), none), Some(TopKey::Redraw)));
        assert!(key(KeyCode::Left, none).is_none());
    }
}
