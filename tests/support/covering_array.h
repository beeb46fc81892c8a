// Covering arrays of strength two: few combinations of the values of several axes, in which every pair of values of two
// axes occurs that occurs in any combination. Most faults of switches that meet need no more than two of them (Kuhn,
// Wallace and Gallo 2004), and the array grows with the two longest axes, not with the product of all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace ms::test {

using Combination = std::vector<size_t>;  // of each axis, the number of a value

// All that are allowed. sizes: how many values each axis has.
inline std::vector<Combination> all_combinations(const std::vector<size_t>& sizes,
                                                 const std::function<bool(const Combination&)>& allowed) {
  std::vector<Combination> all = {{}};
  for (const size_t size : sizes) {
    std::vector<Combination> longer;
    for (const Combination& shorter : all) {
      for (size_t value = 0; value < size; ++value) {
        longer.push_back(shorter);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  std::erase_if(all, [&](const Combination& one) { return !allowed(one); });
  return all;
}

// Axis and value, and a later axis and its value.
using ValuePair = std::tuple<size_t, size_t, size_t, size_t>;

inline std::set<ValuePair> value_pairs(const Combination& of) {
  std::set<ValuePair> pairs;
  for (size_t a = 0; a < of.size(); ++a)
    for (size_t b = a + 1; b < of.size(); ++b) pairs.emplace(a, of[a], b, of[b]);
  return pairs;
}

// Greedy: the next combination is one of those that have most pairs which none before it has: the first of those whose
// values have occurred least.
inline std::vector<Combination> covering_array(const std::vector<Combination>& all) {
  std::set<ValuePair> missing;
  for (const Combination& one : all) missing.merge(value_pairs(one));
  std::map<std::pair<size_t, size_t>, int64_t> uses;  // of axis and value
  std::vector<Combination> array;
  while (!missing.empty()) {
    const auto merit = [&](const Combination& of) {
      const std::set<ValuePair> pairs = value_pairs(of);
      const auto news = std::ranges::count_if(pairs, [&](const ValuePair& pair) { return missing.contains(pair); });
      int64_t used = 0;
      for (size_t axis = 0; axis < of.size(); ++axis) used += uses[{axis, of[axis]}];
      return std::pair(news, -used);
    };
    array.push_back(*std::ranges::max_element(all, {}, merit));
    for (const ValuePair& pair : value_pairs(array.back())) missing.erase(pair);
    for (size_t axis = 0; axis < array.back().size(); ++axis) ++uses[{axis, array.back()[axis]}];
  }
  return array;
}

}  // namespace ms::test
