//! The picture of a run: how full every pool was against its limit, how asks were answered below it, and what
//! went wrong when. It brings its own ground, light or dark as its reader likes it.

use std::fmt::{self, Write};

use crate::{outcome::Outcome, series::PIECES, table::grouped};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 88.0;
/// Where the pools end, and where the answers begin and end.
const POOLS_END: f64 = 264.0;
const ANSWERS_TOP: f64 = 288.0;
const BOTTOM: f64 = 352.0;

/// Told apart also without colours: each has its own dashes.
const DASHES: [&str; 5] = ["none", "7 3", "2 3", "10 3 2 3", "4 4"];

const STYLE: &str = "\
svg{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px}\
.ground{fill:#fff}.ink{fill:#1f2933}.soft{fill:#5f6b7a}.grid{stroke:#e3e8ee}.axis{stroke:#8a96a3}\
.limit{stroke:#c62828;stroke-width:1.5}.limit-word{fill:#c62828}.trouble{fill:#f2a33a;fill-opacity:.18}\
.mark{stroke:#b76e00}.mark-word{fill:#8a5300}\
.c0{stroke:#1565c0}.c1{stroke:#2e7d32}.c2{stroke:#7b3fa0}.c3{stroke:#00838f}.c4{stroke:#a1552a}\
.a0{fill:#2e7d32}.a1{fill:#1e88e5}.a2{fill:#d9480f}.a3{fill:#9aa5b1}\
@media (prefers-color-scheme:dark){.ground{fill:#12171d}.ink{fill:#e8edf2}.soft{fill:#9fb0c0}\
.grid{stroke:#28323d}.axis{stroke:#66737f}.limit{stroke:#ff6b6b}.limit-word{fill:#ff8a8a}\
.mark{stroke:#f2a33a}.mark-word{fill:#f5bd6e}.c0{stroke:#64b5f6}.c1{stroke:#81c784}.c2{stroke:#ce93d8}\
.c3{stroke:#4dd0e1}.c4{stroke:#d7a17e}.a0{fill:#66bb6a}.a1{fill:#42a5f5}.a2{fill:#ff7043}.a3{fill:#5f6b7a}}";

/// The answers to asks, in the order in which they lie upon each other.
const ANSWERS: [&str; 4] = ["approved", "told to wait", "denied", "not answered"];

/// The picture as SVG. Writing into memory does not fail.
pub(crate) fn svg(outcome: &Outcome) -> String {
    let mut svg = String::with_capacity(32_768);
    let sheet = Sheet { outcome, top: top(outcome) };
    let _ = sheet.draw(&mut svg);
    svg
}

/// The top of the upper axis, in parts of the limit: the limit always shows, and what is above it too.
fn top(outcome: &Outcome) -> f64 {
    let points = outcome.picture.curves.iter().flatten();
    let most = points.fold(1.0_f64, |most, point| most.max(*point));
    let steps = [1.2, 1.6, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    steps.into_iter().find(|step| most <= *step * 0.98).unwrap_or(most)
}

struct Sheet<'a> {
    outcome: &'a Outcome,
    top: f64,
}

