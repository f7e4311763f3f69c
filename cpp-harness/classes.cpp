// The C++ classes on the built-in model: turns, stopping from another thread, reset, callbacks that throw, and every way
// to be refused as a value. Prints each expectation that failed and exits with 1 then. SCRATCH is an empty directory,
// PROGRAM any program that streams text.
//
//     classes SCRATCH PROGRAM
#define LLAMA_RUNNER_AS_UPSTREAM
#include "llama_runner.hpp"

#include <atomic>
#include <fstream>
#include <future>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using llama_runner::Chunk;
using llama_runner::Error;
using llama_runner::GenerationConfig;
using llama_runner::Result;
using llama_runner::Runner;
using llama_runner::RunnerOptions;
using llama_runner::Session;
using llama_runner::Stats;
using llama_runner::Status;
using llama_runner::TextLLMRunner;

static_assert(std::is_nothrow_move_constructible_v<Session> && !std::is_copy_constructible_v<Session>);
static_assert(std::is_move_constructible_v<Runner> && !std::is_copy_constructible_v<Runner>);
static_assert(std::is_base_of_v<llama_runner::IRunner, TextLLMRunner>);
static_assert(std::is_same_v<example::Runner, Runner>);
static_assert(static_cast<int>(example::kPhi4) == static_cast<int>(example::DecoderModelVersion::kPhi4));
static_assert(std::is_same_v<executorch::extension::llm::TextLLMRunner, TextLLMRunner>);
static_assert(std::is_same_v<executorch::runtime::Error, Error>);

int failures = 0;

void expect(bool holds, const char *what, int line)
{
    if (!holds) {
        std::cerr << "line " << line << ": not so: " << what << '\n';
        ++failures;
    }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)

constexpr const char *prompt = "Once upon a time";

GenerationConfig config_of(std::int32_t max_new_tokens)
{
    GenerationConfig config;
    config.echo = false;
    config.max_new_tokens = max_new_tokens;
    config.temperature = 0.0f;
    config.num_bos = 1;
    return config;
}

RunnerOptions greedy()
{
    RunnerOptions options;
    options.temperature = 0.0f;
    return options;
}

// Text of a turn through the class with the C API's shape: what the others must give too.
std::string by_session(std::int64_t max_new_tokens, std::vector<std::uint64_t> *tokens = nullptr)
{
    auto session = Session::create({});
    EXPECT(session.ok() && !session->is_loaded() && session->context_length() == 0);
    llama_runner::TurnOptions turn;
    turn.max_new_tokens = max_new_tokens;
    std::string text;
    int finals = 0;
    const Status status = session->generate(prompt, turn, [&](const Chunk &chunk) {
        text += chunk.text();
        finals += chunk.is_final();
        EXPECT(chunk.is_final() == (chunk.token_id() == -1));
        if (tokens != nullptr && !chunk.is_final()) {
            tokens->push_back(static_cast<std::uint64_t>(chunk.token_id()));
        }
        return true;
    });
    EXPECT(status.ok() && status.message().empty() && finals == 1);
    EXPECT(session->is_loaded() && session->position() > 0 && session->position() < session->context_length());
    EXPECT(session->finish_reason() == LLR_FINISH_REASON_LENGTH);
    return text;
}

