//! How often a value's elements were how large: what percentile and least-error ranges are found from, in fixed memory
//! however long the calibration.

/// Bins of a histogram.
const BINS: usize = 4096;

/// Counts over `−limit..limit` in equal bins. `limit` is a power of two that doubles when an element lies outside; then
/// neighbouring bins become one, so no element is ever counted in a wrong bin.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    limit: f32,
    counts: Vec<u64>,
    min: f32,
    max: f32,
}

/// The range that codes must cover.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Smallest real.
    pub min: f32,
    /// Largest real.
    pub max: f32,
}

impl Range {
    /// Both ranges.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// How a range is found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RangeMethod {
    /// Everything that was seen.
    #[default]
    MinMax,
    /// All but this share of the elements at each end: 0.0001.
    Percentile(f64),
    /// The least squared error of rounding to the codes there will be.
    Mse,
}

impl Histogram {
    /// Of the finite elements of `reals`; `None` when there are none.
    pub fn of(reals: &[f32]) -> Option<Self> {
        let finite = || reals.iter().copied().filter(|x| x.is_finite());
        let first = finite().next()?;
        let mut histogram = Self { limit: limit_for(first), counts: vec![0; BINS], min: first, max: first };
        histogram.add(reals);
        Some(histogram)
    }

    /// Counts the finite elements of `reals`.
    pub fn add(&mut self, reals: &[f32]) {
        for &real in reals.iter().filter(|x| x.is_finite()) {
            (self.min, self.max) = (self.min.min(real), self.max.max(real));
        }
        while self.limit < limit_for(self.min).max(limit_for(self.max)) {
            self.double();
        }
        let per_real = BINS as f32 / 2.0 / self.limit;
        for &real in reals.iter().filter(|x| x.is_finite()) {
            let bin = (real * per_real).floor() as isize + (BINS / 2) as isize;
            self.counts[bin.clamp(0, BINS as isize - 1) as usize] += 1;
        }
    }

    fn double(&mut self) {
        let mut merged = vec![0; BINS];
        for (bin, pair) in self.counts.as_chunks::<2>().0.iter().enumerate() {
            merged[BINS / 4 + bin] = pair[0] + pair[1];
        }
        self.counts = merged;
        self.limit *= 2.0;
    }

    /// Width of a bin.
    fn width(&self) -> f32 {
        self.limit * 2.0 / BINS as f32
    }

    /// Bins that hold something: middle and count.
    fn filled(&self) -> impl DoubleEndedIterator<Item = (f32, u64)> {
        let (width, limit) = (self.width(), self.limit);
        let middle = move |bin: usize| -limit + (bin as f32 + 0.5) * width;
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(bin, &count)| (middle(bin), count))
    }

    /// Smallest and largest element.
    pub fn extremes(&self) -> Range {
        Range { min: self.min, max: self.max }
    }

    /// The range that `method` finds for `levels` codes; symmetric around 0 where `symmetric`.
    pub fn range(&self, method: RangeMethod, levels: u32, symmetric: bool) -> Range {
        match method {
            RangeMethod::MinMax => self.extremes(),
            RangeMethod::Percentile(share) => self.percentile(share),
            RangeMethod::Mse => self.least_error(levels, symmetric),
        }
    }

    fn percentile(&self, share: f64) -> Range {
        let total: u64 = self.counts.iter().sum();
        let outside = (share.clamp(0.0, 0.5) * total as f64) as u64;
        let past = |seen: &mut u64, count: u64| {
            *seen += count;
            *seen > outside
        };
        let (mut below, mut above) = (0, 0);
        let lowest = self.filled().find(|&(_, count)| past(&mut below, count));
        let highest = self.filled().rev().find(|&(_, count)| past(&mut above, count));
        let half = self.width() / 2.0;
        let low = lowest.map_or(self.min, |(middle, _)| (middle - half).max(self.min));
        let high = highest.map_or(self.max, |(middle, _)| (middle + half).min(self.max));
        Range { min: low, max: high.max(low) }
    }

    fn least_error(&self, levels: u32, symmetric: bool) -> Range {
        /// Of the full range tried, in this many steps.
        const STEPS: u32 = 64;
        let full = self.extremes();
        let full = Range { min: full.min.min(0.0), max: full.max.max(0.0) };
        let largest = full.max.max(-full.min);
        let candidate = |step: u32| {
            let share = step as f32 / STEPS as f32;
            match symmetric {
                true => Range { min: -largest * share, max: largest * share },
                false => Range { min: full.min * share, max: full.max * share },
            }
        };
        let error = |range: Range| {
            let scale = f64::from((range.max - range.min) / levels.max(2) as f32);
            let of = |(middle, count): (f32, u64)| {
                let beyond = f64::from((range.min - middle).max(middle - range.max).max(0.0));
                let square = if beyond > 0.0 { beyond * beyond } else { scale * scale / 12.0 };
                square * count as f64
            };
            self.filled().map(of).sum::<f64>()
        };
        let best = (STEPS / 8..=STEPS).rev().map(|step| (error(candidate(step)), step));
        let best = best.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(STEPS, |(_, step)| step);
        if best == STEPS { full } else { candidate(best) }
    }
}

