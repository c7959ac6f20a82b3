//! What every follower of floors has to do, as a suite of stories that can be held against any: it
//! tells the first one that goes wrong.

use ringfence_guard::Fence;
use ringfence_guard::follow::{News, Unheard};

use crate::support::{fence, floor, token};

/// What a follower says to a fence at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes.
    Passes,
    /// It is refused for good.
    Stale,
    /// It waits for the stream, and is refused if nothing comes.
    Waits,
}

/// A follower under test.
pub(crate) trait Subject {
    /// Takes in one report.
    async fn tell(&mut self, news: News);
    /// The stream ends, and a new one begins that has reported nothing yet.
    async fn reconnect(&mut self);
    /// What becomes of a fence that is shown now.
    async fn show(&mut self, fence: &Fence) -> Verdict;
}

/// A step of a story.
enum Step {
    Told(News),
    Reconnected,
    Shown(&'static str, Verdict),
}

use Step::{Reconnected, Shown, Told};
use Verdict::{Passes, Stale, Waits};

type Story = (&'static str, Vec<Step>);

fn grant(text: &str) -> Step {
    Told(floor(text))
}

/// Stories that end the same whatever is done without a live stream.
fn stories() -> Vec<Story> {
    let reached = || Told(News::Reached);
    vec![
        (
            "an overtaken token is refused before the new one was shown",
            vec![
                grant("db#8"),
                reached(),
                Shown("db#8", Passes),
                grant("db#9"),
                Shown("db#8", Stale),
                Shown("db#9", Passes),
            ],
        ),
        (
            "a token that was never granted waits",
            vec![
                grant("db#8"),
                reached(),
                Shown("db#9", Waits),
                Shown("db#9223372036854775807", Waits),
                Shown("db#8", Passes),
            ],
        ),
        (
            "a name that was never granted waits",
            vec![grant("db#8"), reached(), Shown("new#1", Waits)],
        ),
        (
            "names have nothing to do with each other",
            vec![
                grant("db#8"),
                grant("other#900"),
                reached(),
                Shown("db#8", Passes),
                Shown("db#900", Waits),
                Shown("other#8", Stale),
            ],
        ),
        (
            "floors never go back",
            vec![
                grant("db#9"),
                grant("db#8"),
                reached(),
                Shown("db#8", Stale),
                Shown("db#9", Passes),
            ],
        ),
        (
            "what was forgotten is no floor",
            vec![
                Told(News::Forgotten(token(100))),
                grant("db#8"),
                reached(),
                Shown("db#8", Passes),
                Shown("new#101", Waits),
                Shown("new#100", Waits),
            ],
        ),
        (
            "floors stay true when the stream ends",
            vec![
                grant("db#9"),
                reached(),
                Reconnected,
                Shown("db#8", Stale),
                Shown("db#9", Passes),
            ],
        ),
        (
            "floors stay true when the stream begins anew",
            vec![
                grant("db#9"),
                reached(),
                Told(News::Anew),
                Shown("db#8", Stale),
                Shown("db#9", Passes),
                reached(),
                Shown("db#8", Stale),
                Shown("db#10", Waits),
            ],
        ),
        (
            "the greatest token has no greater one",
            vec![
                grant("db#9223372036854775807"),
                reached(),
                Shown("db#9223372036854775806", Stale),
                Shown("db#9223372036854775807", Passes),
            ],
        ),
    ]
}

/// Stories in which the stream is not live, so that the setting decides.
fn unheard_stories(unheard: Unheard) -> Vec<Story> {
    let unheard = match unheard {
        Unheard::Plain => Passes,
        Unheard::Refuse => Waits,
    };
    vec![
        (
            "before everything was told nothing above a floor is known",
            vec![
                grant("db#8"),
                Shown("db#9", unheard),
                Shown("new#1", unheard),
            ],
        ),
        (
            "behind an end nothing above a floor is known",
            vec![
                grant("db#8"),
                Told(News::Reached),
                Reconnected,
                Shown("db#9", unheard),
            ],
        ),
        (
            "anew nothing above a floor is known",
            vec![
                grant("db#8"),
                Told(News::Reached),
                Told(News::Anew),
                Shown("db#9", unheard),
                Told(News::Reached),
                Shown("db#9", Waits),
            ],
        ),
    ]
}

/// Holds a follower against all stories; the name of the first that goes wrong.
pub(crate) async fn run<S: Subject>(
    unheard: Unheard,
    mut fresh: impl FnMut(Unheard) -> S,
) -> Result<(), &'static str> {
    for (story, steps) in stories().into_iter().chain(unheard_stories(unheard)) {
        let mut subject = fresh(unheard);
        for step in steps {
            match step {
                Told(news) => subject.tell(news).await,
                Reconnected => subject.reconnect().await,
                Shown(text, expected) => {
                    if subject.show(&fence(text)).await != expected {
                        return Err(story);
                    }
                }
            }
        }
    }
    Ok(())
}
