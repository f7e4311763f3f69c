// Two runs step by step: what each chose, from which logits, and how far apart they are. The terms are those of
// `llr compare`: side A is the reference, side B the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace golden {

using Token = std::uint64_t;
using Pair = std::pair<Token, float>;

// What is known of a row of logits: all of it, or its largest, largest first.
struct Row {
    std::vector<float> all;
    std::vector<Pair> known;
    // "real", or the type of codes that stand for nobody knows what.
    std::string unit = "real";

    bool whole() const { return !all.empty(); }
    bool empty() const { return all.empty() && known.empty(); }

    std::vector<Pair> largest(std::size_t count = 5) const
    {
        if (!whole()) {
            return {known.begin(), known.begin() + static_cast<std::ptrdiff_t>(std::min(count, known.size()))};
        }
        std::vector<Pair> pairs;
        for (std::size_t id = 0; id < all.size(); ++id) {
            if (!std::isnan(all[id])) {
                pairs.emplace_back(id, all[id]);
            }
        }
        // The smaller id first among equals, as argmax takes the first.
        const auto before = [](const Pair &a, const Pair &b) {
            return a.second > b.second || (a.second == b.second && a.first < b.first);
        };
        const auto most = pairs.begin() + static_cast<std::ptrdiff_t>(std::min(count, pairs.size()));
        std::partial_sort(pairs.begin(), most, pairs.end(), before);
        return {pairs.begin(), most};
    }

    std::optional<float> get(Token id) const
    {
        if (whole()) {
            return id < all.size() ? std::optional<float>(all[id]) : std::nullopt;
        }
        for (const auto &[other, logit] : known) {
            if (other == id) {
                return logit;
            }
        }
        return std::nullopt;
    }

    std::optional<float> range() const
    {
        if (!whole()) {
            return std::nullopt;
        }
        const auto [least, most] = std::minmax_element(all.begin(), all.end());
        const float range = *most - *least;
        return std::isfinite(range) && range > 0 ? std::optional<float>(range) : std::nullopt;
    }
};

struct Step {
    Token token = 0;
    Row row;
};

// How far one token is before another.
struct Gap {
    float logits = 0;
    // Of the row's range (largest less smallest); of a row known in part, of the other side's.
    std::optional<float> part;
    // The other's logit is not known: it is this or more.
    bool at_least = false;
};

inline std::optional<Gap> gap(const Row &row, Token first, Token second, const Row &other)
{
    const auto ahead = row.get(first), behind = row.get(second);
    if (!ahead || (!behind && (row.whole() || row.known.empty()))) {
        return std::nullopt;
    }
    Gap gap;
    gap.at_least = !behind;
    gap.logits = std::max(0.0F, *ahead - (behind ? *behind : row.known.back().second));
    auto range = row.range();
    if (!range && other.unit == row.unit) {
        range = other.range();
    }
    if (range) {
        gap.part = gap.logits / *range;
    }
    return gap;
}

struct Distance {
    float largest = 0;
    Token at = 0;
    std::size_t over = 0;
    // Kullback-Leibler divergence of B's distribution from A's, in nats; of whole rows only.
    std::optional<double> kl;
};

inline std::optional<double> kl_divergence(const std::vector<float> &a, const std::vector<float> &b)
{
    const auto log_sum = [](const std::vector<float> &row) {
        const double most = *std::max_element(row.begin(), row.end());
        double sum = 0;
        for (const float logit : row) {
            sum += std::exp(static_cast<double>(logit) - most);
        }
        return most + std::log(sum);
    };
    const double all_a = log_sum(a), all_b = log_sum(b);
    double sum = 0;
    for (std::size_t id = 0; id < a.size(); ++id) {
        const double log_a = static_cast<double>(a[id]) - all_a, log_b = static_cast<double>(b[id]) - all_b;
        sum += std::isinf(log_a) ? 0 : std::exp(log_a) * (log_a - log_b);
    }
    return std::isfinite(sum) ? std::optional<double>(std::max(sum, 0.0)) : std::nullopt;
}

