//! The figures of all rounds, and how they compare.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rows::{Figure, Row};

/// A row with what was measured of it.
pub(super) struct Compared {
    pub(super) row: &'static Row,
    /// Of Ringfence, one for each round.
    ours: Vec<f64>,
    /// Of etcd.
    theirs: Vec<f64>,
    /// What the programs printed.
    printed: Vec<Value>,
}

/// The least, the middle and the greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) greatest: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        Self {
            least: sorted[0],
            median: (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0,
            greatest: sorted[last],
        }
    }
}

impl Compared {
    pub(super) fn new(row: &'static Row) -> Self {
        Self {
            row,
            ours: Vec::new(),
            theirs: Vec::new(),
            printed: Vec::new(),
        }
    }

    /// Takes what the programs printed in one round.
    ///
    /// # Errors
    /// If the figure is not there, or is zero.
    pub(super) fn add(&mut self, ours: Value, theirs: Value) -> Result<(), String> {
        let figure = |printed: &Value| {
            let found = match self.row.figure {
                Figure::Rate => &printed["per_second"],
                Figure::Median(series) => &printed[series]["p50_us"],
            };
            let found = found.as_f64().filter(|figure| *figure > 0.0);
            found.ok_or_else(|| format!("{}: there is no figure in {printed}", self.row.name))
        };
        let (one, other) = (figure(&ours)?, figure(&theirs)?);
        self.ours.push(one);
        self.theirs.push(other);
        self.printed
            .push(json!({"ringfence": ours, "etcd": theirs}));
        Ok(())
    }

    /// How many times as much Ringfence does as etcd, or how many times as long it takes, by round.
    pub(super) fn ratios(&self) -> Spread {
        let ratios = self.ours.iter().zip(&self.theirs);
        let ratios: Vec<f64> = ratios.map(|(ours, theirs)| ours / theirs).collect();
        Spread::of(&ratios)
    }

    /// The same, so that more is better.
    pub(super) fn gain(&self) -> Spread {
        let ratios = self.ratios();
        match self.row.figure {
            Figure::Rate => ratios,
            Figure::Median(_) => Spread {
                least: 1.0 / ratios.greatest,
                median: 1.0 / ratios.median,
                greatest: 1.0 / ratios.least,
            },
        }
    }

    /// For programs.
    pub(super) fn object(&self) -> Value {
        let ratios = self.ratios();
        json!({
            "name": self.row.name,
            "work": self.row.work,
            "unit": match self.row.figure {
                Figure::Rate => "per second",
                Figure::Median(_) => "microseconds",
            },
            "ringfence": self.ours,
            "etcd": self.theirs,
            "ratio": {"least": ratios.least, "median": ratios.median, "greatest": ratios.greatest},
            "printed": self.printed,
        })
    }

    fn shown(&self, figures: &[f64]) -> String {
        let median = Spread::of(figures).median;
        match self.row.figure {
            Figure::Rate => format!("{}/s", thousands(median)),
            Figure::Median(_) => format!("{:.2} ms", median / 1e3),
        }
    }
}

/// The table for people.
pub(super) fn table(measured: &[Compared], machine: &Value, rounds: u32, seconds: u32) -> String {
    let mut text = format!(
        "{rounds} rounds in turns, {seconds} s each; medians, and in brackets the least and the greatest \
         ratio of a round.\n{}\n\n",
        super::machine::line(machine)
    );
    text += "| work | Ringfence | etcd | ratio | row |\n|---|---|---|---|---|\n";
    for compared in measured {
        let ratio = compared.ratios();
        let unit = match compared.row.figure {
            Figure::Rate => "times as many",
            Figure::Median(_) => "of the time",
        };
        // A string takes everything.
        writeln!(
            text,
            "| {} | {} | {} | {:.2} {unit} ({:.2} to {:.2}) | `{}` |",
            compared.row.work,
            compared.shown(&compared.ours),
            compared.shown(&compared.theirs),
            ratio.median,
            ratio.least,
            ratio.greatest,
            compared.row.name,
        )
        .ok();
    }
    text + &profiles(measured)
}

/// What each row cost, in its last round.
fn profiles(measured: &[Compared]) -> String {
    let mut text = "
Where the time went, in the last round: shares of the processor time of all processes, and what one unit of work \
         cost; switches, calls and bytes are those of the nodes.

"
    .to_owned();
    text += "| row | of | busiest node | other nodes | load | processor | switches | writes | written |\n\
             |---|---|---|---|---|---|---|---|---|\n";
    for compared in measured {
        let Some(printed) = compared.printed.last() else {
            continue;
        };
        for (of, key) in [("Ringfence", "ringfence"), ("etcd", "etcd")] {
            let done = printed[key]["done"].as_f64().unwrap_or_default();
            let cells = super::processes::cells(&printed[key]["processes"], done);
            // A string takes everything.
            writeln!(text, "| `{}` | {of} | {cells} |", compared.row.name).ok();
        }
    }
    text
}

/// A number with its thousands apart.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    fn compared(name: &str, rounds: &[(Value, Value)]) -> Compared {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let mut compared = Compared::new(row);
        for (ours, theirs) in rounds {
            compared.add(ours.clone(), theirs.clone()).unwrap();
        }
        compared
    }

    #[test]
    fn the_ratio_is_the_median_of_those_of_the_rounds_and_not_the_ratio_of_medians() {
        let rate = |rate: u32| json!({"per_second": rate});
        let rounds = [(100, 10), (900, 300), (40, 20)];
        let rounds = rounds.map(|(ours, theirs)| (rate(ours), rate(theirs)));
        let spread = compared("cycle-64", &rounds).ratios();
        let expected = Spread {
            least: 2.0,
            median: 3.0,
            greatest: 10.0,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(&[1.0, 2.0, 4.0, 9.0]).median, 3.0);
    }

    #[test]
    fn of_a_duration_half_the_time_is_a_gain_of_two() {
        let took = |us: u32| json!({"acquire": {"p50_us": us}});
        let compared = compared("acquire-1", &[(took(400), took(800))]);
        assert_eq!(
            (compared.ratios().median, compared.gain().median),
            (0.5, 2.0)
        );
        let shown = table(&[compared], &json!({}), 1, 10);
        assert!(
            shown.contains("| 0.40 ms | 0.80 ms | 0.50 of the time (0.50 to 0.50) |"),
            "{shown}"
        );
    }

    #[test]
    fn a_measurement_without_its_figure_is_refused() {
        let mut compared = compared("cycle-64", &[]);
        let (none, zero) = (json!({}), json!({"per_second": 0}));
        assert!(compared.add(none, json!({"per_second": 1})).is_err());
        assert!(compared.add(json!({"per_second": 1}), zero).is_err());
    }

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.4, 999.0, 1_000.0, 1_234_567.0].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
