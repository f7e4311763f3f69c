// ExecuTorch's own Module in a decode loop: tokens go in, a row of logits comes out. For programs with
// forward(tokens, input_pos), and for static ones with kv_forward and, if it is there, prefill_forward.
// Links against ExecuTorch's Python wheel; needs nothing of this project.
#pragma once

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace decode_loop {

using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::TensorInfo;

inline void check(const std::string &doing, Error error)
{
    if (error != Error::Ok) {
        throw std::runtime_error(doing + ": error " + std::to_string(static_cast<int>(error)));
    }
}

template <typename T> T get(const std::string &doing, executorch::runtime::Result<T> result)
{
    check(doing, result.error());
    return std::move(*result);
}

// A context that grows. Greedy decoding takes the first of the largest logits.
class DecodeLoop {
  public:
    virtual ~DecodeLoop() = default;
    // Takes the prompt, from an empty context; the logits of its last token are there afterwards.
    virtual void prefill(const std::vector<std::int64_t> &ids) = 0;
    // Takes one token.
    virtual void step(std::int64_t id) = 0;
    // Tokens that fit at most.
    virtual std::size_t context() const = 0;

    // Codes where codes() says so.
    const std::vector<float> &logits() const { return logits_; }
    bool codes() const { return codes_; }
    std::int64_t choice() const { return std::max_element(logits_.begin(), logits_.end()) - logits_.begin(); }

  protected:
    void keep(const executorch::aten::Tensor &logits, std::size_t row)
    {
        const std::size_t vocab = logits.size(logits.dim() - 1);
        codes_ = logits.scalar_type() != ScalarType::Float;
        if (codes_) {
            const auto *from = static_cast<const std::uint16_t *>(logits.const_data_ptr()) + row * vocab;
            logits_.assign(from, from + vocab);
        } else {
            const auto *from = logits.const_data_ptr<float>() + row * vocab;
            logits_.assign(from, from + vocab);
        }
    }

  private:
    std::vector<float> logits_;
    bool codes_ = false;
};

class Dynamic : public DecodeLoop {
  public:
    explicit Dynamic(Module &module_) : module(module_)
    {
        if (get("methods", module.method_names()).count("get_max_context_len") != 0) {
            most = static_cast<std::size_t>(get("get_max_context_len", module.get("get_max_context_len")).toInt());
        }
    }

    void prefill(const std::vector<std::int64_t> &ids) override
    {
        position = 0;
        feed(ids);
    }
    void step(std::int64_t id) override { feed({id}); }
    std::size_t context() const override { return most; }

  private:
    void feed(std::vector<std::int64_t> next)
    {
        auto tokens = from_blob(next.data(), {1, static_cast<int>(next.size())}, ScalarType::Long);
        auto at = from_blob(&position, {1}, ScalarType::Long);
        auto outputs = get("forward", module.execute("forward", {EValue(tokens), EValue(at)}));
        const auto logits = outputs.at(0).toTensor();
        keep(logits, logits.numel() / logits.size(logits.dim() - 1) - 1);
        position += static_cast<std::int64_t>(next.size());
    }

    Module &module;
    std::int64_t position = 0;
    std::size_t most = SIZE_MAX;
};

// One method of a static program with the buffers of its inputs and outputs.
struct Method {
    Module &module;
    std::string name;
    std::vector<TensorInfo> infos;
    std::vector<std::vector<std::uint8_t>> buffers;
    std::vector<TensorPtr> tensors;
    std::size_t inputs = 0;

    Method(Module &module_, std::string name_) : module(module_), name(std::move(name_))
    {
        check(name, module.load_method(name));
        const auto meta = get(name, module.method_meta(name));
        inputs = meta.num_inputs();
        for (std::size_t i = 0; i < inputs + meta.num_outputs(); ++i) {
            infos.push_back(get(name, i < inputs ? meta.input_tensor_meta(i) : meta.output_tensor_meta(i - inputs)));
            buffers.emplace_back(infos[i].nbytes());
            tensors.push_back(from_blob(buffers[i].data(), {infos[i].sizes().begin(), infos[i].sizes().end()},
                                        infos[i].scalar_type()));
        }
    }

    std::size_t ar() const { return infos[0].sizes()[1]; }
    std::size_t context() const { return infos[1].sizes()[infos[1].sizes().size() - 1]; }
    std::size_t caches() const { return inputs - 3; }
    // Positions that fit before a step.
    std::size_t room() const { return context() - ar(); }

    void set_token(std::size_t row, std::int64_t id, std::size_t position)
    {
        if (infos[0].scalar_type() == ScalarType::Long) {
            reinterpret_cast<std::int64_t *>(buffers[0].data())[row] = id;
        } else {
            reinterpret_cast<std::int32_t *>(buffers[0].data())[row] = static_cast<std::int32_t>(id);
        }
        reinterpret_cast<std::int32_t *>(buffers[2].data())[row] = static_cast<std::int32_t>(position);
    }

    // Sees the first `past` columns and, of the new ones, those up to its own.
    void set_mask(std::size_t past)
    {
        const std::size_t columns = context(), first = columns - ar();
        const bool real = infos[1].scalar_type() == ScalarType::Float;
        for (std::size_t row = 0; row < ar(); ++row) {
            for (std::size_t column = 0; column < columns; ++column) {
                const bool sees = column < first ? column < past : column - first <= row;
                const std::size_t at = row * columns + column;
                if (real) {
                    reinterpret_cast<float *>(buffers[1].data())[at] = sees ? 0.0f : -65535.0f;
                } else {
                    reinterpret_cast<std::uint16_t *>(buffers[1].data())[at] = sees ? 65535 : 0;
                }
            }
        }
    }

    void execute()
    {
        for (std::size_t i = 0; i < inputs; ++i) {
            check(name, module.set_input(name, EValue(tensors[i]), i));
        }
        for (std::size_t i = inputs; i < tensors.size(); ++i) {
            check(name, module.set_output(name, EValue(tensors[i]), i - inputs));
        }
        get(name, module.execute(name));
    }

    // Rows of equal length whose last axis is positions (keys) or inner to positions (values).
    struct Layout {
        std::size_t outer, positions, inner;
    };
    Layout layout(std::size_t cache, bool output) const
    {
        const auto &info = infos[output ? inputs + 1 + cache : 3 + cache];
        const auto &sizes = info.sizes();
        const bool keys = cache < caches() / 2;
        const std::size_t rank = sizes.size(), element = info.nbytes() / elements(info);
        const std::size_t positions = sizes[keys ? rank - 1 : rank - 2];
        const std::size_t inner = (keys ? 1 : sizes[rank - 1]) * element;
        return {info.nbytes() / positions / inner, positions, inner};
    }
    static std::size_t elements(const TensorInfo &info)
    {
        std::size_t count = 1;
        for (const auto size : info.sizes()) {
            count *= size;
        }
        return count;
    }

    // Puts the first `count` new columns of `of` behind the `past` ones of this method's caches.
    void take(const Method &of, std::size_t past, std::size_t count)
    {
        for (std::size_t cache = 0; cache < caches(); ++cache) {
            const Layout to = layout(cache, false), from = of.layout(cache, true);
            for (std::size_t outer = 0; outer < to.outer; ++outer) {
                std::memcpy(buffers[3 + cache].data() + (outer * to.positions + past) * to.inner,
                            of.buffers[of.inputs + 1 + cache].data() + outer * from.positions * from.inner,
                            count * to.inner);
            }
        }
    }
};

class Static : public DecodeLoop {
  public:
    Static(Module &module, bool prefills) : kv(module, "kv_forward")
    {
        if (prefills) {
            blocks.emplace(module, "prefill_forward");
        }
    }

    void prefill(const std::vector<std::int64_t> &ids) override
    {
        past = 0;
        std::size_t fed = 0;
        while (blocks && fed < ids.size() && past < blocks->room()) {
            const std::size_t count = std::min({blocks->ar(), ids.size() - fed, blocks->room() - past});
            for (std::size_t row = 0; row < blocks->ar(); ++row) {
                blocks->set_token(row, row < count ? ids[fed + row] : 0, past + row);
            }
            blocks->set_mask(past);
            blocks->execute();
            keep(*blocks->tensors[blocks->inputs], count - 1);
            kv.take(*blocks, past, count);
            blocks->take(*blocks, past, count);
            past += count;
            fed += count;
        }
        for (; fed < ids.size(); ++fed) {
            step(ids[fed]);
        }
    }

    void step(std::int64_t id) override
    {
        kv.set_token(0, id, past);
        kv.set_mask(past);
        kv.execute();
        keep(*kv.tensors[kv.inputs], 0);
        if (past < kv.room()) {
            kv.take(kv, past, 1);
        }
        ++past;
    }

    std::size_t context() const override { return kv.context(); }

  private:
    Method kv;
    std::optional<Method> blocks;
    std::size_t past = 0;
};

// The loop for what `module`, which is loaded, has.
inline std::unique_ptr<DecodeLoop> open(Module &module)
{
    const auto names = get("methods", module.method_names());
    if (names.count("forward") != 0) {
        return std::make_unique<Dynamic>(module);
    }
    return std::make_unique<Static>(module, names.count("prefill_forward") != 0);
}

} // namespace decode_loop