void turns_and_reset()
{
    std::vector<std::uint64_t> tokens;
    const std::string want = by_session(12, &tokens);
    EXPECT(tokens.size() == 12 && !want.empty());

    Runner runner(greedy());
    EXPECT(!runner.is_loaded());
    EXPECT(runner.load() == Error::Ok && runner.load() == Error::Ok && runner.is_loaded());
    EXPECT(runner.memory().value().kv_cache > 0);
    const auto version = runner.get_decoder_model_version();
    EXPECT(version.ok() && version.get() == example::kLlama2);

    std::string text;
    int calls = 0;
    std::int64_t counted = -1;
    const auto collect = [&](const std::string &piece) {
        text += piece;
        ++calls;
    };
    const auto count = [&](const Stats &stats) {
        counted = stats.num_generated_tokens;
        EXPECT(stats.num_prompt_tokens > 1 && stats.inference_end_ms >= stats.inference_start_ms);
        EXPECT(stats.SCALING_FACTOR_UNITS_PER_SECOND == 1000);
    };
    EXPECT(runner.generate(prompt, config_of(12), collect, count) == Error::Ok);
    EXPECT(text == want && calls >= 12 && counted == 11);

    // A second turn goes on where the first ended; after a reset it is the first again.
    const auto position = static_cast<std::int64_t>(runner.session()->position());
    std::string again;
    const auto collect_again = [&](const std::string &piece) { again += piece; };
    text.clear();
    EXPECT(runner.generate(" and", config_of(3), collect) == Error::Ok);
    EXPECT(runner.session()->position() > static_cast<std::size_t>(position));
    EXPECT(runner.generate_from_pos(" and", position, config_of(3), collect_again) == Error::Ok && again == text);
    EXPECT(runner.generate_from_pos(" and", 1000000, config_of(3)) == Error::InvalidArgument);
    EXPECT(runner.generate_from_pos(" and", -1, config_of(3)) == Error::InvalidArgument);
    runner.reset();
    EXPECT(runner.session()->position() == 0);
    text.clear();
    GenerationConfig echoing = config_of(12);
    echoing.echo = true;
    echoing.num_bos = 0; // as upstream's hosts leave it
    EXPECT(runner.generate(prompt, echoing, collect) == Error::Ok);
    EXPECT(text == prompt + want);

    Runner moved(std::move(runner));
    moved.reset();
    text.clear();
    EXPECT(moved.generate_from_prompt_or_file(prompt, false, config_of(12), collect) == Error::Ok && text == want);

    TextLLMRunner other{llama_runner::Options()};
    EXPECT(other.warmup("Once", 2) == Error::Ok && other.session()->position() == 0);
    // A prompt in two parts is the prompt, but for how the tokenizer cuts it.
    EXPECT(other.prefill("Once upon", config_of(1)).ok() && other.session()->position() > 1);
    const auto likeliest = other.prefill(" a time", 0, 0);
    EXPECT(likeliest.ok() && other.warmup(" and", 2) == Error::Ok);
    EXPECT(other.session()->step(*likeliest).ok());
    other.reset();
    // A turn without a prompt goes on from one that was taken before, and from nothing else.
    text.clear();
    EXPECT(other.prefill(prompt, config_of(12)).ok() && other.generate("", config_of(12), collect) == Error::Ok);
    EXPECT(text == want);
    EXPECT(other.generate("", config_of(12), collect) == Error::InvalidArgument);
    other.reset();
    text.clear();
    EXPECT(other.generate(prompt, config_of(12), collect) == Error::Ok && text == want);
    other.reset();
    other.set_temperature(0.0f);
    GenerationConfig warm = config_of(12);
    warm.temperature = 5.0f;
    text.clear();
    EXPECT(other.generate(prompt, warm, collect) == Error::Ok && text == want);
}

void files_of_a_turn(const std::string &scratch)
{
    RunnerOptions options = greedy();
    options.performance_output_path = scratch + "/speed.txt";
    Runner runner(options);
    {
        std::ofstream file(scratch + "/tokens.bin", std::ios::binary);
        for (const char token : {char(1), char(2)}) {
            file.write(&token, 1).write("\0\0\0\0\0\0\0", 7);
        }
    }
    std::string text;
    GenerationConfig config = config_of(4);
    config.echo = true;
    const auto collect = [&](const std::string &piece) { text += piece; };
    EXPECT(runner.generate_from_prompt_or_file(scratch + "/tokens.bin", true, config, collect) == Error::Ok);
    EXPECT(runner.session()->position() == 2 + 4 - 1 && text.find(scratch) == std::string::npos);
    double speed = -1.0;
    std::ifstream(options.performance_output_path) >> speed;
    EXPECT(speed >= 0.0);

    std::ofstream(scratch + "/tokens.bin", std::ios::binary) << "odd";
    EXPECT(runner.generate_from_prompt_or_file(scratch + "/tokens.bin", true, config) == Error::InvalidExternalData);
    EXPECT(runner.generate_from_prompt_or_file(scratch + "/none.bin", true, config) == Error::AccessFailed);
    EXPECT(runner.last_status().message().find("none.bin") != std::string::npos);

    options.performance_output_path = scratch + "/no/such/directory";
    Runner unwritable(options);
    EXPECT(unwritable.generate(prompt, config_of(2)) == Error::AccessFailed);
    EXPECT(unwritable.session()->finish_reason() == LLR_FINISH_REASON_LENGTH);
}

