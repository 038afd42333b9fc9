//! Timing and tables.
//!
//! Contenders run in turns, a short batch each, round after round, so that whatever else the machine
//! does hits all of them alike. A contender's time is its median round. A ratio is the median of the
//! ratios within the rounds: two times that were taken side by side tell more than two that were not.

use std::time::{Duration, Instant};

/// How often every contender gets its turn.
pub(crate) const ROUNDS: usize = 21;

/// How long one turn takes, roughly: long enough for the clock, short enough for a fair share.
pub(crate) const TURN: Duration = Duration::from_millis(4);

/// How long a contender runs before anything counts.
pub(crate) const WARM_UP: Duration = Duration::from_millis(20);

/// Something to be timed.
pub(crate) struct Contender<'a> {
    name: String,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Contender<'a> {
    /// `run` is one unit of work; it keeps its results from being optimised away by itself.
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// How long one run of a contender took, in every round.
pub(crate) struct Timing {
    pub(crate) name: String,
    /// Nanoseconds of one run, by round.
    rounds: Vec<f64>,
}

impl Timing {
    /// Nanoseconds of one run in the median round.
    pub(crate) fn ns(&self) -> f64 {
        quantile(self.rounds.clone(), 0.5)
    }

    /// How many times as long as `other` it took.
    pub(crate) fn times(&self, other: &Self) -> f64 {
        let ratios = self.rounds.iter().zip(&other.rounds);
        quantile(ratios.map(|(mine, its)| mine / its).collect(), 0.5)
    }

    /// How calm the machine was.
    pub(crate) fn spread(&self) -> f64 {
        spread(&self.rounds)
    }
}

/// The distance between the quartiles, as a part of the median: how calm the machine was.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let middle_half = quantile(values.to_vec(), 0.75) - quantile(values.to_vec(), 0.25);
    middle_half / median(values)
}

/// The value in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values.to_vec(), 0.5)
}

/// The value below which this part of them is; the smallest for 0, the largest for 1.
pub(crate) fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * part).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Warms every contender up, then lets them run in turns.
pub(crate) fn race(mut contenders: Vec<Contender<'_>>) -> Vec<Timing> {
    let repeats: Vec<u32> = contenders.iter_mut().map(warm_up).collect();
    let mut timings: Vec<Timing> = contenders
        .iter()
        .map(|contender| Timing {
            name: contender.name.clone(),
            rounds: Vec::with_capacity(ROUNDS),
        })
        .collect();
    for round in 0..ROUNDS {
        let turns = contenders.iter_mut().zip(&mut timings).zip(&repeats);
        let mut turns: Vec<_> = turns.collect();
        // Nobody always runs behind the same neighbour.
        let first = round % turns.len().max(1);
        turns.rotate_left(first);
        for ((contender, timing), repeat) in turns {
            let start = Instant::now();
            for _ in 0..*repeat {
                (contender.run)();
            }
            let spent = start.elapsed().as_nanos() as f64;
            timing.rounds.push(spent / f64::from(*repeat));
        }
    }
    timings
}

/// Runs a contender for a while and gives how many runs fill a turn.
fn warm_up(contender: &mut Contender<'_>) -> u32 {
    let start = Instant::now();
    let mut runs: u32 = 0;
    while runs == 0 || start.elapsed() < WARM_UP {
        (contender.run)();
        runs += 1;
    }
    let one = start.elapsed().as_secs_f64() / f64::from(runs);
    (TURN.as_secs_f64() / one).ceil().max(1.0) as u32
}

/// A table: the first column is text, the others are aligned to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// A row whose number of cells is only known when it runs.
    pub(crate) fn row_of(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// A line of its own between rows.
    pub(crate) fn heading(&mut self, text: &str) {
        self.rows.push(vec![text.to_owned()]);
    }

    pub(crate) fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter(|row| row.len() > 1);
            cells
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate();
            let line: Vec<String> = cells
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            println!("  {}", line.join("  ").trim_end());
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                println!("  {}", rule.join("  "));
            }
        }
    }
}

/// A number with about three digits that mean something.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.1 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// A large count, in thousands or millions.
pub(crate) fn count(number: f64) -> String {
    if number >= 1e6 { format!("{:.2} M", number / 1e6) } else { format!("{:.0} k", number / 1e3) }
}

/// A part of one, in percent.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
