//! Every kernel set against an independent integer computation: dynamic quantization to the bit, integer products exactly,
//! and the same bits for any number of rows, threads and any set.

mod kernels_common;

use kernels_common::{Random, assert_same, sets};
use llama_runner::base::fnv::fnv1a64;
use llama_runner::kernels::{
    Clamp, KernelSet, Nibbles, PackError, PackedWeights, QuantizedProduct, QuantizedRows, RowQuant, Scales, ThreadPool,
    Unary, WeightShape,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// XNNPACK's arithmetic written down once more, one f32 rounding an operation.
fn reference_quantize(x: &[f32]) -> (Vec<i8>, f32, i8) {
    let min = x.iter().copied().fold(0.0f32, f32::min);
    let max = x.iter().copied().fold(0.0f32, f32::max);
    let multiplier = if min == max { 1.0f32 } else { 255.0 / (max - min) };
    let from_min = -128.0f32 + min * multiplier;
    let from_max = 127.0f32 + max * multiplier;
    let zero_point = if from_min + from_max > 0.0 { -128.0 - min * multiplier } else { 127.0 - max * multiplier };
    let zero_point = zero_point.clamp(-128.0, 127.0).round_ties_even() as i8;
    let q = x.iter().map(|&x| {
        let scaled = (x * multiplier).round_ties_even() as i32;
        (scaled + i32::from(zero_point)).clamp(-128, 127) as i8
    });
    (q.collect(), 1.0 / multiplier, zero_point)
}

struct Matrix {
    shape: WeightShape,
    values: Vec<i8>, // [n, k]
    scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    packed: PackedWeights,
}

fn matrix(random: &mut Random, shape: WeightShape, bits: u32, bf16: bool, with_bias: bool) -> Matrix {
    let WeightShape { n, k, .. } = shape;
    let scales: Vec<f32> = (0..n * shape.groups())
        .map(|_| random.float(0.001, 0.1))
        .map(|scale| if bf16 { f32::from_bits(scale.to_bits() & 0xffff_0000) } else { scale })
        .collect();
    let bias = with_bias.then(|| random.floats(n, -3.0, 3.0));
    let half: Vec<u16> = scales.iter().map(|scale| (scale.to_bits() >> 16) as u16).collect();
    let stored = if bf16 && n % 2 == 0 { Scales::Bf16(&half) } else { Scales::F32(&scales) };
    let (values, packed) = if bits == 8 {
        let values: Vec<i8> = random.bytes(n * k).into_iter().map(|b| b as i8).collect();
        let packed = PackedWeights::pack_8bit(shape, &values, stored, bias.as_deref()).unwrap();
        (values, packed)
    } else {
        let values: Vec<i8> = random.bytes(n * k).into_iter().map(|b| (b & 15) as i8 - 8).collect();
        let signed = n % 3 == 0;
        let mut bytes = vec![0u8; n * k.div_ceil(2)];
        for (i, &w) in values.iter().enumerate() {
            let nibble = if signed { w as u8 & 15 } else { (w + 8) as u8 };
            bytes[i / k * k.div_ceil(2) + i % k / 2] |= nibble << (4 * (i % k % 2));
        }
        let nibbles = if signed { Nibbles::Signed } else { Nibbles::Offset8 };
        (values, PackedWeights::pack_4bit(shape, &bytes, nibbles, stored, bias.as_deref()).unwrap())
    };
    Matrix { shape, values, scales, bias, packed }
}

/// The product in f64 over exact integer sums.
fn reference_gemm(x: &[f32], matrix: &Matrix, clamp: Clamp) -> Vec<f64> {
    let WeightShape { n, k, group } = matrix.shape;
    let mut out = Vec::new();
    for x in x.chunks_exact(k) {
        let (q, scale, zero_point) = reference_quantize(x);
        for column in 0..n {
            let mut sum = 0.0;
            for g in 0..k / group {
                let dot: i64 = (g * group..(g + 1) * group)
                    .map(|i| (i64::from(q[i]) - i64::from(zero_point)) * i64::from(matrix.values[column * k + i]))
                    .sum();
                sum += f64::from(matrix.scales[column * (k / group) + g]) * dot as f64;
            }
            let y = sum * f64::from(scale) + matrix.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
            out.push(y.clamp(f64::from(clamp.min), f64::from(clamp.max)));
        }
    }
    out
}

fn gemm(set: KernelSet, pool: &ThreadPool, x: &[f32], matrix: &Matrix, clamp: Clamp) -> Vec<f32> {
    let WeightShape { n, k, group } = matrix.shape;
    let mut activations = QuantizedRows::new();
    set.quantize_rows(pool, x, k, group, &mut activations);
    let mut out = vec![f32::NAN; x.len() / k * n];
    let product = QuantizedProduct { activations: &activations, weights: &matrix.packed, clamp, out: &mut out };
    set.quantized_gemm(pool, product);
    out
}

#[test]
fn quantization_equals_xnnpacks_formula_to_the_bit() {
    let mut random = Random(1);
    for (set, pool) in sets() {
        for round in 0..60 {
            let (rows, k) = (random.int(1, 30), [8, 1, 31, 40, 64, 172, 576][round % 7]);
            let span = [1.0, 1e-3, 40.0, 3e4, 1e-30][round % 5];
            let offset = [0.0, span * 0.9, -span * 2.0, span * 3.0][round % 4];
            let x = random.floats(rows * k, offset - span, offset + span);
            let mut quantized = QuantizedRows::new();
            set.quantize_rows(&pool, &x, k, k, &mut quantized);
            for (row, x) in x.chunks_exact(k).enumerate() {
                let (q, scale, zero_point) = reference_quantize(x);
                assert_eq!(quantized.quants()[row], RowQuant { scale, zero_point }, "{}", set.tier());
                assert_eq!(quantized.row(row), q, "{} {rows}x{k} row {row}", set.tier());
            }
        }
    }
}

#[test]
fn quantization_of_odd_rows() {
    for (set, pool) in sets() {
        let mut quantized = QuantizedRows::new();
        let rows = [
            [0.0; 4],
            [-0.0, 5.0, 5.0, 0.0],
            [f32::NAN, 1.0, -1.0, f32::NAN],
            [f32::INFINITY, 1.0, f32::NEG_INFINITY, 0.0],
        ];
        set.quantize_rows(&pool, rows.as_flattened(), 4, 4, &mut quantized);
        assert_eq!(quantized.row(0), [127; 4], "a row of zeros has scale 1 and its zero point at the top");
        assert_eq!(quantized.row(1), [-128, 127, 127, -128]);
        assert_eq!(quantized.row(2)[1..3], [127, -128]);
        assert_eq!(quantized.row(2)[0], -128, "NaN is the lowest number");
        assert_eq!(quantized.row(3).len(), 4);
    }
}

#[test]
fn products_are_right_and_equal_on_all_sets() {
    let mut random = Random(2);
    let shapes = [
        // n, k, group
        (16, 32, 32),
        (1, 8, 8),
        (17, 64, 32),
        (64, 64, 64),
        (48, 96, 16),
        (33, 256, 128),
        (30, 120, 24),
        (70, 31, 31),
        (20, 172, 172),
        (129, 576, 32),
        (96, 1536, 32),
    ];
    for (i, &(n, k, group)) in shapes.iter().enumerate() {
        for bits in [4, 8] {
            for bf16 in [true, false] {
                let shape = WeightShape { n, k, group };
                let matrix = matrix(&mut random, shape, bits, bf16, i % 2 == 0);
                let clamp = if i % 3 == 0 { Clamp { min: -0.5, max: 1.0 } } else { Clamp::NONE };
                for rows in [1, 2, 3, 4, 7, 12, 15, 27] {
                    let offset = random.float(-2.0, 2.0);
                    let x = random.floats(rows * k, offset - 1.5, offset + 1.5);
                    let exact = reference_gemm(&x, &matrix, clamp);
                    let mut first: Option<Vec<f32>> = None;
                    for (set, pool) in sets() {
                        let what = format!("{} {rows}x{k} · {n}, group {group}, {bits} bits", set.tier());
                        let y = gemm(set, &pool, &x, &matrix, clamp);
                        let magnitude = exact.iter().fold(1e-6, |m: f64, y| m.max(y.abs()));
                        for (i, (&y, &exact)) in y.iter().zip(&exact).enumerate() {
                            let error = (f64::from(y) - exact).abs();
                            assert!(
                                error <= 1e-5 * magnitude * (k as f64).sqrt(),
                                "{what}: element {i}: {y} for {exact}"
                            );
                        }
                        assert_same(&what, &y, first.get_or_insert_with(|| y.clone()));
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let mut random = Random(3);
    let shape = WeightShape { n: 576, k: 1536, group: 32 };
    let matrix = matrix(&mut random, shape, 4, true, false);
    let rows = 291; // Two panels of activations, and a rest of every block size.
    let x = random.floats(rows * shape.k, -1.0, 1.0);
    for (set, pool) in sets().into_iter().filter(|(set, _)| set.tier() != "scalar") {
        let all = gemm(set, &pool, &x, &matrix, Clamp::NONE);
        for row in [0, 11, 12, 200, 283, 287, 289, 290] {
            let one = gemm(set, &pool, &x[row * shape.k..][..shape.k], &matrix, Clamp::NONE);
            assert_same(set.tier(), &all[row * shape.n..][..shape.n], &one);
        }
    }
}

#[test]
fn extreme_integers_do_not_saturate() {
    // 255 · 128 twice overflows 16 bits, which is what the multiply-add instructions of AVX2 saturate to.
    for (set, pool) in sets() {
        for bits in [4, 8] {
            let shape = WeightShape { n: 16, k: 256, group: 256 };
            let x: Vec<f32> = (0..256).map(|i| if i == 0 { 0.1 } else { -255.0 }).collect();
            let worst = if bits == 8 { i8::MIN } else { -8 };
            for fill in [worst, if bits == 8 { i8::MAX } else { 7 }] {
                let values = vec![fill; 16 * 256];
                let packed = if bits == 8 {
                    PackedWeights::pack_8bit(shape, &values, Scales::F32(&[1.0; 16]), None)
                } else {
                    let bytes = vec![(fill + 8) as u8 * 17; 16 * 128];
                    PackedWeights::pack_4bit(shape, &bytes, Nibbles::Offset8, Scales::F32(&[1.0; 16]), None)
                };
                let matrix = Matrix { shape, values, scales: vec![1.0; 16], bias: None, packed: packed.unwrap() };
                let y = gemm(set, &pool, &x, &matrix, Clamp::NONE);
                let exact = reference_gemm(&x, &matrix, Clamp::NONE);
                for (&y, exact) in y.iter().zip(exact) {
                    assert!((f64::from(y) - exact).abs() <= exact.abs() * 1e-6, "{}: {y} for {exact}", set.tier());
                }
            }
        }
    }
}

#[test]
fn a_batch_equals_its_products() {
    let mut random = Random(4);
    let k = 576;
    let matrices = [192, 576, 40].map(|n| matrix(&mut random, WeightShape { n, k, group: 32 }, 4, true, false));
    let x = random.floats(3 * k, -1.0, 1.0);
    for (set, pool) in sets() {
        let mut activations = QuantizedRows::new();
        set.quantize_rows(&pool, &x, k, 32, &mut activations);
        let mut outs = [192, 576, 40].map(|n| vec![0.0; 3 * n]);
        let mut products = matrices.iter().zip(&mut outs).map(|(matrix, out)| QuantizedProduct {
            activations: &activations,
            weights: &matrix.packed,
            clamp: Clamp::NONE,
            out,
        });
        set.quantized_gemm_batch(&pool, std::array::from_fn::<_, 3, _>(|_| products.next().unwrap()));
        for (matrix, out) in matrices.iter().zip(&outs) {
            assert_same(set.tier(), out, &gemm(set, &pool, &x, matrix, Clamp::NONE));
        }
    }
}

#[test]
fn a_scale_that_is_no_number_gives_none_whatever_the_bounds() {
    let shape = WeightShape { n: 2, k: 32, group: 32 };
    let scales = Scales::F32(&[f32::NAN, 1.0]);
    let packed = PackedWeights::pack_4bit(shape, &[0x99; 32], Nibbles::Offset8, scales, None).unwrap();
    for (set, pool) in sets() {
        for clamp in [Clamp::NONE, Clamp { min: -1.0, max: 1.0 }] {
            let (mut activations, mut out) = (QuantizedRows::new(), [0.0; 2]);
            set.quantize_rows(&pool, &[1.0; 32], 32, 32, &mut activations);
            let (activations, weights) = (&activations, &packed);
            set.quantized_gemm(&pool, QuantizedProduct { activations, weights, clamp, out: &mut out });
            assert!(out[0].is_nan() && (out[1] - 32f32.min(clamp.max)).abs() < 1e-5, "{}: {out:?}", set.tier());
        }
    }
}

#[test]
fn packing_refuses_what_does_not_fit() {
    let pack = |n, k, group, bytes: usize, scales: usize, bias: Option<&[f32]>| {
        let (bytes, scales) = (vec![0; bytes], vec![0; scales]);
        PackedWeights::pack_4bit(WeightShape { n, k, group }, &bytes, Nibbles::Offset8, Scales::Bf16(&scales), bias)
            .err()
    };
    assert_eq!(pack(2, 64, 32, 64, 4, None), None);
    assert_eq!(pack(0, 64, 32, 0, 0, None), Some(PackError::Shape { n: 0, k: 64 }));
    assert_eq!(pack(1, 1 << 17, 32, 0, 0, None), Some(PackError::Shape { n: 1, k: 1 << 17 }));
    for group in [0, 12, 48] {
        assert_eq!(pack(1, 64, group, 32, 2, None), Some(PackError::Group { group, k: 64 }));
    }
    assert_eq!(pack(2, 64, 32, 63, 4, None), Some(PackError::Length { what: "weights", found: 63, needed: 64 }));
    assert_eq!(pack(2, 64, 32, 64, 5, None), Some(PackError::Length { what: "scales", found: 5, needed: 4 }));
    assert_eq!(pack(2, 64, 32, 64, 4, Some(&[0.0])), Some(PackError::Length { what: "bias", found: 1, needed: 2 }));
    let huge = pack(usize::MAX / 2, 64, 64, 0, 0, None);
    assert_eq!(huge, Some(PackError::Length { what: "weights", found: 0, needed: usize::MAX }));
}

#[test]
fn bits_are_the_same_on_every_machine() {
    // The number was computed on x86-64 and holds on aarch64.
    let mut random = Random(5);
    let shape = WeightShape { n: 72, k: 320, group: 32 };
    let matrix = matrix(&mut random, shape, 4, true, true);
    let x = random.floats(5 * shape.k, -1.0, 1.0);
    for (set, pool) in sets() {
        let mut y = gemm(set, &pool, &x, &matrix, Clamp::NONE);
        set.rms_norm(&y.clone(), 72, None, 1e-5, &mut y);
        set.map_in_place(Unary::Gelu, &mut y);
        set.map_in_place(Unary::Silu, &mut y);
        set.softmax_rows(&mut y, 72);
        let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
        assert_eq!(fnv1a64(&bytes), 0x6ad7_9496_b691_5a5b, "{}", set.tier());
    }
}

#[test]
fn activations_in_tiles_of_another_size_are_refused() {
    let matrix = matrix(&mut Random(6), WeightShape { n: 16, k: 32, group: 32 }, 4, true, false);
    let pool = ThreadPool::new(1);
    let tile = |set: &KernelSet| set.kernel_name("", "").split('_').nth(2).unwrap().to_owned();
    for (from, to) in
        KernelSet::all_available().iter().flat_map(|a| KernelSet::all_available().iter().map(move |b| (a, b)))
    {
        let mut activations = QuantizedRows::new();
        from.quantize_rows(&pool, &[1.0; 32], 32, 32, &mut activations);
        let multiplied = catch_unwind(AssertUnwindSafe(|| {
            let (mut out, activations, weights) = ([0.0; 16], &activations, &matrix.packed);
            to.quantized_gemm(&pool, QuantizedProduct { activations, weights, clamp: Clamp::NONE, out: &mut out });
        }));
        assert_eq!(multiplied.is_ok(), tile(from) == tile(to), "{} to {}", from.tier(), to.tier());
    }
}
