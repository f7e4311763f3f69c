// What the classes with upstream's names share: IRunner's functions on a Session.
#ifndef LLAMA_RUNNER_BASIC_RUNNER_HPP
#define LLAMA_RUNNER_BASIC_RUNNER_HPP

#include "session.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

#if LLAMA_RUNNER_EXECUTORCH
template <typename T> using UpstreamResult = ::executorch::runtime::Result<T>;
#else
template <typename T> using UpstreamResult = Result<T>;
#endif

namespace detail {

template <typename T> UpstreamResult<T> failed(const Status &status)
{
#if LLAMA_RUNNER_EXECUTORCH
    return status.error();
#else
    return status;
#endif
}

#if LLAMA_RUNNER_MULTIMODAL
// MultimodalInput of the revisions that can hold tokens.
template <typename Part, typename = void> struct HasTokens : std::false_type {};
template <typename Part>
struct HasTokens<Part, std::void_t<decltype(std::declval<const Part &>().get_tokens())>> : std::true_type {};
#endif

} // namespace detail

// executorch::extension::llm::IRunner on a Session. Functions return upstream's Error; last_status() has the reason.
//
// A constructor does not fail: what is wrong with its arguments is what load() and generate() return. Threads and
// callbacks: as with Session; stop() may be called from any thread.
class BasicRunner : public IRunner {
public:
    using TokenCallback = std::function<void(const std::string &)>;

    // IRunner differs between revisions of ExecuTorch, so none of these says `override`; a function that a revision has
    // and this class lacks leaves the class abstract, which the compiler reports.
    bool is_loaded() const { return session_ && session_->is_loaded(); }

    [[nodiscard]] Error load() { return remember(session_ ? session_->load() : refused_); }

    // Runs one turn behind the earlier ones, and loads first if need be. `token_callback` is called once for each token,
    // with the whole characters that the token completes (possibly none), after the prompt if `config.echo`.
    // `stats_callback` is called when the turn is over. What they throw stops the turn and comes out of here.
    [[nodiscard]] Error generate(const std::string &prompt, const GenerationConfig &config,
                                 TokenCallback token_callback = {}, StatsCallback stats_callback = {})
    {
        return run(prompt, config.echo ? prompt : std::string(), config, token_callback, stats_callback);
    }

    // As generate(), behind the first `start_pos` tokens of the context.
    [[nodiscard]] Error generate_from_pos(const std::string &prompt, std::int64_t start_pos,
                                          const GenerationConfig &config, TokenCallback token_callback = {},
                                          StatsCallback stats_callback = {})
    {
        if (load() != Error::Ok) {
            return last_.error();
        }
        if (start_pos < 0) {
            return remember({LLR_STATUS_INVALID_ARGUMENT, "start_pos " + std::to_string(start_pos) + " is negative"});
        }
        if (remember(session_->rewind(static_cast<std::size_t>(start_pos))) != Error::Ok) {
            return last_.error();
        }
        return generate(prompt, config, std::move(token_callback), std::move(stats_callback));
    }

    // Takes a prompt into the context and makes no turn of it: a later generate() goes on behind it, and generate("")
    // right from it. Gives the likeliest token to follow.
    [[nodiscard]] UpstreamResult<std::uint64_t> prefill(const std::string &prompt, const GenerationConfig &config)
    {
        return prefilled(prompt, turn_options(config));
    }
    [[nodiscard]] UpstreamResult<std::uint64_t> prefill(const std::string &prompt, std::int32_t num_bos = 0,
                                                        std::int32_t num_eos = 0)
    {
        return prefilled(prompt, specials(num_bos, num_eos));
    }
#if LLAMA_RUNNER_MULTIMODAL
    // As above, for parts that are text or tokens; any other is Error::NotSupported, and leaves what came before it in the
    // context. The special tokens go around the first text, as upstream.
    [[nodiscard]] UpstreamResult<std::uint64_t> prefill(const std::vector<MultimodalInput> &inputs,
                                                        std::int32_t num_bos = 0, std::int32_t num_eos = 0)
    {
        TurnOptions around = specials(num_bos, num_eos);
        if (inputs.empty()) {
            remember({LLR_STATUS_INVALID_ARGUMENT, "prefill of no parts"});
            return detail::failed<std::uint64_t>(last_);
        }
        for (std::size_t i = 0; i + 1 < inputs.size(); ++i) {
            auto next = take(inputs[i], around);
            if (!next.ok()) {
                return next;
            }
        }
        return take(inputs.back(), around);
    }
#endif

    // Stops the running turn at its next token; without effect when none is running.
    void stop()
    {
        if (session_) {
            session_->cancel();
        }
    }

