// Does a run that loads one checkpoint continue as a run that loads another? Of any two formats, kind by kind: weights,
// master weights, moments, step, groups and schedule, random state, data position. Reads all tensors of both.
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
  kOnlyFirst,  // the second does not have it, or does not state it
  kOnlySecond,
  kNeither,
};

struct ResumeFinding {
  std::string_view
      kind;  // "weights", "master weights", "moments", "step", "groups and schedule", "rng", "data position"
  ResumeAnswer answer = ResumeAnswer::kNeither;
  std::string text;  // what it is, or the first differences
};

enum class ResumeVerdict : uint8_t {
  kContinuesExactly,
  kOtherSettings,   // the same weights and moments, but another step, rate, random state or data position
  kFreshOptimizer,  // the same weights, without these moments
  kOtherModel,
};

struct ResumeReport {
  std::vector<ResumeFinding> kinds;
  ResumeVerdict verdict = ResumeVerdict::kOtherModel;
};

// Master weights of fp32 parameters are these themselves: a checkpoint of FSDP and a bf16 run's with masters compare.
// A side that states no schedule and a constant schedule at its rate are the same.
ResumeReport diff_resume(Source& a, Source& b);

// "continues exactly", "continues with other settings", "continues with a fresh optimizer", "is another model".
std::string_view verdict_text(ResumeVerdict verdict);
std::string_view answer_text(ResumeAnswer answer);
// {"verdict": .., "kinds": [{"kind", "answer", "text"}]}
nlohmann::json to_json(const ResumeReport& report);

// What the optimizers' settings of two checkpoints contradict each other in: step, lr, betas, eps and weight decay of
// each group, and the schedule. What only one of them states is no contradiction. Empty if one has no optimizer state.
std::vector<std::string> settings_differences(const Source& a, const Source& b);

}  // namespace ms::ckpt
