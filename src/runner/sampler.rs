//! Chooses a token from a row of logits: the likeliest at temperature 0, else one drawn from the most probable ones.

use super::config::GenerationConfig;
use super::error::RunnerError;
use super::logits::LogitsFormat;
use crate::tokenizer::TokenId;

/// A small generator (SplitMix64): a seed gives the same tokens everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in 0..1, 1 excluded.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// A sampler with its scratch memory, for rows of one format.
#[derive(Debug)]
pub(crate) struct Sampler {
    format: LogitsFormat,
    temperature: f32,
    top_p: f32,
    rng: Rng,
    reals: Vec<f32>,
    candidates: Vec<(f32, usize)>,
}

impl Sampler {
    /// Greedy until [`begin`](Self::begin).
    pub fn new(format: LogitsFormat) -> Self {
        let (reals, candidates) = (Vec::new(), Vec::new());
        Self { format, temperature: 0.0, top_p: 1.0, rng: Rng::new(0), reals, candidates }
    }

    /// Checks what a turn asks for.
    pub fn check(&self, config: &GenerationConfig) -> Result<(), RunnerError> {
        let GenerationConfig { temperature, top_p, .. } = *config;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(RunnerError::Temperature(temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(RunnerError::TopP(top_p));
        }
        if temperature > 0.0 && !self.format.has_reals() {
            return Err(RunnerError::NoLogitsScale);
        }
        Ok(())
    }

    /// Starts a turn with its temperature, top_p and seed.
    pub fn begin(&mut self, config: &GenerationConfig) {
        (self.temperature, self.top_p, self.rng) = (config.temperature, config.top_p, Rng::new(config.seed));
    }

    /// Goes on with another temperature and top_p; the random numbers go on too.
    pub fn adjust(&mut self, config: &GenerationConfig) {
        (self.temperature, self.top_p) = (config.temperature, config.top_p);
    }

    /// The likeliest token of a row.
    pub fn greedy(&self, row: &[u8]) -> TokenId {
        self.format.argmax(row) as TokenId
    }

    /// The next token, by the turn's temperature. A NaN is never chosen: [`RunnerError::NanLogits`].
    pub fn sample(&mut self, row: &[u8]) -> Result<TokenId, RunnerError> {
        let token = if self.temperature == 0.0 { self.greedy(row) } else { self.draw(row) };
        if self.format.is_nan(row, token as usize) { Err(RunnerError::NanLogits) } else { Ok(token) }
    }

    fn draw(&mut self, row: &[u8]) -> TokenId {
        self.format.reals(row, &mut self.reals);
        let max = self.reals.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut total = 0.0;
        for real in &mut self.reals {
            // A NaN gets no share.
            *real = ((*real - max) / self.temperature).exp().max(0.0);
            total += *real;
        }
        if !(total > 0.0 && total.is_finite()) {
            return self.greedy(row);
        }
        // A token below this share cannot be among those that make up top_p.
        let floor = (1.0 - self.top_p) / (self.reals.len().max(2) - 1) as f32 * total;
        let shares = self.reals.iter().copied().zip(0..);
        self.candidates.clear();
        self.candidates.extend(shares.filter(|&(share, _)| share >= floor && share > 0.0));
        self.candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut kept = 0.0;
        let enough = self.candidates.iter().position(|&(share, _)| {
            kept += share;
            kept >= self.top_p * total
        });
        self.candidates.truncate(enough.map_or(usize::MAX, |last| last + 1));
        let mut left = self.rng.unit() * kept;
        for &(share, token) in &self.candidates {
            left -= share;
            if left < 0.0 {
                return token as TokenId;
            }
        }
        self.candidates.last().map_or(0, |&(_, token)| token as TokenId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, Encoding};

    fn sampler(encoding: Option<Encoding>) -> Sampler {
        Sampler::new(LogitsFormat { dtype: DType::U16, encoding })
    }

    fn counts(sampler: &mut Sampler, row: &[u16], config: GenerationConfig) -> Vec<usize> {
        let mut counts = vec![0; row.len()];
        for seed in 0..1000 {
            sampler.begin(&GenerationConfig { seed, ..config.clone() });
            counts[sampler.sample(bytemuck::cast_slice(row)).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn o27_temperature_works_on_dequantized_logits() {
        let row = [30_000, 29_990, 0, 0];
        let mut sampler = sampler(Some(Encoding { scale: 0.001, zero_point: 0 }));
        let warm = GenerationConfig { temperature: 1.0, ..Default::default() };
        let counts_warm = counts(&mut sampler, &row, warm.clone());
        assert!((430..570).contains(&counts_warm[0]) && (430..570).contains(&counts_warm[1]), "{counts_warm:?}");
        assert_eq!(counts_warm[2..], [0, 0]);
        let cold = GenerationConfig { temperature: 0.0, ..warm.clone() };
        assert_eq!(counts(&mut sampler, &row, cold), [1000, 0, 0, 0]);
        let chilly = GenerationConfig { temperature: 0.001, ..warm };
        assert_eq!(counts(&mut sampler, &row, chilly), [1000, 0, 0, 0]);
    }

    #[test]
    fn top_p_keeps_the_smallest_sufficient_set() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let ln2 = std::f32::consts::LN_2;
        let mut sampler = sampler(Some(Encoding { scale: ln2, zero_point: 0 }));
        let at = |top_p| GenerationConfig { temperature: 1.0, top_p, ..Default::default() };
        let row = [3, 2, 1, 1];
        assert_eq!(counts(&mut sampler, &row, at(0.4)), [1000, 0, 0, 0]);
        let two = counts(&mut sampler, &row, at(0.7));
        assert!((600..730).contains(&two[0]) && two[2..] == [0, 0], "{two:?}");
        let three = counts(&mut sampler, &row, at(0.8));
        assert!(three[2] > 50 && three[3] == 0, "{three:?}");
        let all = counts(&mut sampler, &row, at(1.0));
        assert!((440..560).contains(&all[0]) && all[3] > 70, "{all:?}");
    }

    #[test]
    fn a_seed_gives_the_same_tokens() {
        let row = [9u16, 8, 8, 7, 6];
        let mut sampler = sampler(Some(Encoding { scale: 0.5, zero_point: 0 }));
        let mut draw = |seed| {
            sampler.begin(&GenerationConfig { temperature: 1.0, seed, ..Default::default() });
            (0..50).map(|_| sampler.sample(bytemuck::cast_slice(&row)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn senseless_settings_are_refused() {
        let with = sampler(Some(Encoding { scale: 1.0, zero_point: 0 }));
        let at = |temperature, top_p| GenerationConfig { temperature, top_p, ..Default::default() };
        for temperature in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(matches!(with.check(&at(temperature, 0.9)), Err(RunnerError::Temperature(_))));
        }
        for top_p in [0.0, -0.1, 1.1, f32::NAN] {
            assert!(matches!(with.check(&at(1.0, top_p)), Err(RunnerError::TopP(_))));
        }
        assert_eq!(sampler(None).check(&at(1.0, 0.9)), Err(RunnerError::NoLogitsScale));
        assert_eq!(sampler(None).check(&at(0.0, 0.9)), Ok(()));
    }

    #[test]
    fn rows_of_infinity_still_give_a_token_and_a_nan_is_never_chosen() {
        let mut sampler = Sampler::new(LogitsFormat { dtype: DType::F32, encoding: None });
        for temperature in [0.0, 1.0] {
            sampler.begin(&GenerationConfig { temperature, ..Default::default() });
            for row in [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]] {
                assert_eq!(sampler.sample(bytemuck::cast_slice(&row)), Ok(0));
            }
            assert_eq!(sampler.sample(bytemuck::cast_slice(&[f32::NAN; 3])), Err(RunnerError::NanLogits));
            assert_eq!(sampler.sample(bytemuck::cast_slice(&[1.0, 50.0, f32::NAN])), Ok(1));
        }
        assert_eq!(sampler.sample(bytemuck::cast_slice(&[f32::NAN, 50.0, 1.0])), Ok(1), "drawn");
        let halves = [half::f16::NAN; 2].map(half::f16::to_bits);
        let sampler = &mut Sampler::new(LogitsFormat { dtype: DType::F16, encoding: None });
        assert_eq!(sampler.sample(bytemuck::cast_slice(&halves)), Err(RunnerError::NanLogits));
    }
}
