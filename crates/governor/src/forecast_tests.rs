use super::*;

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }
}

const START: i64 = 1_800_000_000_000;
const HOUR: i64 = 3_600_000;

fn poisson(random: &mut Random, per_second: f64, lasts: i64, size: impl Fn(f64) -> f64) -> Vec<(i64, f64)> {
    let mut at = 0.0;
    let mut all = Vec::new();
    loop {
        at += -(1.0 - random.next()).ln() / per_second * 1000.0;
        if at >= lasts as f64 {
            return all;
        }
        all.push((START + at as i64, size(random.next())));
    }
}

fn bursty(random: &mut Random, burst: usize, every: i64, lasts: i64) -> Vec<(i64, f64)> {
    let mut all = Vec::new();
    let mut at = (random.next() * every as f64) as i64;
    while at < lasts {
        for _ in 0..burst {
            all.push((START + at + (random.next() * 1000.0) as i64, 1.0));
        }
        at += every / 2 + (random.next() * every as f64) as i64;
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn periodic(random: &mut Random, every: i64, lasts: i64) -> Vec<(i64, f64)> {
    let mut at = (random.next() * every as f64) as i64;
    let mut all = Vec::new();
    while at < lasts {
        all.push((START + at, 1.0));
        at += every + ((random.next() - 0.5) * 0.2 * every as f64) as i64;
    }
    all
}

/// How often what was really taken until the hour's end lies in the interval.
fn coverage(mut make: impl FnMut(&mut Random) -> Vec<(i64, f64)>) -> (f64, usize) {
    let (mut inside, mut all) = (0, 0);
    for seed in 0..40 {
        let events = make(&mut Random(seed));
        for moment in [0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 1.9, 2.5] {
            let now = START + (moment * HOUR as f64) as i64;
            let reset = START + ((now - START) / HOUR + 1) * HOUR;
            let mut burn = Burn::default();
            events.iter().filter(|(at, _)| *at <= now).for_each(|(at, a)| burn.note(*at, *a));
            let forecast = Forecast::of(&burn, now, reset - now, 0, |_| 1e9);
            let later = events.iter().filter(|(at, _)| *at > now && *at <= reset);
            let really: f64 = later.map(|(_, amount)| amount).sum();
            let [low, _, high] = forecast.will_take;
            inside += usize::from(low - 0.5 <= really && really <= high + 0.5);
            all += 1;
        }
    }
    (inside as f64 / all as f64, all)
}

#[test]
fn intervals_hold_what_they_promise() {
    let lasts = 3 * HOUR;
    let shown = [
        ("poisson 1/s", coverage(|r| poisson(r, 1.0, lasts, |_| 1.0))),
        ("poisson 1/min", coverage(|r| poisson(r, 1.0 / 60.0, lasts, |_| 1.0))),
        ("poisson 20/s", coverage(|r| poisson(r, 20.0, lasts, |_| 1.0))),
        ("poisson tokens", coverage(|r| poisson(r, 0.2, lasts, |u| -(1.0 - u).ln() * 1000.0))),
        ("bursty 50/30s", coverage(|r| bursty(r, 50, 30_000, lasts))),
        ("bursty 100/5min", coverage(|r| bursty(r, 100, 300_000, lasts))),
        ("periodic 1s", coverage(|r| periodic(r, 1000, lasts))),
        ("periodic 20s", coverage(|r| periodic(r, 20_000, lasts))),
        ("periodic 5min", coverage(|r| periodic(r, 300_000, lasts))),
    ];
    for (name, (part, of)) in &shown {
        println!("{name}: {part:.3} of {of}");
    }
}
