//! Curves as SVG: two axes in powers of ten, a line for each, its name beside its end.

use std::{error::Error, fmt::Write, fs, path::Path};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// Told apart also without colours: each has its own dashes.
const LOOKS: [(&str, &str); 6] = [
    ("#1b5e9e", "none"),
    ("#b3431e", "7 3"),
    ("#2c7a3f", "2 3"),
    ("#7a3b8f", "10 3 2 3"),
    ("#8a6a00", "4 4"),
    ("#444444", "1 4"),
];

/// A line with its name.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A sheet with axes.
pub(crate) struct Sheet<'a> {
    pub(crate) title: &'a str,
    pub(crate) across: &'a str,
    pub(crate) up: &'a str,
    pub(crate) from: (f64, f64),
    pub(crate) to: (f64, f64),
    pub(crate) curves: Vec<Curve>,
}

impl Sheet<'_> {
    fn x(&self, value: f64) -> f64 {
        let part = (value / self.from.0).log10() / (self.to.0 / self.from.0).log10();
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let part = (value / self.from.1).log10() / (self.to.1 / self.from.1).log10();
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    /// Writes it beside the page that shows it.
    pub(crate) fn write(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), self.svg()?)?;
        println!("\n  written: docs/performance/{name}");
        Ok(())
    }

    fn svg(&self) -> Result<String, std::fmt::Error> {
        let mut svg = String::new();
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="#222">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text x="{LEFT}" y="26" font-size="16">{}</text>"##,
            self.title
        )?;
        let (bottom, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for value in ticks(self.from.0, self.to.0, &[1.0]) {
            let x = self.x(value);
            writeln!(
                svg,
                r##"<path d="M{x:.1} {TOP}V{bottom}" stroke="#ddd"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
                bottom + 20.0,
                label(value)
            )?;
        }
        for value in ticks(self.from.1, self.to.1, &[1.0, 2.0, 5.0]) {
            let y = self.y(value);
            writeln!(
                svg,
                r##"<path d="M{LEFT} {y:.1}H{end}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
                LEFT - 8.0,
                y + 4.0,
                label(value)
            )?;
        }
        writeln!(
            svg,
            r##"<path d="M{LEFT} {TOP}V{bottom}H{end}" fill="none" stroke="#222"/>
<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>
<text transform="translate(20 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"##,
            (LEFT + end) / 2.0,
            HEIGHT - 16.0,
            self.across,
            (TOP + bottom) / 2.0,
            self.up
        )?;
        self.lines(&mut svg)?;
        svg.push_str("</svg>\n");
        Ok(svg)
    }

    fn lines(&self, svg: &mut String) -> std::fmt::Result {
        let mut names: Vec<(f64, usize)> = Vec::new();
        for (number, (curve, (colour, dashes))) in self.curves.iter().zip(LOOKS).enumerate() {
            let points: Vec<String> = curve
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", self.x(*x), self.y(*y)))
                .collect();
            writeln!(
                svg,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
                points.join(" ")
            )?;
            let last = curve.points.last().map_or(0.0, |(_, y)| self.y(*y));
            names.push((last, number));
        }
        // Names that would lie upon each other move down.
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = TOP;
        for (y, number) in names {
            let at = y.max(free);
            free = at + 17.0;
            let (Some(curve), Some((colour, dashes))) =
                (self.curves.get(number), LOOKS.get(number))
            else {
                continue;
            };
            let x = WIDTH - RIGHT + 8.0;
            writeln!(
                svg,
                r#"<path d="M{x} {at:.1}h24" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/><text x="{:.1}" y="{:.1}" fill="{colour}">{}</text>"#,
                x + 30.0,
                at + 4.0,
                curve.name
            )?;
        }
        Ok(())
    }
}

/// The powers of ten between two numbers, times each of `steps`.
fn ticks(from: f64, to: f64, steps: &[f64]) -> Vec<f64> {
    let mut all = Vec::new();
    for power in from.log10().floor() as i32..=to.log10().ceil() as i32 {
        for step in steps {
            let value = step * 10f64.powi(power);
            if value >= from * 0.999 && value <= to * 1.001 {
                all.push(value);
            }
        }
    }
    all
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 100.0).round() / 100.0),
    }
}
