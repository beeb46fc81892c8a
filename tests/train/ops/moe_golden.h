// Cases of tests/data/train/moe_router.json: what megatron-core computes (bench/peers/moe_router.py).
#pragma once

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/ops/ops_fixture.h"
#include "train/ops/moe_router.h"

namespace ms::ops {

// Of scores over all experts.
inline RouterScores golden_scores(const nlohmann::json& given) {
  const std::string name = given.value("score_function", "softmax");
  if (name == "sigmoid") return RouterScores::kSigmoid;
  return name == "sqrtsoftplus" ? RouterScores::kSqrtSoftplus : RouterScores::kSoftmax;
}

inline core::Tensor matrix(Ops& ops, const nlohmann::json& rows) {
  std::vector<float> flat;
  for (const auto& row : rows) {
    for (const double value : row.get<std::vector<double>>()) flat.push_back(static_cast<float>(value));
  }
  const auto columns = static_cast<int64_t>(rows.at(0).size());
  return ops.tensor(flat, {static_cast<int64_t>(rows.size()), columns});
}

// Calls check for each case that `is_wanted`.
inline void for_each_golden(const std::function<bool(const nlohmann::json& golden)>& is_wanted,
                            const std::function<void(const nlohmann::json& golden)>& check) {
  std::ifstream file(MS_TEST_DATA "/train/moe_router.json");
  int seen = 0;
  const auto all = nlohmann::json::parse(file);
  for (const auto& [name, golden] : all.items()) {
    if (!is_wanted(golden)) continue;
    SCOPED_TRACE(name);
    check(golden);
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

inline reference::Array flat(const nlohmann::json& rows) {
  reference::Array all;
  for (const auto& row : rows) {
    for (const double value : row.get<std::vector<double>>()) all.push_back(value);
  }
  return all;
}

}  // namespace ms::ops