std::vector<float> logits_after(Session &session, std::uint64_t token)
{
    EXPECT(session.step(token).ok());
    auto logits = session.logits();
    EXPECT(logits.ok() && logits->size() == session.vocabulary_size() && session.vocabulary_size() > 0);
    return std::move(*logits);
}

void token_by_token_and_back(const std::string &scratch)
{
    std::vector<std::uint64_t> want;
    const std::string text = by_session(12, &want);

    Session session = Session::create({}).value();
    EXPECT(session.encode(prompt).status().code() == LLR_STATUS_INVALID_STATE);
    float fraction = 0.0f;
    auto stage = LLR_LOAD_STAGE_NONE;
    EXPECT(session.load([](const llama_runner::LoadProgress &) { return false; }).code() == LLR_STATUS_CANCELLED);
    EXPECT(!session.is_loaded());
    EXPECT(session.load([&](const llama_runner::LoadProgress &progress) {
               EXPECT(progress.fraction >= fraction && progress.stage != LLR_LOAD_STAGE_NONE);
               fraction = progress.fraction;
               stage = progress.stage;
               return true;
           }).ok());
    EXPECT(fraction == 1.0f && stage == LLR_LOAD_STAGE_DONE);
    EXPECT(session.logits().status().code() == LLR_STATUS_INVALID_STATE);
    EXPECT(session.stats_json().status().code() == LLR_STATUS_INVALID_STATE);

    const auto ids = session.encode(prompt).value();
    EXPECT(static_cast<std::int64_t>(ids.front()) == session.bos_token());
    EXPECT(!session.decode(-1, ids.back()).value().empty());
    EXPECT(session.prefill(ids).ok() && session.position() == ids.size());
    auto stream = llama_runner::TextStream::create(session, static_cast<std::int64_t>(ids.back())).value();
    std::vector<std::uint64_t> got;
    std::string streamed;
    while (got.size() < want.size()) {
        if (!got.empty()) {
            EXPECT(session.step(got.back()).ok());
        }
        got.push_back(session.sample().value());
        EXPECT(stream.push(got.back()).ok());
        streamed += stream.text();
    }
    EXPECT(stream.finish().ok());
    streamed += stream.text();
    EXPECT(got == want && streamed == text);

    // Saved here, restored elsewhere, both go the same way; and back, as if nothing had been.
    const std::size_t position = session.position();
    const auto saved = session.save_state().value();
    EXPECT(session.save_state_file(scratch + "/context").ok());
    const auto after = logits_after(session, want.back());
    Session other = Session::create({}).value();
    EXPECT(other.restore_state(saved).ok() && other.position() == position);
    EXPECT(logits_after(other, want.back()) == after);
    EXPECT(other.restore_state_file(scratch + "/context").ok() && logits_after(other, want.back()) == after);
    EXPECT(session.rewind(position).ok() && logits_after(session, want.back()) == after);

    const auto memory = session.memory().value();
    EXPECT(session.memory_json().value().find("\"kv_cache_bytes\":" + std::to_string(memory.kv_cache)) != std::string::npos);
    EXPECT(memory.kv_cache > 0 && memory.total >= memory.kv_cache && memory.total >= memory.program);
    EXPECT(session.eos_tokens().value().size() > 0 && session.is_eos_token(session.eos_tokens().value().front()));
    session.reset().value();
    double log_probability = 1.0;
    EXPECT(session.generate(ids, {}, [&](const Chunk &chunk) {
               log_probability = chunk.log_probability();
               return false;
           }).ok());
    EXPECT(!(log_probability > 0.0));
    EXPECT(session.stats_json().value().find("prompt_tokens") != std::string::npos);

    EXPECT(session.step(std::uint64_t{1} << 40).code() == LLR_STATUS_INVALID_ARGUMENT);
    EXPECT(session.prefill({}).code() == LLR_STATUS_INVALID_ARGUMENT);
    EXPECT(session.rewind(1000000).code() == LLR_STATUS_INVALID_ARGUMENT);
    EXPECT(session.restore_state({1, 2, 3}).code() == LLR_STATUS_INVALID_EXTERNAL_DATA);
    EXPECT(session.restore_state_file(scratch + "/none").code() == LLR_STATUS_ACCESS_FAILED);
    EXPECT(session.save_state_file(scratch + "/no/such/directory").code() == LLR_STATUS_ACCESS_FAILED);
}

