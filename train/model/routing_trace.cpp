#include "train/model/routing_trace.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "core/error.h"
#include "core/log.h"

namespace ms::train {

RoutingTrace::RoutingTrace(const std::string& folder, int rank, std::optional<int64_t> max_steps)
    : rank_(rank), steps_left_(max_steps.value_or(INT64_MAX)) {
  try {
    std::error_code error;
    std::filesystem::create_directories(folder, error);  // create() says why it is missing
    file_ = core::File::create(core::cat(folder, "/router_trace_rank", rank, ".jsonl"));
  } catch (const core::Error& e) {
    throw core::Error(core::ErrorCode::kIo, core::cat("--moe-routing-trace-path ", folder, ": ", e.what()));
  }
}

void RoutingTrace::add(const core::trace::ExpertLayer& layer, const core::TensorView& experts,
                       std::span<const uint8_t> padding) {
  if (steps_left_ == 0) return;
  const int64_t topk = experts.dim(1);
  const auto chosen = experts.elements<int32_t>();
  Record& record = records_.emplace_back(Record{layer, 0, topk, {}});
  for (int64_t token = 0; token < experts.dim(0); ++token) {
    if (!padding.empty() && padding[static_cast<size_t>(token)] != 0) continue;
    const auto own = chosen.subspan(static_cast<size_t>(token * topk), static_cast<size_t>(topk));
    record.experts.insert(record.experts.end(), own.begin(), own.end());
    ++record.tokens;
  }
}

void RoutingTrace::write_line(int64_t step, const Record& record) {
  const bool mtp = record.layer.mtp >= 0;
  text_ += core::cat("{\"step\": ", step, ", \"stage\": \"pre_dispatch\", \"block\": \"", mtp ? "mtp" : "decoder",
                     "\", \"layer\": ", record.layer.layer, ", \"rank\": ", rank_, ", \"num_tokens\": ", record.tokens,
                     ", \"topk\": ", record.topk);
  if (mtp) text_ += core::cat(", \"mtp_idx\": ", record.layer.mtp);
  text_ += ", \"top_indices\": [";
  std::vector<int32_t> own(static_cast<size_t>(record.topk));
  for (int64_t token = 0; token < record.tokens; ++token) {
    std::copy_n(record.experts.begin() + token * record.topk, record.topk, own.begin());
    std::ranges::sort(own);
    text_ += token == 0 ? "[" : ", [";
    for (size_t i = 0; i < own.size(); ++i) {
      if (i > 0) text_ += ", ";
      text_ += std::to_string(own[i]);
    }
    text_ += ']';
  }
  text_ += "]}\n";
}

void RoutingTrace::end_step(int64_t step) {
  if (steps_left_ == 0) return;
  text_.clear();
  for (const Record& record : records_) write_line(step, record);
  records_.clear();
  try {
    file_.pwrite(std::as_bytes(std::span(text_)), size_bytes_);
    size_bytes_ += static_cast<int64_t>(text_.size());
    if (steps_left_ != INT64_MAX && --steps_left_ == 0) file_.close();
  } catch (const core::Error& e) {
    core::log_warning("train.routing", core::cat("the routing trace ends at iteration ", step, ": ", e.what()));
    steps_left_ = 0;
  }
}

}  // namespace ms::train
