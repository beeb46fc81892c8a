// Compares two checkpoints of any formats: does a run that loads one continue as a run that loads the other? One
// finding per kind of state: weights, master weights, moments, step, groups and schedule, random state, data position.
// Reads all tensors of both.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

enum class ResumeAnswer : uint8_t {
  kSame,
  kDiffers,
  kOnlyFirst,  // the second lacks it or does not state it
  kOnlySecond,
  kNeither,
};

struct ResumeFinding {
  std::string_view
      kind;  // "weights", "master weights", "moments", "step", "groups and schedule", "rng", "data position"
  ResumeAnswer answer = ResumeAnswer::kNeither;
  std::string text;  // the value, or the first differences
};

enum class ResumeVerdict : uint8_t {
  kContinuesExactly,
  kOtherSettings,   // same weights and moments, but another step, rate, random state or data position
  kFreshOptimizer,  // same weights, but the moments differ or are missing
  kOtherModel,
};

struct ResumeReport {
  std::vector<ResumeFinding> kinds;
  ResumeVerdict verdict = ResumeVerdict::kOtherModel;
};

// The master weights of fp32 parameters are the parameters: an FSDP checkpoint can be compared with that of a bf16 run
// with masters. A side without a schedule equals a side with a constant schedule at the same rate. SGD without momentum
// has no moments to continue from, and needs none.
ResumeReport diff_resume(Source& a, Source& b);

// "continues exactly", "continues with other settings", "continues with a fresh optimizer", "is another model".
std::string_view verdict_text(ResumeVerdict verdict);
std::string_view answer_text(ResumeAnswer answer);
// {"verdict": .., "kinds": [{"kind", "answer", "text"}]}
nlohmann::json to_json(const ResumeReport& report);

// Contradictions between the optimizer settings of two checkpoints: step, lr, betas, eps, momentum and weight decay of
// each group, and the schedule. A value that only one of them has is not a contradiction. Empty if one has no optimizer
// state.
std::vector<std::string> settings_differences(const Source& a, const Source& b);

}  // namespace ms::ckpt
