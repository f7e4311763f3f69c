// ExecuTorch's types that a host of its llama runners names: taken from ExecuTorch where its headers are, else declared
// here with the same names, so that a host compiles either way.
//
// LLAMA_RUNNER_EXECUTORCH chooses: 1 takes ExecuTorch's own, 0 declares them here. Unset, it is 1 where
// <executorch/extension/llm/runner/irunner.h> can be included (of 2025-08-19 or later, when GenerationConfig came). The
// two choices have different inline namespaces, so units of one program that chose differently do not mix them up.
#ifndef LLAMA_RUNNER_UPSTREAM_TYPES_HPP
#define LLAMA_RUNNER_UPSTREAM_TYPES_HPP

#include "../llama_runner.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#if !defined(LLAMA_RUNNER_EXECUTORCH)
#if __has_include(<executorch/extension/llm/runner/irunner.h>)
#define LLAMA_RUNNER_EXECUTORCH 1
#else
#define LLAMA_RUNNER_EXECUTORCH 0
#endif
#endif

#if LLAMA_RUNNER_EXECUTORCH
#include <executorch/extension/llm/runner/irunner.h>
#include <executorch/extension/llm/runner/stats.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/result.h>
#if __has_include(<executorch/extension/llm/runner/multimodal_input.h>)
#include <executorch/extension/llm/runner/multimodal_input.h>
#define LLAMA_RUNNER_MULTIMODAL 1
#endif
#define LLAMA_RUNNER_TYPES with_executorch
#else
#define LLAMA_RUNNER_TYPES without_executorch
#endif

#if !defined(LLAMA_RUNNER_MULTIMODAL)
#define LLAMA_RUNNER_MULTIMODAL 0
#endif

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

#if LLAMA_RUNNER_EXECUTORCH

using Error = ::executorch::runtime::Error;
using GenerationConfig = ::executorch::extension::llm::GenerationConfig;
using IRunner = ::executorch::extension::llm::IRunner;
using Stats = ::executorch::extension::llm::Stats;
#if LLAMA_RUNNER_MULTIMODAL
using MultimodalInput = ::executorch::extension::llm::MultimodalInput;
#endif

#else

// executorch::runtime::Error, and behind it the numbers that llr_status adds.
enum class Error : std::uint32_t {
    Ok = 0x00,
    Internal = 0x01,
    InvalidState = 0x02,
    EndOfMethod = 0x03,
    AlreadyLoaded = 0x04,
    NotSupported = 0x10,
    NotImplemented = 0x11,
    InvalidArgument = 0x12,
    InvalidType = 0x13,
    OperatorMissing = 0x14,
    RegistrationExceedingMaxKernels = 0x15,
    RegistrationAlreadyRegistered = 0x16,
    NotFound = 0x20,
    MemoryAllocationFailed = 0x21,
    AccessFailed = 0x22,
    InvalidProgram = 0x23,
    InvalidExternalData = 0x24,
    OutOfResources = 0x25,
    DelegateInvalidCompatibility = 0x30,
    DelegateMemoryAllocationFailed = 0x31,
    DelegateInvalidHandle = 0x32,
    BackendMissing = 0x1000,
    LibraryUnavailable = 0x1001,
    BackendFailed = 0x1002,
    ContextExceeded = 0x1003,
    Cancelled = 0x1004,
    Panic = 0x1005,
    Poisoned = 0x1006,
    TokenizerFailed = 0x1007,
};

// executorch::extension::llm::GenerationConfig, fields in the order of 2026-08.
struct GenerationConfig {
    // Gives the prompt to the token callback before the first token.
    bool echo = true;
    // Not supported: a turn with a grammar is refused.
    std::string grammar;
    std::string grammar_type;
    // Goes on after an end-of-sequence token.
    bool ignore_eos = false;
    // Most tokens to make in the turn; -1 for no limit.
    std::int32_t max_new_tokens = -1;
    // The turn only warms up; it makes no difference here.
    bool warming = false;
    // Length of the context at which the turn ends, prompt and earlier turns included; -1 for the model's.
    std::int32_t seq_len = -1;
    // 0 takes the likeliest token, above 0 samples. Each runner class says when it is looked at.
    float temperature = 0.8f;
    // Beginning-of-sequence tokens in front of the prompt when the context is empty.
    std::int32_t num_bos = 0;
    // End-of-sequence tokens behind the prompt.
    std::int32_t num_eos = 0;

