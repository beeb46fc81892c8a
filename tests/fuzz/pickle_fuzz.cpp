// convert/torch/pickle.h: a pickle in memory; every value is visited.
#include <string>
#include <unordered_set>
#include <vector>

#include "convert/torch/pickle.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  using convert::PickleKind;
  using convert::PickleValue;
  fuzz::read_or_refuse([&] {
    const convert::Pickle pickle(std::string(fuzz::text_of(data, size)), "fuzz");
    fuzz::require(pickle.end() <= size, "the pickle ends in its bytes");
    fuzz::read_or_refuse([&] { pickle.root().text(); });
    fuzz::read_or_refuse([&] { pickle.root().pairs(); });
    std::unordered_set<uint32_t> seen;
    std::vector<PickleValue> waiting = {pickle.root()};
    while (!waiting.empty()) {
      const PickleValue value = waiting.back();
      waiting.pop_back();
      if (!seen.insert(value.id()).second) continue;
      switch (value.kind()) {
        case PickleKind::kSymbol:
          value.module();
          [[fallthrough]];
        case PickleKind::kLong:
        case PickleKind::kString:
        case PickleKind::kBytes:
          fuzz::require(value.text().size() <= size, "texts lie in the pickle");
          break;
        case PickleKind::kNone:
        case PickleKind::kBool:
          break;
        case PickleKind::kInt:
        case PickleKind::kFloat:
          value.real();
          break;
        default:
          for (const PickleValue item : value.items()) waiting.push_back(item);
      }
      if (!value.is(PickleKind::kCall)) continue;
      waiting.push_back(value.callee());
      for (const PickleValue item : value.arguments()) waiting.push_back(item);
      if (const auto state = value.state()) waiting.push_back(*state);
    }
  });
  return 0;
}