void a_program(const std::string &path)
{
    const auto program = llama_runner::Program::open(path).value();
    EXPECT(program.kind() != LLR_MODEL_KIND_UNKNOWN && program.context_length() > 0);
    EXPECT(program.constant("get_vocab_size").ok() && !program.constant("get_nothing").ok());
    EXPECT(!program.allows(LLR_EVAL_MODE_AUTO) && !program.json().value().empty());
    const auto methods = program.methods();
    EXPECT(!methods.empty() && !methods[0].name.empty() && !methods[0].outputs.empty());
    EXPECT(methods[0].inputs.size() > 1 && !methods[0].inputs[0].dtype.empty() && !methods[0].inputs[0].dims.empty());
    for (const auto &backend : program.backends()) {
        EXPECT(!backend.empty());
    }
    EXPECT(llama_runner::Program::open(path + ".none").status().code() == LLR_STATUS_ACCESS_FAILED);
}

void stop_from_another_thread()
{
    Runner runner(greedy());
    EXPECT(runner.load() == Error::Ok);
    runner.stop(); // nothing is running
    std::promise<void> started;
    std::promise<void> stopped;
    std::thread other([&] {
        started.get_future().wait();
        runner.stop();
        stopped.set_value();
    });
    int calls = 0;
    const auto once = [&](const std::string &) {
        if (calls++ == 0) {
            started.set_value();
            stopped.get_future().wait();
        }
    };
    GenerationConfig config = config_of(-1);
    config.ignore_eos = true;
    EXPECT(runner.generate(prompt, config, once) == Error::Ok);
    other.join();
    EXPECT(runner.session()->finish_reason() == LLR_FINISH_REASON_CANCELLED && calls <= 2);
    EXPECT(runner.last_status().code() == LLR_STATUS_CANCELLED && runner.last_status().message() == "the turn was stopped");
    // The next turn is a turn as any other.
    runner.reset();
    EXPECT(runner.generate(prompt, config_of(2)) == Error::Ok && runner.last_status().ok());
    EXPECT(runner.session()->finish_reason() == LLR_FINISH_REASON_LENGTH);
}

void callbacks_that_throw_or_stop()
{
    Runner runner(greedy());
    int calls = 0;
    bool counted = false;
    try {
        const Error error = runner.generate(
            prompt, config_of(50),
            [&](const std::string &) {
                ++calls;
                throw std::out_of_range("mine");
            },
            [&](const Stats &) { counted = true; });
        EXPECT(error == Error::Internal && "an exception should have come out");
    } catch (const std::out_of_range &thrown) {
        EXPECT(std::string_view(thrown.what()) == "mine");
    }
    EXPECT(calls == 1 && !counted && runner.last_status().code() == LLR_STATUS_CANCELLED);
    EXPECT(runner.session()->finish_reason() == LLR_FINISH_REASON_CANCELLED);
    runner.reset();
    EXPECT(runner.generate(prompt, config_of(2)) == Error::Ok);

    int seen = 0;
    EXPECT(runner.session()->generate(" and", {}, [&](const Chunk &chunk) { return chunk.is_final() || ++seen < 3; }).ok());
    EXPECT(seen == 3 && runner.session()->finish_reason() == LLR_FINISH_REASON_CANCELLED);
    // In use by a turn: what a callback may not do is refused, not waited for.
    EXPECT(runner.session()
               ->generate(" and", {},
                          [&](const Chunk &) {
                              EXPECT(runner.session()->reset().code() == LLR_STATUS_INVALID_STATE);
                              return false;
                          })
               .ok());
}

