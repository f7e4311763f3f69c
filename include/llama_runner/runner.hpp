// example::Runner of examples/qualcomm/oss_scripts/llama/runner/runner.h.
#ifndef LLAMA_RUNNER_RUNNER_HPP
#define LLAMA_RUNNER_RUNNER_HPP

#include "basic_runner.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Upstream's names for the model families; see upstream's --decoder_model_version.
enum DecoderModelVersion {
    kLlama2 = 0,
    kLlama3,
    kGemma,
    kGemma2,
    kGemma3,
    kGemma4,
    kGranite,
    kPhi4,
    kQwen2_5,
    kQwen3,
    kSmollm2_135m,
    kSmollm3,
    kCodegen,
    kGlm,
};

// The constructor arguments of Runner, by name.
struct RunnerOptions : Options {
    // 0 takes the likeliest token; it holds for every turn, whatever GenerationConfig says, as upstream. Where upstream
    // computes with the logits' codes and stays greedy, this samples with the true probabilities.
    float temperature = 0.8f;
    // A file that gets the last turn's tokens a second as text. Empty: none.
    std::string performance_output_path;
};

namespace detail {

// The ninth argument of upstream's constructor: the KV updater's name until 2025-12, shared_buffer since.
class CacheArgument {
public:
    template <typename Bool, typename = std::enable_if_t<std::is_same_v<Bool, bool>>>
    CacheArgument(Bool shared_buffer) : shared_buffer_(shared_buffer)
    {
    }
    CacheArgument(const char *kv_updater) : CacheArgument(std::string(kv_updater)) {}
    CacheArgument(const std::string &kv_updater)
    {
        if (kv_updater == "ShiftPointer") {
            kv_updater_ = LLR_KV_UPDATER_SHIFT_POINTER;
        } else if (kv_updater != "SmartMask") {
            unknown_ = kv_updater;
        }
    }
    bool shared_buffer() const noexcept { return shared_buffer_; }
    std::int32_t kv_updater() const noexcept { return kv_updater_; }
    // A name that is none; empty when all is well.
    const std::string &unknown() const noexcept { return unknown_; }

private:
    std::string unknown_;
    bool shared_buffer_ = false;
    std::int32_t kv_updater_ = LLR_KV_UPDATER_SMART_MASK;
};

// Little-endian 64-bit token ids, upstream's --tokenized_prompt.
inline Result<std::vector<std::uint64_t>> read_tokens(const std::string &path)
{
    constexpr std::size_t most = std::size_t{1} << 20;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        return Status(LLR_STATUS_ACCESS_FAILED, "tokenized prompt " + path + " cannot be opened");
    }
    std::vector<std::uint64_t> tokens;
    std::array<char, 8> bytes{};
    while (file.read(bytes.data(), bytes.size())) {
        if (tokens.size() == most) {
            return Status(LLR_STATUS_INVALID_EXTERNAL_DATA, "tokenized prompt " + path + ": over a million tokens");
        }
        std::uint64_t token = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            token |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
        }
        tokens.push_back(token);
    }
    if (file.bad() || !file.eof()) {
        return Status(LLR_STATUS_ACCESS_FAILED, "tokenized prompt " + path + " cannot be read");
    }
    if (file.gcount() != 0) {
        return Status(LLR_STATUS_INVALID_EXTERNAL_DATA, "tokenized prompt " + path + ": not a multiple of 8 bytes");
    }
    return tokens;
}

template <typename Pointer> bool is_given(const Pointer &pointer) noexcept
{
    return !(pointer == nullptr);
}

// What becomes of the module that a host gives to Runner: llama_runner_executorch.hpp says it for ExecuTorch's. Of another
// type it is let go.
template <typename Module> struct GivenModule {
    // Whether it runs the program, which `options` then say.
    static bool take(Module, Options &) { return false; }
};

} // namespace detail

