#include "convert/megatron/window_size.h"

#include <cstdint>
#include <vector>

#include "core/error.h"

namespace ms::convert {

void take_window(const MegatronArgs& args, core::TransformerConfig& model) {
  if (!args.is_set("window_size")) return;
  const PickleValue value = *args.find("window_size");
  std::vector<int64_t> sizes;
  if (value.is(PickleKind::kList) || value.is(PickleKind::kTuple)) {
    for (const PickleValue item : value.items())
      sizes.push_back(item.is(PickleKind::kInt) ? item.integer() : INT64_MAX);
  }
  if (sizes.size() != 2 || sizes[0] < -1 || sizes[0] >= INT32_MAX || sizes[1] < -1 || sizes[1] > 0) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat(args.where(), ": args.window_size is set, and not to (keys before, 0)"));
  }
  model.sliding_window = sizes[0] + 1;
}

}  // namespace ms::convert
