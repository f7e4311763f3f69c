//! Command lines in the manner of gflags, which the upstream programs use: `--f v`, `--f=v`, `-f v`, `-f=v`, `--f` and
//! `--nof` for booleans, `--` to end the flags. A repeated flag keeps every value; the last one counts where one counts.

use std::ffi::OsString;
use std::fmt;

/// What a flag's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A 32-bit integer, decimal or `0x` hexadecimal.
    Int32,
    /// A floating-point number.
    Double,
    /// `true`, `t`, `yes`, `y`, `1` or their opposites.
    Bool,
}

/// One flag that a program knows.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// Value when it is not given, as text.
    pub default: &'static str,
    /// One sentence for `--help`.
    pub help: &'static str,
}

/// Why a command line was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("unknown flag --{name}, {}", hint(near))]
    Unknown {
        /// As it was written.
        name: String,
        /// The known flags that may be meant.
        near: Vec<&'static str>,
    },
    /// The command line ends where a value is needed.
    #[error("flag --{0} needs a value")]
    MissingValue(&'static str),
    /// The value is not of the flag's kind.
    #[error("flag --{flag}: {value:?} is not {wanted}")]
    BadValue {
        /// Its flag.
        flag: &'static str,
        /// As it was written.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// `--nof=v`, or `--nof` for a flag that is no boolean.
    #[error("flag --no{0}: only a boolean flag can be negated, and then it takes no value")]
    BadNegation(&'static str),
    /// Bytes that are no text.
    #[error("{}{text:?} is not UTF-8 (argument {place})", flag.map(|flag| format!("flag --{flag}: ")).unwrap_or_default())]
    NotUtf8 {
        /// Which argument, from 1.
        place: usize,
        /// The flag that it is the value of, where it is written behind one.
        flag: Option<&'static str>,
        /// It, as far as it is text.
        text: String,
    },
}

/// What else a flag's name may have been.
fn hint(near: &[&str]) -> String {
    match near {
        [] => "--help lists the flags".to_owned(),
        [most @ .., last] => {
            let most: String = most.iter().map(|name| format!("--{name}, ")).collect();
            format!("did you mean {most}{}--{last}?", if most.is_empty() { "" } else { "or " })
        }
    }
}

/// A value of the right kind.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Int32(i32),
    Double(f64),
    Bool(bool),
}

/// What a command line said.
#[derive(Debug, Clone)]
pub struct Parsed {
    flags: &'static [Flag],
    /// The given values of each flag, in the order of `flags`.
    given: Vec<Vec<Value>>,
    /// Arguments that belong to no flag; gflags leaves them to the program.
    pub positional: Vec<String>,
    /// `--help` was among the flags.
    pub help: bool,
    /// `--version` was among the flags.
    pub version: bool,
}

/// Reads `args`, the command line without the program's name.
pub fn parse(flags: &'static [Flag], args: impl IntoIterator<Item = OsString>) -> Result<Parsed, FlagError> {
    let given = vec![Vec::new(); flags.len()];
    let mut parsed = Parsed { flags, given, positional: Vec::new(), help: false, version: false };
    let mut args = args.into_iter().enumerate();
    while let Some(arg) = args.next().map(|arg| text(arg, None)).transpose()? {
        if arg == "--" {
            parsed.positional.extend(args.by_ref().map(|arg| text(arg, None)).collect::<Result<Vec<_>, _>>()?);
            break;
        }
        // A lone dash is a positional argument, as everywhere.
        let Some(spelled) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).filter(|rest| !rest.is_empty())
        else {
            parsed.positional.push(arg);
            continue;
        };
        let (name, inline) = match spelled.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (spelled, None),
        };
        if matches!(name, "help" | "helpfull" | "helpshort" | "h") && inline.is_none() {
            parsed.help = true;
            continue;
        }
        if name == "version" && inline.is_none() {
            parsed.version = true;
            continue;
        }
        let (index, negated) = find(flags, name)?;
        let flag = &flags[index];
        let written = match (negated, inline) {
            (true, None) if flag.kind == Kind::Bool => "false".to_owned(),
            (true, _) => return Err(FlagError::BadNegation(flag.name)),
            (false, Some(value)) => value,
            // As in gflags, a boolean never takes the next argument.
            (false, None) if flag.kind == Kind::Bool => "true".to_owned(),
            (false, None) => text(args.next().ok_or(FlagError::MissingValue(flag.name))?, Some(flag.name))?,
        };
        parsed.given[index].push(value(flag, written)?);
    }
    Ok(parsed)
}

