//! The comparison for people: tokens side by side, the first divergence with both rows, a summary.

use super::arguments::Shown;
use super::comparison::{Choice, Divergence, Rules};
use super::logits::{Distance, SHOWN};
use super::report::{PromptReport, Report, SideReport, Speed, TurnReport};
use llama_runner::tokenizer::{TokenId, Tokenizer};
use std::fmt::Write;
use std::sync::Arc;

/// Steps before and behind a divergence that `Shown::Near` prints.
const NEAR: usize = 4;

/// Columns of a token.
const WIDTH: usize = 26;

/// Ids as people read them, with the tokenizers of A and B.
pub struct Pieces(pub [Option<Arc<dyn Tokenizer>>; 2]);

impl Pieces {
    fn show(&self, side: usize, id: TokenId) -> String {
        let text = self.0[side].as_ref().and_then(|tokenizer| tokenizer.decode(Some(id), id).ok());
        match text {
            Some(bytes) => format!("{id} {:?}", String::from_utf8_lossy(&bytes)),
            None => id.to_string(),
        }
    }
}

macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        // Writing to a String never fails.
        let _ = writeln!($out, $($format)*);
    }};
}

/// What is compared.
pub fn header(sides: &[SideReport; 2]) -> String {
    let mut out = String::new();
    for (label, side) in ['A', 'B'].into_iter().zip(sides) {
        let description = if side.description.is_empty() { "recorded" } else { &side.description };
        line!(out, "{label}  {}: {description}", side.name);
    }
    out
}

/// One conversation.
pub fn prompt(prompt: &PromptReport, pieces: &Pieces, shown: Shown, rules: Rules) -> String {
    let mut out = String::new();
    let name = prompt.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    for (index, turn) in prompt.turns.iter().enumerate() {
        let which =
            if prompt.turns.len() + prompt.left_out > 1 { format!(", turn {}", index + 1) } else { String::new() };
        line!(out, "\nprompt {}{name}{which}: {}", prompt.number, turn.prompt);
        tokens(&mut out, turn, pieces, shown);
        verdict(&mut out, turn, rules);
        if let Some(first) = &turn.found.first {
            divergence(&mut out, turn, first, pieces, rules);
        }
        speeds(&mut out, "  ", &turn.speeds());
    }
    if prompt.left_out > 0 {
        line!(out, "  {} behind it not compared: the contexts differ", count(prompt.left_out, "turn"));
    }
    out
}

/// The sums.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    let totals = report.totals();
    let close = if report.rules.max_gap.is_some() { format!("{} close, ", totals.close) } else { String::new() };
    line!(
        out,
        "\nsummary: of {}, {} equal, {close}{} diverged; {} of {} the same, {} before the first differences",
        count(report.prompts.len(), "prompt"),
        totals.equal,
        totals.diverged,
        totals.same,
        count(totals.compared, "token"),
        totals.until,
    );
    if totals.hashed > 0 {
        line!(out, "  logits bit for bit the same in {} of {}", totals.same_bits, count(totals.hashed, "row"));
    }
    speeds(&mut out, "  ", &report.speeds());
    out
}

fn tokens(out: &mut String, turn: &TurnReport, pieces: &Pieces, shown: Shown) {
    let most = turn.a.tokens.len().max(turn.b.tokens.len());
    let steps = match (shown, &turn.found.first) {
        (Shown::None, _) | (Shown::Near, None) => return,
        (Shown::All, _) => 0..most,
        (Shown::Near, Some(first)) => first.step.saturating_sub(NEAR)..(first.step + NEAR + 1).min(most),
    };
    line!(out, "  step    {:<WIDTH$}  B", "A");
    for step in steps {
        let [a, b] = [&turn.a.tokens, &turn.b.tokens].map(|tokens| tokens.get(step).copied());
        let cell = |side: usize, id: Option<TokenId>| id.map_or_else(|| "-".to_owned(), |id| pieces.show(side, id));
        let mark = if a == b { ' ' } else { '*' };
        line!(out, "  {step:>4}  {mark} {:<WIDTH$}  {}", cell(0, a), cell(1, b));
    }
}