/// The smallest limit that holds `real`; not so small that bins underflow.
fn limit_for(real: f32) -> f32 {
    let magnitude = real.abs().max(1e-20);
    let limit = 2f32.powi(magnitude.log2().floor() as i32 + 1);
    if magnitude < limit { limit } else { limit * 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::Rng;
    use crate::tensor::Encoding;

    /// Mostly small, a few large; not centred.
    fn samples() -> Vec<f32> {
        let mut rng = Rng(17);
        let tail = |rng: &mut Rng| rng.real().powi(9) * 20.0 + 0.1;
        (0..20_000).map(|_| tail(&mut rng) + rng.real()).collect()
    }

    fn in_parts(samples: &[f32]) -> Histogram {
        let mut histogram = Histogram::of(&samples[..10]).unwrap();
        samples[10..].chunks(999).for_each(|part| histogram.add(part));
        histogram
    }

    #[test]
    fn parts_make_the_same_histogram_in_any_order() {
        let mut samples = samples();
        let forward = in_parts(&samples);
        samples.reverse();
        assert_eq!(in_parts(&samples), forward);
        assert_eq!(forward.counts.iter().sum::<u64>(), 20_000);
    }

    #[test]
    fn extremes_are_exact_and_infinities_do_not_count() {
        let histogram = Histogram::of(&[f32::NEG_INFINITY, 3.0, -0.25, f32::NAN]).unwrap();
        assert_eq!(histogram.range(RangeMethod::MinMax, 256, false), Range { min: -0.25, max: 3.0 });
        assert_eq!(Histogram::of(&[f32::NEG_INFINITY]), None);
    }

    #[test]
    fn percentile_is_that_of_the_sorted_elements() {
        let mut samples = samples();
        let histogram = in_parts(&samples);
        samples.sort_by(f32::total_cmp);
        for share in [0.0, 0.001, 0.01, 0.2] {
            let outside = (share * samples.len() as f64) as usize;
            let range = histogram.range(RangeMethod::Percentile(share), 256, false);
            let (low, high) = (samples[outside], samples[samples.len() - 1 - outside]);
            let near = |a: f32, b: f32| (a - b).abs() <= histogram.width();
            assert!(near(range.min, low) && near(range.max, high), "{share}: {range:?}, not {low}..{high}");
        }
    }

    #[test]
    fn least_error_range_is_as_good_as_the_best_of_all_clippings() {
        let samples = samples();
        let histogram = in_parts(&samples);
        let full = histogram.extremes();
        for levels in [15, 255] {
            let error = |range: Range| {
                let scale = (range.max - range.min) / levels as f32;
                let encoding = Encoding { scale, zero_point: (-range.min / scale).round() as i32 };
                let square = |&x: &f32| f64::from(encoding.dequantize(encoding.quantize(x, 0, levels)) - x).powi(2);
                samples.iter().map(square).sum::<f64>()
            };
            let clipped = |step: usize| {
                let share = step as f32 / 200.0;
                error(Range { min: full.min * share, max: full.max * share })
            };
            let best = (20..=200).map(clipped).fold(f64::INFINITY, f64::min);
            let found = error(histogram.range(RangeMethod::Mse, levels as u32, false));
            assert!(found <= 1.1 * best, "{found} where {best} can be had");
            assert!(found < error(full), "{found} where the full range has {}", error(full));
        }
    }
}