/// The text of an argument at its place from 0, which is the value of `flag`.
fn text((index, arg): (usize, OsString), flag: Option<&'static str>) -> Result<String, FlagError> {
    arg.into_string().map_err(|arg| FlagError::NotUtf8 {
        place: index + 1,
        flag,
        text: arg.to_string_lossy().into_owned(),
    })
}

/// The flag called `name`, and whether `name` negates it. Dashes inside a name count as underscores.
fn find(flags: &'static [Flag], name: &str) -> Result<(usize, bool), FlagError> {
    let plain = name.replace('-', "_");
    let position = |wanted: &str| flags.iter().position(|flag| flag.name == wanted);
    position(&plain)
        .map(|index| (index, false))
        .or_else(|| plain.strip_prefix("no").and_then(position).map(|index| (index, true)))
        .ok_or_else(|| FlagError::Unknown { name: name.to_owned(), near: near(flags, &plain) })
}

fn value(flag: &Flag, text: String) -> Result<Value, FlagError> {
    let parsed = match flag.kind {
        Kind::Text => return Ok(Value::Text(text)),
        Kind::Int32 => int32(&text).map(Value::Int32).ok_or("a 32-bit integer"),
        Kind::Double => text.parse().map(Value::Double).map_err(|_| "a number"),
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "1" => Ok(Value::Bool(true)),
            "false" | "f" | "no" | "n" | "0" => Ok(Value::Bool(false)),
            _ => Err("true or false"),
        },
    };
    parsed.map_err(|wanted| FlagError::BadValue { flag: flag.name, value: text, wanted })
}

fn int32(text: &str) -> Option<i32> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // `parse` would take a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => i64::from_str_radix(hex, 16).ok()?,
        Some(_) => return None,
        None => digits.parse::<i64>().ok()?,
    };
    i32::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// The known names that begin with the word or words of `name`; else the one with the smallest edit distance to it, if a
/// third of its letters or fewer differ; else those that share a word with it, where some share more these alone.
fn near(flags: &'static [Flag], name: &str) -> Vec<&'static str> {
    let longer = |flag: &&str| flag.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    let longer: Vec<_> = flags.iter().map(|flag| flag.name).filter(longer).collect();
    if !longer.is_empty() {
        return longer;
    }
    let nearest = flags.iter().map(|flag| (distance(flag.name.as_bytes(), name.as_bytes()), flag.name)).min();
    if let Some((edits, near)) = nearest
        && edits * 3 <= near.len().max(name.len())
    {
        return vec![near];
    }
    let words: Vec<&str> = name.split('_').filter(|word| word.len() > 1).collect();
    let shared = |flag: &Flag| flag.name.split('_').filter(|word| words.contains(word)).count();
    let most = flags.iter().map(shared).max().unwrap_or(0);
    flags.iter().filter(|flag| most > 0 && shared(flag) == most).map(|flag| flag.name).collect()
}

/// Levenshtein distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Parsed {
    /// Position of a flag that the program declared.
    fn index(&self, name: &str) -> usize {
        self.flags.iter().position(|flag| flag.name == name).expect("a program asks only for flags it declared")
    }

    fn last(&self, name: &str) -> Value {
        let index = self.index(name);
        let flag = &self.flags[index];
        self.given[index]
            .last()
            .cloned()
            .unwrap_or_else(|| value(flag, flag.default.to_owned()).expect("a default is of its flag's kind"))
    }

    /// Whether the command line gave the flag.
    pub fn is_given(&self, name: &str) -> bool {
        !self.given[self.index(name)].is_empty()
    }

    /// Value of a text flag.
    pub fn text(&self, name: &str) -> String {
        match self.last(name) {
            Value::Text(text) => text,
            other => unreachable!("--{name} is declared as text, not {other:?}"),
        }
    }

    /// Every given value of a text flag; its default alone when none was given.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let given = &self.given[self.index(name)];
        if given.is_empty() {
            return vec![self.text(name)];
        }
        given.iter().filter_map(|value| if let Value::Text(text) = value { Some(text.clone()) } else { None }).collect()
    }

    /// Value of an integer flag.
    pub fn int32(&self, name: &str) -> i32 {
        match self.last(name) {
            Value::Int32(number) => number,
            other => unreachable!("--{name} is declared as an integer, not {other:?}"),
        }
    }

    /// Value of a floating-point flag.
    pub fn double(&self, name: &str) -> f64 {
        match self.last(name) {
            Value::Double(number) => number,
            other => unreachable!("--{name} is declared as a double, not {other:?}"),
        }
    }

    /// Value of a boolean flag.
    pub fn bool(&self, name: &str) -> bool {
        match self.last(name) {
            Value::Bool(on) => on,
            other => unreachable!("--{name} is declared as a boolean, not {other:?}"),
        }
    }
}

