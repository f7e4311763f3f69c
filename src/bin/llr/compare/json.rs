//! The comparison for scripts: one JSON object.

use super::comparison::{Choice, Divergence, Found};
use super::logits::{Distance, Gap};
use super::report::{Answer, PromptReport, Report, SideReport, Speed, TurnReport};
use serde_json::{Value, json};

/// The whole object.
pub fn value(report: &Report) -> Value {
    let totals = report.totals();
    let [a, b] = &report.sides;
    let [speed_a, speed_b] = report.speeds();
    json!({
        "a": side(a, &speed_a),
        "b": side(b, &speed_b),
        "max_gap": report.rules.max_gap,
        "teacher_forced": report.rules.forced,
        "prompts": report.prompts.iter().map(prompt).collect::<Vec<_>>(),
        "summary": {
            "prompts": report.prompts.len(),
            "equal": totals.equal,
            "close": totals.close,
            "diverged": totals.diverged,
            "tokens_compared": totals.compared,
            "tokens_same": totals.same,
            "tokens_before_first_differences": totals.until,
            "rows_hashed": totals.hashed,
            "rows_same_bits": totals.same_bits,
        },
    })
}

fn side(side: &SideReport, speed: &Speed) -> Value {
    let tokenizer = side.tokenizer.as_ref().map(|(format, size)| json!({ "format": format, "vocab": size }));
    json!({
        "name": side.name,
        "description": side.description,
        "load_ms": side.load_ms,
        "tokenizer": tokenizer,
        "speed": rates(speed),
    })
}

fn rates(speed: &Speed) -> Value {
    let [prefill, decode] = speed.rates();
    json!({ "prefill_tokens_per_second": prefill, "decode_tokens_per_second": decode })
}

fn prompt(prompt: &PromptReport) -> Value {
    json!({
        "number": prompt.number,
        "name": prompt.name,
        "diverged": prompt.diverged(),
        "turns": prompt.turns.iter().map(turn).collect::<Vec<_>>(),
        "turns_left_out": prompt.left_out,
    })
}

fn turn(turn: &TurnReport) -> Value {
    let Found { compared, differing, close, hashed, same_bits, farthest, first } = &turn.found;
    let [speed_a, speed_b] = turn.speeds();
    let farthest = farthest.as_ref().map(|(step, far)| {
        let mut value = distance(far);
        value["step"] = json!(step);
        value
    });
    json!({
        "prompt": turn.prompt,
        "prompt_tokens": turn.prompt_tokens,
        "a": answer(&turn.a, &speed_a),
        "b": answer(&turn.b, &speed_b),
        "compared": compared,
        "differing": differing,
        "close": close,
        "rows_hashed": hashed,
        "rows_same_bits": same_bits,
        "farthest_where_same": farthest,
        "first": first.as_ref().map(|first| divergence(first, turn.context)),
    })
}

fn answer(answer: &Answer, speed: &Speed) -> Value {
    json!({
        "tokens": answer.tokens,
        "text": answer.text,
        "finish_reason": answer.end.as_ref().map(|end| &end.reason),
        "speed": rates(speed),
    })
}

fn divergence(first: &Divergence, context: Option<usize>) -> Value {
    json!({
        "step": first.step,
        "position": context.map(|context| context + first.step - 1),
        "close": first.close,
        "a": choice(&first.a),
        "b": choice(&first.b),
        "distance": first.distance.as_ref().map(distance),
    })
}

fn choice(choice: &Choice) -> Value {
    let gap = |gap: &Gap| json!({ "logits": gap.logits, "part_of_range": gap.part, "at_least": gap.at_least });
    json!({
        "token": choice.token,
        "top5": choice.largest.iter().map(|(id, logit)| json!([id, logit])).collect::<Vec<_>>(),
        "gap": choice.gap.as_ref().map(gap),
    })
}

fn distance(far: &Distance) -> Value {
    json!({ "largest": far.largest, "at": far.at, "over": far.over, "kl": far.kl })
}
