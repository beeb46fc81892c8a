#include "ckpt/prove_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ckpt/detail/diagnose.h"
#include "core/io/json.h"

namespace ms::ckpt {

using core::cat;
using nlohmann::json;

json proof_json(const ProofReport& report) {
  json faults = json::array(), tensors = json::array();
  for (const Fault& fault : report.faults) {
    faults.push_back({{"kind", fault_name(fault.kind)},
                      {"tensor", fault.tensor},
                      {"role", core::role_name(fault.role)},
                      {"place", fault.place},
                      {"text", fault.text}});
  }
  for (const ProvedTensor& tensor : report.tensors) {
    tensors.push_back({{"name", tensor.key},
                       {"role", core::role_name(tensor.role)},
                       {"dtype", core::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"equal", tensor.equal},
                       {"logical_xxh3", core::hex16(tensor.logical_xxh3)},
                       {"min", tensor.min},
                       {"max", tensor.max},
                       {"mean", tensor.mean},
                       {"rms", tensor.rms},
                       {"zeros", tensor.zeros},
                       {"nans", tensor.nans},
                       {"infinities", tensor.infinities}});
  }
  return {{"ok", report.faults.empty()},  {"faults", std::move(faults)}, {"summary", report.summary},
          {"dropped", report.dropped},    {"notes", report.notes},       {"elements", report.elements},
          {"tensors", std::move(tensors)}};
}

std::vector<std::string> statistics_lines(const ProofReport& report) {
  struct Siblings {
    int64_t tensors = 0, zeros = 0, not_finite = 0;
    double low_rms = 0, high_rms = 0, min = 0, max = 0;
  };
  std::vector<std::pair<std::string, Siblings>> lines;
  std::map<std::string, size_t> index;
  for (const ProvedTensor& tensor : report.tensors) {
    const std::string name = cat(detail::sibling_pattern(tensor.key), " (", core::role_name(tensor.role), ")");
    const auto [at, is_new] = index.emplace(name, lines.size());
    if (is_new) lines.push_back({name, {0, 0, 0, tensor.rms, tensor.rms, tensor.min, tensor.max}});
    Siblings& all = lines[at->second].second;
    ++all.tensors;
    all.zeros += tensor.zeros;
    all.not_finite += tensor.nans + tensor.infinities;
    all.low_rms = std::min(all.low_rms, tensor.rms);
    all.high_rms = std::max(all.high_rms, tensor.rms);
    all.min = std::min(all.min, tensor.min);
    all.max = std::max(all.max, tensor.max);
  }
  std::vector<std::string> texts;
  for (const auto& [name, all] : lines) {
    texts.push_back(cat(name, ": ", all.tensors, all.tensors == 1 ? " tensor, rms " : " tensors, rms ", all.low_rms,
                        all.low_rms == all.high_rms ? std::string() : cat(" to ", all.high_rms), ", values ", all.min,
                        " to ", all.max, ", ", all.zeros, " zeros",
                        all.not_finite == 0 ? std::string() : cat(", ", all.not_finite, " not finite")));
  }
  return texts;
}

}  // namespace ms::ckpt
