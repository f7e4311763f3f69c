//! One comparison from start to end: opens the sides, makes sure that they speak of the same tokens, and takes them
//! through the prompts.

use super::arguments::{Arguments, invalid};
use super::comparison::{Comparison, Hash, Step};
use super::live::Live;
use super::logits::{Logits, Unit, Values};
use super::prompts::{Conversation, TurnPrompt};
use super::recording::{self, Recorded};
use super::report::{Answer, PromptReport, Report, SideReport, TurnReport};
use super::side::{Side, Values as Options};
use super::source::{Origin, Source};
use super::text::{self, Pieces};
use super::wire::Request;
use llama_runner::Result;
use llama_runner::base::storage::Blob;
use llama_runner::error::Context;
use llama_runner::export::scratch::Scratch;
use llama_runner::tokenizer::{TokenId, Tokenizer};
use std::path::PathBuf;

/// Compares, and hands over text for people as it goes.
pub fn run(arguments: &Arguments, print: &mut dyn FnMut(&str) -> Result<()>) -> Result<Report> {
    let [mut a, mut b] = open(arguments)?;
    let conversations = conversations(arguments, [&a, &b])?;
    let prompts = encoded(arguments, &conversations, [&a, &b])?;
    let sides = [(&a, &arguments.sides.a), (&b, &arguments.sides.b)].map(|(side, options)| SideReport {
        name: side.name.clone(),
        description: side.hello().map(|hello| hello.description.clone() + &options.show()).unwrap_or_default(),
        load_ms: side.hello().map(|hello| hello.load_ms),
        tokenizer: side.tokenizer.as_ref().map(|t| (t.format().to_owned(), t.vocab_size())),
    });
    print(&text::header(&sides))?;
    let pieces = Pieces([&a, &b].map(|side| side.tokenizer.clone()));
    let rules = arguments.rules();
    let mut report = Report { sides, rules, prompts: Vec::new() };
    for (index, conversation) in conversations.iter().enumerate() {
        let mut done =
            PromptReport { number: index + 1, name: conversation.name.clone(), turns: Vec::new(), left_out: 0 };
        let mut context = Some(0);
        for (turn, prompt) in conversation.turns.iter().enumerate() {
            let asked = Asked { arguments, place: (index, turn), prompt: prompts[index][turn].as_deref(), context };
            let made = asked.run(&mut a, &mut b);
            let mut made = made.with_context(|| format!("prompt {}, turn {}", index + 1, turn + 1))?;
            made.prompt = prompt.show();
            // The last token of a turn is not in the context.
            context = made.context.map(|context| context + made.a.tokens.len().saturating_sub(1));
            let parted = made.found.differing > 0 && !rules.forced;
            done.turns.push(made);
            if parted {
                done.left_out = conversation.turns.len() - turn - 1;
                break;
            }
        }
        print(&text::prompt(&done, &pieces, arguments.tokens, rules))?;
        report.prompts.push(done);
    }
    Ok(report)
}

/// Opens both sides; their children load at the same time.
fn open(arguments: &Arguments) -> Result<[Source; 2]> {
    let options = [&arguments.sides.a, &arguments.sides.b];
    let [first, second] = [0, 1].map(|side| begin(arguments.recorded()[side], options[side], arguments));
    let label = |side: &str| format!("side {side}");
    let (first, second) = (first.with_context(|| label("A"))?, second.with_context(|| label("B"))?);
    let (mut a, mut b) =
        (first.finish('A').with_context(|| label("A"))?, second.finish('B').with_context(|| label("B"))?);
    // A recorded side has the words of the other, or of the tokenizer that is named.
    match (a.hello().is_some(), b.hello().is_some()) {
        (false, true) => a.tokenizer = b.tokenizer.clone(),
        (true, false) => b.tokenizer = a.tokenizer.clone(),
        (false, false) if arguments.sides.a.has("tokenizer_path") => {
            let [of_a, of_b] = options.map(|options| Side::new(options).and_then(|side| side.tokenizer()));
            (a.tokenizer, b.tokenizer) = (Some(of_a?), Some(of_b?));
        }
        _ => {}
    }
    if let (Some(hello_a), Some(hello_b)) = (a.hello(), b.hello())
        && hello_a.vocab != hello_b.vocab
    {
        return Err(invalid(format!(
            "the sides cannot be compared: a row of logits has {} tokens at A ({}) and {} at B ({})",
            hello_a.vocab, a.name, hello_b.vocab, b.name
        )));
    }
    Ok([a, b])
}

