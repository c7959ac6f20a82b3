//! What is printed at the end: a small table, or one object.

use serde_json::{Map, Value, json};

use super::load::{Load, Measured, Samples};
use super::numbers::{count, show_us};
use crate::cli::Failure;
use crate::cli::output::Table;

/// What is said about a measurement besides its figures.
pub(super) struct Sheet<'a> {
    /// What was measured.
    pub(super) work: &'a str,
    /// What was counted.
    pub(super) unit: &'a str,
    /// The kinds of samples.
    pub(super) series: &'a [&'a str],
    /// More for programs.
    pub(super) object: Map<String, Value>,
    /// More for people.
    pub(super) text: String,
}

impl<'a> Sheet<'a> {
    /// A sheet with nothing more on it.
    pub(super) fn new(work: &'a str, unit: &'a str, series: &'a [&'a str]) -> Self {
        Self {
            work,
            unit,
            series,
            object: Map::new(),
            text: String::new(),
        }
    }

    /// Prints the throughput and the durations of each series, and the place where that was.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn print(
        self,
        measured: &Measured,
        place: &str,
        load: &Load,
    ) -> Result<(), Failure> {
        let Self {
            work,
            unit,
            series,
            mut object,
            text,
        } = self;
        let seconds = measured.elapsed.as_secs_f64();
        let per_second = measured.per_second();
        object.insert("bench".into(), work.into());
        object.insert("clients".into(), load.clients.into());
        object.insert("seconds".into(), json!(seconds));
        object.insert("unit".into(), unit.into());
        object.insert("done".into(), measured.done.into());
        object.insert("per_second".into(), json!(per_second.round()));
        let mut table = Table::new(&["", "p50", "p99", "max"]);
        for (name, samples) in series.iter().zip(&measured.samples) {
            object.insert((*name).to_owned(), latencies(samples));
            let at = |quantile| show_us(samples.value_at_quantile(quantile));
            table.row(vec![
                (*name).to_owned(),
                at(0.5),
                at(0.99),
                show_us(samples.max()),
            ]);
        }
        let clients = match load.clients {
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        };
        // Of what takes seconds each there is no rate worth a line.
        let done = match per_second >= 1.0 {
            true => format!("{} {unit}/s", count(per_second as u64)),
            false => format!("{} {unit}", measured.done),
        };
        object.insert("debug_build".into(), cfg!(debug_assertions).into());
        let build = match cfg!(debug_assertions) {
            true => "\n\nThis is a debug build: its figures are no measure; use --release",
            false => "",
        };
        let text =
            format!("{work}: {clients}, {seconds:.0} s, {place}\n{done}\n\n{table}{text}{build}",);
        load.output.result(&Value::Object(object), text.trim_end())
    }
}

/// The durations of one series, in microseconds.
pub(super) fn latencies(samples: &Samples) -> Value {
    json!({
        "p50_us": samples.value_at_quantile(0.5),
        "p99_us": samples.value_at_quantile(0.99),
        "max_us": samples.max(),
    })
}