fn verdict(out: &mut String, turn: &TurnReport, rules: Rules) {
    let found = &turn.found;
    let same = match (found.differing, rules.forced) {
        (0, _) => format!("the same {}", count(found.compared, "token")),
        (_, true) => format!(
            "{} of {} differ, {} of them close calls",
            found.differing,
            count(found.compared, "choice"),
            found.close
        ),
        (_, false) => format!("the same {}, then not", count(found.until(), "token")),
    };
    let mut bits = String::new();
    if found.hashed > 0 {
        let _ = write!(bits, "; logits bit for bit the same in {} of {}", found.same_bits, found.hashed);
    }
    if let Some((step, far)) = found.farthest.filter(|(_, far)| far.largest > 0.0) {
        let _ = write!(
            bits,
            "; where the choice is the same, rows are at most {} apart (step {step}{})",
            number(far.largest),
            kl(&far)
        );
    }
    line!(out, "  {same}{bits}");
}

fn divergence(out: &mut String, turn: &TurnReport, first: &Divergence, pieces: &Pieces, rules: Rules) {
    let Divergence { step, a, b, distance, close } = first;
    let place = turn.context.map(|context| format!(" (row of position {})", context + step - 1)).unwrap_or_default();
    let what = |side: usize, choice: &Choice| match choice.token {
        Some(id) => format!("takes {}", pieces.show(side, id)),
        None => "has ended".to_owned(),
    };
    let kind = if *close { "first close call" } else { "first divergence" };
    line!(out, "  {kind} at step {step}{place}: A {}, B {}", what(0, a), what(1, b));
    if !(a.largest.is_empty() && b.largest.is_empty()) {
        line!(out, "    {:<WIDTH$}  {:>12}  |  {:<WIDTH$}  {:>12}", "A's largest", "logit", "B's largest", "logit");
    }
    for rank in 0..SHOWN.min(a.largest.len().max(b.largest.len())) {
        let cell = |side: usize, choice: &Choice| match choice.largest.get(rank) {
            Some(&(id, logit)) => format!("{:<WIDTH$}  {:>12}", pieces.show(side, id), number(logit)),
            None => format!("{:<WIDTH$}  {:>12}", "", ""),
        };
        line!(out, "    {}  |  {}", cell(0, a), cell(1, b));
    }
    for (label, own, other) in [('A', a, b), ('B', b, a)] {
        if let (Some(gap), Some(first), Some(second)) = (own.gap, own.token, other.token) {
            let least = if gap.at_least { "at least " } else { "" };
            let part = gap.part.map(|part| format!(" ({:.3} % of the row's range)", part * 100.0)).unwrap_or_default();
            line!(out, "    {label} puts {first} before {second} by {least}{}{part}", number(gap.logits));
        }
    }
    match distance {
        Some(far) => {
            let over =
                if far.kl.is_some() { String::new() } else { format!(", over {}", count(far.over, "known logit")) };
            line!(
                out,
                "    the rows are at most {} apart (at {}{}){over}",
                number(far.largest),
                pieces.show(0, far.at),
                kl(far)
            );
        }
        None if a.token.is_some() && b.token.is_some() => {
            line!(out, "    the distance of the rows is not known: too little is recorded, or in other units");
        }
        None => {}
    }
    if let (true, Some(most)) = (*close, rules.max_gap) {
        line!(out, "    a close call: both gaps are within {} % of the range, where rounding may decide", most * 100.0);
    }
}

fn kl(distance: &Distance) -> String {
    distance.kl.map(|kl| format!(", KL {kl:.2e}")).unwrap_or_default()
}

fn speeds(out: &mut String, indent: &str, speeds: &[Speed; 2]) {
    let sides = ['A', 'B'].into_iter().zip(speeds).filter_map(|(label, speed)| match speed.rates() {
        [None, None] => None,
        rates => {
            let [prefill, decode] = rates.map(|rate| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}")));
            Some(format!("{label}: prefill {prefill}, decode {decode} tokens/s"))
        }
    });
    let sides: Vec<String> = sides.collect();
    if !sides.is_empty() {
        line!(out, "{indent}{}", sides.join("; "));
    }
}

