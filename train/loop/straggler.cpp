#include "train/loop/straggler.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <span>

namespace ms::train {
namespace {

constexpr double kLittle = 0.02;  // of the others' time: below, chance names the rank

std::string fixed(const char* format, double value) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::string straggler_text(const std::vector<double>& delay_s, double elapsed_s, int64_t count) {
  std::vector<int> ranks(delay_s.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::stable_sort(ranks, std::greater<>(), [&](int rank) { return delay_s[static_cast<size_t>(rank)]; });
  const double others_s = elapsed_s * static_cast<double>(std::max<size_t>(delay_s.size(), 2) - 1);
  const auto delay_of = [&](int rank) { return delay_s[static_cast<size_t>(rank)]; };
  std::string late, waiting;
  const auto shown = std::min(static_cast<size_t>(count), ranks.size());
  for (size_t i = 0; i < shown && delay_of(ranks[i]) > 0; ++i) {
    const double delay = delay_of(ranks[i]);
    late += core::cat(i > 0 ? ", " : "", "rank ", ranks[i], " made the others wait ", fixed("%.2f s", delay),
                      fixed(" (%.1f %% of their time)", 100 * delay / others_s));
  }
  std::ranges::reverse(ranks);
  for (size_t i = 0; i < shown && delay_of(ranks[i]) < 0; ++i) {
    waiting +=
        core::cat(i > 0 ? ", " : " | waited most: ", "rank ", ranks[i], ", ", fixed("%.2f s", -delay_of(ranks[i])));
  }
  const char* const verdict = delay_of(ranks.back()) >= kLittle * others_s ? "straggler: " : "no straggler: ";
  return core::cat(verdict, late.empty() ? "no rank made the others wait" : late, waiting);
}

std::string StragglerLog::take_line(core::Communicator& world, int64_t count) {
  const core::Endpoint::Waits waits = world.endpoint().take_waits();
  std::vector<double> delay_s = waits.for_rank_s;
  delay_s[static_cast<size_t>(world.endpoint().rank())] -= waits.total_s;
  if (world.size() > 1) world.allreduce(std::span(delay_s));
  const int64_t now_ns = core::trace::now_ns();
  const double elapsed_s = std::max(static_cast<double>(now_ns - since_ns_) * 1e-9, 1e-9);
  since_ns_ = now_ns;
  return straggler_text(delay_s, elapsed_s, count);
}

}  // namespace ms::train
