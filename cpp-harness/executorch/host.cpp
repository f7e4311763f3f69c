// Runs an exported program in ExecuTorch itself and prints the greedy token ids: the prompt's, then those that follow.
//
//     host PROGRAM STEPS ID...
//
// A program with forward(tokens, input_pos) gets the prompt in one call and then token by token. Of a program with
// kv_forward, prefill_forward takes the prompt if it is there.
// Links against ExecuTorch's Python wheel; needs nothing of this project.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::TensorInfo;

namespace {

void check(const std::string &doing, Error error)
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

std::int64_t largest(const float *row, std::size_t count)
{
    return std::max_element(row, row + count) - row;
}

std::int64_t largest(const std::uint16_t *row, std::size_t count)
{
    return std::max_element(row, row + count) - row;
}

// The last row of logits.
std::int64_t choice(const executorch::aten::Tensor &logits, std::size_t row)
{
    const std::size_t vocab = logits.size(logits.dim() - 1);
    if (logits.scalar_type() == ScalarType::Float) {
        return largest(logits.const_data_ptr<float>() + row * vocab, vocab);
    }
    return largest(static_cast<const std::uint16_t *>(logits.const_data_ptr()) + row * vocab, vocab);
}

void run_dynamic(Module &module, std::vector<std::int64_t> ids, int steps)
{
    std::int64_t position = 0;
    std::vector<std::int64_t> next = ids;
    for (int step = 0; step < steps; ++step) {
        auto tokens = from_blob(next.data(), {1, static_cast<int>(next.size())}, ScalarType::Long);
        auto at = from_blob(&position, {1}, ScalarType::Long);
        auto outputs = get("forward", module.execute("forward", {EValue(tokens), EValue(at)}));
        const auto logits = outputs.at(0).toTensor();
        const std::size_t rows = logits.numel() / logits.size(logits.dim() - 1);
        position += static_cast<std::int64_t>(next.size());
        next = {choice(logits, rows - 1)};
        ids.push_back(next[0]);
    }
    for (const auto id : ids) {
        std::cout << id << ' ';
    }
    std::cout << '\n';
}

// One method of a static program with the buffers of its inputs and outputs.
struct Static {
    Module &module;
    std::string name;
    std::vector<TensorInfo> infos;
    std::vector<std::vector<std::uint8_t>> buffers;
    std::vector<TensorPtr> tensors;
    std::size_t inputs = 0;

    Static(Module &module_, std::string name_) : module(module_), name(std::move(name_))
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
    void take(const Static &of, std::size_t past, std::size_t count)
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

    std::int64_t chosen(std::size_t row) const { return choice(*tensors[inputs], row); }
};

void run_static(Module &module, std::vector<std::int64_t> ids, int steps, bool prefills)
{
    Static kv(module, "kv_forward");
    std::size_t past = 0;
    std::int64_t next = 0;
    if (prefills) {
        Static prefill(module, "prefill_forward");
        if (ids.size() > prefill.ar()) {
            throw std::runtime_error("the prompt is longer than prefill_forward takes at once");
        }
        for (std::size_t row = 0; row < prefill.ar(); ++row) {
            prefill.set_token(row, row < ids.size() ? ids[row] : 0, row);
        }
        prefill.set_mask(0);
        prefill.execute();
        kv.take(prefill, 0, ids.size());
        past = ids.size();
        next = prefill.chosen(ids.size() - 1);
    }
    for (int step = 0; step < steps;) {
        if (past >= ids.size()) {
            ids.push_back(next);
            if (++step == steps) {
                break;
            }
        }
        kv.set_token(0, ids[past], past);
        kv.set_mask(past);
        kv.execute();
        kv.take(kv, past, 1);
        next = kv.chosen(0);
        ++past;
    }
    for (const auto id : ids) {
        std::cout << id << ' ';
    }
    std::cout << '\n';
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc < 4) {
        std::cerr << "usage: host PROGRAM STEPS ID...\n";
        return 2;
    }
    Module module(argv[1]);
    check("load", module.load());
    const int steps = std::atoi(argv[2]);
    std::vector<std::int64_t> ids;
    for (int i = 3; i < argc; ++i) {
        ids.push_back(std::atoll(argv[i]));
    }
    const auto names = get("methods", module.method_names());
    if (names.count("forward") != 0) {
        run_dynamic(module, ids, steps);
    } else {
        run_static(module, ids, steps, names.count("prefill_forward") != 0);
    }
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