// Upstream's example::Runner: QNN programs with kv_forward and prefill_forward, and whatever else the library runs.
//
// Of GenerationConfig it looks at echo, seq_len, max_new_tokens, ignore_eos, num_bos and num_eos (upstream: the first
// two only). num_bos 0 counts as 1, because upstream always begins with one.
class Runner : public BasicRunner {
public:
    enum EvalMode { kKVCached = 0, kHybrid, kLookaheadDecoding };

    explicit Runner(RunnerOptions options) : Runner(std::move(options), Status()) {}

    // Upstream's order, that of runner.cpp: dump_logits_path comes before performance_output_path, though runner.h names
    // them the other way round.
    //
    // Where llama_runner_executorch.hpp is included (then in every unit that calls this), a `module` that is not nullptr
    // runs the program, and `model_path` is not looked at, as upstream. Otherwise the program is loaded from `model_path` by
    // this library, and `module` is let go. Refused, and reported by load(): an empty model_path, a dump_logits_path, a
    // tokenizer object, an attention sink module.
    template <typename Module, typename Tokenizer = std::nullptr_t, typename SinkModule = std::nullptr_t>
    explicit Runner(Module module, const std::string &decoder_model, const std::string &model_path,
                    const std::string &tokenizer_path, const std::string &dump_logits_path,
                    const std::string &performance_output_path, float temperature = 0.8f, int eval_mode = kHybrid,
                    detail::CacheArgument shared_buffer_or_kv_updater = false, int ngram = 0, int window = 0,
                    int gcap = 0, Tokenizer tokenizer = nullptr, SinkModule attention_sink_rope_module = nullptr)
        : Runner(judged(std::move(module),
                        named(decoder_model, model_path, tokenizer_path, performance_output_path, temperature, eval_mode,
                              shared_buffer_or_kv_updater, ngram, window, gcap),
                        refusal(shared_buffer_or_kv_updater.unknown(), dump_logits_path, detail::is_given(tokenizer),
                                detail::is_given(attention_sink_rope_module))))
    {
    }

    // As generate(); if `tokenized_prompt`, `prompt` names a file of little-endian 64-bit token ids, which are not echoed.
    [[nodiscard]] Error generate_from_prompt_or_file(const std::string &prompt, bool tokenized_prompt,
                                                     const GenerationConfig &config,
                                                     TokenCallback token_callback = {},
                                                     StatsCallback stats_callback = {})
    {
        if (!tokenized_prompt) {
            return generate(prompt, config, std::move(token_callback), std::move(stats_callback));
        }
        const auto tokens = detail::read_tokens(prompt);
        if (!tokens.ok()) {
            return remember(tokens.status());
        }
        return run(*tokens, {}, config, token_callback, stats_callback);
    }

    // Loads if need be, and says which family it is.
    [[nodiscard]] UpstreamResult<DecoderModelVersion> get_decoder_model_version()
    {
        if (load() != Error::Ok) {
            return detail::failed<DecoderModelVersion>(last_status());
        }
        return version_of(decoder_model_);
    }

    // For the turns to come.
    void set_temperature(float temperature) noexcept { temperature_ = temperature; }

protected:
    TurnOptions turn_options(const GenerationConfig &config) const override
    {
        TurnOptions options;
        options.seq_len = config.seq_len == -1 ? 0 : config.seq_len;
        options.max_new_tokens = config.max_new_tokens;
        options.temperature = temperature_;
        options.ignore_eos = detail::ignores_eos(config);
        options.num_bos = config.num_bos == 0 ? 1 : config.num_bos;
        options.num_eos = config.num_eos;
        return options;
    }

