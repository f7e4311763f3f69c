//! Text for calibration where there is only a prompt: the float model's own greedy continuation, as upstream does.

use super::{MethodSpec, ModelConfig, WeightSource, model};
use crate::engine::{InputView, Instance, Resources};
use crate::error::{Error, Result, Status};
use crate::tensor::DType;
use crate::tokenizer::TokenId;

/// Models of more parameters do not continue prompts: the engine would hold all of them in f32, and read them for every
/// token.
pub(super) const MAX_PARAMETERS: u64 = 1 << 26;

/// `tokens`, continued to `length` tokens or to an end token. A text that is that long already stays as it is.
///
/// # Errors
/// A token that the model does not have, and whatever the engine fails with.
pub(super) fn extend(
    (config, weights): (&ModelConfig, &dyn WeightSource),
    mut tokens: Vec<TokenId>,
    length: usize,
) -> Result<Vec<TokenId>> {
    if let Some(token) = tokens.iter().find(|&&token| token >= config.vocab as u64) {
        let why = format!(
            "calibration token {token} is outside the model's vocabulary of {}: another model's tokenizer?",
            config.vocab
        );
        return Err(Error::new(Status::InvalidArgument, why));
    }
    if tokens.is_empty() || tokens.len() >= length {
        return Ok(tokens);
    }
    let spec = MethodSpec::Dynamic {
        name: "continuation".into(),
        max_seq_len: length + 1,
        max_context_len: length + 1,
        full_logits: false,
        fused_attention: true,
    };
    let graph = model::build(config, weights, &spec)?;
    let mut instance = Instance::new(Resources::new(None).compile(graph)?)?;
    let mut fed = 0;
    while tokens.len() < length && tokens.last().is_some_and(|last| !config.eos_ids.contains(last)) {
        let ids: Vec<u8> = tokens[fed..].iter().flat_map(|&token| (token as i64).to_le_bytes()).collect();
        let position = (fed as i64).to_le_bytes();
        let inputs =
            [InputView { dims: &[1, tokens.len() - fed], bytes: &ids }, InputView { dims: &[1], bytes: &position }];
        instance.run(&inputs)?;
        fed = tokens.len();
        tokens.push(likeliest(&instance)?);
    }
    Ok(tokens)
}

fn likeliest(instance: &Instance) -> Result<TokenId> {
    let logits = instance.output(0).filter(|logits| logits.dtype == DType::F32);
    let logits = logits.ok_or_else(|| Error::new(Status::Internal, "the float graph gives no f32 logits"))?;
    let rows = logits.bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    // The first of equals, as upstream's samplers take it.
    let best = rows.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    Ok(best.map_or(0, |(token, _)| token as TokenId))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::{Extras, RandomWeights, tiny_config};

    #[test]
    fn a_prompt_is_continued_to_the_length_and_the_same_in_pieces() {
        let config = ModelConfig { eos_ids: Vec::new(), ..tiny_config() };
        let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
        let extended = |tokens: Vec<TokenId>, length| extend((&config, &weights), tokens, length).unwrap();
        let whole = extended(vec![3, 1, 4], 12);
        assert_eq!((whole.len(), &whole[..3]), (12, &[3, 1, 4][..]));
        assert_eq!(extended(whole[..7].to_vec(), 12), whole);
        assert_eq!(extended(whole[..7].to_vec(), 7), whole[..7]);
        // An end token of its own, not one of the prompt's.
        let end = 3 + whole[3..].iter().position(|token| !whole[..3].contains(token)).unwrap();
        let ended = ModelConfig { eos_ids: vec![whole[end]], ..config.clone() };
        assert_eq!(extend((&ended, &weights), vec![3, 1, 4], 12).unwrap(), whole[..=end]);
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_an_error() {
        let config = tiny_config();
        let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
        let error = extend((&config, &weights), vec![20], 4).unwrap_err();
        assert!(error.chain().contains("calibration token 20 is outside the model's vocabulary of 20"), "{error:?}");
    }
}
