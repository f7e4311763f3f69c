// Stands in for ExecuTorch's header of this name; see irunner.h.
#pragma once

#include <executorch/runtime/platform/compiler.h>

#include <cstdint>

namespace executorch {
namespace extension {
namespace llm {

struct ET_EXPERIMENTAL Stats {
    const long SCALING_FACTOR_UNITS_PER_SECOND = 1000;
    long model_load_start_ms;
    long model_load_end_ms;
    long inference_start_ms;
    long token_encode_end_ms;
    long model_execution_start_ms;
    long model_execution_end_ms;
    long prompt_eval_end_ms;
    long first_token_ms;
    long inference_end_ms;
    long aggregate_sampling_time_ms;
#if STAND_IN_REVISION >= 202605
    long aggregate_model_execution_time_ms;
#endif
    int64_t num_prompt_tokens;
    int64_t num_generated_tokens;

private:
    long aggregate_sampling_timer_start_timestamp = 0;
};

} // namespace llm
} // namespace extension

namespace llm {
using ::executorch::extension::llm::Stats;
} // namespace llm
} // namespace executorch
