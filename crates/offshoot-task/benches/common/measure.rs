//! Ratios of interleaved rounds, so that what else the machine does falls on both sides.

use std::time::Duration;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the median of `ours / raw` over interleaved rounds; each closure returns its own time.
pub(crate) fn compare(
    name: &str,
    reach: impl Into<Option<f64>>,
    rounds: usize,
    per_round: u32,
    mut raw: impl FnMut() -> Duration,
    mut ours: impl FnMut() -> Duration,
) {
    raw();
    ours();
    let (mut ratios, mut raws, mut ourss) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Whoever goes first is alternated.
        let (a, b) = if round % 2 == 0 {
            let a = raw();
            (a, ours())
        } else {
            let b = ours();
            (raw(), b)
        };
        ratios.push(b.as_secs_f64() / a.as_secs_f64());
        raws.push(a.as_secs_f64() * 1e9 / f64::from(per_round));
        ourss.push(b.as_secs_f64() * 1e9 / f64::from(per_round));
    }
    // On a machine that others use, the best rounds say more than the median ones.
    let best = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let reach = reach.into().map(|reach| format!("   (reach {reach:.1})"));
    println!(
        "{name:<52} {:>7.0} ns {:>7.0} ns  x {:.2}   best {:>6.0} {:>6.0}  x {:.2}{}",
        median(raws.clone()),
        median(ourss.clone()),
        median(ratios),
        best(&raws),
        best(&ourss),
        best(&ourss) / best(&raws),
        reach.unwrap_or_default(),
    );
}
