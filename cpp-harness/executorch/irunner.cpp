// A host that knows executorch::extension::llm::IRunner only, as Android's and the desktop's do, with this library under
// it. Compiled against each revision of IRunner; prints the text of a turn of the built-in model.
#define LLAMA_RUNNER_AS_UPSTREAM 1
#include "llama_runner.hpp"

#include <iostream>
#include <memory>
#include <string>
#include <type_traits>

#if !LLAMA_RUNNER_EXECUTORCH
#error "ExecuTorch's headers were not found"
#endif

namespace llm = ::executorch::extension::llm;
using ::executorch::runtime::Error;

static_assert(std::is_base_of_v<llm::IRunner, example::Runner>);
static_assert(std::is_base_of_v<llm::IRunner, llm::TextLLMRunner>);
static_assert(std::is_same_v<decltype(std::declval<example::Runner &>().get_decoder_model_version()),
                             ::executorch::runtime::Result<example::DecoderModelVersion>>);

namespace {

std::string turn(llm::IRunner &runner)
{
    llm::GenerationConfig config;
    config.max_new_tokens = 8;
    config.temperature = 0.0f;
    config.num_bos = 1;
    std::string text;
    long made = 0;
    const Error error = runner.generate(
        "Once upon a time", config, [&](const std::string &piece) { text += piece; },
        [&](const ::executorch::llm::Stats &stats) { made = static_cast<long>(stats.num_generated_tokens); });
    return error == Error::Ok && made == 7 && runner.is_loaded() ? text : "failed";
}

} // namespace

int main()
{
    llama_runner::RunnerOptions built_in;
    built_in.temperature = 0.0f;
    const std::unique_ptr<llm::IRunner> runner = std::make_unique<example::Runner>(built_in);
    const std::unique_ptr<llm::IRunner> other = std::make_unique<llm::TextLLMRunner>(llama_runner::Options());
    const std::string text = turn(*runner);
    runner->stop();
    example::Runner missing(nullptr, "llama2", "no-such.pte", "no-such.bin", "", "");
    if (text != turn(*other) || missing.load() != Error::AccessFailed || missing.get_decoder_model_version().ok()) {
        return 1;
    }
    std::cout << text << '\n';
    return 0;
}
