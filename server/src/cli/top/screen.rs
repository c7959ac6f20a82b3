//! What is shown, and what the keys do to it. Nothing here asks or draws.

use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ringfence_proto::v1::HistoryRecord;

use super::look::{Page, Question, Sight};
use crate::cli::doctor::Answer;

/// The longest prefix that is typed; no name is longer.
const PREFIX_BYTES_MAX: usize = ringfence_core::LEASE_NAME_BYTES_MAX;

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// Look at once: the question is another one.
    Ask,
    Quit,
}

/// The screen.
pub(super) struct Screen {
    pub(super) every: Duration,
    pub(super) prefix: String,
    /// The next prefix while it is typed.
    pub(super) typed: Option<String>,
    /// The name that the arrows chose: it stays chosen while names before it come and go.
    pub(super) chosen: Option<String>,
    pub(super) opened: Option<String>,
    pub(super) nodes: Vec<Answer>,
    /// The newest list, and when it was read.
    pub(super) page: Option<(Page, Duration)>,
    /// Why there is no newer one.
    pub(super) problem: Option<String>,
    pub(super) history: Option<Result<Vec<HistoryRecord>, String>>,
    pub(super) pace: Option<Pace>,
    count: Option<Count>,
}

/// How much was done in each second between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) grants: f64,
    pub(super) entries: f64,
}

#[derive(Clone, Copy)]
struct Count {
    at: Duration,
    token: u64,
    index: u64,
}

impl Screen {
    pub(super) fn new(prefix: String, every: Duration) -> Self {
        Self {
            every,
            prefix,
            typed: None,
            chosen: None,
            opened: None,
            nodes: Vec::new(),
            page: None,
            problem: None,
            history: None,
            pace: None,
            count: None,
        }
    }

    pub(super) fn question(&self) -> Question {
        Question {
            prefix: self.prefix.clone(),
            opened: self.opened.clone(),
        }
    }

    /// Takes what was found.
    pub(super) fn sees(&mut self, sight: Sight) {
        self.measure(&sight);
        self.nodes = sight.nodes;
        if sight.question.prefix == self.prefix {
            match sight.leases {
                Some(Ok(page)) => {
                    self.page = Some((page, sight.at));
                    self.problem = None;
                }
                Some(Err(problem)) => self.problem = Some(problem),
                None => {}
            }
        }
        if sight.question.opened == self.opened {
            self.history = sight.history;
        }
    }

    fn measure(&mut self, sight: &Sight) {
        let said = sight
            .nodes
            .iter()
            .filter_map(|node| node.said.as_ref().ok());
        let newest = said.max_by_key(|said| said.status.applied_index);
        let Some(newest) = newest else {
            (self.count, self.pace) = (None, None);
            return;
        };
        let now = Count {
            at: sight.at,
            token: newest.status.last_token,
            index: newest.status.applied_index,
        };
        self.pace = self.count.and_then(|before| {
            let seconds = now.at.checked_sub(before.at)?.as_secs_f64();
            // A restored cluster may begin with lower numbers.
            let grants = now.token.checked_sub(before.token)?;
            let entries = now.index.checked_sub(before.index)?;
            (seconds > 0.0).then(|| Pace {
                grants: grants as f64 / seconds,
                entries: entries as f64 / seconds,
            })
        });
        self.count = Some(now);
    }

