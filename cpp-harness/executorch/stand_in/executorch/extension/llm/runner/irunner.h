// Stands in for ExecuTorch's header of this name, which its Python package lacks: the same declarations, as the revision
// that STAND_IN_REVISION names (year and month) has them.
#pragma once

#include <executorch/extension/llm/runner/stats.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/platform/compiler.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#if !defined(STAND_IN_REVISION)
#define STAND_IN_REVISION 202608
#endif

namespace executorch {
namespace extension {
namespace llm {

class MultimodalInput;

struct GenerationConfig {
    bool echo = true;
#if STAND_IN_REVISION >= 202605
    std::string grammar;
    std::string grammar_type;
#endif
#if STAND_IN_REVISION >= 202602
    bool ignore_eos = false;
#endif
    int32_t max_new_tokens = -1;
    bool warming = false;
    int32_t seq_len = -1;
    float temperature = 0.8f;
    int32_t num_bos = 0;
    int32_t num_eos = 0;

#if STAND_IN_REVISION >= 202603
    using Count = int64_t;
#else
    using Count = int32_t;
#endif
    int32_t resolve_max_new_tokens(Count max_context_len, Count num_tokens_occupied) const
    {
        const Count length = seq_len == -1 ? max_context_len : std::min<Count>(seq_len, max_context_len);
        const Count room = length - num_tokens_occupied;
        return static_cast<int32_t>(
            std::max<Count>(0, max_new_tokens == -1 ? room : std::min<Count>(room, max_new_tokens)));
    }
};

class ET_EXPERIMENTAL IRunner {
public:
    virtual ~IRunner() = default;
    virtual bool is_loaded() const = 0;
    virtual runtime::Error load() = 0;
    virtual runtime::Error generate(const std::string &prompt, const GenerationConfig &config,
                                    std::function<void(const std::string &)> token_callback,
                                    std::function<void(const Stats &)> stats_callback) = 0;
#if STAND_IN_REVISION < 202509
    virtual runtime::Error generate_from_pos(const std::string &prompt, int64_t start_pos,
                                             const GenerationConfig &config,
                                             std::function<void(const std::string &)> token_callback,
                                             std::function<void(const Stats &)> stats_callback) = 0;
#endif
#if STAND_IN_REVISION >= 202603
    virtual runtime::Result<uint64_t> prefill(const std::vector<MultimodalInput> &inputs, int32_t num_bos = 0,
                                              int32_t num_eos = 0)
    {
        static_cast<void>(inputs), static_cast<void>(num_bos), static_cast<void>(num_eos);
        return runtime::Error::NotSupported;
    }
#endif
    virtual void stop() = 0;
#if STAND_IN_REVISION >= 202509
    virtual void reset() = 0;
#endif
};

} // namespace llm
} // namespace extension
} // namespace executorch