    // Tokens that may come after num_tokens_occupied ones; never negative.
    std::int32_t resolve_max_new_tokens(std::int64_t max_context_len, std::int64_t num_tokens_occupied) const
    {
        const std::int64_t length = seq_len == -1 ? max_context_len : std::min<std::int64_t>(seq_len, max_context_len);
        const std::int64_t room = length - num_tokens_occupied;
        const std::int64_t wanted = max_new_tokens == -1 ? room : std::min<std::int64_t>(max_new_tokens, room);
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        return static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 0, most));
    }
};

// executorch::extension::llm::Stats: times in milliseconds since the Unix epoch, and counts. What this library does not
// measure stays 0.
struct Stats {
    long SCALING_FACTOR_UNITS_PER_SECOND = 1000;
    long model_load_start_ms = 0;
    long model_load_end_ms = 0;
    long inference_start_ms = 0;
    long token_encode_end_ms = 0;
    long model_execution_start_ms = 0;
    long model_execution_end_ms = 0;
    long prompt_eval_end_ms = 0;
    long first_token_ms = 0;
    long inference_end_ms = 0;
    long aggregate_sampling_time_ms = 0;
    long aggregate_model_execution_time_ms = 0;
    std::int64_t num_prompt_tokens = 0;
    // Without the token that the prompt's processing makes, as upstream counts.
    std::int64_t num_generated_tokens = 0;
};

// executorch::extension::llm::IRunner.
class IRunner {
public:
    virtual ~IRunner() = default;
    virtual bool is_loaded() const = 0;
    virtual Error load() = 0;
    virtual Error generate(const std::string &prompt, const GenerationConfig &config,
                           std::function<void(const std::string &)> token_callback,
                           std::function<void(const Stats &)> stats_callback) = 0;
    virtual void stop() = 0;
    virtual void reset() = 0;

protected:
    IRunner() = default;
    IRunner(IRunner &&) = default;
    IRunner &operator=(IRunner &&) = default;
};

#endif

namespace detail {

// Fields that some revisions of ExecuTorch's structs lack.
template <typename Config, typename = void> struct HasIgnoreEos : std::false_type {};
template <typename Config>
struct HasIgnoreEos<Config, std::void_t<decltype(std::declval<Config &>().ignore_eos)>> : std::true_type {};

template <typename Config, typename = void> struct HasGrammar : std::false_type {};
template <typename Config>
struct HasGrammar<Config, std::void_t<decltype(std::declval<Config &>().grammar)>> : std::true_type {};

template <typename S, typename = void> struct HasExecutionTime : std::false_type {};
template <typename S>
struct HasExecutionTime<S, std::void_t<decltype(std::declval<S &>().aggregate_model_execution_time_ms)>>
    : std::true_type {};

template <typename Config> bool ignores_eos(const Config &config)
{
    if constexpr (HasIgnoreEos<Config>::value) {
        return config.ignore_eos;
    } else {
        return false;
    }
}

template <typename Config> bool wants_grammar(const Config &config)
{
    if constexpr (HasGrammar<Config>::value) {
        return !config.grammar.empty();
    } else {
        return false;
    }
}

template <typename S = Stats> S stats_of(const llr_stats *from)
{
    S to{};
    to.model_load_start_ms = static_cast<long>(llr_stats_model_load_start_ms(from));
    to.model_load_end_ms = static_cast<long>(llr_stats_model_load_end_ms(from));
    to.inference_start_ms = static_cast<long>(llr_stats_inference_start_ms(from));
    to.prompt_eval_end_ms = static_cast<long>(llr_stats_prompt_eval_end_ms(from));
    to.first_token_ms = static_cast<long>(llr_stats_first_token_ms(from));
    to.inference_end_ms = static_cast<long>(llr_stats_inference_end_ms(from));
    to.aggregate_sampling_time_ms = static_cast<long>(llr_stats_aggregate_sampling_time_ms(from));
    to.num_prompt_tokens = llr_stats_num_prompt_tokens(from);
    to.num_generated_tokens = llr_stats_num_generated_tokens(from);
    if constexpr (HasExecutionTime<S>::value) {
        to.aggregate_model_execution_time_ms = static_cast<long>(llr_stats_aggregate_model_execution_time_ms(from));
    }
    return to;
}

} // namespace detail
} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
