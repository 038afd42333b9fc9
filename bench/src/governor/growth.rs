//! How the time of a decision grows with what there is, drawn as curves.

use std::error::Error;

use super::{
    Taken, ratio,
    scene::{Scene, Size},
};
use crate::{
    curve::{Curve, Sheet},
    measure::{Table, median, short},
};

const ROUNDS: usize = 5;
const TURN: usize = 4000;

/// How many of each.
const SIZES: [usize; 6] = [1, 10, 100, 1000, 10_000, 100_000];

/// Makes a scene with so many of something.
type Make = fn(usize) -> Size;

const KINDS: [(&str, Make); 6] = [
    ("pools", |count| Size { pools: count.max(4), ..Size::LEAST }),
    ("routes", |count| Size { routes: count, ..Size::LEAST }),
    ("identities", |count| Size { identities: count, ..Size::LEAST }),
    ("agents", |count| Size { agents: count, ..Size::LEAST }),
    ("open holds", |count| Size { holds: count, ..Size::LEAST }),
    ("decisions before", |count| Size { history: count, ..Size::LEAST }),
];

/// Times and draws all of it.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\n11. Growth: the p50 of a decision in ns by how many there are, {ROUNDS} rounds\n");
    let mut table =
        Table::new(["", "1", "10", "100", "1,000", "10,000", "100,000", "last / first"]);
    let mut curves = Vec::new();
    for (name, make) in KINDS {
        let mut scenes = Vec::new();
        for count in SIZES {
            scenes.push((count, Scene::new(make(count))?, Taken::default()));
        }
        for _ in 0..ROUNDS {
            for (_, scene, taken) in &mut scenes {
                taken.take(scene, TURN)?;
            }
        }
        let points: Vec<(f64, f64)> =
            scenes.iter().map(|(count, _, taken)| (*count as f64, median(&taken.p50))).collect();
        let mut row = vec![name.to_owned()];
        row.extend(points.iter().map(|(_, ns)| short(*ns)));
        if let (Some(first), Some(last)) = (scenes.first(), scenes.last()) {
            row.push(short(ratio(&last.2.p50, &first.2.p50)));
        }
        table.row_of(row);
        curves.push(Curve { name: name.to_owned(), points });
    }
    table.print();
    Sheet {
        title: "Time of one decision on four pools, by how much there is",
        across: "number of pools, routes, identities, agents, open holds, earlier decisions",
        up: "nanoseconds, p50",
        from: (1.0, 1000.0),
        to: (1e5, 100_000.0),
        curves,
    }
    .write("decision-growth.svg")?;
    crate::intent::history::throughput()
}