// Nothing where the rows know no token in common or count in different units.
inline std::optional<Distance> distance(const Row &a, const Row &b)
{
    if (a.unit != b.unit || a.empty() || b.empty()) {
        return std::nullopt;
    }
    Distance found;
    const auto look = [&](Token id) {
        const auto of_a = a.get(id), of_b = b.get(id);
        if (!of_a || !of_b) {
            return;
        }
        float apart = std::abs(*of_a - *of_b);
        if (*of_a == *of_b || (std::isnan(*of_a) && std::isnan(*of_b))) {
            apart = 0;
        } else if (std::isnan(apart)) {
            apart = std::numeric_limits<float>::infinity();
        }
        if (found.over == 0 || apart > found.largest) {
            found.largest = apart;
            found.at = id;
        }
        ++found.over;
    };
    if (a.whole() && b.whole()) {
        for (std::size_t id = 0; id < std::min(a.all.size(), b.all.size()); ++id) {
            look(id);
        }
        if (a.all.size() == b.all.size() && a.unit == "real") {
            found.kl = kl_divergence(a.all, b.all);
        }
    } else {
        for (const auto &[id, logit] : a.whole() ? b.known : a.known) {
            static_cast<void>(logit);
            look(id);
        }
    }
    return found.over == 0 ? std::nullopt : std::optional<Distance>(found);
}

struct Divergence {
    std::size_t step = 0;
    // Nothing where a side has ended.
    std::optional<Token> a, b;
    std::vector<Pair> largest_a, largest_b;
    std::optional<Gap> gap_a, gap_b;
    std::optional<Distance> apart;
    bool close = false;
};

struct Found {
    std::size_t compared = 0, differing = 0, close = 0;
    // The first that is no close call; without one, the first close call.
    std::optional<Divergence> first;
    // The largest distance where both chose the same.
    std::optional<std::pair<std::size_t, Distance>> farthest;

    bool diverged() const { return differing > close; }
    std::size_t until() const { return first ? first->step : compared; }
};

// Compares to the first difference, or, when side B was fed side A's tokens, at every step. `max_gap`: choices are a
// close call when on each side the other's is no further behind than this part of the row's range.
inline Found compare(const std::vector<Step> &a, const std::vector<Step> &b, std::optional<float> max_gap, bool forced)
{
    Found found;
    const auto differs = [&](Divergence divergence) {
        ++found.differing;
        found.close += divergence.close ? 1 : 0;
        if (!found.first || (found.first->close && !divergence.close)) {
            found.first = std::move(divergence);
        }
    };
    for (std::size_t step = 0; step < std::min(a.size(), b.size()); ++step) {
        ++found.compared;
        const auto apart = distance(a[step].row, b[step].row);
        if (a[step].token == b[step].token) {
            if (apart && (!found.farthest || apart->largest > found.farthest->second.largest)) {
                found.farthest = {step, *apart};
            }
            continue;
        }
        Divergence divergence;
        divergence.step = step;
        divergence.a = a[step].token;
        divergence.b = b[step].token;
        divergence.largest_a = a[step].row.largest();
        divergence.largest_b = b[step].row.largest();
        divergence.gap_a = gap(a[step].row, a[step].token, b[step].token, b[step].row);
        divergence.gap_b = gap(b[step].row, b[step].token, a[step].token, a[step].row);
        divergence.apart = apart;
        const auto within = [&](const std::optional<Gap> &gap) {
            return max_gap && gap && !gap->at_least && gap->part && *gap->part <= *max_gap;
        };
        divergence.close = within(divergence.gap_a) && within(divergence.gap_b);
        differs(std::move(divergence));
        if (!forced) {
            return found;
        }
    }
    if (a.size() != b.size()) {
        Divergence divergence;
        divergence.step = found.compared;
        if (a.size() > b.size()) {
            divergence.a = a[divergence.step].token;
            divergence.largest_a = a[divergence.step].row.largest();
        } else {
            divergence.b = b[divergence.step].token;
            divergence.largest_b = b[divergence.step].row.largest();
        }
        differs(std::move(divergence));
    }
    return found;
}

} // namespace golden
