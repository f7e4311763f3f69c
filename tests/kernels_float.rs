//! Every kernel set against f64 mathematics within the stated error, and against scalar to the bit.

mod kernels_common;

use kernels_common::{Random, assert_same, sets, ulps};
use llama_runner::kernels::{
    Binary, Clamp, KernelSet, MatrixProduct, PackError, PackedF32, Rotary, RotaryStyle, Unary,
};

/// erf in f64 by its Taylor series, or its continued fraction far from zero.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..120 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..120).rev().fold(0.0, |f, n| f64::from(n) / 2.0 / (x.abs() + f));
        x.signum() * (1.0 - (-x * x).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt())
    }
}

/// Numbers of every size a function may meet, and the special ones.
fn arguments(random: &mut Random, span: f32) -> Vec<f32> {
    let mut x = random.floats(20_000, -span, span);
    x.extend(random.floats(4_000, -1.0, 1.0));
    x.extend((0..4_000).map(|_| random.float(-1.0, 1.0) * 10f32.powf(random.float(-30.0, 0.0))));
    x.extend([0.0, -0.0, 1.0, -1.0, 0.625, -0.625, 88.7, -88.7, 89.0, -104.0, 1e10, -1e10, 5.0, 7.0, 1e-40]);
    x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    x
}

#[test]
fn functions_of_one_number() {
    type Case = (Unary, f32, fn(f64) -> f64, f64);
    let cases: [Case; 9] = [
        (Unary::Exp, 88.0, f64::exp, 0.7),
        (Unary::Tanh, 10.0, f64::tanh, 4.0),
        (Unary::Sigmoid, 80.0, |x| 1.0 / (1.0 + (-x).exp()), 4.0),
        (Unary::Silu, 80.0, |x| x / (1.0 + (-x).exp()), 4.0),
        (Unary::Square, 1e10, |x| x * x, 0.5),
        (Unary::Sqrt, 1e10, f64::sqrt, 0.5),
        (Unary::Rsqrt, 1e10, |x| 1.0 / x.sqrt(), 1.5),
        (Unary::Negate, 1e10, |x| -x, 0.0),
        (Unary::Abs, 1e10, f64::abs, 0.0),
    ];
    let mut random = Random(1);
    for (f, span, exact, limit) in cases {
        let x = arguments(&mut random, span);
        let mut first: Option<Vec<f32>> = None;
        for (set, _) in sets() {
            let mut y = vec![0.0; x.len()];
            set.map(f, &x, &mut y);
            assert_same(&format!("{f:?} {}", set.tier()), &y, first.get_or_insert_with(|| y.clone()));
        }
        let mut worst = 0.0f64;
        for (&x, y) in x.iter().zip(first.unwrap()) {
            let want = exact(f64::from(x));
            // Documented: results below e⁻⁸⁶·⁶ may be 0; silu(−∞) is NaN in both.
            if x.is_nan() || want.is_nan() {
                assert!(y.is_nan(), "{f:?}({x}) = {y}");
            } else if want.abs() < 2.5e-38 {
                assert!((f64::from(y) - want).abs() < 2.5e-38, "{f:?}({x}) = {y:e} for {want:e}");
            } else {
                let error = ulps(y, want);
                assert!(error <= limit, "{f:?}({x:e}) = {y:e} for {want:e}: {error} ULP");
                worst = worst.max(error);
            }
        }
        println!("{f:?}: {worst:.2} ULP");
    }
}

#[test]
fn gelu_within_its_absolute_error() {
    type Case = (Unary, fn(f64) -> f64);
    let cases: [Case; 2] = [
        (Unary::Gelu, |x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))),
        (Unary::GeluTanh, |x| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }),
    ];
    let mut random = Random(2);
    for (f, exact) in cases {
        let x: Vec<f32> = arguments(&mut random, 8.0).into_iter().filter(|x| x.is_finite()).collect();
        let mut first: Option<Vec<f32>> = None;
        for (set, _) in sets() {
            let mut y = vec![0.0; x.len()];
            set.map(f, &x, &mut y);
            assert_same(&format!("{f:?} {}", set.tier()), &y, first.get_or_insert_with(|| y.clone()));
        }
        for (&x, y) in x.iter().zip(first.unwrap()) {
            let error = (f64::from(y) - exact(f64::from(x))).abs();
            assert!(error <= 2f64.powi(-22) * f64::from(x.abs().max(1.0)), "{f:?}({x}) = {y}, error {error:e}");
        }
    }
}

