//! Draws the screen. What it says is legible without colours.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};
use ringfence_proto::v1::{HistoryRecord, Lease};
use ringfence_services::since_epoch;

use super::screen::Screen;
use crate::cli::doctor::{Answer, Said};
use crate::cli::view;
use crate::cli::visible::visible;
use crate::duration;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const PROBLEM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
/// As many lines as a history is given.
const HISTORY_LINES: u16 = 10;

pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let rows = u16::try_from(screen.nodes.len()).unwrap_or(u16::MAX);
    let history = if screen.opened.is_some() {
        HISTORY_LINES
    } else {
        0
    };
    let [head, nodes, leases, past, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(rows.saturating_add(2)),
        Constraint::Min(3),
        Constraint::Length(history),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(screen)), head);
    frame.render_widget(node_table(screen), nodes);
    draw_leases(frame, screen, leases);
    if let Some(name) = &screen.opened {
        draw_history(frame, screen, name, past);
    }
    frame.render_widget(Paragraph::new(footing(screen)), foot);
}

fn said(screen: &Screen) -> impl Iterator<Item = &Said> {
    let nodes = screen.nodes.iter();
    nodes.filter_map(|node| node.said.as_ref().ok())
}

/// The node that has come farthest: it knows the most.
fn newest(screen: &Screen) -> Option<&Said> {
    said(screen).max_by_key(|said| {
        let leads = said.status.node_id == said.status.leader_id;
        (leads, said.status.applied_index)
    })
}

fn heading(screen: &Screen) -> Vec<Line<'static>> {
    let every = duration::show(duration::millis(screen.every));
    let Some(said) = newest(screen) else {
        let text = match screen.nodes.is_empty() {
            true => Span::raw("asking the nodes …"),
            false => Span::styled(
                "no node answers: start nodes until a majority runs",
                PROBLEM,
            ),
        };
        return vec![Line::from(text)];
    };
    let status = &said.status;
    let first = match leader(screen, said) {
        Some(name) => Line::from(vec![
            Span::styled(format!("cluster {}  ", view::hex(&status.cluster_id)), BOLD),
            Span::raw(format!("leader {name}, term {}", status.term)),
        ]),
        None => Line::styled(
            "NO MAJORITY: nothing is granted; see deploy/RECOVERY.md#the-majority-is-down",
            PROBLEM,
        ),
    };
    let pace = screen.pace.map_or_else(String::new, |pace| {
        format!(
            "  grants/s {:.1}  entries/s {:.1}",
            pace.grants, pace.entries
        )
    });
    let counts = format!(
        "sessions {}  names {}  last token {}{pace}  every {every}",
        status.sessions, status.leases, status.last_token
    );
    let mut second = vec![Span::raw(counts)];
    if status.quiet_ms > 0 {
        let left = duration::show(status.quiet_ms);
        second.push(Span::styled(format!("  quiet time: {left}"), PROBLEM));
    }
    vec![first, Line::from(second)]
}

/// The name of the leader. `None` if the node knows none, or if no majority answers: a node whose leader
/// is gone still names it.
fn leader(screen: &Screen, newest: &Said) -> Option<String> {
    let status = &newest.status;
    if status.leader_id == 0 || status.cluster_id.is_empty() {
        return None;
    }
    let voters = newest.members.iter().filter(|member| member.voter);
    let answers = |id| said(screen).any(|said| said.status.node_id == id);
    let answering = voters.clone().filter(|voter| answers(voter.node_id));
    if answering.count() * 2 <= voters.count() {
        return None;
    }
    let members = said(screen).flat_map(|said| &said.members);
    let named = members.filter(|member| member.node_id == status.leader_id);
    let name = named
        .map(|member| visible(&member.name).into_owned())
        .next();
    Some(name.unwrap_or_else(|| status.leader_id.to_string()))
}

fn node_table(screen: &Screen) -> Table<'static> {
    let most = said(screen).map(|said| said.status.applied_index).max();
    let rows = screen.nodes.iter().map(|node| node_row(node, most));
    let widths = [
        Constraint::Length(16),
        Constraint::Length(10),
        Constraint::Length(6),
        Constraint::Length(12),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    let names = [
        "NODE", "ROLE", "TERM", "APPLIED", "BEHIND", "VERSION", "ENDPOINT",
    ];
    Table::new(rows, widths)
        .header(Row::new(names).style(DIM))
        .block(Block::new().borders(Borders::BOTTOM).border_style(DIM))
}

fn node_row(node: &Answer, most: Option<u64>) -> Row<'static> {
    let endpoint = visible(&node.endpoint).into_owned();
    match &node.said {
        Ok(said) => {
            let status = &said.status;
            let behind = most
                .unwrap_or_default()
                .saturating_sub(status.applied_index);
            let leads = status.node_id == status.leader_id;
            Row::new([
                visible(&status.name).into_owned(),
                visible(&status.role).into_owned(),
                status.term.to_string(),
                status.applied_index.to_string(),
                behind.to_string(),
                visible(&status.version).into_owned(),
                endpoint,
            ])
            .style(if leads { BOLD } else { Style::new() })
        }
        Err(silence) => {
            let [none, role] = ["-", "down"].map(str::to_owned);
            let why = format!("{endpoint}: {}", visible(&silence.why));
            let dashes = std::iter::repeat_n(none.clone(), 4);
            let cells = [none.clone(), role].into_iter().chain(dashes).chain([why]);
            Row::new(cells).style(PROBLEM)
        }
    }
}

