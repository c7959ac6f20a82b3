//! What is typed, read by a thread of its own: a terminal is read blocking.

use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

/// Keys and changes of the window's size, as they happen. It ends with the terminal.
pub(super) fn read() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(64);
    // It ends with the process: no call makes a read of the terminal return.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    receiver
}