/// A logit in five digits.
fn number(value: f32) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e6).contains(&size) => format!("{value:.4e}"),
        _ => format!("{value:.4}"),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::super::comparison::{Comparison, Step};
    use super::super::logits::{Logits, Unit, Values};
    use super::super::report::Answer;
    use super::super::wire::End;
    use super::*;

    fn step(row: &[f32]) -> Step {
        let logits = Logits { unit: Unit::Real, values: Values::All(row.to_vec()) };
        Step { token: logits.choice().unwrap(), hash: None, logits: Some(logits) }
    }

    /// Two sides that part at their second step, where A's gap is 1 % and B's 2 % of the range.
    fn report(max_gap: Option<f32>) -> Report {
        let a = [step(&[0.0, 2.0, 1.0]), step(&[5.1, 5.0, -4.9]), step(&[1.0, 0.0, 0.0])];
        let b = [step(&[0.0, 2.0, 1.5]), step(&[4.8, 5.0, -5.0]), step(&[0.0, 0.0, 3.0])];
        let rules = Rules { max_gap, forced: false };
        let mut comparison = Comparison::new(rules);
        a.iter().zip(&b).for_each(|(a, b)| comparison.step(a, b));
        let answer = |steps: &[Step]| Answer {
            tokens: steps.iter().map(|step| step.token).collect(),
            text: String::new(),
            end: Some(End { reason: "length".into(), prefill_seconds: 0.5, decode_seconds: 0.25 }),
        };
        let turn = TurnReport {
            prompt: "\"Once\"".into(),
            context: Some(5),
            prompt_tokens: Some(5),
            a: answer(&a),
            b: answer(&b),
            found: comparison.end(None, None),
        };
        let side = |name: &str, description: &str| SideReport {
            name: name.into(),
            description: description.into(),
            load_ms: None,
            tokenizer: None,
        };
        let prompt = PromptReport { number: 1, name: None, turns: vec![turn], left_out: 1 };
        Report { sides: [side("x.pte", "kv mode"), side("t.jsonl", "")], rules, prompts: vec![prompt] }
    }

    #[test]
    fn a_divergence_on_one_screen() {
        let report = report(None);
        assert_eq!(header(&report.sides), "A  x.pte: kv mode\nB  t.jsonl: recorded\n");
        let text = prompt(&report.prompts[0], &Pieces([None, None]), Shown::All, report.rules);
        let want = "
prompt 1, turn 1: \"Once\"
  step    A                           B
     0    1                           1
     1  * 0                           1
     2  * 0                           2
  the same 1 token, then not; where the choice is the same, rows are at most 0.5000 apart (step 0, KL 2.50e-2)
  first divergence at step 1 (row of position 5): A takes 0, B takes 1
    A's largest                        logit  |  B's largest                        logit
    0                                 5.1000  |  1                                 5.0000
    1                                 5.0000  |  0                                 4.8000
    2                                -4.9000  |  2                                -5.0000
    A puts 0 before 1 by 0.1000 (1.000 % of the row's range)
    B puts 1 before 0 by 0.2000 (2.000 % of the row's range)
    the rows are at most 0.3000 apart (at 0, KL 1.12e-2)
  A: prefill 10.0, decode 8.0 tokens/s; B: prefill 10.0, decode 8.0 tokens/s
  1 turn behind it not compared: the contexts differ
";
        assert_eq!(text, want);
        let want = "
summary: of 1 prompt, 0 equal, 1 diverged; 1 of 2 tokens the same, 1 before the first differences
  A: prefill 10.0, decode 8.0 tokens/s; B: prefill 10.0, decode 8.0 tokens/s
";
        assert_eq!(summary(&report), want);
    }

    #[test]
    fn a_close_call_says_what_it_means_and_fewer_tokens_can_be_shown() {
        let report = report(Some(0.03));
        let shown = |shown| prompt(&report.prompts[0], &Pieces([None, None]), shown, report.rules);
        let text = shown(Shown::None);
        assert!(text.contains("  first close call at step 1 ") && !text.contains("  step  "), "{text}");
        assert!(
            text.contains("a close call: both gaps are within 3 % of the range, where rounding may decide"),
            "{text}"
        );
        assert!(shown(Shown::Near).contains("     0    1 "), "{text}");
        assert!(summary(&report).contains("of 1 prompt, 0 equal, 1 close, 0 diverged; "));
    }
}