// Refused by the constructor's arguments: load() and generate() say why, every time.
void refused(Runner runner, Error error, std::string_view why)
{
    EXPECT(runner.load() == error && runner.generate(prompt, config_of(2)) == error && !runner.is_loaded());
    EXPECT(runner.memory().error() == error);
    EXPECT(runner.last_status().message().find(why) != std::string::npos);
    EXPECT(runner.last_status().text().rfind("LLR_STATUS_", 0) == 0);
    runner.stop();
    runner.reset();
    EXPECT(runner.get_decoder_model_version().error() == error);
}

void errors_are_values(const std::string &scratch)
{
    const auto positional = [](auto... arguments) { return Runner(nullptr, "llama2", arguments...); };
    const std::string missing = scratch + "/missing.pte";
    const std::string text = scratch + "/text.pte";
    std::ofstream(text) << "This is a text and no program at all, however long it goes on for the reader's sake.\n";
    refused(positional(missing, text, "", ""), Error::AccessFailed, missing);
    refused(positional(scratch, text, "", ""), Error::AccessFailed, scratch);
    refused(positional(text, text, "", "", 0.0f, 9), Error::InvalidArgument, "eval_mode");
    refused(positional(text, text, "", "", 0.0f, 1, "FancyMask"), Error::InvalidArgument, "kv_updater FancyMask");
    refused(positional("", "", "", ""), Error::InvalidArgument, "model_path");
    refused(positional(text, text, "", "", 0.0f, 2, false, 0, -1), Error::InvalidArgument, "window");
    refused(positional(text, text, "logits.bin", ""), Error::NotSupported, "dump_logits_path");
    refused(positional(text, text, "", "", 0.0f, 1, false, 0, 0, 0, &text), Error::NotSupported, "tokenizer");
    refused(positional(text, text, "", "", 0.0f, 1, false, 0, 0, 0, nullptr, &text), Error::NotSupported, "attention");

    Runner no_program = positional(text, text, "", "");
    EXPECT(no_program.memory().status().code() == LLR_STATUS_INVALID_PROGRAM);
    EXPECT(no_program.load() == Error::InvalidProgram && !no_program.is_loaded());
    RunnerOptions unknown = greedy();
    unknown.decoder_model = "llama99";
    Runner no_family(unknown);
    EXPECT(no_family.load() != Error::Ok && no_family.last_status().message().find("llama99") != std::string::npos);

    Runner runner(greedy());
    EXPECT(runner.generate("", config_of(2)) == Error::InvalidArgument);
    GenerationConfig config = config_of(0);
    EXPECT(runner.generate(prompt, config) == Error::InvalidArgument);
    EXPECT(runner.last_status().message().find("max_new_tokens") != std::string::npos);
    config = config_of(2);
    config.num_eos = -1;
    EXPECT(runner.generate(prompt, config) == Error::InvalidArgument);
    config = config_of(2);
    config.grammar = "root ::= \"a\"";
    EXPECT(runner.generate(prompt, config) == Error::NotSupported);
    std::string long_prompt;
    for (int i = 0; i < 3000; ++i) {
        long_prompt += prompt;
    }
    EXPECT(runner.generate(long_prompt, config_of(2)) == Error::ContextExceeded);
    EXPECT(runner.session()->generate(std::vector<std::uint64_t>{1, std::uint64_t{1} << 40}).code() ==
           LLR_STATUS_INVALID_ARGUMENT);
    runner.set_temperature(-1.0f);
    EXPECT(runner.generate(prompt, config_of(2)) == Error::InvalidArgument);
    runner.set_temperature(0.0f);
    EXPECT(runner.generate(prompt, config_of(2)) == Error::Ok && runner.last_status().ok());

    // What the struct does not know goes to the C API; what that refuses comes back.
    RunnerOptions more = greedy();
    more.more = [](llr_runner_options *options) { return llr_runner_options_set_host_module(options, nullptr, nullptr); };
    refused(Runner(more), Error::InvalidArgument, "table");
    more.more = [](llr_runner_options *options) { return llr_runner_options_set_cpu_threads(options, 1); };
    Runner narrow(more);
    EXPECT(narrow.load() == Error::Ok && narrow.session()->cpu_threads() == 1);
    llama_runner::Options adapted;
    adapted.model_path = text;
    adapted.tokenizer_path = text;
    adapted.module_library = missing;
    EXPECT(Session::create(adapted).value().load().code() == LLR_STATUS_LIBRARY_UNAVAILABLE);

    const auto gone = std::move(*runner.session());
    EXPECT(gone.is_loaded() && !runner.is_loaded() && runner.load() == Error::InvalidArgument);

    EXPECT(llama_runner::load_tokenizer(missing) == nullptr);
    EXPECT(llama_runner::create_text_llm_runner(text, nullptr) == nullptr);
    const auto other = llama_runner::create_text_llm_runner(text, llama_runner::load_tokenizer(text));
    EXPECT(other->load() == Error::InvalidProgram && other->warmup("a", 2) == Error::InvalidProgram);
    const auto data = llama_runner::create_text_llm_runner(text, llama_runner::load_tokenizer(text), missing);
    EXPECT(data->load() == Error::InvalidProgram);

    try {
        llama_runner::Options options;
        options.model_path = missing;
        options.tokenizer_path = text;
        Session::create(options).value().load().value();
        EXPECT(false && "value() should have thrown");
    } catch (const llama_runner::Exception &thrown) {
        EXPECT(thrown.status().code() == LLR_STATUS_ACCESS_FAILED);
        EXPECT(std::string_view(thrown.what()).find(missing) != std::string_view::npos);
    }
    Status().value();
    const Result<int> seven(7);
    EXPECT(seven.ok() && *seven == 7 && seven.error() == Error::Ok && seven.status().ok());
    EXPECT(!Result<int>(Status()).ok());
}

