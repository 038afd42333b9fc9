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

fn poisson(
    random: &mut Random,
    per_second: f64,
    lasts: i64,
    size: impl Fn(f64) -> f64,
) -> Vec<(i64, f64)> {
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
    all.sort_by_key(|(at, _)| *at);
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
    for (name, (part, _)) in &shown {
        assert!(*part >= 0.84, "{name}: {part:.3}");
    }
    let all = shown.iter().map(|(_, (part, _))| part).sum::<f64>() / shown.len() as f64;
    assert!((0.85..=0.96).contains(&all), "{all:.3}");
}

/// A burn that has gone on evenly, so many a second, until `now`.
fn steady(per_second: i64, seconds: i64) -> (Burn, i64) {
    let mut burn = Burn::default();
    for step in 0..seconds * per_second {
        burn.note(START + step * 1000 / per_second, 1.0);
    }
    (burn, START + seconds * 1000)
}

#[test]
fn probabilities_come_true_as_often_as_they_say() {
    let (mut said, mut came, mut unclear) = (0.0, 0.0, 0);
    for seed in 0..200 {
        let events = poisson(&mut Random(seed), 0.5, HOUR, |u| 1.0 + (u * 9.0).floor());
        let now = START + HOUR / 2;
        let mut burn = Burn::default();
        events.iter().filter(|(at, _)| *at <= now).for_each(|(at, a)| burn.note(*at, *a));
        let limit = 4300.0 + seed as f64 * 2.0;
        let forecast = Forecast::of(&burn, now, HOUR / 2, 0, |_| limit);
        let later = events.iter().filter(|(at, _)| *at > now);
        let really: f64 = later.map(|(_, amount)| amount).sum();
        unclear += usize::from((0.1..0.9).contains(&forecast.p_exhaust));
        said += forecast.p_exhaust;
        came += f64::from(u8::from(really >= limit));
    }
    assert!(unclear > 100, "the cases are meant to be doubtful, and {unclear} are");
    assert!((said - came).abs() / 200.0 < 0.1, "said {said:.0}, came {came:.0} of 200");
}

#[test]
fn what_is_used_faster_is_exhausted_sooner() {
    let (burn, now) = steady(10, 600);
    let in_an_hour = |left: f64| Forecast::of(&burn, now, HOUR, 0, |_| left);
    // 10 a second: 6,000 last ten minutes.
    let soon = in_an_hour(6000.0);
    assert!((9.0..11.0).contains(&soon.burn_per_second), "{soon:?}");
    let [half, most, almost] = soon.exhausted_in.map(Option::unwrap);
    assert!((540_000..660_000).contains(&half), "{half}");
    assert!(almost <= most && most <= half, "what is more certain is sooner");
    assert!(soon.p_exhaust > 0.99);
    let never = in_an_hour(60_000.0);
    assert_eq!(never.exhausted_in, [None; 3]);
    assert!(never.p_exhaust < 0.01);
    let asked = Forecast::of(&burn, now, HOUR, 57_000, |_| 60_000.0);
    assert!(asked.p_exhaust < 0.01 && asked.p_exhaust_with > 0.99);
    assert_eq!(in_an_hour(0.0).exhausted_in, [Some(0); 3], "nothing is left");
}

#[test]
fn time_in_which_nothing_happens_counts() {
    let (burn, now) = steady(10, 600);
    let later = |idle: i64| Forecast::of(&burn, now + idle, HOUR, 0, |_| 1e6).burn_per_second;
    assert!(later(0) > later(60_000) && later(60_000) > later(600_000));
    assert!(later(10 * HOUR) < 0.01);
}

#[test]
fn who_knows_little_says_so() {
    let nothing = Forecast::of(&Burn::default(), START, HOUR, 1, |_| 10.0);
    assert_eq!((nothing.basis, nothing.p_exhaust), (Basis::None, 0.0));
    let mut burn = Burn::default();
    burn.note(START + 100, 1.0);
    burn.note(START + 600, 1.0);
    let little = Forecast::of(&burn, START + 900, HOUR, 0, |_| 1e9);
    assert_eq!(little.basis, Basis::Little);
    let [low, _, high] = little.will_take;
    assert!(low <= 1.0 && high > 1000.0, "{little:?}");
    let (burn, now) = steady(1, 60);
    assert_eq!(Forecast::of(&burn, now, HOUR, 0, |_| 1e9).basis, Basis::Enough);
}

#[test]
fn the_normal_distribution_is_what_the_tables_say() {
    for (z, part) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
        assert!((normal(z) - part).abs() < 1e-6, "{z}");
    }
}