/// A side that is being opened.
enum Opening {
    Recorded(String, Vec<Recorded>),
    Live(Box<(Live, Side)>),
}

fn begin(files: &[PathBuf], options: &Options, arguments: &Arguments) -> Result<Opening> {
    if !files.is_empty() {
        let runs = files.iter().map(|path| recording::load(path)).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        return Ok(Opening::Recorded(names.join(", "), runs.concat()));
    }
    let side = Side::new(options)?;
    Ok(Opening::Live(Box::new((Live::start(options, &arguments.decoder_model_version)?, side))))
}

impl Opening {
    fn finish(self, label: char) -> Result<Source> {
        Ok(match self {
            Self::Recorded(name, runs) => Source { label, name, origin: Origin::Recorded(runs), tokenizer: None },
            Self::Live(opening) => {
                let (mut live, side) = *opening;
                // Judged here first: its message is the same, and no child is waited for.
                let tokenizer = side.tokenizer()?;
                let hello = live.hello()?;
                Source {
                    label,
                    name: side.name(),
                    origin: Origin::Live(Box::new(live), hello),
                    tokenizer: Some(tokenizer),
                }
            }
        })
    }
}

/// What both sides are taken through: the prompts of the recorded runs where these bring some, else the command line's.
fn conversations(arguments: &Arguments, sides: [&Source; 2]) -> Result<Vec<Conversation>> {
    let recorded = sides.map(|side| match &side.origin {
        Origin::Recorded(runs) => Some(runs.iter().map(|run| run.conversation.clone()).collect::<Vec<_>>()),
        Origin::Live(..) => None,
    });
    let shape = |all: &[Conversation]| all.iter().map(|one| one.turns.len()).collect::<Vec<_>>();
    let known = |all: &[Conversation]| all.iter().flat_map(|one| &one.turns).all(|turn| *turn != TurnPrompt::Unknown);
    let brought = match recorded {
        [None, None] => return arguments.conversations(false),
        [Some(all), None] | [None, Some(all)] => all,
        [Some(a), Some(b)] if shape(&a) != shape(&b) => {
            let why = format!("the recorded runs have turns {:?} at A and {:?} at B", shape(&a), shape(&b));
            return Err(invalid(format!("the sides cannot be compared: {why}")));
        }
        [Some(a), Some(b)] => {
            if known(&a) && known(&b) && a.iter().zip(&b).any(|(a, b)| a.turns != b.turns) {
                return Err(invalid("the sides cannot be compared: the recorded runs answer different prompts"));
            }
            return Ok(if known(&a) { a } else { b });
        }
    };
    match (known(&brought), arguments.has_prompts()) {
        (true, false) => Ok(brought),
        (false, false) => Err(invalid("a trace does not say what was asked: give --prompt for each of its turns")),
        // Where the recording brings its prompts too, they must be the same.
        (_, true) => {
            let asked = arguments.conversations(true)?;
            match shape(&asked) == shape(&brought) {
                true => Ok(asked),
                false => Err(invalid(format!(
                    "the recorded run has turns {:?}, the command line prompts for {:?}",
                    shape(&brought),
                    shape(&asked)
                ))),
            }
        }
    }
}

