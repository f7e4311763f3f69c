// Choices for a session and for a turn, as structs that a host fills in; the C API's options objects are made of them.
#ifndef LLAMA_RUNNER_OPTIONS_HPP
#define LLAMA_RUNNER_OPTIONS_HPP

#include "status.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Choices for the life of a session. What is left empty, 0 or unset has the default that the C header names.
struct Options {
    // Empty: the small model that is part of the library, with its own tokenizer.
    std::string model_path;
    std::string tokenizer_path;
    std::vector<std::string> data_paths;
    std::string qnn_lib_dir;
    // libcdsprpc.so or its directory, for shared_buffer.
    std::string rpcmem_library;
    // Upstream's --decoder_model_version.
    std::string decoder_model;
    std::string method_name;
    // An llr_eval_mode.
    std::int32_t eval_mode = LLR_EVAL_MODE_AUTO;
    // An llr_kv_updater.
    std::int32_t kv_updater = LLR_KV_UPDATER_SMART_MASK;
    // An llr_shared_buffer.
    std::int32_t shared_buffer = LLR_SHARED_BUFFER_OFF;
    std::int32_t ngram = 0;
    std::int32_t window = 0;
    std::int32_t gcap = 0;
    std::int32_t cpu_threads = 0;
    std::vector<std::uint64_t> extra_eos;
    // Lets ExecuTorch run the program through an adapter library.
    std::string module_library;
    // What the C API can be told beside these, last; llama_runner_executorch.hpp's set_executorch_module, for instance,
    // which lets the host's own executorch::extension::Module run the program.
    std::function<llr_status(llr_runner_options *)> more;
};

// Choices for one turn; the C header's llr_generation_config.
struct TurnOptions {
    std::int64_t seq_len = 0;
    std::int64_t max_new_tokens = LLR_NO_LIMIT;
    std::int64_t max_decode_steps = LLR_NO_LIMIT;
    float temperature = 0.0f;
    float top_p = 0.9f;
    std::uint64_t seed = 0;
    bool ignore_eos = false;
    std::int32_t num_bos = 1;
    std::int32_t num_eos = 0;
};

namespace detail {

using OptionsHandle = std::unique_ptr<llr_runner_options, Deleter<llr_runner_options_free>>;
using ConfigHandle = std::unique_ptr<llr_generation_config, Deleter<llr_generation_config_free>>;

// Keeps the first failure of a row of setters.
class Setters {
public:
    template <typename Handle, typename... Arguments>
    void set(llr_status (*setter)(Handle *, Arguments...), Handle *handle, Arguments... arguments)
    {
        if (status_.ok()) {
            status_ = Status::from(setter(handle, arguments...));
        }
    }
    template <typename Handle>
    void set_text(llr_status (*setter)(Handle *, const char *, std::size_t), Handle *handle, const std::string &text)
    {
        if (!text.empty()) {
            set(setter, handle, text.data(), text.size());
        }
    }
    Status take() { return std::move(status_); }

private:
    Status status_;
};

inline Status fill(llr_runner_options *to, const Options &from)
{
    Setters setters;
    setters.set_text(llr_runner_options_set_model_path, to, from.model_path);
    setters.set_text(llr_runner_options_set_tokenizer_path, to, from.tokenizer_path);
    setters.set_text(llr_runner_options_set_qnn_lib_dir, to, from.qnn_lib_dir);
    setters.set_text(llr_runner_options_set_rpcmem_library, to, from.rpcmem_library);
    setters.set_text(llr_runner_options_set_decoder_model_version, to, from.decoder_model);
    setters.set_text(llr_runner_options_set_method_name, to, from.method_name);
    for (const std::string &path : from.data_paths) {
        setters.set_text(llr_runner_options_add_data_path, to, path);
    }
    for (const std::uint64_t token : from.extra_eos) {
        setters.set(llr_runner_options_add_extra_eos, to, token);
    }
    setters.set(llr_runner_options_set_eval_mode, to, from.eval_mode);
    setters.set(llr_runner_options_set_kv_updater, to, from.kv_updater);
    setters.set(llr_runner_options_set_shared_buffer, to, from.shared_buffer);
    setters.set(llr_runner_options_set_cpu_threads, to, from.cpu_threads);
    const auto size = [&](llr_status (*setter)(llr_runner_options *, std::int32_t), std::int32_t value) {
        if (value != 0) {
            setters.set(setter, to, value);
        }
    };
    size(llr_runner_options_set_ngram, from.ngram);
    size(llr_runner_options_set_window, from.window);
    size(llr_runner_options_set_gcap, from.gcap);
    setters.set_text(llr_runner_options_set_module_library, to, from.module_library);
    Status status = setters.take();
    return status && from.more ? Status::from(from.more(to)) : std::move(status);
}

inline Status fill(llr_generation_config *to, const TurnOptions &from)
{
    Setters setters;
    setters.set(llr_generation_config_set_seq_len, to, from.seq_len);
    setters.set(llr_generation_config_set_max_new_tokens, to, from.max_new_tokens);
    setters.set(llr_generation_config_set_max_decode_steps, to, from.max_decode_steps);
    setters.set(llr_generation_config_set_temperature, to, from.temperature);
    setters.set(llr_generation_config_set_top_p, to, from.top_p);
    setters.set(llr_generation_config_set_seed, to, from.seed);
    setters.set(llr_generation_config_set_ignore_eos, to, from.ignore_eos);
    setters.set(llr_generation_config_set_num_bos, to, from.num_bos);
    setters.set(llr_generation_config_set_num_eos, to, from.num_eos);
    return setters.take();
}

} // namespace detail
} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