impl Sheet<'_> {
    fn x(&self, second: f64) -> f64 {
        LEFT + second / self.outcome.seconds.max(1e-3) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, share: f64) -> f64 {
        POOLS_END - (share / self.top).min(1.0) * (POOLS_END - TOP)
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        write!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"><title>{}</title><style>{STYLE}</style><rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>"#,
            escaped(&self.outcome.name)
        )?;
        self.title(svg)?;
        self.marks(svg)?;
        self.axes(svg)?;
        self.curves(svg)?;
        self.answers(svg)?;
        svg.write_str("</svg>\n")
    }

    fn title(&self, svg: &mut String) -> fmt::Result {
        let outcome = self.outcome;
        let kept = outcome.invariants.iter().filter(|verdict| verdict.holds).count();
        let all = outcome.invariants.len();
        write!(
            svg,
            r#"<text class="ink" x="{LEFT}" y="24" font-size="16" font-weight="600">{}</text><text class="soft" x="{LEFT}" y="42">{}</text><text class="{}" x="{:.0}" y="24" text-anchor="end" font-weight="600">{kept} of {all} invariants hold</text>"#,
            escaped(&outcome.name),
            escaped(&short(&outcome.about, 104)),
            if kept == all { "ink" } else { "limit-word" },
            WIDTH - RIGHT
        )
    }

    /// What went wrong: a band for as long as it lasted, a line where it began, a word above.
    fn marks(&self, svg: &mut String) -> fmt::Result {
        // Words that would lie upon each other move up a row, and are left out where there is none more.
        let mut rows = [6.0, 18.0, 30.0].map(|above| (TOP - above, f64::MIN));
        for (from, to, label) in &self.outcome.picture.marks {
            let (from, to) = (self.x(*from), self.x(to.min(self.outcome.seconds)));
            let (width, height) = (to - from, BOTTOM - TOP);
            if width > 0.0 {
                write!(
                    svg,
                    r#"<rect class="trouble" x="{from:.1}" y="{TOP}" width="{width:.1}" height="{height:.1}"/>"#
                )?;
            }
            write!(
                svg,
                r#"<path class="mark" d="M{from:.1} {TOP}V{BOTTOM}" stroke-dasharray="3 3"/>"#
            )?;
            let length = label.chars().count() as f64 * 6.2;
            let (anchor, begins) = if from + length > WIDTH - RIGHT {
                ("end", from - length)
            } else {
                ("start", from)
            };
            if let Some((y, free)) = rows.iter_mut().find(|(_, free)| begins >= *free) {
                *free = begins + length + 8.0;
                write!(
                    svg,
                    r#"<text class="mark-word" x="{from:.1}" y="{y:.0}" font-size="11" text-anchor="{anchor}">{}</text>"#,
                    escaped(label)
                )?;
            }
        }
        Ok(())
    }

    fn axes(&self, svg: &mut String) -> fmt::Result {
        let end = WIDTH - RIGHT;
        let step = nice(self.top / 4.0);
        for number in 0..=(self.top / step + 1e-9) as u32 {
            let share = f64::from(number) * step;
            let y = self.y(share);
            write!(
                svg,
                r#"<path class="grid" d="M{LEFT} {y:.1}H{end}"/><text class="soft" x="{:.0}" y="{:.1}" text-anchor="end">{:.0}%</text>"#,
                LEFT - 8.0,
                y + 4.0,
                share * 100.0
            )?;
        }
        let (length, unit) = match self.outcome.seconds {
            seconds if seconds > 2.0 * 86_400.0 => (86_400.0, "days"),
            seconds if seconds > 3.0 * 3600.0 => (3600.0, "hours"),
            seconds if seconds > 150.0 => (60.0, "minutes"),
            _ => (1.0, "seconds"),
        };
        let step = nice(self.outcome.seconds / length / 8.0);
        for number in 0..=(self.outcome.seconds / length / step + 1e-9) as u32 {
            let value = f64::from(number) * step;
            let x = self.x(value * length);
            write!(
                svg,
                r#"<path class="grid" d="M{x:.1} {TOP}V{POOLS_END}M{x:.1} {ANSWERS_TOP}V{BOTTOM}"/><text class="soft" x="{x:.1}" y="{:.0}" text-anchor="middle">{}</text>"#,
                BOTTOM + 16.0,
                (value * 100.0).round() / 100.0
            )?;
        }
        write!(
            svg,
            r#"<path class="axis" fill="none" d="M{LEFT} {TOP}V{POOLS_END}H{end}M{LEFT} {ANSWERS_TOP}V{BOTTOM}H{end}"/><text class="soft" x="{:.0}" y="{:.0}" text-anchor="end">{unit}</text><text class="soft" transform="translate(16 {:.0}) rotate(-90)" text-anchor="middle">taken of the limit</text><text class="soft" transform="translate(16 {:.0}) rotate(-90)" text-anchor="middle">asks</text>"#,
            WIDTH - RIGHT,
            BOTTOM + 36.0,
            (TOP + POOLS_END) / 2.0,
            (ANSWERS_TOP + BOTTOM) / 2.0
        )
    }

    /// A line for each pool, the limit above them, and their names.
    fn curves(&self, svg: &mut String) -> fmt::Result {
        let limit = self.y(1.0);
        write!(
            svg,
            r#"<path class="limit" d="M{LEFT} {limit:.1}H{}"/><text class="limit-word" x="{}" y="{:.1}" font-size="11" text-anchor="end">limit</text>"#,
            WIDTH - RIGHT,
            WIDTH - RIGHT - 2.0,
            limit - 4.0
        )?;
        let mut x = LEFT;
        let pools = self.outcome.picture.curves.iter().zip(&self.outcome.pools).enumerate();
        for (number, (curve, pool)) in pools {
            let colour = number % DASHES.len();
            let dashes = DASHES.get(colour).copied().unwrap_or("none");
            let mut points = String::with_capacity(PIECES * 12);
            for (place, share) in curve.iter().enumerate() {
                let second = place as f64 / (PIECES - 1) as f64 * self.outcome.seconds;
                write!(points, "{:.1},{:.1} ", self.x(second), self.y(*share))?;
            }
            let name = format!("{} ({} {})", pool.pool, grouped(pool.limit as f64), pool.unit);
            write!(
                svg,
                r#"<polyline class="c{colour}" fill="none" stroke-width="1.8" stroke-linejoin="round" stroke-dasharray="{dashes}" points="{}"/><path class="c{colour}" stroke-width="2" stroke-dasharray="{dashes}" d="M{x:.1} {:.1}h22"/><text class="ink" x="{:.1}" y="{:.1}" font-size="11">{}</text>"#,
                points.trim_end(),
                HEIGHT - 16.0,
                x + 27.0,
                HEIGHT - 12.0,
                escaped(&name)
            )?;
            x += 44.0 + name.chars().count() as f64 * 6.0;
        }
        Ok(())
    }

    /// How asks were answered: a bar for each stretch of time.
    fn answers(&self, svg: &mut String) -> fmt::Result {
        let answers = &self.outcome.picture.answers;
        let most = answers.iter().map(|counts| counts.iter().sum::<u32>()).max().unwrap_or(0);
        let height = (BOTTOM - ANSWERS_TOP) / f64::from(most.max(1));
        let width = (WIDTH - LEFT - RIGHT) / PIECES as f64;
        for kind in 0..ANSWERS.len() {
            let mut path = String::new();
            for (place, counts) in answers.iter().enumerate() {
                let count = counts.get(kind).copied().unwrap_or(0);
                if count > 0 {
                    let below: u32 = counts.iter().take(kind).sum();
                    let x = LEFT + place as f64 * width;
                    let y = BOTTOM - f64::from(below) * height;
                    let up = f64::from(count) * height;
                    write!(path, "M{x:.1} {y:.1}h{width:.1}v-{up:.1}h-{width:.1}z")?;
                }
            }
            if !path.is_empty() {
                write!(svg, r#"<path class="a{kind}" d="{path}"/>"#)?;
            }
        }
        write!(
            svg,
            r#"<text class="soft" x="{:.0}" y="{:.0}" text-anchor="end">{most}</text>"#,
            LEFT - 8.0,
            ANSWERS_TOP + 8.0
        )?;
        let mut x = WIDTH - RIGHT;
        for (kind, name) in ANSWERS.iter().enumerate().rev() {
            if !answers.iter().any(|counts| counts.get(kind).is_some_and(|count| *count > 0)) {
                continue;
            }
            x -= name.chars().count() as f64 * 6.0;
            let y = ANSWERS_TOP - 8.0;
            write!(
                svg,
                r#"<text class="soft" x="{x:.1}" y="{y:.0}" font-size="11">{name}</text><rect class="a{kind}" x="{:.1}" y="{:.0}" width="9" height="9" rx="2"/>"#,
                x - 13.0,
                y - 9.0
            )?;
            x -= 26.0;
        }
        Ok(())
    }
}

/// A round step near this size.
fn nice(rough: f64) -> f64 {
    let mut power = 1e-3;
    while power * 10.0 <= rough {
        power *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|s| *s >= rough)
        .unwrap_or(rough)
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    // XML knows no way to write these.
    let text = text.replace(char::is_control, " ");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
