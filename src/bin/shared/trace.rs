//! `--trace_path`: one JSON object a line for each token, in the terms of the recorded upstream runs, so that two runs can
//! be compared number by number.

use llama_runner::runner::{LogitsRow, TokenEvent};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;

/// The line of `event` in turn `turn` (from 0), with its end. A turn's first has the `prompt` that was fed.
pub fn line(turn: usize, prompt: Option<&[TokenId]>, event: &TokenEvent<'_>) -> String {
    let top5: Vec<String> = top5(&event.logits).iter().map(|(id, raw)| format!("[{id},{raw}]")).collect();
    let prompt = prompt.map_or_else(String::new, |ids| {
        let ids: Vec<String> = ids.iter().map(TokenId::to_string).collect();
        format!("\"prompt_tokens\":[{}],", ids.join(","))
    });
    format!(
        "{{\"turn\":{turn},{prompt}\"position\":{},\"row\":{},\"token\":{},\"logits_fnv1a64\":\"{:016x}\",\"dtype\":\"{}\",\
         \"top5\":[{}]}}\n",
        event.position,
        event.row,
        event.token,
        event.logits.fnv1a64(),
        event.logits.dtype,
        top5.join(",")
    )
}

/// The five largest raw logits with their ids, largest first, the smaller id first among equals. A number that JSON
/// cannot hold reads `null`.
fn top5(row: &LogitsRow<'_>) -> Vec<(usize, String)> {
    let raw: Vec<f32> = match row.dtype {
        DType::U8 | DType::QU8 => row.bytes.iter().map(|&code| f32::from(code)).collect(),
        DType::U16 | DType::Bits16 => {
            row.bytes.as_chunks().0.iter().map(|&code| f32::from(u16::from_le_bytes(code))).collect()
        }
        DType::F16 => row.bytes.as_chunks().0.iter().map(|&code| half::f16::from_le_bytes(code).to_f32()).collect(),
        DType::BF16 => row.bytes.as_chunks().0.iter().map(|&code| half::bf16::from_le_bytes(code).to_f32()).collect(),
        DType::F32 => row.bytes.as_chunks().0.iter().map(|&code| f32::from_le_bytes(code)).collect(),
        _ => Vec::new(),
    };
    let mut ids: Vec<usize> = (0..raw.len()).filter(|&id| !raw[id].is_nan()).collect();
    // The sort is stable, so equals stay in order of their ids.
    ids.sort_by(|&a, &b| raw[b].total_cmp(&raw[a]));
    ids.truncate(5);
    ids.into_iter().map(|id| (id, if raw[id].is_finite() { raw[id].to_string() } else { "null".to_owned() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object_in_the_goldens_terms() {
        let codes: [u16; 7] = [3, 65_535, 9, 9, 0, 1, 40_000];
        let bytes: Vec<u8> = codes.iter().flat_map(|code| code.to_le_bytes()).collect();
        let logits = LogitsRow { dtype: DType::U16, encoding: None, bytes: &bytes };
        let event = TokenEvent { token: 1, piece: b"x", position: 4, row: 2, logits };
        let text = line(3, Some(&[1, 403]), &event);
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["turn"], 3);
        assert_eq!(json["prompt_tokens"].to_string(), "[1,403]");
        assert_eq!(line(3, None, &event), text.replace("\"prompt_tokens\":[1,403],", ""));
        assert_eq!((&json["position"], &json["row"], &json["token"]), (&4.into(), &2.into(), &1.into()));
        assert_eq!(json["logits_fnv1a64"], format!("{:016x}", logits.fnv1a64()));
        assert_eq!(json["dtype"], "u16");
        assert_eq!(json["top5"].to_string(), "[[1,65535],[6,40000],[2,9],[3,9],[0,3]]");
    }

    #[test]
    fn floats_and_bytes_too() {
        let floats: Vec<u8> = [f32::NAN, -1.5, f32::INFINITY].iter().flat_map(|x| x.to_le_bytes()).collect();
        let row = LogitsRow { dtype: DType::F32, encoding: None, bytes: &floats };
        assert_eq!(top5(&row), [(2, "null".to_owned()), (1, "-1.5".to_owned())]);
        let halves: Vec<u8> = [0.5f32, 2.0].iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(
            top5(&LogitsRow { dtype: DType::BF16, encoding: None, bytes: &halves }),
            [(1, "2".to_owned()), (0, "0.5".to_owned())]
        );
        let row = LogitsRow { dtype: DType::U8, encoding: None, bytes: &[7, 200] };
        assert_eq!(top5(&row), [(1, "200".to_owned()), (0, "7".to_owned())]);
    }
}
