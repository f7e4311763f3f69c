// Stands in for ExecuTorch's header of this name, as far as a runner of texts asks; see irunner.h.
#pragma once

#include <executorch/runtime/platform/compiler.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace executorch {
namespace extension {
namespace llm {

struct ET_EXPERIMENTAL Image {
    std::vector<uint8_t> data;
};

class ET_EXPERIMENTAL MultimodalInput {
public:
    explicit MultimodalInput(const std::string &text) : data_(text) {}
    explicit MultimodalInput(Image image) : data_(std::move(image)) {}
    bool is_text() const noexcept { return std::holds_alternative<std::string>(data_); }
    const std::string &get_text() const & { return std::get<std::string>(data_); }
#if STAND_IN_REVISION >= 202510
    explicit MultimodalInput(const std::vector<uint64_t> &tokens) : data_(tokens) {}
    bool is_tokens() const noexcept { return std::holds_alternative<std::vector<uint64_t>>(data_); }
    const std::vector<uint64_t> &get_tokens() const & { return std::get<std::vector<uint64_t>>(data_); }
#endif

private:
    std::variant<std::string, std::vector<uint64_t>, Image> data_;
};

} // namespace llm
} // namespace extension
} // namespace executorch