/// The text of `--version`.
pub fn version(program: &str) -> String {
    format!("{program} {}\n", env!("CARGO_PKG_VERSION"))
}

/// The text of `--help`: usage line, then each flag with its default.
pub struct Help<'a> {
    /// What the program does, in one sentence.
    pub about: &'a str,
    /// The program's name.
    pub program: &'a str,
    /// Its flags.
    pub flags: &'static [Flag],
}

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n\nusage: {} [--flag value]...\n", self.about, self.program)?;
        let width = self.flags.iter().map(|flag| flag.name.len()).max().unwrap_or(0);
        for flag in self.flags {
            let default = match flag.kind {
                Kind::Text => format!("{:?}", flag.default),
                _ => flag.default.to_owned(),
            };
            writeln!(f, "  --{:<width$}  {} (default {default})", flag.name, flag.help)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag { name: "prompt", kind: Kind::Text, default: "hello", help: "" },
        Flag { name: "seq_len", kind: Kind::Int32, default: "128", help: "" },
        Flag { name: "temperature", kind: Kind::Double, default: "0.5", help: "" },
        Flag { name: "shared_buffer", kind: Kind::Bool, default: "false", help: "" },
        Flag { name: "warmup", kind: Kind::Bool, default: "true", help: "" },
    ];

    fn read(line: &[&str]) -> Result<Parsed, FlagError> {
        parse(FLAGS, line.iter().map(OsString::from))
    }

    #[test]
    fn oc1_every_spelling_of_a_value_is_read() {
        for line in [
            &["--prompt", "a b"][..],
            &["--prompt=a b"],
            &["-prompt", "a b"],
            &["-prompt=a b"],
            &["--prompt=x", "--prompt=a b"],
        ] {
            assert_eq!(read(line).unwrap().text("prompt"), "a b", "{line:?}");
        }
        assert_eq!(read(&["--prompt==x=y"]).unwrap().text("prompt"), "=x=y");
        assert_eq!(read(&["--prompt="]).unwrap().text("prompt"), "");
        // The next argument is the value whatever it looks like.
        assert_eq!(read(&["--prompt", "--seq_len"]).unwrap().text("prompt"), "--seq_len");
        assert_eq!(read(&["--seq-len", "5"]).unwrap().int32("seq_len"), 5);
    }

    #[test]
    fn defaults_stand_in_for_flags_that_are_not_given() {
        let parsed = read(&[]).unwrap();
        assert_eq!(parsed.texts("prompt"), ["hello"]);
        assert_eq!(parsed.int32("seq_len"), 128);
        assert_eq!(parsed.double("temperature"), 0.5);
        assert!(!parsed.bool("shared_buffer") && parsed.bool("warmup"));
        assert!(!parsed.is_given("prompt"));
    }

    #[test]
    fn repeated_prompts_are_kept_in_order() {
        let parsed = read(&["--prompt", "a", "--seq_len=7", "-prompt=b", "--prompt=c"]).unwrap();
        assert_eq!(parsed.texts("prompt"), ["a", "b", "c"]);
        assert!(parsed.is_given("prompt"));
    }

    #[test]
    fn booleans() {
        for (line, want) in [
            (&["--shared_buffer"][..], true),
            (&["-shared_buffer=T"], true),
            (&["--shared_buffer=no"], false),
            (&["--shared_buffer", "--noshared_buffer"], false),
            (&["--shared_buffer=0"], false),
        ] {
            assert_eq!(read(line).unwrap().bool("shared_buffer"), want, "{line:?}");
        }
        assert!(!read(&["--nowarmup"]).unwrap().bool("warmup"));
        assert_eq!(read(&["--shared_buffer", "false"]).unwrap().positional, ["false"]);
    }

    #[test]
    fn two_dashes_end_the_flags() {
        let parsed = read(&["a", "--seq_len", "1", "-", "--", "--prompt", "x"]).unwrap();
        assert_eq!(parsed.positional, ["a", "-", "--prompt", "x"]);
        assert_eq!(parsed.int32("seq_len"), 1);
    }

    #[test]
    fn integers_keep_their_range_and_sign() {
        for (text, want) in [("-1", -1), ("+7", 7), ("0x10", 16), ("2147483647", i32::MAX), ("-2147483648", i32::MIN)] {
            assert_eq!(read(&["--seq_len", text]).unwrap().int32("seq_len"), want, "{text}");
        }
        for text in ["", "1.5", "2147483648", "0x", "--1", "+-1", "1k", "0x-1"] {
            let error = read(&["--seq_len", text]).unwrap_err();
            assert!(matches!(error, FlagError::BadValue { flag: "seq_len", .. }), "{text}: {error}");
        }
    }

    #[test]
    fn each_fault_has_its_message() {
        for (line, want) in [
            (&["--seqlen", "5"][..], "unknown flag --seqlen, did you mean --seq_len?"),
            (&["--promtp=x"], "unknown flag --promtp, did you mean --prompt?"),
            (&["--zzz"], "unknown flag --zzz, --help lists the flags"),
            (&["--shared"], "unknown flag --shared, did you mean --shared_buffer?"),
            (&["--len"], "unknown flag --len, did you mean --seq_len?"),
            (&["--buffer-prompt"], "unknown flag --buffer-prompt, did you mean --prompt, or --shared_buffer?"),
            (&["--prompt"], "flag --prompt needs a value"),
            (&["--temperature=warm"], "flag --temperature: \"warm\" is not a number"),
            (&["--warmup=maybe"], "flag --warmup: \"maybe\" is not true or false"),
            (&["--noprompt"], "flag --noprompt: only a boolean flag can be negated, and then it takes no value"),
            (&["--nowarmup=1"], "flag --nowarmup: only a boolean flag can be negated, and then it takes no value"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), want);
        }
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_text_are_refused() {
        use std::os::unix::ffi::OsStringExt;
        for (line, want) in [
            (&[&b"--prompt=caf\xe9"[..]][..], "\"--prompt=caf\u{fffd}\" is not UTF-8 (argument 1)"),
            (&[b"a", b"--prompt", b"caf\xe9"], "flag --prompt: \"caf\u{fffd}\" is not UTF-8 (argument 3)"),
            (&[b"--", b"a", b"\xff"], "\"\u{fffd}\" is not UTF-8 (argument 3)"),
        ] {
            let line = line.iter().map(|&arg| OsString::from_vec(arg.to_vec()));
            assert_eq!(parse(FLAGS, line).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn a_version_is_a_flag_of_its_own() {
        assert!(read(&["--version"]).unwrap().version && read(&["-version"]).unwrap().version);
        assert!(!read(&["--prompt", "--version"]).unwrap().version);
        assert!(read(&["--version=1"]).is_err());
        assert_eq!(version("p"), concat!("p ", env!("CARGO_PKG_VERSION"), "\n"));
    }

    #[test]
    fn help_lists_every_flag_with_its_default() {
        assert!(read(&["--help"]).unwrap().help);
        let text = Help { about: "Says hello.", program: "p", flags: FLAGS }.to_string();
        assert!(
            text.contains("--prompt         ")
                && text.contains("(default \"hello\")")
                && text.contains("(default 128)")
        );
    }
}
