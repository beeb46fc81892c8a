#include "train/loop/metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/process_memory.h"

namespace ms::train {
namespace {

// Appends as printf writes, 255 characters at most.
__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* format, ...) {
  std::array<char, 256> part;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(part.data(), part.size(), format, arguments);
  va_end(arguments);
  text += part.data();
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// The members of a JSON object, in its text.
class JsonObject {
 public:
  explicit JsonObject(std::string& text) : text_(text) { text_ += '{'; }
  ~JsonObject() { text_ += '}'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  // The name is written as it stands: without quotes and backslashes.
  std::string& add(std::string_view name) {
    if (text_.back() != '{') text_ += ',';
    return text_.append("\"").append(name).append("\":");
  }
  // In the fewest digits that give the number back; null for what JSON has no number for.
  template <class Number>
  void add(std::string_view name, Number value) {
    if (!std::isfinite(static_cast<double>(value))) {
      add(name).append("null");
      return;
    }
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    add(name).append(digits.data(), end);
  }

 private:
  std::string& text_;
};

// visit(degree, rounds) for each number of ranks that share the samples of any rounds.
template <class Visit>
void for_each_degree(const DealtCost& dealt, const Visit& visit) {
  for (size_t i = 0; i < dealt.rounds.size(); ++i) {
    if (dealt.rounds[i] > 0) visit(1 << i, dealt.rounds[i]);
  }
}

// {"tp":{"allreduce":{"calls":8,"bytes":65536,"ring bytes":65536,"ms":1.5}}}: groups and operations with calls.
void write_counters(JsonObject& record, const GroupCounters& counters) {
  JsonObject groups(record.add("communication"));
  for (size_t group = 0; group < counters.size(); ++group) {
    const auto& of_group = counters[group];
    if (std::ranges::all_of(of_group, [](const core::CommCounter& counter) { return counter.calls == 0; })) continue;
    JsonObject operations(groups.add(layout::group_name(static_cast<layout::Group>(group))));
    for (size_t op = 0; op < of_group.size(); ++op) {
      const core::CommCounter& counter = of_group[op];
      if (counter.calls == 0) continue;
      JsonObject fields(operations.add(core::comm_op_name(static_cast<core::CommOp>(op))));
      fields.add("calls", counter.calls);
      fields.add("bytes", counter.payload_bytes);
      fields.add("ring bytes", counter.ring_bytes);
      fields.add("ms", counter.seconds * 1e3);
    }
  }
}

// [5,0]
template <class T>
void write_list(std::string& text, const std::vector<T>& values) {
  text += '[';
  for (size_t i = 0; i < values.size(); ++i) text += i == 0 ? core::cat(values[i]) : core::cat(",", values[i]);
  text += ']';
}

// [{"layer":3,"tokens":[5,0],"ranks":[1,0],"dropped":1,"load_balancing_loss":1.2}]: layers with experts; the ranks of
// experts that move, and losses that there are.
void write_experts(JsonObject& record, const ExpertLoads& loads) {
  std::string& text = record.add("experts");
  text += '[';
  for (const auto& [layer, load] : loads) {
    if (text.back() == '}') text += ',';
    JsonObject of_layer(text);
    of_layer.add("layer", layer);
    if (load.mtp >= 0) of_layer.add("mtp", load.mtp);
    write_list(of_layer.add("tokens"), load.tokens);
    if (!load.holders.empty()) write_list(of_layer.add("ranks"), load.holders);
    of_layer.add("dropped", load.dropped);
    const ExpertLoads own = {{layer, load}};
    for_each_loss(mean_losses(own), [&](const char* name, double value) { of_layer.add(name, value); });
  }
  text += ']';
}

}  // namespace

void LogInterval::add(const StepMetrics& step) {
  const auto peaks = last_.peak_bytes;
  const int64_t total_peak = last_.total_peak_bytes;
  last_ = step;
  for (size_t tag = 0; tag < peaks.size(); ++tag) last_.peak_bytes[tag] = std::max(step.peak_bytes[tag], peaks[tag]);
  last_.total_peak_bytes = std::max(step.total_peak_bytes, total_peak);
  ++steps_;
  skipped_ += step.skipped ? 1 : 0;
  nan_ += step.nan ? 1 : 0;
  if (!step.skipped) {
    ++applied_;
    loss_sum_ += step.loss;
    mtp_loss_sums_.resize(step.mtp_losses.size());
    for (size_t k = 0; k < step.mtp_losses.size(); ++k) mtp_loss_sums_[k] += step.mtp_losses[k];
  }
  add_loads(experts_, step.experts);
  seconds_ += step.seconds;
  tokens_ += step.tokens;
  tflop_per_rank_ += step.tflops_per_rank * step.seconds;
  mfu_seconds_ += step.mfu * step.seconds;
  hfu_seconds_ += step.hfu * step.seconds;
}

void LogInterval::write_line(bool report_memory, std::string& text) const {
  text.clear();
  append(text, "iteration %" PRId64 "/%" PRId64 " | consumed samples: %" PRId64, last_.iteration, last_.train_iters,
         last_.consumed_train_samples);
  append(text, " | elapsed time per iteration (ms): %.1f | learning rate: %.3e",
         seconds_ / static_cast<double>(steps_) * 1e3, last_.learning_rate);
  if (last_.decoupled_learning_rate) append(text, " | decoupled learning rate: %.3e", *last_.decoupled_learning_rate);
  if (applied_ > 0) append(text, " | lm loss: %.5f", loss_sum_ / static_cast<double>(applied_));
  for (size_t k = 0; k < mtp_loss_sums_.size(); ++k)
    append(text, " | mtp_%zu loss: %.5f", k + 1, mtp_loss_sums_[k] / static_cast<double>(applied_));
  for_each_loss(mean_losses(experts_),
                [&](const char* name, double value) { append(text, " | %s: %.5f", name, value); });
  if (const BusiestExpert busiest = busiest_expert(experts_); busiest.share > 0) {
    append(text, " | busiest expert: %.2f x the mean (layer %" PRId64 ", expert %" PRId64 ")", busiest.share,
           busiest.layer, busiest.expert);
  }
  if (const double dropped = dropped_share(experts_); dropped > 0)
    append(text, " | dropped choices: %.1f %%", 100 * dropped);
  append(text, " | loss scale: %.1f", last_.loss_scale);
  if (std::isfinite(last_.grad_norm)) append(text, " | grad norm: %.3f", last_.grad_norm);
  if (std::isfinite(last_.num_zeros)) append(text, " | num zeros: %.0f", last_.num_zeros);
  if (std::isfinite(last_.params_norm)) append(text, " | params norm: %.3f", last_.params_norm);
  append(text, " | number of skipped iterations: %" PRId64 " | number of nan iterations: %" PRId64, skipped_, nan_);
  if (tokens_ > 0) {
    append(text, " | tokens/s: %.0f | TFLOP/s/rank: %.4f | MFU: %.1f %% | HFU: %.1f %%",
           static_cast<double>(tokens_) / seconds_, tflop_per_rank_ / seconds_, mfu_seconds_ / seconds_ * 100,
           hfu_seconds_ / seconds_ * 100);
  }
  if (last_.dealt) {
    append(text, " | slowest replica: %.3f x the mean (in order %.3f)", last_.dealt->slowest,
           last_.dealt->slowest_in_order);
    const char* lead = " | rounds:";
    for_each_degree(*last_.dealt, [&](int degree, int64_t rounds) {
      append(text, "%s %" PRId64 " of CP %d", std::exchange(lead, ","), rounds, degree);
    });
  }
  append(text, " | peak memory: %.1f MB", megabytes(last_.total_peak_bytes));
  if (!report_memory) return;
  for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
    text += tag == 0 ? " (" : " ";
    text += core::memory_tag_name(static_cast<core::MemoryTag>(tag));
    append(text, " %.1f", megabytes(last_.peak_bytes[static_cast<size_t>(tag)]));
  }
  append(text, ") | arena: %.1f MB held, %.2f %% fragmentation, %.2f %% alignment", megabytes(last_.arena.held_bytes),
         last_.arena.fragmentation() * 100, last_.arena.alignment() * 100);
  append(text, ", %" PRId64 " blocks of %.1f MB, %" PRId64 " from the system", last_.arena.blocks,
         megabytes(last_.arena.block_bytes), last_.arena.growths);
  if (last_.tier) {
    append(text, " | tier: %.1f MB written, %.1f MB at once, %.1f ms of waiting", megabytes(last_.tier->written_bytes),
           megabytes(last_.tier->peak_bytes), last_.tier->wait_s * 1e3);
  }
  if (last_.process_peak_bytes > 0) append(text, " | process: %.1f MB", megabytes(last_.process_peak_bytes));
}

void StepMetrics::write_json(const GroupCounters& communication, std::string& text) const {
  text.clear();
  JsonObject record(text);
  record.add("iteration", iteration);
  record.add("consumed_train_samples", consumed_train_samples);
  record.add("global batch size", global_batch_size);
  record.add("learning rate", learning_rate);
  if (decoupled_learning_rate) record.add("decoupled learning rate", *decoupled_learning_rate);
  record.add("loss scale", loss_scale);
  record.add("number of skipped iterations", skipped ? 1 : 0);
  record.add("number of nan iterations", nan ? 1 : 0);
  record.add("elapsed time per iteration (ms)", seconds * 1e3);
  if (std::isfinite(loss)) record.add("lm loss", loss);
  for (size_t k = 0; k < mtp_losses.size(); ++k) record.add(core::cat("mtp_", k + 1, " loss"), mtp_losses[k]);
  for_each_loss(mean_losses(experts), [&](const char* name, double value) { record.add(name, value); });
  if (std::isfinite(grad_norm)) record.add("grad norm", grad_norm);
  if (std::isfinite(num_zeros)) record.add("num zeros", num_zeros);
  if (std::isfinite(params_norm)) record.add("params norm", params_norm);
  if (!passed_over) {
    record.add("tokens/s", static_cast<double>(tokens) / seconds);
    record.add("throughput per rank (TFLOP/s)", tflops_per_rank);
    record.add("hardware throughput per rank (TFLOP/s)", hardware_tflops_per_rank);
    record.add("mfu", mfu);
    record.add("hfu", hfu);
  }
  if (process_peak_bytes > 0) record.add("process peak bytes", process_peak_bytes);
  {
    JsonObject held(record.add("arena"));
    held.add("held bytes", arena.held_bytes);
    held.add("peak bytes", arena.peak_bytes);
    held.add("padding bytes", arena.padding_bytes);
    held.add("blocks", arena.blocks);
    held.add("block bytes", arena.block_bytes);
    held.add("from the system", arena.growths);
  }
  if (tier) {
    JsonObject swap(record.add("swap tier"));
    swap.add("bytes written", tier->written_bytes);
    swap.add("bytes read", tier->read_bytes);
    swap.add("peak bytes", tier->peak_bytes);
    swap.add("wait (ms)", tier->wait_s * 1e3);
  }
  if (dealt) {
    record.add("slowest replica", dealt->slowest);
    record.add("slowest replica in order", dealt->slowest_in_order);
    if (dealt->chooses_degrees()) {
      JsonObject rounds(record.add("rounds of cp"));
      for_each_degree(*dealt, [&](int degree, int64_t of_degree) {
        std::array<char, 12> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), degree).ptr;
        rounds.add({digits.data(), static_cast<size_t>(end - digits.data())}, of_degree);
      });
    }
  }
  if (!experts.empty()) write_experts(record, experts);
  write_counters(record, communication);
  JsonObject memory(record.add("peak memory bytes"));
  for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
    memory.add(core::memory_tag_name(static_cast<core::MemoryTag>(tag)), peak_bytes[static_cast<size_t>(tag)]);
  }
  memory.add("total", total_peak_bytes);
}