fn draw_leases(frame: &mut Frame<'_>, screen: &mut Screen, area: Rect) {
    let place = screen.place();
    let Some((page, read)) = &screen.page else {
        let text = match &screen.problem {
            Some(problem) => Line::styled(visible(problem).into_owned(), PROBLEM),
            None => Line::raw("asking for the leases …"),
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let mut title = format!(" {} ", listed(page.leases.len(), &screen.prefix, page.more));
    let mut style = DIM;
    if let Some(problem) = &screen.problem {
        let age = duration::show(since_epoch().saturating_sub(*read).as_secs().max(1) * 1_000);
        title = format!(" as of {age} ago: {} ", visible(problem));
        style = PROBLEM;
    }
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(20),
        Constraint::Fill(2),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(7),
    ];
    let names = ["NAME", "TOKEN", "HOLDER", "SESSION", "LEFT", "WAITING"];
    let table = Table::new(page.leases.iter().map(lease_row), widths)
        .header(Row::new(names).style(DIM))
        .row_highlight_style(CHOSEN)
        .block(Block::new().title(title).title_style(style));
    let mut state = TableState::new().with_selected(place);
    frame.render_stateful_widget(table, area, &mut state);
}

fn listed(count: usize, prefix: &str, more: bool) -> String {
    let of = match prefix {
        "" => String::new(),
        prefix => format!(" of {}", visible(prefix)),
    };
    let leases = view::counted(count as u64, "lease");
    match more {
        true => format!("the first {leases}{of}; there are more: narrow them with /"),
        false => format!("{leases}{of}"),
    }
}

fn lease_row(lease: &Lease) -> Row<'static> {
    let holder = lease.holder.as_ref();
    let left = match (holder, lease.blocked_ms) {
        (Some(_), _) => view::lasting(lease.remaining_ms),
        (None, 0) => "-".to_owned(),
        (None, blocked) => format!("blocked {}", duration::show(blocked)),
    };
    Row::new([
        visible(&lease.name).into_owned(),
        view::or_dash(holder.map(|holder| holder.token)),
        view::or_dash(holder.map(|holder| visible(&holder.identity))),
        view::or_dash(holder.map(|holder| holder.session)),
        left,
        lease.waiters.to_string(),
    ])
    .style(if holder.is_some() { Style::new() } else { DIM })
}

fn draw_history(frame: &mut Frame<'_>, screen: &Screen, name: &str, area: Rect) {
    let title = format!(" who held {} ", visible(name));
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(DIM)
        .title(title)
        .title_style(BOLD);
    let records = match &screen.history {
        Some(Ok(records)) if records.is_empty() => Err("nothing is recorded of it".to_owned()),
        Some(Ok(records)) => Ok(records),
        Some(Err(problem)) => Err(visible(problem).into_owned()),
        None => Err("asking for its history …".to_owned()),
    };
    let records = match records {
        Ok(records) => records,
        Err(text) => {
            frame.render_widget(Paragraph::new(text).block(block), area);
            return;
        }
    };
    let widths = [
        Constraint::Length(20),
        Constraint::Fill(1),
        Constraint::Length(20),
        Constraint::Length(20),
        Constraint::Fill(1),
    ];
    let table = Table::new(records.iter().map(history_row), widths)
        .header(Row::new(["TOKEN", "HOLDER", "FROM", "TO", "END"]).style(DIM))
        .block(block);
    frame.render_widget(table, area);
}

fn history_row(record: &HistoryRecord) -> Row<'static> {
    let grant = record.grant.clone().unwrap_or_default();
    let to = match record.ended_unix_ms {
        0 => "-".to_owned(),
        ended => view::wall(ended),
    };
    let cause = view::or_dash(record.cause.as_ref().map(view::cause));
    Row::new([
        grant.token.to_string(),
        visible(&grant.identity).into_owned(),
        view::wall(grant.since_unix_ms),
        to,
        visible(&cause).into_owned(),
    ])
}