    /// Takes what was typed.
    pub(super) fn takes(&mut self, event: Event) -> Act {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            _ => Act::Nothing,
        }
    }

    fn key(&mut self, key: KeyEvent) -> Act {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Act::Quit;
        }
        if self.typed.is_some() {
            return self.types(key.code);
        }
        match key.code {
            KeyCode::Char('q') => Act::Quit,
            KeyCode::Char('/') => {
                self.typed = Some(self.prefix.clone());
                Act::Nothing
            }
            KeyCode::Esc if self.opened.is_some() => self.open(None),
            KeyCode::Enter => match self.opened.is_some() {
                true => self.open(None),
                false => self.open(self.chosen.clone()),
            },
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::PageDown => self.choose(20),
            KeyCode::PageUp => self.choose(-20),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            _ => Act::Nothing,
        }
    }

    fn types(&mut self, code: KeyCode) -> Act {
        let typed = self.typed.get_or_insert_default();
        match code {
            KeyCode::Char(letter) if typed.len() + letter.len_utf8() <= PREFIX_BYTES_MAX => {
                typed.push(letter);
            }
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                self.prefix = self.typed.take().unwrap_or_default();
                (self.page, self.chosen) = (None, None);
                return Act::Ask;
            }
            _ => {}
        }
        Act::Nothing
    }

    fn open(&mut self, name: Option<String>) -> Act {
        self.history = None;
        self.opened = name;
        Act::Ask
    }

    /// Where the chosen name stands, or the next one if it is gone.
    pub(super) fn place(&self) -> Option<usize> {
        let leases = &self.page.as_ref()?.0.leases;
        let chosen = self.chosen.as_ref()?;
        let at = leases.partition_point(|lease| lease.name.as_str() < chosen.as_str());
        (!leases.is_empty()).then(|| at.min(leases.len() - 1))
    }

    fn choose(&mut self, step: isize) -> Act {
        let place = self.place();
        let Some((page, _)) = &self.page else {
            return Act::Nothing;
        };
        let last = page.leases.len().saturating_sub(1);
        let next = match place {
            // The first key shows where one is.
            None if step == isize::MAX => last,
            None => 0,
            Some(place) => place.saturating_add_signed(step).min(last),
        };
        self.chosen = page.leases.get(next).map(|lease| lease.name.clone());
        // A history that is open follows.
        match self.opened.is_some() {
            true => self.open(self.chosen.clone()),
            false => Act::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_proto::v1::Lease;

    fn screen(names: &[&str]) -> Screen {
        let mut screen = Screen::new(String::new(), Duration::from_secs(1));
        let question = screen.question();
        screen.sees(sight(question, names));
        screen
    }

    fn sight(question: Question, names: &[&str]) -> Sight {
        let lease = |name: &&str| Lease {
            name: (*name).to_owned(),
            ..Lease::default()
        };
        Sight {
            at: Duration::from_secs(1),
            question,
            nodes: Vec::new(),
            leases: Some(Ok(Page {
                leases: names.iter().map(lease).collect(),
                more: false,
            })),
            history: None,
        }
    }

    fn press(screen: &mut Screen, codes: &[KeyCode]) -> Vec<Act> {
        let events = codes.iter().map(|code| Event::Key((*code).into()));
        events.map(|event| screen.takes(event)).collect()
    }

    #[test]
    fn a_chosen_name_stays_chosen_while_others_come_and_go() {
        let mut screen = screen(&["a", "b", "c"]);
        assert_eq!(screen.place(), None);
        press(&mut screen, &[KeyCode::Down, KeyCode::Down]);
        assert_eq!(screen.chosen.as_deref(), Some("b"));
        let question = screen.question();
        screen.sees(sight(question.clone(), &["a", "aa", "b", "c"]));
        assert_eq!(screen.place(), Some(2));
        screen.sees(sight(question.clone(), &["a"]));
        assert_eq!(screen.place(), Some(0), "the last one that there is");
        screen.sees(sight(question, &[]));
        assert_eq!(screen.place(), None);
        let acts = press(&mut screen, &[KeyCode::Up, KeyCode::End, KeyCode::Home]);
        assert_eq!(acts, [Act::Nothing, Act::Nothing, Act::Nothing]);
    }

    #[test]
    fn a_prefix_is_typed_and_asked_for_and_a_list_of_the_one_before_is_not_shown() {
        let mut screen = screen(&["a", "b"]);
        let before = screen.question();
        let keys = ['/', 'b', 'q', 'x'].map(KeyCode::Char);
        press(&mut screen, &keys);
        let acts = press(&mut screen, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(acts, [Act::Nothing, Act::Ask]);
        assert_eq!(screen.question().prefix, "bq");
        screen.sees(sight(before, &["a", "b"]));
        assert!(screen.page.is_none());

        press(
            &mut screen,
            &[KeyCode::Char('/'), KeyCode::Char('z'), KeyCode::Esc],
        );
        assert_eq!((screen.prefix.as_str(), &screen.typed), ("bq", &None));
    }

    #[test]
    fn a_history_opens_follows_the_arrows_and_closes() {
        let mut screen = screen(&["a", "b"]);
        assert_eq!(
            press(&mut screen, &[KeyCode::Down, KeyCode::Enter]),
            [Act::Nothing, Act::Ask]
        );
        assert_eq!(screen.question().opened.as_deref(), Some("a"));
        assert_eq!(press(&mut screen, &[KeyCode::Down]), [Act::Ask]);
        assert_eq!(screen.question().opened.as_deref(), Some("b"));
        assert_eq!(press(&mut screen, &[KeyCode::Esc]), [Act::Ask]);
        assert_eq!(screen.question().opened, None);
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), [Act::Quit]);
    }

    #[test]
    fn nothing_typed_grows_without_a_bound() {
        let mut screen = screen(&[]);
        press(&mut screen, &[KeyCode::Char('/')]);
        press(&mut screen, &vec![KeyCode::Char('é'); 10_000]);
        let typed = screen.typed.unwrap_or_default();
        assert!(typed.len() <= PREFIX_BYTES_MAX, "{}", typed.len());
    }
}