MetricsFile::MetricsFile(const std::string& path) {
  try {
    file_ = core::File::open_append(path);
  } catch (const core::Error& e) {
    throw core::Error(core::ErrorCode::kIo, core::cat("--metrics-path ", path, ": ", e.what()));
  }
}

void MetricsFile::write(std::string_view record) {
  if (!file_.is_open()) return;
  line_.assign(record).append("\n");
  try {
    file_.append(std::as_bytes(std::span(line_)));
  } catch (const core::Error& e) {
    throw e.within(core::cat("--metrics-path ", file_.path()));
  }
}

void reset_peaks(core::Arena& arena, core::Arena& messages, SwapTier* tier) {
  arena.reset_peaks();
  messages.reset_peaks();
  if (tier != nullptr) tier->take_use();
}

void take_peaks(StepMetrics& metrics, const core::Arena& arena, const core::Arena& messages) {
  for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
    metrics.peak_bytes[static_cast<size_t>(tag)] = arena.peak_bytes(static_cast<core::MemoryTag>(tag));
  }
  metrics.peak_bytes[static_cast<size_t>(core::MemoryTag::kComm)] += messages.peak_bytes(core::MemoryTag::kComm);
  metrics.total_peak_bytes = arena.total_peak_bytes() + messages.total_peak_bytes();
  metrics.arena = arena.use();
  metrics.process_peak_bytes = core::peak_resident_bytes();
}

}  // namespace ms::train
