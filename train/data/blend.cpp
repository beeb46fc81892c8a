// Parses and computes --data-path and --split.

#include <cmath>
#include <cstdlib>

#include "core/error.h"
#include "train/data/build_datasets.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

std::optional<double> parse_double(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

// numpy.sum of float64: eight running sums for 8 values or more; halves above 128.
double pairwise_sum(std::span<const double> values) {
  if (values.size() < 8) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() > 128) {
    const size_t half = values.size() / 2 / 8 * 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  std::array<double, 8> r{};
  for (size_t i = 0; i < 8; ++i) r[i] = values[i];
  size_t i = 8;
  for (; i + 8 <= values.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) r[j] += values[i + j];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

}  // namespace

std::vector<double> normalize_weights(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> out(weights.begin(), weights.end());
  for (double& weight : out) weight /= sum;
  return out;
}

Blend parse_blend(const std::vector<std::string>& values, std::string_view flag) {
  Blend blend;
  size_t numbers = 0;
  const bool even = values.size() % 2 == 0;
  if (even) {
    for (size_t i = 0; i < values.size(); i += 2) numbers += parse_double(values[i]) ? 1 : 0;
  }
  if (numbers == 0) {
    blend.prefixes = values;
  } else if (numbers * 2 != values.size()) {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", values, ": ", numbers, " weights for ", values.size() / 2,
                                                 " data sets. Give weight1 P1 weight2 P2.., or prefixes alone"));
  } else {
    for (size_t i = 0; i < values.size(); i += 2) {
      blend.weights.push_back(*parse_double(values[i]));
      blend.prefixes.push_back(values[i + 1]);
      if (!(blend.weights.back() > 0)) {
        throw Error(ErrorCode::kInvalidArgument, cat(flag, ": the weight ", values[i], " of ", values[i + 1],
                                                     " must be above 0; leave the data set out instead"));
      }
    }
  }
  for (const std::string& prefix : blend.prefixes) {
    if (prefix.empty()) throw Error(ErrorCode::kInvalidArgument, cat(flag, ": a prefix is empty"));
  }
  if (blend.prefixes.size() >= 32767) {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, ": ", blend.prefixes.size(), " data sets; at most 32766"));
  }
  return blend;
}

SplitMatrix parse_split(std::string_view split) {
  // Quotes of a shell that reached the program, as "--split '99,1,0'" within an array does; Megatron reads past them.
  if (split.size() > 2 && split.front() == split.back() && (split.front() == '\'' || split.front() == '"')) {
    split = split.substr(1, split.size() - 2);
  }
  std::vector<double> shares;
  for (size_t begin = 0; begin <= split.size();) {
    const size_t end = std::min(split.find(',', begin), split.size());
    const auto share = parse_double(std::string(split.substr(begin, end - begin)));
    if (!share || *share < 0) shares.assign(4, 0);  // unreadable: refused below
    if (share) shares.push_back(*share);
    begin = end + 1;
  }
  double sum = 0;
  for (const double share : shares) sum += share;
  if (shares.size() > 3 || !(sum > 0)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--split ", split,
                                                 ": expected up to three shares, none negative and not all 0, such as "
                                                 "969,30,1"));
  }
  shares.resize(3, 0.0);
  shares = normalize_weights(shares);
  SplitMatrix matrix;
  double begin = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double end = begin + shares[i];
    if (end > begin) matrix[i] = {begin, end};
    begin = end;
  }
  return matrix;
}

}  // namespace ms::train