void the_log()
{
    std::atomic<int> lines{0};
    EXPECT(llama_runner::set_log_callback(LLR_LOG_LEVEL_DEBUG, [&](llr_log_level level, std::string_view line) {
               EXPECT(level >= LLR_LOG_LEVEL_ERROR && level <= LLR_LOG_LEVEL_DEBUG && !line.empty());
               ++lines;
           }).ok());
    EXPECT(Runner(greedy()).load() == Error::Ok);
    EXPECT(llama_runner::set_log_callback(LLR_LOG_LEVEL_DEBUG, {}).ok());
    const int heard = lines;
    EXPECT(heard > 0);
    EXPECT(Runner(greedy()).load() == Error::Ok);
    EXPECT(lines == heard);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::cerr << "wanted: SCRATCH PROGRAM\n";
        return 2;
    }
    const std::string scratch = argv[1];
    turns_and_reset();
    files_of_a_turn(scratch);
    token_by_token_and_back(scratch);
    a_program(argv[2]);
    stop_from_another_thread();
    callbacks_that_throw_or_stop();
    errors_are_values(scratch);
    the_log();
    std::ostringstream version;
    version << LLR_VERSION_MAJOR << '.' << LLR_VERSION_MINOR << '.' << LLR_VERSION_PATCH;
    EXPECT(llama_runner::version() == LLR_VERSION_NUMBER && version.str() == llr_version_string());
    return failures == 0 ? 0 : 1;
}