fn footing(screen: &Screen) -> Line<'static> {
    match (&screen.typed, &screen.opened) {
        (Some(typed), _) => Line::from(vec![
            Span::styled("prefix: ", BOLD),
            Span::raw(visible(typed).into_owned()),
            Span::styled("▏  Enter takes it, Esc does not", DIM),
        ]),
        (None, Some(_)) => Line::styled("q quit   / prefix   ↑↓ choose   Esc close", DIM),
        (None, None) => Line::styled("q quit   / prefix   ↑↓ choose   Enter history", DIM),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{Event, KeyCode};
    use ringfence_proto::v1::{Grant, Member, StatusResponse};

    use super::super::look::{Page, Sight};
    use super::*;

    fn shown(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = buffer.content.chunks(usize::from(width));
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        };
        cells.map(line).collect()
    }

    fn node(id: u64, leader_id: u64, applied_index: u64) -> Answer {
        let member = |node_id: u64| Member {
            node_id,
            name: format!("n{node_id}"),
            voter: true,
            ..Member::default()
        };
        Answer {
            endpoint: format!("10.0.0.{id}:7420"),
            said: Ok(Said::new(
                StatusResponse {
                    cluster_id: vec![7; 16].into(),
                    node_id: id,
                    name: format!("n{id}"),
                    role: if id == leader_id {
                        "leader"
                    } else {
                        "follower"
                    }
                    .into(),
                    leader_id,
                    term: 4,
                    applied_index,
                    last_token: 42,
                    version: "0.1.0".into(),
                    ..StatusResponse::default()
                },
                vec![member(1), member(2), member(3)],
            )),
        }
    }

    fn lease(name: &str, token: u64) -> Lease {
        Lease {
            name: name.into(),
            holder: (token > 0).then(|| Grant {
                name: name.into(),
                token,
                identity: "worker\u{1b}[2J".into(),
                session: 9,
                ..Grant::default()
            }),
            remaining_ms: 14_200,
            ..Lease::default()
        }
    }

    fn seen(screen: &mut Screen, nodes: Vec<Answer>, leases: Option<Result<Page, String>>) {
        screen.sees(Sight {
            at: since_epoch(),
            question: screen.question(),
            nodes,
            leases,
            history: None,
        });
    }

    fn page(leases: Vec<Lease>, more: bool) -> Option<Result<Page, String>> {
        Some(Ok(Page { leases, more }))
    }

    fn new() -> Screen {
        Screen::new(String::new(), Duration::from_secs(1))
    }

    #[test]
    fn a_cluster_shows_its_leader_who_is_behind_and_who_holds_what() {
        let mut screen = new();
        let down = Answer {
            endpoint: "10.0.0.3:7420".into(),
            said: Err("no answer in time".to_owned().into()),
        };
        let nodes = vec![node(1, 1, 100), node(2, 1, 93), down];
        seen(
            &mut screen,
            nodes,
            page(vec![lease("a", 41), lease("b", 0)], false),
        );
        let lines = shown(&mut screen, 100, 16);
        let text = lines.join("\n");
        assert!(
            lines[0].contains("cluster 0707") && lines[0].contains("leader n1, term 4"),
            "{text}"
        );
        let columns = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            columns(&lines[4])[..5],
            ["n2", "follower", "4", "93", "7"],
            "{text}"
        );
        assert!(
            lines[5].contains("down") && lines[5].contains("no answer in time"),
            "{text}"
        );
        // What a holder says of itself moves no cursor.
        let held = lines.iter().find(|line| line.starts_with("a ")).unwrap();
        assert!(held.contains("41") && held.contains("14.2s"), "{text}");
        assert!(held.contains("worker\\u{1b}[2J"), "{text}");
        assert!(
            text.contains("2 leases") && text.contains("q quit"),
            "{text}"
        );
    }

    #[test]
    fn a_cluster_without_a_majority_names_the_runbook_and_keeps_the_last_list() {
        let mut screen = new();
        let three = || vec![node(1, 1, 100), node(2, 1, 100), node(3, 1, 100)];
        seen(&mut screen, three(), page(vec![lease("a", 41)], true));
        let text = shown(&mut screen, 80, 14).join("\n");
        assert!(text.contains("leader n1"), "{text}");
        // None is elected, or the one that is left still names a leader that is gone.
        let elected_none = vec![node(1, 0, 100), node(2, 0, 100)];
        for nodes in [elected_none, vec![node(1, 2, 100)]] {
            let refused = Some(Err("no leader is known".into()));
            seen(&mut screen, nodes, refused);
            let text = shown(&mut screen, 80, 14).join("\n");
            assert!(text.starts_with("NO MAJORITY: "), "{text}");
            assert!(text.contains("RECOVERY.md#the-majority-is-down"), "{text}");
            assert!(text.contains("ago: no leader is known"), "{text}");
            assert!(text.lines().any(|line| line.starts_with("a ")), "{text}");
            assert!(screen.pace.is_some());
        }
    }

    #[test]
    fn any_window_and_any_moment_can_be_drawn() {
        let mut screen = new();
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100)] {
            let mut screen = new();
            shown(&mut screen, width, height);
            seen(&mut screen, Vec::new(), Some(Err("down".into())));
            shown(&mut screen, width, height);
            let many = (0..1_000).map(|n| lease(&format!("l{n:04}"), n)).collect();
            seen(&mut screen, vec![node(1, 1, 1)], page(many, true));
            for code in [KeyCode::End, KeyCode::Enter, KeyCode::Char('/')] {
                screen.takes(Event::Key(code.into()));
                shown(&mut screen, width, height);
            }
        }
        seen(
            &mut screen,
            vec![node(1, 1, 1)],
            page(vec![lease("a", 1)], true),
        );
        let text = shown(&mut screen, 100, 12).join("\n");
        assert!(
            text.contains("there are more: narrow them with /"),
            "{text}"
        );
    }
}
