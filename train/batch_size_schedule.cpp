#include "train/batch_size_schedule.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "core/error.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr int64_t kMaxBatch = INT32_MAX;
constexpr int64_t kMaxIncrements = 100'000;

// "2.4B" -> 2400000000. Fractions are rounded down, as Python's int(float(..) * factor). -1 if it is no such number.
int64_t parse_count(std::string_view text) {
  double factor = 1;
  const char last = text.empty() ? '\0' : static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
  constexpr std::string_view kSuffixes = "KMBT";
  if (const size_t found = kSuffixes.find(last); last != '\0' && found != std::string_view::npos) {
    factor = std::pow(1000.0, static_cast<double>(found + 1));
    text.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool parsed = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if (!parsed || !(value >= 0) || !(value * factor <= 9e18)) return -1;
  return static_cast<int64_t>(value * factor);
}

}  // namespace

BatchSizeSchedule::BatchSizeSchedule(int64_t global_batch_size) : parts_{{0, global_batch_size}} {}

BatchSizeSchedule BatchSizeSchedule::ramp_up(std::span<const int64_t> values, int64_t global_batch_size) {
  require(values.size() == 3, "--rampup-batch-size: expected three numbers (start, increment, samples), but there are ",
          values.size());
  const int64_t start = values[0], increment = values[1], samples = values[2];
  const std::string flag = core::cat("--rampup-batch-size ", start, " ", increment, " ", samples);
  require(start > 0 && increment > 0 && samples > 0 && samples <= kMaxSamples, flag,
          ": start, increment and samples must be positive, samples at most ", kMaxSamples);
  require(start < global_batch_size, flag, ": the start must be below --global-batch-size ", global_batch_size);
  const int64_t difference = global_batch_size - start;
  require(difference % increment == 0, flag, ": --global-batch-size ", global_batch_size, " - start = ", difference,
          " is not a multiple of the increment");
  const int64_t increments = difference / increment;
  require(increments <= kMaxIncrements, flag, ": ", increments, " increments up to --global-batch-size; at most ",
          kMaxIncrements);

  BatchSizeSchedule schedule(start);
  schedule.kind_ = Kind::kRampUp;
  schedule.ramp_up_samples_ = samples;
  // Megatron's arithmetic, so that each size begins at the same sample as there.
  const double per_increment = static_cast<double>(samples) / static_cast<double>(increments);
  const auto increments_at = [&](int64_t consumed) {
    return static_cast<int64_t>(static_cast<double>(consumed) / per_increment);
  };
  for (int64_t k = 1; k <= increments; ++k) {
    auto first = static_cast<int64_t>(std::ceil(static_cast<double>(k) * per_increment));
    while (first > 0 && increments_at(first - 1) >= k) --first;
    while (increments_at(first) < k) ++first;
    first = std::min(first, samples + 1);  // beyond the samples the size is global_batch_size in any case
    if (schedule.parts_.back().first_sample == first) schedule.parts_.pop_back();
    schedule.parts_.push_back({first, start + k * increment});
  }
  return schedule;
}

BatchSizeSchedule BatchSizeSchedule::by_steps(std::string_view text, int64_t seq_length) {
  const std::string flag = core::cat("--step-batch-size-schedule \"", text, "\"");
  BatchSizeSchedule schedule;
  schedule.kind_ = Kind::kSteps;
  schedule.parts_.clear();
  require(seq_length > 0, flag, ": tokens are counted in samples of --seq-length, which is ", seq_length);
  constexpr std::string_view kSeparators = " ,\t\n";
  for (size_t begin = 0; (begin = text.find_first_not_of(kSeparators, begin)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    begin = end;
    const size_t colon = entry.find(':');
    const int64_t tokens = parse_count(entry.substr(0, colon));
    const int64_t size = colon == std::string_view::npos ? -1 : parse_count(entry.substr(colon + 1));
    require(tokens >= 0 && size >= 0, flag, ": \"", entry, "\": expected TOKENS:BATCH, such as 2.4B:320");
    require(size > 0 && size <= kMaxBatch, flag, ": \"", entry, "\": a batch has 1 to ", kMaxBatch, " samples");
    require(tokens / seq_length <= kMaxSamples, flag, ": \"", entry, "\": at most ", kMaxSamples, " samples");
    schedule.parts_.push_back({tokens / seq_length, size});
  }
  std::vector<Part>& parts = schedule.parts_;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.first_sample < b.first_sample; });
  require(!parts.empty() && parts[0].first_sample == 0, flag, ": the first entry must be 0:BATCH");
  for (size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].first_sample > parts[i - 1].first_sample, flag, ": two entries begin at sample ",
            parts[i].first_sample, " (tokens / --seq-length ", seq_length, ")");
    require(parts[i].batch_size >= parts[i - 1].batch_size, flag, ": the batch shrinks from ", parts[i - 1].batch_size,
            " to ", parts[i].batch_size, "; it may only grow");
  }
  return schedule;
}

size_t BatchSizeSchedule::part_at(int64_t consumed) const {
  const auto next = std::upper_bound(parts_.begin(), parts_.end(), consumed,
                                     [](int64_t sample, const Part& part) { return sample < part.first_sample; });
  return next == parts_.begin() ? 0 : static_cast<size_t>(next - parts_.begin()) - 1;
}

int64_t BatchSizeSchedule::at(int64_t consumed) const { return parts_[part_at(consumed)].batch_size; }

void BatchSizeSchedule::each_size(int64_t consumed,
                                  core::FunctionRef<bool(int64_t size, int64_t consumed, int64_t steps)> visit) const {
  for (size_t part = part_at(consumed); part + 1 < parts_.size();) {
    const int64_t size = parts_[part].batch_size;
    const int64_t steps = (parts_[part + 1].first_sample - consumed + size - 1) / size;
    if (!visit(size, consumed, steps)) return;
    consumed += steps * size;
    part = part_at(consumed);
  }
  visit(parts_.back().batch_size, consumed, kNoEnd);
}

int64_t BatchSizeSchedule::samples_of(int64_t iterations) const {
  int64_t samples = 0;
  each_size(0, [&](int64_t size, int64_t, int64_t steps) {
    const int64_t taken = std::min(steps, iterations);
    samples += taken * size;
    iterations -= taken;
    return iterations > 0;
  });
  return samples;
}

int64_t BatchSizeSchedule::iterations_beyond(int64_t samples) const {
  int64_t iterations = 0;
  each_size(0, [&](int64_t size, int64_t consumed, int64_t steps) {
    if (consumed > samples) return false;
    const int64_t taken = std::min(steps, (samples - consumed) / size + 1);
    iterations += taken;
    return taken == steps;
  });
  return iterations;
}

int64_t BatchSizeSchedule::iterations(int64_t train_samples) const {
  if (train_samples <= 0) return 0;
  if (kind_ == Kind::kConstant) return train_samples / largest();
  if (kind_ == Kind::kSteps) return iterations_beyond(train_samples - 1);
  const int64_t ramp = iterations_beyond(std::min(ramp_up_samples_, train_samples));
  return ramp + std::max<int64_t>(0, train_samples - samples_of(ramp)) / largest();
}

}  // namespace ms::train