/// Token ids of every turn, which both sides must agree on; `None` where nothing says.
fn encoded(
    arguments: &Arguments,
    conversations: &[Conversation],
    sides: [&Source; 2],
) -> Result<Vec<Vec<Option<Vec<TokenId>>>>> {
    let turn = |index: usize, turn: usize| {
        let prompt = &conversations[index].turns[turn];
        let position = sides.iter().find_map(|side| side.recorded(index, turn)?.position);
        let bos = |tokenizer: &dyn Tokenizer| match (turn, arguments.num_bos) {
            (0, Some(bos)) => Ok(bos),
            (0, None) => usual_bos(prompt, tokenizer, position),
            _ => Ok(0),
        };
        let ids = |side: &Source| -> Result<Option<Vec<TokenId>>> {
            let recorded = side.recorded(index, turn);
            match (recorded.and_then(|turn| turn.prompt.clone()), recorded, &side.tokenizer) {
                (Some(recorded), ..) => Ok(Some(recorded)),
                (None, None, Some(tokenizer)) => prompt.encode(&**tokenizer, bos(&**tokenizer)?),
                _ => Ok(None),
            }
        };
        let [a, b] = sides.map(ids);
        let (a, b) = (a?, b?);
        let place = || format!("the sides cannot be compared: prompt {}, turn {}", index + 1, turn + 1);
        if let (Some(a), Some(b)) = (&a, &b)
            && a != b
        {
            return Err(invalid(format!("{} {}", place(), different(sides, a, b))));
        }
        let known = a.or(b);
        // A trace says at least where its first token came.
        if let (Some(known), Some(position), 0) = (&known, position, turn)
            && known.len() != position + 1
        {
            let why = format!("was recorded as {} tokens, here it is {} (--num_bos?)", position + 1, known.len());
            return Err(invalid(format!("{} {why}", place())));
        }
        Ok(known)
    };
    (0..conversations.len())
        .map(|index| (0..conversations[index].turns.len()).map(|at| turn(index, at)).collect())
        .collect()
}

/// How many beginning-of-sequence tokens a conversation has when nobody says: one, unless what was recorded is as long as
/// the prompt without any. Its first token came at `position`.
fn usual_bos(prompt: &TurnPrompt, tokenizer: &dyn Tokenizer, position: Option<usize>) -> Result<usize> {
    let bare = prompt.encode(tokenizer, 0)?.map(|ids| ids.len());
    Ok(usize::from(bare.is_none() || bare != position.map(|position| position + 1)))
}

/// How two encodings of a prompt differ.
fn different(sides: [&Source; 2], a: &[TokenId], b: &[TokenId]) -> String {
    let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let name = |side: &Source, ids: &[TokenId]| {
        let piece = |id: TokenId| match side.tokenizer.as_ref().and_then(|t| t.decode(Some(id), id).ok()) {
            Some(bytes) => format!("{id} {:?}", String::from_utf8_lossy(&bytes)),
            None => id.to_string(),
        };
        let tokenizer =
            side.tokenizer.as_ref().map_or("recorded".to_owned(), |tokenizer: &std::sync::Arc<dyn Tokenizer>| {
                format!("{} of {} tokens", tokenizer.format(), tokenizer.vocab_size())
            });
        let token = ids.get(at).map_or_else(|| "nothing".to_owned(), |&id| piece(id));
        format!("{} ids with {token} at {} ({tokenizer})", ids.len(), side.label)
    };
    format!("is different tokens: from token {at} on, {} and {}", name(sides[0], a), name(sides[1], b))
}

/// A turn to be run.
struct Asked<'a> {
    arguments: &'a Arguments,
    /// Conversation and turn.
    place: (usize, usize),
    prompt: Option<&'a [TokenId]>,
    /// Tokens of the context before the prompt, where known.
    context: Option<usize>,
}

/// A step of side A, until side B is there; its row waits on disk.
struct Kept {
    token: TokenId,
    hash: Option<Hash>,
    row: Option<(Unit, KeptRow)>,
}

enum KeptRow {
    All(Blob),
    Largest(Vec<(TokenId, f32)>),
}