    Status after_turn(const Stats &stats) override
    {
        if (performance_output_path_.empty()) {
            return {};
        }
        const auto elapsed = static_cast<double>(stats.inference_end_ms - stats.inference_start_ms);
        const auto made = static_cast<double>(stats.num_generated_tokens);
        std::ofstream file(performance_output_path_);
        file << (elapsed > 0.0 ? made / elapsed * 1000.0 : 0.0);
        file.close();
        if (!file) {
            return {LLR_STATUS_ACCESS_FAILED, "performance_output_path " + performance_output_path_ +
                                                  " cannot be written; the turn itself is complete"};
        }
        return {};
    }

private:
    // A constructor's arguments, and what is wrong with them.
    struct Judged {
        RunnerOptions options;
        Status refused;
    };

    explicit Runner(Judged judged) : Runner(std::move(judged.options), std::move(judged.refused)) {}
    Runner(RunnerOptions options, Status refused)
        : BasicRunner(options, std::move(refused)), temperature_(options.temperature),
          decoder_model_(std::move(options.decoder_model)),
          performance_output_path_(std::move(options.performance_output_path))
    {
    }

    static RunnerOptions named(const std::string &decoder_model, const std::string &model_path,
                               const std::string &tokenizer_path, const std::string &performance_output_path,
                               float temperature, int eval_mode, const detail::CacheArgument &cache, int ngram,
                               int window, int gcap)
    {
        RunnerOptions options;
        options.decoder_model = decoder_model;
        options.model_path = model_path;
        options.tokenizer_path = tokenizer_path;
        options.performance_output_path = performance_output_path;
        options.temperature = temperature;
        options.eval_mode = eval_mode;
        options.kv_updater = cache.kv_updater();
        options.shared_buffer = cache.shared_buffer() ? LLR_SHARED_BUFFER_PREFER : LLR_SHARED_BUFFER_OFF;
        options.ngram = ngram;
        options.window = window;
        options.gcap = gcap;
        return options;
    }

    template <typename Module> static Judged judged(Module module, RunnerOptions options, Status refused)
    {
        if (detail::GivenModule<Module>::take(std::move(module), options)) {
            options.model_path.clear();
        } else if (options.model_path.empty() && refused.ok()) {
            refused = {LLR_STATUS_INVALID_ARGUMENT, "model_path is empty"};
        }
        return {std::move(options), std::move(refused)};
    }

    static Status refusal(const std::string &unknown_updater, const std::string &dump_logits_path, bool tokenizer,
                          bool sink)
    {
        if (!unknown_updater.empty()) {
            return {LLR_STATUS_INVALID_ARGUMENT, "kv_updater " + unknown_updater + " is neither SmartMask nor ShiftPointer"};
        }
        const auto refuse = [](const char *what) { return Status(LLR_STATUS_NOT_SUPPORTED, what); };
        if (!dump_logits_path.empty()) {
            return refuse("dump_logits_path: only the program qnn_llama_runner writes logits");
        }
        if (tokenizer) {
            return refuse("a tokenizer object: this library loads its own from tokenizer_path");
        }
        return sink ? refuse("attention_sink_rope_module: there are no attention sinks") : Status();
    }

    // The library has loaded the model, so the name is one of these or empty.
    static DecoderModelVersion version_of(std::string_view name) noexcept
    {
        constexpr std::array<std::pair<std::string_view, DecoderModelVersion>, 14> names{{
            {"llama2", kLlama2},
            {"llama3", kLlama3},
            {"gemma", kGemma},
            {"gemma2", kGemma2},
            {"gemma3", kGemma3},
            {"gemma4", kGemma4},
            {"granite", kGranite},
            {"phi_4_mini", kPhi4},
            {"qwen2_5", kQwen2_5},
            {"qwen3", kQwen3},
            {"smollm2_135m", kSmollm2_135m},
            {"smollm3", kSmollm3},
            {"codegen", kCodegen},
            {"glm", kGlm},
        }};
        for (const auto &[known, version] : names) {
            if (known == name) {
                return version;
            }
        }
        return kLlama2;
    }

    float temperature_;
    std::string decoder_model_;
    std::string performance_output_path_;
};

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