    // Empties the context: the next turn starts at position 0.
    void reset()
    {
        if (session_) {
            remember(session_->reset());
        }
    }

    // The bytes that it holds; loads if need be.
    Result<Memory> memory() { return session_ ? session_->memory() : refused_; }

    // What the last call of load(), generate() and the like came to. Not while another thread is in one of them. After a
    // turn that stop() ended, or a callback that threw, it is LLR_STATUS_CANCELLED; generate() returns Ok then, as upstream.
    const Status &last_status() const noexcept { return last_; }

    // The session under the runner; nullptr when the constructor's arguments were refused.
    Session *session() noexcept { return session_ ? &*session_ : nullptr; }

protected:
    BasicRunner(const Options &options, Status refused)
    {
        if (!refused.ok()) {
            refused_ = std::move(refused);
            return;
        }
        Result<Session> made = Session::create(options);
        if (made.ok()) {
            session_.emplace(std::move(*made));
        } else {
            refused_ = made.status();
        }
    }

    virtual TurnOptions turn_options(const GenerationConfig &config) const = 0;
    // Called with the statistics of a turn that succeeded, when it is over.
    virtual Status after_turn(const Stats &) { return {}; }

    Error remember(Status status)
    {
        last_ = std::move(status);
        return last_.error();
    }

    // `prompt` is a text or token ids; `echo` goes to the token callback before the first token.
    template <typename Prompt>
    Error run(const Prompt &prompt, const std::string &echo, const GenerationConfig &config,
              const TokenCallback &token_callback, const StatsCallback &stats_callback)
    {
        if (!session_) {
            return remember(refused_);
        }
        if (detail::wants_grammar(config)) {
            return remember({LLR_STATUS_NOT_SUPPORTED, "GenerationConfig::grammar: there are no grammars"});
        }
        bool echoed = echo.empty();
        const ChunkCallback on_chunk = [&](const Chunk &chunk) {
            if (token_callback) {
                if (!std::exchange(echoed, true)) {
                    token_callback(echo);
                }
                if (const auto text = chunk.text(); !chunk.is_final() || !text.empty()) {
                    token_callback(std::string(text));
                }
            }
            return true;
        };
        std::optional<Stats> stats;
        const StatsCallback on_stats = [&](const Stats &of_turn) {
            stats.emplace(of_turn);
            if (stats_callback) {
                stats_callback(of_turn);
            }
        };
        // For the case that a callback throws.
        last_ = stopped();
        Status status = session_->generate(prompt, turn_options(config), on_chunk, on_stats);
        const bool was_stopped = status.ok() && session_->finish_reason() == LLR_FINISH_REASON_CANCELLED;
        if (remember(status.ok() && stats ? after_turn(*stats) : std::move(status)) == Error::Ok && was_stopped) {
            last_ = stopped();
            return Error::Ok;
        }
        return last_.error();
    }

private:
    static Status stopped() { return {LLR_STATUS_CANCELLED, "the turn was stopped"}; }

    static TurnOptions specials(std::int32_t num_bos, std::int32_t num_eos)
    {
        TurnOptions options;
        options.num_bos = num_bos;
        options.num_eos = num_eos;
        return options;
    }

    // `prompt` is a text or token ids.
    template <typename Prompt> UpstreamResult<std::uint64_t> prefilled(const Prompt &prompt, TurnOptions around)
    {
        if (load() != Error::Ok) {
            return detail::failed<std::uint64_t>(last_);
        }
        if (session_->position() != 0) {
            around.num_bos = 0;
        }
        if constexpr (std::is_same_v<Prompt, std::string>) {
            const auto tokens = session_->encode(prompt, around);
            remember(tokens.ok() ? session_->prefill(*tokens) : tokens.status());
        } else {
            remember(session_->prefill(prompt));
        }
        if (!last_.ok()) {
            return detail::failed<std::uint64_t>(last_);
        }
        const auto likeliest = session_->sample();
        if (remember(likeliest.status()) != Error::Ok) {
            return detail::failed<std::uint64_t>(last_);
        }
        return *likeliest;
    }

#if LLAMA_RUNNER_MULTIMODAL
    template <typename Part> UpstreamResult<std::uint64_t> take(const Part &part, TurnOptions &around)
    {
        if (part.is_text()) {
            return prefilled(part.get_text(), std::exchange(around, specials(0, 0)));
        }
        if constexpr (detail::HasTokens<Part>::value) {
            if (part.is_tokens()) {
                return prefilled(part.get_tokens(), {});
            }
        }
        remember({LLR_STATUS_NOT_SUPPORTED, "a part of the prompt is neither text nor tokens"});
        return detail::failed<std::uint64_t>(last_);
    }
#endif

    std::optional<Session> session_;
    Status refused_;
    Status last_;
};

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