#[test]
fn clamp_and_functions_of_two_numbers() {
    type Case = (Binary, fn(f32, f32) -> f32);
    let mut random = Random(3);
    for (rows, row) in [(1, 1), (3, 7), (2, 16), (5, 40), (1, 173)] {
        let a = random.floats(rows * row, -4.0, 4.0);
        for b_len in [rows * row, row, 1] {
            let b = random.floats(b_len, 0.5, 3.0);
            let exact: [Case; 6] = [
                (Binary::Add, |a, b| a + b),
                (Binary::Sub, |a, b| a - b),
                (Binary::Mul, |a, b| a * b),
                (Binary::Div, |a, b| a / b),
                (Binary::Max, f32::max),
                (Binary::Min, f32::min),
            ];
            for (set, _) in sets() {
                let mut y = vec![0.0; a.len()];
                for (f, exact) in exact {
                    set.zip(f, &a, &b, &mut y);
                    let want: Vec<f32> = a.iter().enumerate().map(|(i, &a)| exact(a, b[i % b_len])).collect();
                    assert_same(&format!("{f:?} {}", set.tier()), &y, &want);
                }
                set.zip(Binary::SwiGlu, &a, &b, &mut y);
                let mut want = a.clone();
                set.map_in_place(Unary::Silu, &mut want);
                set.zip_in_place(Binary::Mul, &mut want, &b);
                assert_same(set.tier(), &y, &want);
                set.map(Unary::Clamp { min: -1.0, max: 0.5 }, &a, &mut y);
                assert_same(set.tier(), &y, &a.iter().map(|a| a.clamp(-1.0, 0.5)).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn softmax_and_rms_norm() {
    let mut random = Random(4);
    for (rows, row) in [(1, 1), (3, 7), (2, 16), (5, 40), (2, 173), (9, 17), (11, 24), (1, 1024)] {
        let mut x = random.floats(rows * row, -9.0, 9.0);
        let weight = random.floats(row, 0.5, 2.0);
        let (mut softmax_first, mut norm_first) = (None, None);
        for (set, _) in sets() {
            let mut y = x.clone();
            set.softmax_rows(&mut y, row);
            for (x, y) in x.chunks_exact(row).zip(y.chunks_exact(row)) {
                let max = x.iter().copied().fold(f32::MIN, f32::max);
                let e: Vec<f64> = x.iter().map(|x| f64::from(x - max).exp()).collect();
                let sum: f64 = e.iter().sum();
                for (e, &y) in e.iter().zip(y) {
                    assert!(ulps(y, e / sum) <= 8.0, "{}: {y} for {}", set.tier(), e / sum);
                }
            }
            assert_same(set.tier(), &y, softmax_first.get_or_insert_with(|| y.clone()));

            for weight in [None, Some(&weight[..])] {
                set.rms_norm(&x, row, weight, 1e-5, &mut y);
                let want = x.chunks_exact(row).flat_map(|x| {
                    let mean = x.iter().fold(0.0, |sum, x| sum + x * x) / row as f32;
                    let scale = 1.0 / (mean + 1e-5).sqrt();
                    x.iter().enumerate().map(move |(i, x)| x * scale * weight.map_or(1.0, |weight| weight[i]))
                });
                assert_same(&format!("{} norm", set.tier()), &y, &want.collect::<Vec<_>>());
            }
            assert_same(set.tier(), &y, norm_first.get_or_insert_with(|| y.clone()));
        }
        x[..row].fill(f32::NEG_INFINITY);
        for (set, _) in sets() {
            let mut y = x.clone();
            set.softmax_rows(&mut y, row);
            assert!(y[..row].iter().all(|y| y.is_nan()) && y[row..].iter().all(|y| y.is_finite()), "{}", set.tier());
        }
    }
}

#[test]
fn rotary_turns_pairs() {
    let mut random = Random(5);
    for (tokens, heads, head_dim) in [(1, 1, 2), (3, 2, 8), (2, 5, 64), (1, 3, 80)] {
        let half = head_dim / 2;
        let angles = random.floats(tokens * half, -3.0, 3.0);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let x = random.floats(tokens * heads * head_dim, -2.0, 2.0);
        for style in [RotaryStyle::Interleaved, RotaryStyle::HalfSplit] {
            let mut want = x.clone();
            for (i, head) in want.chunks_exact_mut(head_dim).enumerate() {
                for pair in 0..half {
                    let (a, b) = match style {
                        RotaryStyle::Interleaved => (2 * pair, 2 * pair + 1),
                        RotaryStyle::HalfSplit => (pair, pair + half),
                    };
                    let (c, s) = (cos[i / heads * half + pair], sin[i / heads * half + pair]);
                    (head[a], head[b]) = (head[a] * c - head[b] * s, head[a] * s + head[b] * c);
                }
            }
            for (set, _) in sets() {
                let mut y = x.clone();
                set.rotary(Rotary { style, head_dim, cos: &cos, sin: &sin }, heads, &mut y);
                assert_same(set.tier(), &y, &want);
            }
        }
    }
}

#[test]
fn extremes_and_argmax() {
    let mut random = Random(6);
    for n in [1, 2, 15, 16, 17, 1000, 1024, 5000] {
        let x: Vec<f32> = (0..n).map(|_| random.float(-5.0, 5.0).round()).collect();
        let max = x.iter().copied().fold(f32::MIN, f32::max);
        let min = x.iter().copied().fold(f32::MAX, f32::min);
        for (set, _) in sets() {
            assert_eq!(set.min_max(&x), (min, max));
            assert_eq!(set.argmax(&x), x.iter().position(|&x| x == max), "{}", set.tier());
        }
    }
    for (set, _) in sets() {
        assert_eq!(set.argmax(&[]), None);
        assert_eq!(set.argmax(&[f32::NAN; 20]), None);
        assert_eq!(set.argmax(&[f32::NAN, f32::NEG_INFINITY]), Some(1));
        let mut late = vec![f32::NAN; 3000];
        late[2900] = 1.0;
        assert_eq!(set.argmax(&late), Some(2900));
    }
}

/// Sums over k in order, one fused multiply-add each.
fn reference_gemm(x: &[f32], w: &[f32], bias: Option<&[f32]>, (n, k): (usize, usize)) -> Vec<f32> {
    let mut out = Vec::new();
    for x in x.chunks_exact(k) {
        for column in 0..n {
            let start = bias.map_or(0.0, |bias| bias[column]);
            out.push((0..k).fold(start, |sum, i| x[i].mul_add(w[column * k + i], sum)));
        }
    }
    out
}

#[test]
fn float_products_equal_the_definition_to_the_bit() {
    let mut random = Random(7);
    for (n, k) in [(1, 1), (16, 8), (17, 31), (64, 64), (100, 172), (200, 65)] {
        for rows in [1, 2, 5, 8, 13] {
            let (x, w) = (random.floats(rows * k, -1.0, 1.0), random.floats(n * k, -1.0, 1.0));
            let bias = random.floats(n, -1.0, 1.0);
            let bias = (n % 2 == 0).then_some(&bias[..]);
            let half: Vec<u16> = w.iter().map(|&w| half::f16::from_f32(w).to_bits()).collect();
            let narrowed: Vec<f32> = half.iter().map(|&w| half::f16::from_bits(w).to_f32()).collect();
            let want = [&w, &narrowed].map(|w| reference_gemm(&x, w, bias, (n, k)));
            let packed = [PackedF32::pack(n, k, &w, bias).unwrap(), PackedF32::pack_f16(n, k, &half, bias).unwrap()];
            for (set, pool) in sets() {
                for (packed, want) in packed.iter().zip(&want) {
                    let mut y = vec![0.0; rows * n];
                    set.gemm(&pool, &x, packed, Clamp::NONE, &mut y);
                    assert_same(&format!("{} {rows}x{k}·{n}", set.tier()), &y, want);
                    set.gemm(&pool, &x, packed, Clamp { min: 0.0, max: 0.5 }, &mut y);
                    assert!(y.iter().zip(want).all(|(&y, want)| y == want.clamp(0.0, 0.5)));
                }
            }
        }
    }
    let packed = PackedF32::pack(3, 2, &[1.0, 0.0, f32::NAN, 0.0, 0.0, 1.0], None).unwrap();
    for (set, pool) in sets() {
        for clamp in [Clamp::NONE, Clamp { min: -1.0, max: 1.0 }] {
            let mut y = [0.0; 3];
            set.gemm(&pool, &[0.5, f32::INFINITY], &packed, clamp, &mut y);
            assert_same(set.tier(), &y, &[f32::NAN, f32::NAN, f32::INFINITY.min(clamp.max)]);
            set.map(Unary::Clamp { min: clamp.min, max: clamp.max }, &[f32::NAN, 7.0, -0.0], &mut y);
            assert_same(set.tier(), &y, &[f32::NAN, 7f32.min(clamp.max), -0.0]);
        }
    }
    let refused = PackedF32::pack(2, 3, &[0.0; 5], None).unwrap_err();
    assert_eq!(refused, PackError::Length { what: "weights", found: 5, needed: 6 });
}

#[test]
fn matrix_products_equal_the_definition_to_the_bit() {
    let mut random = Random(8);
    for (batch, m, n, k) in
        [(1, 1, 1, 1), (2, 3, 5, 7), (1, 9, 16, 8), (3, 4, 33, 20), (1, 64, 40, 64), (5, 1, 20, 100)]
    {
        let a = random.floats(batch * m * k, -1.0, 1.0);
        let b = random.floats(batch * n * k, -1.0, 1.0);
        let mut turned = vec![0.0; b.len()];
        for i in 0..batch {
            for (column, at) in (0..n).flat_map(|column| (0..k).map(move |at| (column, at))) {
                turned[i * n * k + at * n + column] = b[i * n * k + column * k + at];
            }
        }
        let want: Vec<f32> = (0..batch)
            .flat_map(|i| reference_gemm(&a[i * m * k..][..m * k], &b[i * n * k..][..n * k], None, (n, k)))
            .collect();
        for (set, pool) in sets() {
            for (transposed_b, b) in [(true, &b), (false, &turned)] {
                let mut y = vec![0.0; batch * m * n];
                set.matmul(&pool, MatrixProduct { batch, m, n, k, transposed_b, a: &a, b }, &mut y);
                assert_same(&format!("{} {batch}x{m}x{n}x{k} {transposed_b}", set.tier()), &y, &want);
            }
        }
    }
}

#[test]
fn names_follow_the_grammar() {
    for set in KernelSet::all_available() {
        let name = set.kernel_name("qd8q4f32", "gemm");
        let parts: Vec<&str> = name.split('_').collect();
        assert_eq!(parts[..2], ["qd8q4f32", "gemm"]);
        assert!(parts[2].ends_with("x16") && parts.len() == 4, "{name}");
    }
    assert_eq!(KernelSet::all_available().last().unwrap().tier(), "scalar");
}

#[test]
#[ignore = "run by the_environment_chooses_the_set, in a process of its own"]
fn prints_the_chosen_set() {
    println!("chosen: {}.", KernelSet::best().tier());
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "an emulator does not start a second program")]
fn the_environment_chooses_the_set() {
    let first = KernelSet::all_available()[0].tier();
    let wanted = KernelSet::all_available().iter().map(|set| (set.tier(), set.tier()));
    for (asked, got) in wanted.chain([("", first), ("mmx", first)]) {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "prints_the_chosen_set"])
            .env("LLR_KERNELS", asked)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("chosen: {got}.")), "asked for {asked:?}: {text}");
    }
}
