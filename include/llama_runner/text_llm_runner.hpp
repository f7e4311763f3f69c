// executorch::extension::llm::TextLLMRunner of extension/llm/runner, and the functions that make one.
#ifndef LLAMA_RUNNER_TEXT_LLM_RUNNER_HPP
#define LLAMA_RUNNER_TEXT_LLM_RUNNER_HPP

#include "basic_runner.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Upstream's TextLLMRunner: programs with forward(tokens, input_pos), and whatever else the library runs.
//
// It looks at every field of GenerationConfig but warming and the grammar; the temperature is the config's unless one was
// set here. Beginning-of-sequence tokens go in front of the first prompt only.
class TextLLMRunner : public BasicRunner {
public:
    // `temperature` below 0 leaves it to GenerationConfig.
    explicit TextLLMRunner(const Options &options, float temperature = -1.0f)
        : BasicRunner(options, Status()), temperature_(temperature)
    {
    }

    // A turn without callbacks, after which the context is as it was (upstream: empty).
    [[nodiscard]] Error warmup(const std::string &prompt, std::int32_t max_new_tokens)
    {
        GenerationConfig config;
        config.echo = false;
        config.max_new_tokens = max_new_tokens;
        config.warming = true;
        const std::size_t position = session() != nullptr ? session()->position() : 0;
        if (generate(prompt, config) == Error::Ok) {
            remember(session()->rewind(position));
        }
        return last_status().error();
    }

    // For the turns to come; below 0 leaves it to GenerationConfig.
    void set_temperature(float temperature) noexcept { temperature_ = temperature; }

protected:
    TurnOptions turn_options(const GenerationConfig &config) const override
    {
        TurnOptions options;
        options.seq_len = config.seq_len == -1 ? 0 : config.seq_len;
        options.max_new_tokens = config.max_new_tokens;
        options.temperature = temperature_ < 0.0f ? config.temperature : temperature_;
        options.ignore_eos = detail::ignores_eos(config);
        options.num_bos = config.num_bos;
        options.num_eos = config.num_eos;
        return options;
    }

private:
    float temperature_;
};

// Stands for upstream's tokenizers::Tokenizer: the file that the library will read.
struct TokenizerFile {
    std::string path;
};

// nullptr when the file cannot be opened; whether it is a tokenizer is found out by load().
inline std::unique_ptr<TokenizerFile> load_tokenizer(const std::string &tokenizer_path)
{
    return std::ifstream(tokenizer_path) ? std::make_unique<TokenizerFile>(TokenizerFile{tokenizer_path}) : nullptr;
}

// nullptr without a tokenizer, as upstream. What else is wrong is what load() of the runner returns.
inline std::unique_ptr<TextLLMRunner> create_text_llm_runner(const std::string &model_path,
                                                             std::unique_ptr<TokenizerFile> tokenizer,
                                                             std::vector<std::string> data_files = {},
                                                             float temperature = -1.0f)
{
    if (tokenizer == nullptr) {
        return nullptr;
    }
    Options options;
    options.model_path = model_path;
    options.tokenizer_path = std::move(tokenizer->path);
    options.data_paths = std::move(data_files);
    return std::make_unique<TextLLMRunner>(options, temperature);
}

inline std::unique_ptr<TextLLMRunner> create_text_llm_runner(const std::string &model_path,
                                                             std::unique_ptr<TokenizerFile> tokenizer,
                                                             std::optional<const std::string> data_path,
                                                             float temperature = -1.0f)
{
    std::vector<std::string> data_files;
    if (data_path.has_value()) {
        data_files.push_back(*data_path);
    }
    return create_text_llm_runner(model_path, std::move(tokenizer), std::move(data_files), temperature);
}

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