impl Kept {
    fn new(step: Step, scratch: &Scratch) -> Result<Self> {
        let row = match step.logits {
            None => None,
            Some(Logits { unit, values: Values::Largest(known) }) => Some((unit, KeptRow::Largest(known))),
            Some(Logits { unit, values: Values::All(row) }) => {
                let bytes: Vec<u8> = row.iter().flat_map(|logit| logit.to_le_bytes()).collect();
                Some((unit, KeptRow::All(scratch.append(&bytes)?)))
            }
        };
        Ok(Self { token: step.token, hash: step.hash, row })
    }

    fn step(&self) -> Step {
        let logits = self.row.as_ref().map(|(unit, row)| {
            let values = match row {
                KeptRow::Largest(known) => Values::Largest(known.clone()),
                KeptRow::All(blob) => {
                    Values::All(blob.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
                }
            };
            Logits { unit: unit.clone(), values }
        });
        Step { token: self.token, hash: self.hash.clone(), logits }
    }
}

impl Asked<'_> {
    /// Side A first, then side B, so that neither slows the other down.
    fn run(&self, a: &mut Source, b: &mut Source) -> Result<TurnReport> {
        let rules = self.arguments.rules();
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let (hello_a, hello_b) = (a.hello().cloned(), b.hello().cloned());
        let limit = |other: &Source| other.recorded(self.place.0, self.place.1).map(|turn| turn.steps.len());
        let request = self.request(limit(b));
        let mut kept: Vec<Kept> = Vec::new();
        let end_a = a.run(self.place, &request, hello_b.as_ref(), &mut |step| {
            kept.push(Kept::new(step, &scratch)?);
            Ok(())
        })?;
        let tokens_a: Vec<TokenId> = kept.iter().map(|step| step.token).collect();

        let mut request = self.request(limit(a));
        if rules.forced {
            // It stops where side A stopped, and at nothing before.
            request =
                Request { max_new_tokens: Some(tokens_a.len()), forced: tokens_a.clone(), ignore_eos: true, ..request };
        }
        let mut comparison = Comparison::new(rules);
        let (mut tokens_b, mut extra) = (Vec::new(), None);
        let end_b = b.run(self.place, &request, hello_a.as_ref(), &mut |mut step| {
            if rules.forced {
                step.token = step.logits.as_ref().and_then(Logits::choice).unwrap_or(step.token);
            }
            match kept.get(tokens_b.len()) {
                Some(kept) if !comparison.is_over() => comparison.step(&kept.step(), &step),
                Some(_) => {}
                None => extra = extra.take().or(Some(step.clone())),
            }
            tokens_b.push(step.token);
            Ok(())
        })?;
        let rest = kept.get(tokens_b.len()).map(Kept::step);
        let found = comparison.end(rest.as_ref(), extra.as_ref());
        let prompt_tokens = self.prompt.map(<[TokenId]>::len);
        Ok(TurnReport {
            prompt: String::new(),
            context: self.context.zip(prompt_tokens).map(|(context, prompt)| context + prompt),
            prompt_tokens,
            a: answer(a, tokens_a, end_a),
            b: answer(b, tokens_b, end_b),
            found,
        })
    }

    /// The turn with as many tokens as the other side has recorded, where it has.
    fn request(&self, recorded: Option<usize>) -> Request {
        Request {
            prompt: self.prompt.map(<[TokenId]>::to_vec).unwrap_or_default(),
            reset: self.place.1 == 0,
            forced: Vec::new(),
            max_new_tokens: recorded.or(Some(self.arguments.max_new_tokens as usize)),
            seq_len: self.arguments.seq_len,
            ignore_eos: self.arguments.ignore_eos,
        }
    }
}

fn answer(side: &Source, tokens: Vec<TokenId>, end: Option<super::wire::End>) -> Answer {
    let mut text = Vec::new();
    if let Some(tokenizer) = &side.tokenizer {
        let mut previous = tokens.first().copied();
        for &token in &tokens {
            text.extend(tokenizer.decode(previous, token).unwrap_or_default());
            previous = Some(token);
        }
    }
    Answer { tokens, text: String::from_utf8_lossy(&text).into_owned(), end }
}
